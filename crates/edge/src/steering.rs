//! Who decides on the congestion control of a client's connection, and what was decided.
//!
//! The policy acts at once, each time that it asks, as on Varnish and Fastly. Below it an arm of an experiment, a rule,
//! then the configured default each decide once a connection, and only where nobody stronger has: a connection is
//! upgraded, never flapped between its requests. Arms and rules wait until there is something to send, since most
//! connections of a player carry a playlist and go.
//!
//! **Invariant:** an algorithm that the kernel refuses changes nothing: the connection goes on with what it has.
//! **Invariant:** who has decided is who set what was then read back.

use std::fmt::Write as _;
use std::os::fd::BorrowedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use thalweg_policy::task::Tag;
use thalweg_record::{Decider, LineTag, Steered};
use thalweg_tcp::congestion::{self, CongestionControl};

mod bundle;
mod socket;

pub(crate) use bundle::Response;
pub(crate) use socket::Socket;

/// Refused names that are told in the log, each once; all are counted.
const NAMES_TOLD_MAX: usize = 16;

/// What a connection knows of its congestion control. Every idle connection has one.
#[derive(Debug, Default)]
pub(crate) struct Steering {
    /// As the kernel had it when the connection was accepted.
    start: Option<CongestionControl>,
    /// The strongest who has set an algorithm.
    decided: Option<Decider>,
    /// A bit for each decider that has asked for one.
    asked: u8,
    /// The one under way among them.
    requests: u32,
    /// Content of all responses so far.
    sent_bytes: u64,
    /// TCP segments that had been sent again when a policy last looked, and when it last looked in an earlier request.
    retrans_seen: AtomicU32,
    retrans_before: u32,
    /// What a bundle has had to do with it; boxed, as with most connections none has.
    steered: Option<Box<Steered>>,
}

const _: () = assert!(size_of::<Steering>() <= 48);

/// An algorithm that somebody wants for a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wish {
    pub(crate) by: Decider,
    /// `None`: it is to stay as it is.
    pub(crate) algorithm: Option<CongestionControl>,
    /// The length of the response's content, if it is known.
    pub(crate) response_bytes: Option<u64>,
    /// A rule or an experiment waits for a response of this size, or for so much sent.
    pub(crate) size_bytes_min: u64,
}

impl Wish {
    /// Of somebody who waits for nothing.
    fn now(by: Decider, algorithm: CongestionControl) -> Self {
        Self { by, algorithm: Some(algorithm), response_bytes: None, size_bytes_min: 0 }
    }
}

impl Steering {
    /// Of a connection that was just accepted, with the configured default set.
    pub(crate) fn begin(fd: BorrowedFd<'_>, default: Option<CongestionControl>, common: &Common) -> Self {
        let mut steering = Self::new(congestion::get(fd).ok());
        if let Some(algorithm) = default {
            // A refusal has been counted and told.
            let _ = steering.grant(fd, Wish::now(Decider::Default, algorithm), common);
        }
        steering
    }

    fn new(start: Option<CongestionControl>) -> Self {
        Self { start, ..Self::default() }
    }

    /// Another request has come.
    pub(crate) fn begin_request(&mut self) {
        self.requests = self.requests.saturating_add(1);
        self.retrans_before = *self.retrans_seen.get_mut();
    }

    /// A response has ended, with so much content sent.
    pub(crate) fn count_sent(&mut self, bytes: u64) {
        self.sent_bytes = self.sent_bytes.saturating_add(bytes);
    }

    /// What the connection had when it was accepted.
    pub(crate) fn start(&self) -> Option<CongestionControl> {
        self.start
    }

    /// Who has decided; where nobody has, it is what the system gave.
    pub(crate) fn decider(&self) -> Decider {
        self.decided.unwrap_or(Decider::Default)
    }

    /// Sets what is wished for, if it is due; whether it was.
    ///
    /// # Errors
    /// The kernel's refusal, which has been counted and told.
    pub(crate) fn grant(
        &mut self,
        fd: BorrowedFd<'_>,
        wish: Wish,
        common: &Common,
    ) -> Result<bool, thalweg_tcp::Error> {
        if !self.is_due(wish.by, wish.response_bytes, wish.size_bytes_min) {
            return Ok(false);
        }
        self.asked |= bit(wish.by);
        if let Some(algorithm) = wish.algorithm {
            congestion::choose(fd, algorithm)
                .inspect_err(|error| common.refuse(algorithm.as_str(), error))?;
            self.decided = self.decided.max(Some(wish.by));
        }
        Ok(true)
    }

    /// Whether `by` may decide now.
    fn is_due(&self, by: Decider, response_bytes: Option<u64>, size_bytes_min: u64) -> bool {
        self.is_open_to(by)
            && match by {
                Decider::Policy | Decider::Default => true,
                Decider::Rule | Decider::Experiment => {
                    response_bytes.unwrap_or(0).max(self.sent_bytes) >= size_bytes_min
                }
            }
    }

    /// Whether `by` may decide at all: nobody as strong has, and it was not asked yet.
    fn is_open_to(&self, by: Decider) -> bool {
        by == Decider::Policy || Some(by) > self.decided && self.asked & bit(by) == 0
    }
}

fn bit(by: Decider) -> u8 {
    1 << by as u8
}

/// What all connections of an edge share.
#[derive(Debug)]
pub(crate) struct Common {
    /// Rules and experiments that do not say otherwise wait for a response of this size, or for so much sent.
    size_bytes_min: u64,
    refused: AtomicU64,
    told: Mutex<Vec<String>>,
}

impl Common {
    pub(crate) fn new(size_bytes_min: u64) -> Self {
        Self { size_bytes_min, refused: AtomicU64::new(0), told: Mutex::default() }
    }

    /// How often an algorithm was asked for that could not be set.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Counts a refusal, and tells it if it is the first of this name.
    fn refuse(&self, name: &str, error: &thalweg_tcp::Error) {
        self.refused.fetch_add(1, Relaxed);
        let name = &name[..name.floor_char_boundary(congestion::NAME_BYTES_MAX + 1)];
        let mut told = self.told.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if told.len() < NAMES_TOLD_MAX && !told.iter().any(|known| known == name) {
            told.push(name.to_owned());
            tracing::warn!(
                error = chain(error),
                "congestion control not set; connections go on with what they have"
            );
        }
    }
}

/// An error and its causes on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        write!(text, ": {next}").expect("a String takes every write");
        cause = next.source();
    }
    text
}

/// What a policy's line is about, as records have it.
pub(crate) fn tag(tag: Tag) -> LineTag {
    match tag {
        Tag::Log => LineTag::Log,
        Tag::Error => LineTag::Error,
        Tag::Timestamp => LineTag::Timestamp,
        Tag::Acl => LineTag::Acl,
        Tag::FetchError => LineTag::FetchError,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails where something is not as it has to be")]
mod tests;
