//! A fetch under a policy: what `vcl_backend_fetch`, `vcl_backend_response` and `vcl_backend_error` say of it.
//!
//! What is stored and for how long is the policy's to say; freshness as RFC 9111 has it is what it starts from. A
//! response that answers a condition is brought up to date first, and then the policy is asked about the whole.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use thalweg_cache::freshness::Freshness;
use thalweg_cache::tags::{SURROGATE_KEY, has_too_many_tags};
use thalweg_cache::{Failure, Fill, Head, Private};
use thalweg_http::{Fields, ResponseHead, Version, date, framing, status};
use thalweg_policy::Sub;
use thalweg_policy::step::Action;

use super::{Request, brought_up_to_date, head_of, invalidate, is_about_another, is_unasked, keep, start};
use crate::exchange::Exchange;
use crate::now_ms;
use crate::policy::Fetching;
use crate::worker::Worker;

/// What one try has brought.
enum Brought {
    Response(Exchange, Head),
    /// What was asked about is still good.
    Validated(Exchange, Head),
    /// The policy has made a response of its own.
    Made(Head, Bytes),
    Failed(Failure),
    /// The policy wants another try.
    Again,
}

/// Fetches and fills. Whatever happens, the fill ends.
pub(super) async fn run(
    worker: Arc<Worker>,
    mut fill: Fill,
    mut request: Request,
    mut policy: Box<Fetching>,
    client: IpAddr,
) {
    loop {
        match attempt(&worker, &mut request, &mut policy, client).await {
            Brought::Again if policy.retry() && request.is_repeatable() => {}
            Brought::Again => return fill.fail(Failure::Backend("too many retries".into())),
            Brought::Failed(failure) => {
                tracing::debug!(target = %request.head.target, %failure, "fetch failed");
                return fill.fail(failure);
            }
            Brought::Response(exchange, head) => {
                return keep(&worker, fill, request, client, exchange, head).await;
            }
            Brought::Validated(exchange, head) => {
                let (stale, tell) = request.stale.take().expect("what was validated was asked about");
                fill.validated(&stale, head, |stored| drop(tell.send(stored)));
                return worker.finish(exchange);
            }
            Brought::Made(head, content) => {
                fill.begin(head, now_ms());
                let appended =
                    if content.is_empty() { Ok(()) } else { fill.append(content, now_ms()).map_err(drop) };
                return match appended {
                    Ok(()) => fill.complete(),
                    Err(()) => fill.fail(Failure::NoRoom),
                };
            }
        }
    }
}

async fn attempt(
    worker: &Arc<Worker>,
    request: &mut Request,
    policy: &mut Fetching,
    client: IpAddr,
) -> Brought {
    match policy.run(Sub::BackendFetch, &mut request.head, None, worker.cache()) {
        Action::Fetch => {}
        Action::Error { status, reason } => return make(worker, request, policy, status, reason),
        action => return refused(&action),
    }
    let Some(route) = policy.route(&mut request.head, worker.cache()) else {
        return make(worker, request, policy, 503, Some(b"no backend is healthy".to_vec()));
    };
    request.route = route;
    let asked_ms = now_ms();
    let mut started = start(worker, request, client).await;
    if let (Ok(exchange), Some((stale, _))) = (&started, &request.stale)
        && is_about_another(stale, &exchange.head)
    {
        request.stale = None;
        started = start(worker, request, client).await;
    }
    let exchange = match started {
        Ok(exchange) => exchange,
        Err(failure) if has_spare(request) => return Brought::Failed(failure),
        Err(failure) => {
            let reason = failure.to_string().into_bytes();
            return make(worker, request, policy, 503, Some(reason));
        }
    };
    respond(worker, request, policy, exchange, asked_ms)
}

/// Whether something stale may be served in place of a failed fetch.
fn has_spare(request: &Request) -> bool {
    request.stale.as_ref().is_some_and(|(stale, _)| stale.freshness().serves_on_error(now_ms()))
}

/// The policy gives the fetch up.
fn refused(action: &Action) -> Brought {
    let reason =
        if matches!(action, Action::Abandon) { "the policy gave the fetch up" } else { "the policy failed" };
    Brought::Failed(Failure::Backend(reason.into()))
}

/// What the policy makes of a backend's response.
fn respond(
    worker: &Arc<Worker>,
    request: &mut Request,
    policy: &mut Fetching,
    exchange: Exchange,
    asked_ms: u64,
) -> Brought {
    let rules = &worker.config().rules;
    let length = framing::content_length(&exchange.head.fields).ok().flatten();
    let validated =
        request.stale.as_ref().filter(|(stale, _)| exchange.head.status == 304 && stale.has_validator());
    let (mut beresp, native, length) = if let Some((stale, _)) = validated {
        let head = brought_up_to_date(&request.head, &stale.head, &exchange.head.fields, rules, asked_ms);
        (response(&head), head.freshness, stale.head.length)
    } else {
        if is_unasked(request, exchange.head.status) {
            return Brought::Failed(Failure::Status(exchange.head.status));
        }
        let mut beresp = exchange.head.clone();
        if request.is_slice() && beresp.status == 206 {
            // What is kept is the head of the whole.
            beresp.status = 200;
            beresp.fields.remove("content-range");
        }
        beresp.fields.remove_hop_by_hop();
        let native = head_of(&request.head, beresp.status, beresp.fields.clone(), length, rules, asked_ms);
        (beresp, native.freshness, length)
    };
    let was_304 = validated.is_some();
    if !request.head.method.is_safe() && matches!(exchange.head.status, 200..400) {
        invalidate(worker, &request.head, &exchange.head.fields);
    }
    let now_ms = now_ms();
    let fetch = &mut policy.fetch;
    fetch.ttl_s = native.ttl_s(now_ms) as f64;
    fetch.grace_s = native.while_revalidate_s as f64;
    fetch.age_s = native.age_s(now_ms) as f64;
    fetch.uncacheable = fetch.is_pass;
    (fetch.was_304, fetch.response_time_s) = (was_304, now_ms as f64 / 1e3);
    let lasting = match policy.run(Sub::BackendResponse, &mut request.head, Some(&mut beresp), worker.cache())
    {
        Action::Deliver => false,
        Action::Pass | Action::PassFor(_) => {
            policy.fetch.uncacheable = true;
            true
        }
        Action::Retry => return Brought::Again,
        Action::Error { status, reason } => return make(worker, request, policy, status, reason),
        action => return refused(&action),
    };
    let head = head_to_keep(worker, request, policy, beresp, (length, native.born_ms), asked_ms, lasting);
    if was_304 { Brought::Validated(exchange, head) } else { Brought::Response(exchange, head) }
}

/// A response that the policy makes itself, in place of one that did not come.
fn make(
    worker: &Arc<Worker>,
    request: &mut Request,
    policy: &mut Fetching,
    status: u16,
    reason: Option<Vec<u8>>,
) -> Brought {
    let now_ms = now_ms();
    let mut beresp = ResponseHead { status, version: Version::Http11, fields: Fields::new() };
    beresp.fields.push("Date", date::format(now_ms / 1000));
    let fetch = &mut policy.fetch;
    (fetch.ttl_s, fetch.grace_s, fetch.keep_s, fetch.age_s) = (0.0, 0.0, 0.0, 0.0);
    (fetch.uncacheable, fetch.body) = (fetch.is_pass, None);
    let reason = reason.map(|text| String::from_utf8_lossy(&text).into_owned());
    fetch.reason = Some(reason.unwrap_or_else(|| status::reason(status).to_owned()));
    match policy.run(Sub::BackendError, &mut request.head, Some(&mut beresp), worker.cache()) {
        Action::Deliver => {}
        Action::Retry => return Brought::Again,
        action => return refused(&action),
    }
    let content = Bytes::from(policy.fetch.body.take().unwrap_or_default());
    let length = Some(content.len() as u64);
    let head = head_to_keep(worker, request, policy, beresp, (length, now_ms), now_ms, false);
    Brought::Made(head, content)
}

/// The head to keep, with what the policy has said of it.
fn head_to_keep(
    worker: &Worker,
    request: &Request,
    policy: &Fetching,
    beresp: ResponseHead,
    (length, born_ms): (Option<u64>, u64),
    asked_ms: u64,
    lasting: bool,
) -> Head {
    let ResponseHead { status, mut fields, .. } = beresp;
    fields.remove("content-length");
    let rules = &worker.config().rules;
    let mut head = head_of(&request.head, status, fields, length, rules, asked_ms);
    for (name, value) in std::mem::take(&mut head.withheld).iter() {
        head.fields.push(name, value);
    }
    let fetch = &policy.fetch;
    let seconds = |value: f64| if value > 0.0 { value.round().max(1.0) as u64 } else { 0 };
    let age_s = now_ms().saturating_sub(born_ms) / 1000;
    let ttl_s = seconds(fetch.ttl_s);
    head.freshness = Freshness {
        lifetime_s: if ttl_s == 0 { 0 } else { age_s + ttl_s },
        born_ms,
        while_revalidate_s: seconds(fetch.grace_s),
        if_error_s: seconds(fetch.grace_s),
        must_revalidate: false,
        immutable: false,
    };
    let of_no_use = ttl_s == 0 && seconds(fetch.grace_s) == 0 && seconds(fetch.keep_s) == 0;
    head.private = if fetch.is_pass {
        Some(Private { reason: "pass", lasting: false })
    } else if fetch.uncacheable {
        Some(Private { reason: "policy", lasting: lasting || ttl_s > 0 })
    } else if of_no_use {
        Some(Private { reason: "not-fresh", lasting: false })
    } else if has_too_many_tags(&head.surrogate) {
        Some(Private { reason: "tags", lasting: true })
    } else {
        None
    };
    head
}

/// A stored head as a response: with the fields that are for this cache.
fn response(head: &Head) -> ResponseHead {
    let mut fields = head.fields.clone();
    for (_, value) in head.surrogate.iter() {
        fields.push(SURROGATE_KEY, value);
    }
    ResponseHead { status: head.status, version: Version::Http11, fields }
}
