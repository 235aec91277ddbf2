//! Response handling: evaluates a backend's response by its status, RFC 9111 and
//! `vcl_backend_response`.

use thalweg_cache::{Failure, Fill, Head, PassMark, Unshareable};
use thalweg_http::{Fields, RequestHead, reference};
use thalweg_policy::Sub;
use thalweg_policy::step::Action;

use super::error::{self, MadeBy};
use super::exchange::Exchange;
use super::judge::{self, Candidate, judge};
use super::outcome::Outcome;
use super::request::{Request, Want};
use super::slices;
use crate::clock::now_ms;
use crate::key::write_key;
use crate::slices::SliceRequest;
use crate::worker::Worker;

/// Evaluates the response of `exchange`, requested at `asked_ms`.
pub(super) fn respond(
    worker: &Worker,
    fill: &Fill,
    request: &mut Request,
    exchange: Exchange,
    asked_ms: u64,
) -> Outcome {
    let (status, fields) = (exchange.head.status, &exchange.head.fields);
    if let Want::Slice(SliceRequest::Known { of, index }) = &request.want {
        return slices::judge(worker, of, *index, exchange);
    }
    let is_confirmed = request.confirmed_by(status).is_some();
    if !is_confirmed && is_unrequested(request, status) {
        return error::on_failure(worker, fill, request, Failure::Status(status));
    }
    // Under a policy, skip this: the policy, not RFC 9111, decides how long a response stays fresh.
    if let Want::Pass(pass) = &request.want
        && let Some(known) = pass.known.as_ref().filter(|_| status == 200 && request.policy.is_none())
    {
        judge::update_from_head_response(
            worker.cache(),
            &worker.config().rules,
            &request.head,
            known,
            fields,
            asked_ms,
        );
    }
    if !request.head.method.is_safe() && matches!(status, 200..400) {
        invalidate(worker, &request.head, fields);
    }
    let candidate = match request.confirmed_by(status) {
        Some(stale) => judge::refreshed(&stale.head, fields),
        None => judge::candidate_of(request, &exchange.head),
    };
    let head = match head_to_store(worker, fill, request, candidate, is_confirmed, asked_ms) {
        Ok(head) => head,
        Err(outcome) => return *outcome,
    };
    match std::mem::replace(&mut request.want, Want::Whole) {
        Want::Validation(validation) if is_confirmed => Outcome::Validated(exchange, head, validation),
        want => {
            request.want = want;
            Outcome::Response(exchange, head)
        }
    }
}

/// Returns the head to store, according to RFC 9111 and the policy.
///
/// # Errors
///
/// Returns the outcome if the response is not stored; boxed, because it is large and rare.
fn head_to_store(
    worker: &Worker,
    fill: &Fill,
    request: &mut Request,
    mut candidate: Candidate,
    was_304: bool,
    asked_ms: u64,
) -> Result<Head, Box<Outcome>> {
    let rules = &worker.config().rules;
    let Some(policy) = &mut request.policy else {
        if let Some(failure) = failure_hidden_by_stale(request, candidate.head.status) {
            return Err(Box::new(Outcome::Failed(failure)));
        }
        let mut head = judge(&request.head, candidate, rules, asked_ms);
        if request.is_passed() {
            head.private = Some(Unshareable { reason: "pass", mark: PassMark::No });
        }
        return Ok(head);
    };
    let native = judge(&request.head, candidate.clone(), rules, asked_ms).freshness;
    let preset = policy.preset(native, was_304, now_ms());
    let action =
        policy.run(Sub::BackendResponse, &mut request.head, Some(&mut candidate.head), worker.cache());
    match action {
        Action::Deliver => {}
        Action::Pass => policy.fetch.uncacheable = true,
        Action::PassFor(ttl_s) => (policy.fetch.ttl_s, policy.fetch.uncacheable) = (ttl_s, true),
        Action::Retry => return Err(Box::new(Outcome::Again)),
        Action::Error { status, reason } => {
            let made_by = MadeBy::Policy(status, reason);
            return Err(Box::new(error::generate(worker, fill, request, made_by)));
        }
        action => return Err(Box::new(error::abandoned(&action))),
    }
    let status = candidate.head.status;
    let judged = judge(&request.head, candidate, rules, asked_ms);
    let is_hit_for_pass = matches!(action, Action::Pass | Action::PassFor(_));
    let head = policy.apply_to_head(judged, &preset, request.head.method, is_hit_for_pass);
    match failure_hidden_by_stale(request, status).filter(|_| action == Action::Deliver) {
        Some(failure) => Err(Box::new(Outcome::Failed(failure))),
        None => Ok(head),
    }
}

/// Returns a failure if a stale response is served instead of a response with this status (RFC 5861
/// §4).
fn failure_hidden_by_stale(request: &Request, status: u16) -> Option<Failure> {
    let is_failure = matches!(status, 500 | 502 | 503 | 504);
    (is_failure && request.serves_stale_on_error(now_ms())).then_some(Failure::Status(status))
}

/// Returns whether the status implies a condition or range that the request did not contain.
fn is_unrequested(request: &Request, status: u16) -> bool {
    !request.is_passed() && (status == 304 || status == 206 && !request.is_slice())
}

/// Purges responses that a successful unsafe request may have changed: those stored for the request
/// target, and for same-host URIs in `Location` and `Content-Location` (RFC 9111 §4.4).
fn invalidate(worker: &Worker, request: &RequestHead, fields: &Fields) {
    let mut key = String::new();
    write_key(&request.authority, request.target.as_str(), &mut key);
    worker.cache().invalidate(&key);
    for name in ["location", "content-location"] {
        let named = fields.get_str(name);
        if let Some(target) =
            named.and_then(|named| reference::resolve(&request.authority, &request.target, named))
        {
            write_key(&request.authority, target.as_str(), &mut key);
            worker.cache().invalidate(&key);
        }
    }
}
