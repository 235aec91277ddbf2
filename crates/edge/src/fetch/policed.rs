//! A fetch under a policy: what `vcl_backend_fetch`, `vcl_backend_response` and `vcl_backend_error` say of it.
//!
//! What is stored and for how long is the policy's to say; freshness as RFC 9111 has it is what it starts from. A
//! response that answers a condition is brought up to date first, and then the policy is asked about the whole.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use thalweg_cache::freshness::Freshness;
use thalweg_cache::tags::{SURROGATE_KEY, has_too_many_tags};
use thalweg_cache::{Failure, Fill, Head, Lasting, Made, Private, Stored};
use thalweg_http::{Method, ResponseHead, date, framing, status};
use thalweg_policy::Sub;
use thalweg_policy::step::Action;

use super::head::{brought_up_to_date, head_of};
use super::{Request, invalidate, is_about_another, is_failure, is_unasked, keep, start};
use crate::exchange::Exchange;
use crate::now_ms;
use crate::policy::{Fetching, shown};
use crate::worker::Worker;

/// Lifetime, grace and keep that an error begins with for which others wait, in seconds, as Varnish has them.
const AWAITED_ERROR_S: (f64, f64, f64) = (1.0, 5.0, 5.0);

const NOT_REPEATABLE: &str =
    "a request that has content, or whose method is not idempotent, is not sent again";

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
        match attempt(&worker, &fill, &mut request, &mut policy, client).await {
            Brought::Again if !request.is_repeatable() => {
                return give_up(fill, &policy, Failure::Policy(NOT_REPEATABLE));
            }
            Brought::Again if policy.retry() => {}
            Brought::Again => return give_up(fill, &policy, Failure::Policy("too many retries")),
            Brought::Failed(failure) => return give_up(fill, &policy, failure),
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
    fill: &Fill,
    request: &mut Request,
    policy: &mut Fetching,
    client: IpAddr,
) -> Brought {
    match policy.run(Sub::BackendFetch, &mut request.head, None, worker.cache()) {
        Action::Fetch => {}
        Action::Error { status, reason } => {
            return make(worker, fill, request, policy, (status, reason, Made::Chosen));
        }
        action => return refused(&action),
    }
    if policy.fetch.drop_body {
        request.drop_content();
    }
    let Some(route) = policy.route(&mut request.head, worker.cache()) else {
        return unanswered(worker, fill, request, policy, Failure::Policy("no backend is healthy"));
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
        Ok(exchange) => {
            policy.tell_backend(exchange.backend());
            exchange
        }
        Err(failure) => return unanswered(worker, fill, request, policy, failure),
    };
    respond(worker, fill, request, policy, exchange, asked_ms)
}

/// Ends a fetch that the policy does not answer in place of a backend.
fn give_up(fill: Fill, policy: &Fetching, failure: Failure) {
    tracing::debug!(%failure, "fetch failed");
    policy.tell_failure(failure.to_string());
    fill.fail(failure);
}

/// What becomes of a fetch that failed. Where backends are is for the log alone, not for the policy, and with it the client.
fn unanswered(
    worker: &Arc<Worker>,
    fill: &Fill,
    request: &mut Request,
    policy: &mut Fetching,
    failure: Failure,
) -> Brought {
    if keeps_stale(request, policy) {
        return Brought::Failed(failure);
    }
    tracing::debug!(%failure, "fetch failed");
    policy.tell_failure(failure.to_string());
    make(worker, fill, request, policy, (503, Some(b"Backend fetch failed".to_vec()), Made::Failed))
}

/// Whether what is stale answers in place of a fetch that fails (RFC 5861 §4): the policy does not say what does.
fn keeps_stale(request: &Request, policy: &Fetching) -> bool {
    let stale = request.stale.as_ref().filter(|_| !policy.answers_failures());
    stale.is_some_and(|(stale, _)| stale.freshness().serves_on_error(now_ms()))
}

/// The policy gives the fetch up.
fn refused(action: &Action) -> Brought {
    let reason =
        if matches!(action, Action::Abandon) { "the policy gave the fetch up" } else { "the policy failed" };
    Brought::Failed(Failure::Policy(reason))
}

/// What the policy makes of a backend's response.
fn respond(
    worker: &Arc<Worker>,
    fill: &Fill,
    request: &mut Request,
    policy: &mut Fetching,
    exchange: Exchange,
    asked_ms: u64,
) -> Brought {
    let status = exchange.head.status;
    let was_304 = asked_about(request, status).is_some();
    if !was_304 && is_unasked(request, status) {
        let failure = Failure::Policy("the backend answered what was not asked");
        return unanswered(worker, fill, request, policy, failure);
    }
    let (mut beresp, native, length) = as_it_came(worker, request, &exchange.head, asked_ms);
    if !request.head.method.is_safe() && matches!(status, 200..400) {
        invalidate(worker, &request.head, &exchange.head.fields);
    }
    let now_ms = now_ms();
    let fetch = &mut policy.fetch;
    let native_ttl_s = native.ttl_s(now_ms) as f64;
    fetch.ttl_s = native_ttl_s;
    fetch.grace_s = seconds(native.while_revalidate_ms);
    fetch.age_s = native.age_s(now_ms) as f64;
    fetch.uncacheable = fetch.is_pass;
    (fetch.was_304, fetch.response_time_s) = (was_304, now_ms as f64 / 1e3);
    let action = policy.run(Sub::BackendResponse, &mut request.head, Some(&mut beresp), worker.cache());
    match action {
        Action::Deliver if is_failure(beresp.status) && keeps_stale(request, policy) => {
            return Brought::Failed(Failure::Status(beresp.status));
        }
        Action::Deliver => {}
        Action::Pass => policy.fetch.uncacheable = true,
        Action::PassFor(ttl_s) => (policy.fetch.ttl_s, policy.fetch.uncacheable) = (ttl_s, true),
        Action::Retry => return Brought::Again,
        Action::Error { status, reason } => {
            return make(worker, fill, request, policy, (status, reason, Made::Chosen));
        }
        action => return refused(&action),
    }
    let is_hit_for_pass = matches!(action, Action::Pass | Action::PassFor(_));
    let lifetime_ms = match policy.fetch.ttl_s {
        // What the policy has left as it was is exactly what the response says.
        ttl_s if ttl_s == native_ttl_s => native.lifetime_ms,
        ttl_s => native.age_ms(now_ms).saturating_add_signed(signed_ms(ttl_s)),
    };
    let freshness = Freshness { lifetime_ms, ..native };
    let head =
        head_to_keep(worker, request, policy, beresp, (length, freshness), (asked_ms, is_hit_for_pass));
    if was_304 { Brought::Validated(exchange, head) } else { Brought::Response(exchange, head) }
}

/// What a response of this status says is still good.
fn asked_about(request: &Request, status: u16) -> Option<&Arc<Stored>> {
    let stale = request.stale.as_ref().map(|(stale, _)| stale);
    stale.filter(|stale| status == 304 && stale.has_validator())
}

/// What `vcl_backend_response` starts from: the response, or what was asked about brought up to date by it, how long that may
/// be reused and the length of its content.
fn as_it_came(
    worker: &Worker,
    request: &Request,
    head: &ResponseHead,
    asked_ms: u64,
) -> (ResponseHead, Freshness, Option<u64>) {
    let rules = &worker.config().rules;
    if let Some(stale) = asked_about(request, head.status) {
        let head = brought_up_to_date(&request.head, &stale.head, &head.fields, rules, asked_ms);
        return (shown_to_backend(&head), head.freshness, stale.head.length);
    }
    let length = match request.head.method {
        // The policy has made it a HEAD: there is no content, whatever it would have been.
        Method::Head if !request.is_head => Some(0),
        _ => framing::content_length(&head.fields).ok().flatten(),
    };
    let mut beresp = head.clone();
    if request.is_slice() && beresp.status == 206 {
        // What is kept is the head of the whole.
        (beresp.status, beresp.reason) = (200, None);
        beresp.fields.remove("content-range");
    }
    beresp.fields.remove_hop_by_hop();
    let native = head_of(&request.head, beresp.status, beresp.fields.clone(), length, rules, asked_ms);
    (beresp, native.freshness, length)
}

/// A response that the policy makes itself, in place of one that did not come.
fn make(
    worker: &Arc<Worker>,
    fill: &Fill,
    request: &mut Request,
    policy: &mut Fetching,
    (status, reason, made): (u16, Option<Vec<u8>>, Made),
) -> Brought {
    let now_ms = now_ms();
    let reason =
        reason.and_then(|text| status::unusual_reason(status % 1000, &String::from_utf8_lossy(&text)));
    let mut beresp = ResponseHead { status, reason, ..ResponseHead::default() };
    beresp.fields.push("Date", date::format(now_ms / 1000));
    // Who waits for it gets it too, as on Varnish: else each would try the backend by itself, all at once.
    // Not in place of what is stale: that has its grace, and its validator.
    let is_awaited = request.stale.is_none() && !policy.fetch.is_bgfetch && fill.readers() > 1;
    let fetch = &mut policy.fetch;
    (fetch.ttl_s, fetch.grace_s, fetch.keep_s) = if is_awaited { AWAITED_ERROR_S } else { (0.0, 0.0, 0.0) };
    fetch.age_s = 0.0;
    (fetch.uncacheable, fetch.was_304, fetch.body) = (fetch.is_pass, false, None);
    match policy.run(Sub::BackendError, &mut request.head, Some(&mut beresp), worker.cache()) {
        Action::Deliver => {}
        Action::Retry => return Brought::Again,
        action => return refused(&action),
    }
    let content = Bytes::from(policy.fetch.body.take().unwrap_or_default());
    let length = Some(content.len() as u64);
    let lifetime_ms = ms(policy.fetch.ttl_s);
    let freshness = Freshness { lifetime_ms, born_ms: now_ms, ..Freshness::default() };
    let head = head_to_keep(worker, request, policy, beresp, (length, freshness), (now_ms, false));
    Brought::Made(Head { made: Some(made), ..head }, content)
}

/// The head to keep, with what the policy has said of it.
fn head_to_keep(
    worker: &Worker,
    request: &Request,
    policy: &Fetching,
    beresp: ResponseHead,
    (length, freshness): (Option<u64>, Freshness),
    (asked_ms, is_hit_for_pass): (u64, bool),
) -> Head {
    let ResponseHead { status, reason, mut fields, .. } = beresp;
    fields.remove("content-length");
    let rules = &worker.config().rules;
    let mut head = head_of(&request.head, status, fields, length, rules, asked_ms);
    head.reason = reason;
    for (name, value) in std::mem::take(&mut head.withheld).iter() {
        head.fields.push(name, value);
    }
    let fetch = &policy.fetch;
    head.freshness = Freshness {
        while_revalidate_ms: ms(fetch.grace_s),
        if_error_ms: head.freshness.if_error_ms,
        must_revalidate: false,
        immutable: false,
        ..freshness
    };
    let until_ms = |lasts_s: f64| now_ms().saturating_add(ms(lasts_s));
    head.private = if fetch.is_pass {
        let reason = if fetch.is_hitpass { "hit-for-pass" } else { "pass" };
        Some(Private { reason, lasting: Lasting::No })
    } else if fetch.uncacheable {
        let lasting = match is_hit_for_pass {
            _ if fetch.ttl_s <= 0.0 => Lasting::No,
            true => Lasting::Pass { until_ms: until_ms(fetch.ttl_s) },
            // As on Varnish: past its lifetime it is of that use still.
            false => Lasting::Miss {
                until_ms: until_ms(fetch.ttl_s + fetch.grace_s.max(0.0) + fetch.keep_s.max(0.0)),
            },
        };
        let reason = if fetch.is_hitmiss { "hit-for-miss" } else { "policy" };
        Some(Private { reason, lasting })
    } else if request.head.method != Method::Get && !fetch.was_304 {
        // The next request for it may be for what this method does not bring.
        Some(Private { reason: "method", lasting: Lasting::No })
    } else if fetch.ttl_s <= 0.0 && fetch.grace_s <= 0.0 && fetch.keep_s <= 0.0 {
        Some(Private { reason: "not-fresh", lasting: Lasting::No })
    } else if has_too_many_tags(&head.surrogate) {
        Some(Private { reason: "tags", lasting: Lasting::Moment })
    } else {
        None
    };
    head
}

/// Seconds as a policy has them, in milliseconds; what is above 0 is at least one, what is below is 0.
fn ms(seconds: f64) -> u64 {
    u64::try_from(signed_ms(seconds)).unwrap_or(0)
}

fn signed_ms(seconds: f64) -> i64 {
    if seconds > 0.0 { ((seconds * 1e3).round() as i64).max(1) } else { (seconds * 1e3).round() as i64 }
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1e3
}

/// A stored head as `vcl_backend_response` sees it: with the fields that are for this cache.
fn shown_to_backend(head: &Head) -> ResponseHead {
    let mut beresp = shown(head);
    for (_, value) in head.surrogate.iter() {
        beresp.fields.push(SURROGATE_KEY, value);
    }
    beresp
}
