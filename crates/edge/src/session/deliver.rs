//! Deliver: makes content readable, runs `vcl_deliver`, applies conditions and ranges, and selects
//! congestion control before the first byte.

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use thalweg_cache::{Failure, Head};
use thalweg_http::cache_status::Forward;
use thalweg_http::{Fields, Method, ResponseHead, Version, framing};
use thalweg_policy::Sub;
use thalweg_policy::step::Action;

use super::policy::Heads;
use super::{Session, Step};
use crate::CACHE_NAME;
use crate::clock::now_ms;
use crate::lookup::{Content, Found, MadeByPolicy, Part, Sliced, part};
use crate::policy::visible_head::visible_head;
use crate::refusal::Refusal;
use crate::steering::Response;
use crate::transport::Outgoing;

/// Maximum number of ranges sent per request from sliced content, because each may need fetches of
/// its own.
const SLICED_RANGES_MAX: usize = 4;

impl<O: Outgoing> Session<'_, O> {
    /// Prepares `found` for sending and selects the part to send.
    ///
    /// # Errors
    ///
    /// Returns the step to run instead.
    pub(super) async fn deliver(&mut self, found: &mut Found) -> Result<Part, Box<Step>> {
        self.open(found).await?;
        if let Some(action) = self.hook_deliver(found) {
            return Err(Box::new(self.divert(action)));
        }
        let part = self.choose(found).await.map_err(|failure| unreadable(found, &failure))?;
        // The selected part may have changed because of `vcl_deliver` or content that arrived in
        // the meantime.
        self.ready(found, first_byte(&part)).await?;
        self.follow_bundle(found, &part);
        Ok(part)
    }

    /// Waits until the first content to send can be read. Waits for slices and for the disk, but
    /// not for other content from a backend.
    async fn open(&mut self, found: &mut Found) -> Result<(), Box<Step>> {
        let (client, may_slice) = (self.client.address.ip(), self.search.may_slice);
        if let Some(sliced) =
            Sliced::for_found(self.worker, self.key, self.request(), client, found, may_slice)
        {
            Box::pin(self.open_sliced(found, sliced)).await?;
        }
        let first_byte = match found.is_passed || found.head.private.is_some() {
            true => Some(0),
            false => first_byte(&self.part(found)),
        };
        self.ready(found, first_byte).await
    }

    /// Waits until content from `first_byte` on can be read, if the response has content.
    async fn ready(&self, found: &mut Found, first_byte: Option<u64>) -> Result<(), Box<Step>> {
        let Some(first_byte) = first_byte.filter(|_| self.received.method != Method::Head) else {
            return Ok(());
        };
        found.content.seek(&(first_byte..u64::MAX));
        found.content.ready().await.map_err(|failure| unreadable(found, &failure))
    }

    async fn open_sliced(&mut self, found: &mut Found, sliced: Sliced) -> Result<(), Box<Step>> {
        let mut sliced = sliced.under(self.policy.as_ref().map(|policy| policy.backend_side(false)));
        if self.look_up_options().directives.only_if_cached && !sliced.is_stored(&found.head) {
            return Err(Box::new(Refusal::by_edge(504, "no stored response for the request").into()));
        }
        match sliced.open_first(&found.head).await {
            Ok(opened) => {
                found.read_from_slices(sliced, opened);
                Ok(())
            }
            // The backend has replaced this representation or cannot serve it in slices.
            Err(Failure::NotSliced(_)) => {
                self.search.may_slice &= found.head.sliced;
                Err(Box::new(Step::LookUp))
            }
            Err(Failure::Unreadable) => Err(Box::new(Step::LookUp)),
            Err(failure) => Err(Box::new(Refusal::failed(&failure, Forward::Partial).into())),
        }
    }

    /// Returns the part to send, as far as it can already be determined.
    fn part(&self, found: &Found) -> Part {
        part(self.request(), self.received.method, &found.head, found.content.progress())
    }

    /// Runs `vcl_deliver`, if the policy defines it. Returns the policy's action, or `None` to
    /// deliver the response.
    fn hook_deliver(&mut self, found: &mut Found) -> Option<Action> {
        let policy = self.policy.as_mut().filter(|policy| policy.defines(Sub::Deliver))?;
        policy.note_delivered(&found.freshness, found.head.private.is_some());
        let obj = visible_head(&found.head);
        let mut resp = whole_response(found);
        let heads = Heads { obj: Some(&obj), resp: Some(&mut resp), ..Heads::default() };
        let action = self.run(Sub::Deliver, heads)?;
        if action != Action::Deliver {
            return Some(action);
        }
        store_response_head(found, resp);
        None
    }

    /// Selects the part to send, waiting for content until it can be determined.
    async fn choose(&self, found: &mut Found) -> Result<Part, Failure> {
        if found.is_passed {
            return Ok(Part::Whole);
        }
        loop {
            match self.part(found) {
                // A passed response cannot be read twice. Sending all of it is permitted (RFC 9110
                // §14.2).
                Part::After(_) | Part::Ranges(_) if found.head.private.is_some() => return Ok(Part::Whole),
                // Each range may need slices of its own. Sending only some ranges is permitted (RFC
                // 9110 §15.3.7).
                Part::Ranges(mut ranges) if matches!(found.content, Content::Sliced(_)) => {
                    ranges.truncate(SLICED_RANGES_MAX);
                    return Ok(if ranges.len() == 1 {
                        Part::Range(ranges.swap_remove(0))
                    } else {
                        Part::Ranges(ranges)
                    });
                }
                Part::After(offset) => found.content.arrived(offset).await?,
                part => return Ok(part),
            }
        }
    }

    /// Lets the active bundle select the congestion control before content is sent, unless a
    /// decider with higher precedence has already done so. Only responses to GET and HEAD are
    /// steered, but the bytes of all responses count towards the minimum size.
    fn follow_bundle(&self, found: &Found, part: &Part) {
        if !self.is_read() {
            return;
        }
        if let Some(active) = &*self.worker.bundles().active() {
            let response = Response {
                client: self.client.address,
                // Experiments match the host sent by the client, even if a policy has rewritten it.
                host: self.received.authority.name(),
                bytes: self.content_bytes(found, part),
            };
            let mut steering = self.client.steering();
            let follow = |fd: BorrowedFd<'_>| {
                steering.follow(fd, &active.bundle, response, self.worker.steering());
                Ok(())
            };
            // If the connection is lost, the next write fails.
            let _ = self.out.socket().with_fd(follow);
        }
    }

    /// Returns the content length of `part` in bytes, if known.
    fn content_bytes(&self, found: &Found, part: &Part) -> Option<u64> {
        let length = |range: &Range<u64>| range.end - range.start;
        match part {
            _ if self.received.method == Method::Head => Some(0),
            Part::Whole | Part::After(_) => found.length(),
            Part::Range(range) => Some(length(range)),
            Part::Ranges(ranges) => Some(ranges.iter().map(length).sum()),
            Part::NotModified | Part::PreconditionFailed | Part::Unsatisfiable(_) => Some(0),
        }
    }
}

/// Returns the offset at which a part starts; `None` for a part without content.
fn first_byte(part: &Part) -> Option<u64> {
    match part {
        Part::Whole | Part::After(_) => Some(0),
        Part::Range(range) => Some(range.start),
        Part::Ranges(ranges) => ranges.first().map(|range| range.start),
        Part::NotModified | Part::PreconditionFailed | Part::Unsatisfiable(_) => None,
    }
}

/// Returns the next step if content fails before any of it is sent.
fn unreadable(found: &Found, failure: &Failure) -> Box<Step> {
    Box::new(match failure {
        // The stored response could not be read from disk and has already been removed. Another
        // look-up finds another response or fetches one.
        Failure::Unreadable => Step::LookUp,
        failure => found.refusal(failure).into(),
    })
}

/// Builds the response head for this client, before conditions and ranges are applied.
fn whole_response(found: &Found) -> ResponseHead {
    let now_ms = now_ms();
    let mut resp = visible_head(&found.head);
    let fields = &mut resp.fields;
    if found.is_fetcher {
        for (name, value) in found.head.withheld.iter() {
            fields.push(name, value);
        }
    }
    if let Some(age_s) = found.age_s(now_ms) {
        fields.push_number("Age", age_s);
    }
    found.status(now_ms).append_to(CACHE_NAME, fields);
    resp
}

/// Replaces the head of `found` with the one written by the policy, so that the client gets no
/// other fields.
fn store_response_head(found: &mut Found, resp: ResponseHead) {
    let ResponseHead { status, reason, mut fields, .. } = resp;
    let closes = !framing::keep_alive(Version::Http11, &fields);
    fields.remove("content-length");
    fields.remove_hop_by_hop();
    let withheld = Fields::new();
    let head = Head { status: status % 1000, reason, fields, withheld, ..Head::clone(&found.head) };
    let before = std::mem::replace(&mut found.head, Arc::new(head));
    found.by_policy = Some(MadeByPolicy { closes, before });
}
