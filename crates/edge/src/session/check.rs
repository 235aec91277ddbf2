//! Check: refuses requests, or responds to them, without a look-up. The checks are the same with
//! and without a policy, except for methods that only a policy can handle.

use thalweg_http::framing::FramingError;
use thalweg_http::{Framing, Method};
use thalweg_record::CacheResult;

use super::policy::ClientSide;
use super::synth::{ALLOWED, GeneratedResponse, own_fields};
use super::{Session, Step, is_read};
use crate::publish::publishes;
use crate::refusal::Refusal;
use crate::transport::{Incoming, Outgoing};
use crate::warnings::{WarningLimit, warn_limited};

/// Rate limit for warnings about request loops, which any client can trigger.
static LOOPS: WarningLimit = WarningLimit::new();

/// Maximum size, in bytes, of the content of a GET or HEAD request that is read and discarded. If
/// the content is larger, the request is refused and the connection closes.
const CONTENT_BYTES_MAX: u64 = 64 * 1024;

const FRAMING: &str = "the request length is ambiguous";
const NOT_ALLOWED: Refusal = Refusal::by_edge(405, "the method is not allowed here");
const TOO_LARGE: Refusal = Refusal::by_edge(413, "the request content is too large for GET or HEAD");
const NO_PUBLISHING: Refusal =
    Refusal::by_edge(403, "publishing through an edge is refused: push to the origin's ingest listener");
const LOOP: Refusal = Refusal::by_edge(508, "the request has already passed through this node");
const NOT_SERVED: Refusal = Refusal::by_edge(421, "this host is not served here");
const NO_PURGE: Refusal = Refusal::by_edge(403, "this address may not purge");

/// Refuses a request whose content cannot be delimited.
pub(super) fn unframed(error: &FramingError) -> Step {
    Step::Generated(GeneratedResponse::refused(&Refusal::by_edge(error.status(), FRAMING)))
}

impl<O: Outgoing> Session<'_, O> {
    pub(super) async fn check(&mut self, incoming: &mut impl Incoming) -> Step {
        let loaded = self.worker.policies().active();
        let refused = self.refuse_before_content(loaded.is_some());
        if let Some(refusal) = refused {
            return Step::Generated(GeneratedResponse::refused(&refusal));
        }
        // A policy may read the content of a PURGE.
        let discards =
            is_read(self.received.method) || self.received.method == Method::Purge && loaded.is_none();
        if discards
            && self.has_content()
            && let Err(refusal) = Box::pin(self.discard_content(incoming)).await
        {
            return Step::Generated(GeneratedResponse::refused(&refusal));
        }
        if !self.worker.serves(self.received.authority.host()) {
            return Step::Generated(GeneratedResponse::refused(&NOT_SERVED));
        }
        if self.received.method == Method::Purge && loaded.is_none() && !self.may_purge() {
            return Step::Generated(GeneratedResponse::refused(&NO_PURGE));
        }
        if self.received.method == Method::Options
            && let Some(answer) = self.count_forward()
        {
            return answer;
        }
        if let Some(loaded) = loaded {
            let policy = ClientSide::new(loaded, self.received.clone(), self.context());
            self.policy = Some(Box::new(policy));
        }
        Step::Receive
    }

    fn refuse_before_content(&self, is_policed: bool) -> Option<Refusal> {
        if self.received.method == Method::Trace && !is_policed {
            return Some(NOT_ALLOWED);
        }
        let publishes = publishes(self.received.method, self.received.target.path());
        if publishes && !self.worker.config().forwards_ingest {
            return Some(NO_PUBLISHING);
        }
        if self.worker.node().has_seen(&self.received.fields) {
            let (host, target) = (self.received.authority.as_str(), &self.received.target);
            warn_limited!(LOOPS, host, %target, "request loop");
            return Some(LOOP);
        }
        None
    }

    /// Reads and discards the content of a GET or HEAD request, which has no defined semantics.
    /// Sends 100 Continue to a client that waits for one: the content may be short, and a refusal
    /// would close the connection.
    async fn discard_content(&mut self, incoming: &mut impl Incoming) -> Result<(), Refusal> {
        if matches!(self.framing, Framing::Length(length) if length > CONTENT_BYTES_MAX) {
            return Err(TOO_LARGE);
        }
        if self.expects_continue()? && !incoming.has_arrived() {
            self.out.proceed().await;
        }
        if !incoming.discard(CONTENT_BYTES_MAX, self.worker.timeouts().head).await? {
            return Err(TOO_LARGE);
        }
        self.framing = Framing::None;
        // The content is discarded, so neither a policy nor a backend may expect it.
        for name in ["content-length", "transfer-encoding", "expect"] {
            self.received.fields.remove(name);
        }
        Ok(())
    }

    /// Decrements Max-Forwards of an OPTIONS request, or responds to the request if the value is 0
    /// (RFC 9110 §7.6.2).
    fn count_forward(&mut self) -> Option<Step> {
        let fields = &mut self.received.fields;
        let left: u64 = fields.get_str("max-forwards")?.parse().ok()?;
        if let Some(left) = left.checked_sub(1) {
            fields.set("Max-Forwards", left.to_string());
            return None;
        }
        let mut fields = own_fields("text/plain; charset=utf-8");
        fields.push("Allow", ALLOWED);
        Some(Step::Generated(GeneratedResponse {
            status: 200,
            fields,
            cache: CacheResult::Synth,
            ..GeneratedResponse::default()
        }))
    }

    fn may_purge(&self) -> bool {
        self.worker.config().purge_from.iter().any(|prefix| prefix.contains(self.client.address.ip()))
    }
}
