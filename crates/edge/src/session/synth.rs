//! Generated responses: refusals, replies to purges, and responses of `vcl_synth`.

use std::sync::Arc;

use thalweg_http::cache_status::CacheStatus;
use thalweg_http::{Fields, Method, RequestHead, ResponseHead, Version, date, framing, status};
use thalweg_policy::Sub;
use thalweg_policy::step::Action;
use thalweg_record::CacheResult;

use super::policy::Heads;
use super::{FAILED, Session, Step};
use crate::clock::now_ms;
use crate::refusal::Refusal;
use crate::sent::Sent;
use crate::transport::{Outgoing, ReplyHead};

/// Methods served without a policy.
pub(super) const ALLOWED: &str = "GET, HEAD, POST, PUT, DELETE, PATCH, OPTIONS";

/// Reasons for the edge to generate a response that a policy may change.
#[derive(Debug)]
pub(super) enum Synth {
    Refused(Refusal),
    /// The policy returned `synth`.
    Chosen {
        status: u16,
        reason: Option<Vec<u8>>,
    },
}

/// A response that the edge generates.
#[derive(Debug)]
pub(super) struct GeneratedResponse {
    pub(super) status: u16,
    /// Reason phrase, if it differs from the status's standard one.
    pub(super) reason: Option<Arc<str>>,
    pub(super) fields: Fields,
    /// Whether a policy wrote the fields, so that the client gets exactly these.
    pub(super) by_policy: bool,
    pub(super) content: Vec<u8>,
    pub(super) cache_status: Option<CacheStatus<'static>>,
    /// Cache result, for the record.
    pub(super) cache: CacheResult,
    /// Detail of the cache result, for the record.
    pub(super) detail: Option<&'static str>,
    pub(super) closes: bool,
}

impl Default for GeneratedResponse {
    fn default() -> Self {
        Self {
            status: 500,
            reason: None,
            fields: Fields::new(),
            by_policy: false,
            content: Vec::new(),
            cache_status: None,
            cache: CacheResult::Error,
            detail: None,
            closes: false,
        }
    }
}

impl GeneratedResponse {
    /// Creates the response to a refused request.
    pub(super) fn refused(refusal: &Refusal) -> Self {
        let mut fields = own_fields("text/plain; charset=utf-8");
        // Players run on other origins. The error reveals nothing that other clients cannot see,
        // and without the status a player cannot distinguish an invalid range from a dead edge.
        fields.push("Access-Control-Allow-Origin", "*");
        if refusal.status == 405 {
            fields.push("Allow", ALLOWED);
        }
        let content = format!("{} {}: {}\n", refusal.status, status::reason(refusal.status), refusal.reason);
        let cache_status = CacheStatus {
            forward: refusal.forward,
            forward_status: refusal.forward_status,
            collapsed: refusal.collapsed,
            detail: Some(refusal.reason),
            ..CacheStatus::default()
        };
        Self {
            status: refusal.status,
            fields,
            content: content.into_bytes(),
            cache_status: Some(cache_status),
            detail: Some(refusal.reason),
            ..Self::default()
        }
    }
}

impl<O: Outgoing> Session<'_, O> {
    /// Runs `vcl_synth`, if there is a policy; otherwise sends the refusal unchanged.
    pub(super) fn synth(&mut self, synth: Synth) -> Step {
        let Some(policy) = &mut self.policy else {
            let Synth::Refused(refusal) = synth else {
                return Step::Generated(GeneratedResponse::refused(&FAILED));
            };
            return Step::Generated(GeneratedResponse::refused(&refusal));
        };
        policy.client.body = None;
        let (status, reason, refused) = match synth {
            Synth::Refused(refusal) => {
                (refusal.status, Some(refusal.reason.as_bytes().to_vec()), Some(refusal.reason))
            }
            Synth::Chosen { status, reason } => (status, reason, None),
        };
        let reason =
            reason.and_then(|text| status::unusual_reason(status % 1000, &String::from_utf8_lossy(&text)));
        let mut resp = ResponseHead { status, reason, ..ResponseHead::default() };
        resp.fields.push("Date", date::format(now_ms() / 1000));
        match self.run(Sub::Synth, Heads { resp: Some(&mut resp), ..Heads::default() }) {
            Some(Action::Deliver) => {}
            Some(Action::Restart) => return Step::Restart,
            _ => return Step::Generated(GeneratedResponse::refused(&FAILED)),
        }
        let closes = !framing::keep_alive(Version::Http11, &resp.fields);
        resp.fields.remove("content-length");
        resp.fields.remove_hop_by_hop();
        let body = self.policy.as_mut().and_then(|policy| policy.client.body.take());
        Step::Generated(GeneratedResponse {
            status: resp.status % 1000,
            reason: resp.reason,
            fields: resp.fields,
            by_policy: true,
            content: body.unwrap_or_default(),
            cache_status: None,
            cache: if refused.is_some() { CacheResult::Error } else { CacheResult::Synth },
            detail: refused,
            closes,
        })
    }

    pub(super) async fn send_own(&mut self, own: GeneratedResponse) -> Sent {
        let closes = self.closes();
        send(self.out, own, self.received, closes).await
    }
}

/// Sends a generated response to `request`.
pub(super) async fn send(
    out: &mut impl Outgoing,
    own: GeneratedResponse,
    request: &RequestHead,
    closes: bool,
) -> Sent {
    let has_content = request.method != Method::Head && !status::is_bodyless(own.status);
    out.begin(&ReplyHead {
        status: own.status,
        reason: own.reason.as_deref(),
        fields: &own.fields,
        by_policy: own.by_policy,
        withheld: None,
        age_s: None,
        length: Some(own.content.len() as u64),
        has_trailer: false,
        content_range: None,
        cache_status: own.cache_status,
        closes: closes || own.closes,
    });
    if has_content {
        out.buffer(&own.content);
    }
    let cut = out.finish(None).await.err();
    Sent {
        status: own.status,
        cache: own.cache,
        detail: own.detail,
        bytes: if has_content && cut.is_none() { own.content.len() as u64 } else { 0 },
        first_byte: out.first_byte(),
        cut,
    }
}

/// Returns the fields of every generated response.
pub(super) fn own_fields(content_type: &str) -> Fields {
    let mut fields = Fields::new();
    fields.push("Date", date::format(now_ms() / 1000));
    fields.push("Content-Type", content_type);
    fields.push("Cache-Control", "no-store");
    fields
}
