//! Start of a fetch: runs `vcl_backend_fetch`, sends the request, and reads the response head.

use std::net::IpAddr;

use thalweg_cache::{Failure, Fill, Stored};
use thalweg_http::ResponseHead;
use thalweg_http::validators::strong_etag;
use thalweg_policy::Sub;
use thalweg_policy::step::Action;

use super::error::{self, MadeBy};
use super::exchange::{Exchange, OutgoingRequest};
use super::outcome::Outcome;
use super::request::{Request, Want};
use crate::backend::Wanted;
use crate::worker::Worker;

/// Sends the request and reads the response head.
///
/// # Errors
///
/// Returns the outcome if there is no response to evaluate; boxed, because it is large and rare.
pub(super) async fn start(
    worker: &Worker,
    fill: &Fill,
    request: &mut Request,
    client: IpAddr,
) -> Result<Exchange, Box<Outcome>> {
    run_policy(worker, fill, request)?;
    match send(worker, request, client).await {
        Ok(exchange) => {
            if let Some(policy) = &request.policy {
                policy.note_backend(exchange.backend());
            }
            Ok(exchange)
        }
        Err(failure) => Err(Box::new(error::on_failure(worker, fill, request, failure))),
    }
}

/// Runs `vcl_backend_fetch` and applies the backend it selects.
fn run_policy(worker: &Worker, fill: &Fill, request: &mut Request) -> Result<(), Box<Outcome>> {
    let Some(policy) = &mut request.policy else { return Ok(()) };
    match policy.run(Sub::BackendFetch, &mut request.head, None, worker.cache()) {
        Action::Fetch => {}
        Action::Error { status, reason } => {
            let made_by = MadeBy::Policy(status, reason);
            return Err(Box::new(error::generate(worker, fill, request, made_by)));
        }
        action => return Err(Box::new(error::abandoned(&action))),
    }
    let route = policy.route(&mut request.head, worker.cache());
    if policy.fetch.drop_body {
        request.drop_content();
    }
    let Some(route) = route else {
        let failure = Failure::Policy("no backend is healthy");
        return Err(Box::new(error::on_failure(worker, fill, request, failure)));
    };
    request.route = route;
    Ok(())
}

/// Sends the request. Repeats it unconditionally if a 304 refers to a representation other than the
/// stored one.
async fn send(worker: &Worker, request: &mut Request, client: IpAddr) -> Result<Exchange, Failure> {
    let exchange = send_once(worker, request, client).await?;
    if !request.stale().is_some_and(|stale| is_for_another(stale, &exchange.head)) {
        return Ok(exchange);
    }
    request.want = Want::Whole;
    send_once(worker, request, client).await
}

/// Sends the request. If the connection is lost before a response, retries, preferably with another
/// backend. Does not retry if that is unsafe or if content has been sent.
async fn send_once(worker: &Worker, request: &mut Request, client: IpAddr) -> Result<Exchange, Failure> {
    let head = request.write(client, worker.node(), None);
    let (method, config, route) = (request.head.method, worker.config(), &request.route);
    let mut none = None;
    let content = if let Want::Pass(pass) = &mut request.want { &mut pass.content } else { &mut none };
    let has_content = content.is_some();
    let repeatable = method.is_idempotent() && !has_content;
    let connection = worker.connect(route, if repeatable { Wanted::Any } else { Wanted::New }).await?;
    let backend = connection.backend_id();
    let may_try_again = method.is_idempotent() && (connection.reused || route.has_others());
    let mut outgoing = OutgoingRequest { method, head: &head, content, interim: request.interim.as_ref() };
    match Exchange::start(connection, outgoing.for_retry(), config).await {
        Err(error) if error.before_response && may_try_again && has_content == outgoing.content.is_some() => {
            let connection = worker.connect(route, Wanted::NewElsewhere(backend)).await?;
            Ok(Exchange::start(connection, outgoing, config).await?)
        }
        started => Ok(started?),
    }
}

/// Returns whether a 304 refers to another representation and therefore must not update `stale`
/// (RFC 9111 §4.3.4).
fn is_for_another(stale: &Stored, head: &ResponseHead) -> bool {
    let named = strong_etag(&head.fields);
    head.status == 304 && named.is_some() && named != strong_etag(&stale.head.fields)
}
