//! What the controller tells of itself over HTTP, as far as it is used here.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use thalweg_http::ResponseHead;

use crate::load::Failure;
use crate::load::connection::{Connection, Timeouts};
use crate::load::response::Sink;

/// What an answer may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of an answer.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// The stage of a network of which nothing is shown yet.
const ON_TRIAL: &str = "on trial";

/// A round.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Round {
    /// The end of its window.
    pub unix_s: u64,
    /// Networks that are steered from it on.
    pub steered: u64,
    /// Of those, how many were before.
    pub kept: u64,
    /// Who entered, and why.
    pub entered: Vec<Change>,
    /// Who left, and why.
    pub left: Vec<Change>,
    /// Who was shown to be helped.
    pub proved: Vec<String>,
    /// Of the kernel, bytes per second.
    pub delivery_rate: Arms,
    /// Of responses, bytes per second.
    pub goodput: Arms,
}

/// A network that has entered or left.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Change {
    /// The network.
    pub prefix: String,
    /// In the controller's words.
    pub reason: String,
}

/// Percentiles over connections of a window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
pub struct Arms {
    /// Of all connections.
    pub all: Option<Lows>,
}

/// The low ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
pub struct Lows {
    /// The 5th.
    pub p5: f64,
    /// The 10th.
    pub p10: f64,
}

/// What is known of a network.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Explained {
    /// Why it is or is not steered, in the controller's word.
    pub reason: Option<String>,
    /// The same in a sentence.
    pub said: Option<String>,
    /// What its trial has shown, while it is steered.
    pub entry: Option<Trial>,
}

/// What a trial has shown.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Trial {
    /// Connections that were steered.
    pub treated: u64,
    /// Connections that were held out.
    pub held_out: u64,
    stage: String,
    /// On goodput, percent.
    pub goodput: Option<Percent>,
    /// On the share of bytes that was sent again, points.
    pub retransmitted: Option<Points>,
}

/// An effect with its interval, which holds at every look.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub struct Percent {
    /// The estimate.
    pub percent: f64,
    /// The least.
    pub low: f64,
    /// The most.
    pub high: f64,
}

/// The same of a share.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub struct Points {
    /// The estimate.
    pub points: f64,
    /// The least.
    pub low: f64,
    /// The most.
    pub high: f64,
}

impl Explained {
    /// Takes the newer one's place. What was shown last stays when the trial is over; once it is shown to be helped, the evidence of
    /// connections begins anew, and theirs on the trial stays.
    pub(super) fn note(&mut self, newer: Self) {
        let entry = match (self.entry.take(), newer.entry) {
            (before, None) => before,
            (Some(before), Some(now)) if now.stage != ON_TRIAL => {
                Some(Trial { goodput: now.goodput.or(before.goodput), stage: now.stage, ..before })
            }
            (_, now) => now,
        };
        *self = Self { entry, ..newer };
    }
}

#[derive(Deserialize)]
struct Rounds {
    rounds: Vec<Round>,
}

/// A controller that is asked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Controller<'a> {
    pub(super) address: SocketAddr,
    pub(super) pop: &'a str,
}

impl Controller<'_> {
    /// The rounds whose windows ended later than that.
    pub(super) async fn rounds(self, since_unix_s: u64) -> anyhow::Result<Vec<Round>> {
        let target = format!("/rounds?pop={}&since={since_unix_s}", self.pop);
        Ok(self.get::<Rounds>(&target).await?.map(|told| told.rounds).unwrap_or_default())
    }

    /// What is known of a network; nothing before the first round.
    pub(super) async fn explain(self, prefix: &str) -> anyhow::Result<Explained> {
        let target = format!("/explain?pop={}&prefix={}", self.pop, prefix.replace('/', "%2F"));
        Ok(self.get(&target).await?.unwrap_or_default())
    }

    /// Nothing where it knows nothing.
    async fn get<T: DeserializeOwned>(self, target: &str) -> anyhow::Result<Option<T>> {
        let timeouts = Timeouts { connect: TIMEOUT, head: TIMEOUT, content: TIMEOUT };
        let mut connection = Connection::open(&self.address.into(), None, timeouts)
            .await
            .map_err(|failure| anyhow::anyhow!("the controller: {failure}"))?;
        let request = format!("GET {target} HTTP/1.1\r\nHost: controller\r\nConnection: close\r\n\r\n");
        let mut content = Content::default();
        let answered = connection.exchange(request.as_bytes(), &mut content).await;
        let exchange =
            answered.map_err(|broken| anyhow::anyhow!("the controller's {target}: {}", broken.failure))?;
        match exchange.status {
            200 => {}
            404 => return Ok(None),
            status => bail!("the controller's {target}: status {status}"),
        }
        ensure!(!content.is_too_long, "the controller's {target} has over {ANSWER_BYTES_MAX} bytes");
        serde_json::from_slice(&content.bytes).with_context(|| format!("the controller's {target}"))
    }
}

/// Keeps content.
#[derive(Debug, Default)]
struct Content {
    bytes: Vec<u8>,
    is_too_long: bool,
}

impl Sink for Content {
    fn head(&mut self, _: &ResponseHead) -> Result<(), Failure> {
        Ok(())
    }

    fn is_reading(&self) -> bool {
        true
    }

    fn read(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.is_too_long |= self.bytes.len() + bytes.len() > ANSWER_BYTES_MAX;
        if !self.is_too_long {
            self.bytes.extend_from_slice(bytes);
        }
        Ok(())
    }

    fn arrived(&mut self, _: Instant, _: u64) {}

    fn chunk(&mut self, _: Instant) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(stage: &str, treated: u64, percent: Option<f64>) -> Explained {
        let goodput = percent.map(|percent| Percent { percent, low: percent - 9.0, high: percent + 9.0 });
        let entry = Trial { treated, held_out: 7, stage: stage.into(), goodput, retransmitted: None };
        Explained { reason: Some("slow".into()), said: None, entry: Some(entry) }
    }

    #[test]
    fn what_was_shown_last_stays() {
        let mut seen = Explained::default();
        seen.note(explained(ON_TRIAL, 40, Some(80.0)));
        seen.note(explained("shown to be helped", 3, None));
        let entry = seen.entry.clone().expect("it stays");
        assert_eq!((entry.treated, entry.goodput.map(|goodput| goodput.percent)), (40, Some(80.0)));
        seen.note(explained("shown to be helped", 5, Some(90.0)));
        seen.note(Explained { reason: Some("cooling_off".into()), ..Explained::default() });
        let entry = seen.entry.expect("it stays");
        assert_eq!((entry.treated, entry.goodput.map(|goodput| goodput.percent)), (40, Some(90.0)));
        assert_eq!(seen.reason.as_deref(), Some("cooling_off"));
    }
}
