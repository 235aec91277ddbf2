//! Failed fetches: `vcl_backend_error`, and the responses that a policy generates.

use bytes::Bytes;
use thalweg_cache::freshness::Freshness;
use thalweg_cache::{Failure, Fill, Head, SynthReason};
use thalweg_http::{ResponseHead, date, status};
use thalweg_policy::Sub;
use thalweg_policy::step::Action;

use super::judge::{Candidate, judge};
use super::outcome::Outcome;
use super::policy::Preset;
use super::request::Request;
use crate::clock::now_ms;
use crate::worker::Worker;

/// TTL, grace and keep, in seconds, preset for an error response that other requests are waiting
/// for, as in Varnish.
const AWAITED_ERROR_S: (f64, f64, f64) = (1.0, 5.0, 5.0);

/// Reasons for the policy to generate a response.
pub(super) enum MadeBy {
    /// The policy returned `error` with this status and reason.
    Policy(u16, Option<Vec<u8>>),
    /// The fetch failed.
    Failure,
}

/// Returns the outcome of a fetch without a response. Backend addresses are only logged: neither
/// the policy nor the client may see them.
pub(super) fn on_failure(worker: &Worker, fill: &Fill, request: &mut Request, failure: Failure) -> Outcome {
    if request.policy.is_none() || request.serves_stale_on_error(now_ms()) {
        return Outcome::Failed(failure);
    }
    tracing::debug!(target = %request.head.target, %failure, "fetch failed");
    request.log_failure(&failure);
    generate(worker, fill, request, MadeBy::Failure)
}

/// Returns the outcome when the policy abandons or fails the fetch.
pub(super) fn abandoned(action: &Action) -> Outcome {
    let reason = if matches!(action, Action::Abandon) {
        "the policy abandoned the fetch"
    } else {
        "the policy failed"
    };
    Outcome::Failed(Failure::Policy(reason))
}

/// Lets the policy generate a response in place of the backend's.
pub(super) fn generate(worker: &Worker, fill: &Fill, request: &mut Request, made_by: MadeBy) -> Outcome {
    let now_ms = now_ms();
    let is_refresh = request.stale().is_some();
    let (status, reason, made) = match made_by {
        MadeBy::Policy(status, reason) => (status, reason, SynthReason::Chosen),
        MadeBy::Failure => (503, Some(b"Backend fetch failed".to_vec()), SynthReason::Failed),
    };
    let Some(policy) = &mut request.policy else { return Outcome::Failed(Failure::Status(status)) };
    let reason =
        reason.and_then(|text| status::unusual_reason(status % 1000, &String::from_utf8_lossy(&text)));
    let mut beresp = ResponseHead { status, reason, ..ResponseHead::default() };
    beresp.fields.push("Date", date::format(now_ms / 1000));
    // Waiting requests get the error too, as in Varnish; otherwise all would try the backend at
    // once. The error does not replace a stale response, which has its own grace and validator.
    let is_awaited = !is_refresh && !policy.fetch.is_bgfetch && fill.readers() > 1;
    let fetch = &mut policy.fetch;
    (fetch.ttl_s, fetch.grace_s, fetch.keep_s) = if is_awaited { AWAITED_ERROR_S } else { (0.0, 0.0, 0.0) };
    fetch.age_s = 0.0;
    (fetch.uncacheable, fetch.was_304, fetch.body) = (fetch.is_pass, false, None);
    match policy.run(Sub::BackendError, &mut request.head, Some(&mut beresp), worker.cache()) {
        Action::Deliver => {}
        Action::Retry => return Outcome::Again,
        action => return abandoned(&action),
    }
    let content = Bytes::from(policy.fetch.body.take().unwrap_or_default());
    let candidate = Candidate { head: beresp, length: Some(content.len() as u64), sliced: false };
    let head = judge(&request.head, candidate, &worker.config().rules, now_ms);
    let freshness = Freshness { born_ms: now_ms, ..Freshness::default() };
    let preset = Preset { freshness, ttl_s: 0.0, now_ms };
    let head = policy.apply_to_head(head, &preset, request.head.method, false);
    Outcome::Made(Head { made: Some(made), ..head }, content)
}
