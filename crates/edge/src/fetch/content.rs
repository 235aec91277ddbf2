//! Content from the backend into the fill, to its end: over a connection that breaks, where the rest can be had, and no
//! further where nobody reads it.
//!
//! **Invariant:** what comes over another connection goes on with the very same content: same strong entity tag, same
//! complete length, at the very byte (RFC 9110 §14.2, §13.1.5). Else the fill fails as if there had been no attempt.

use std::net::IpAddr;

use thalweg_cache::{Failure, Fill};
use thalweg_http::validators::strong_etag;
use thalweg_http::{Method, ResponseHead, framing, range};

use super::Request;
use crate::backend::{BackendId, Route, Wanted};
use crate::config::AbandonedFills;
use crate::exchange::{Exchange, Outgoing};
use crate::now_ms;
use crate::worker::Worker;

/// Attempts to fetch the rest of one response.
const RESUMES_MAX: usize = 3;
/// Content that is fetched to its end though nobody reads it, if no more is missing.
const REST_BYTES_MAX: u64 = 1 << 20;
/// Content of unknown length that is fetched on after its last reader has left.
const UNREAD_BYTES_MAX: u64 = 4 << 20;

/// Fills with the content of `exchange`. Gives the exchange that brought the last of it.
pub(super) async fn copy(
    worker: &Worker,
    request: &Request,
    client: IpAddr,
    mut exchange: Exchange,
    fill: &mut Fill,
) -> Result<Exchange, Failure> {
    let policy = if request.behind { AbandonedFills::Finish } else { worker.config().abandoned_fills };
    let mut readers = Readers { policy, alone_from: None };
    let mut resumption = Resumption::of(request, &exchange.head, fill);
    let mut end = u64::MAX;
    loop {
        let failure = match pour(&mut exchange, fill, &mut readers, end).await {
            Ok(()) if resumption.as_ref().is_none_or(|whole| so_far(fill) == whole.length) => {
                return Ok(exchange);
            }
            Ok(()) => Failure::Backend("the backend sent less than all of the rest".into()),
            Err(Stop::Final(failure)) => return Err(failure),
            Err(Stop::Broken(failure)) => failure,
        };
        let Some(resumption) = &mut resumption else { return Err(failure) };
        (exchange, end) =
            resumption.resume(worker, request, client, &exchange, so_far(fill), failure).await?;
    }
}

/// Why content came to a stop.
enum Stop {
    /// The backend's connection broke, or it said nothing for too long.
    Broken(Failure),
    Final(Failure),
}

/// Content of one exchange, as it comes, which must not go beyond `end`.
async fn pour(exchange: &mut Exchange, fill: &mut Fill, readers: &mut Readers, end: u64) -> Result<(), Stop> {
    loop {
        exchange.beside(fill.room()).await.map_err(Stop::Final)?;
        if !readers.want_more(fill) && fill.give_up() {
            return Err(Stop::Final(Failure::Abandoned));
        }
        let next = tokio::select! {
            biased;
            next = exchange.next() => next,
            () = fill.deserted(), if readers.may_leave(fill) => continue,
        };
        let Some(bytes) = next.map_err(|error| Stop::Broken(error.into()))? else { return Ok(()) };
        if end - so_far(fill) < bytes.len() as u64 {
            return Err(Stop::Final(Failure::Backend("the backend sent more than the rest".into())));
        }
        fill.append(bytes, now_ms()).map_err(|_| Stop::Final(Failure::NoRoom))?;
    }
}

fn so_far(fill: &Fill) -> u64 {
    fill.stored_bytes().map_or(0, |(so_far, _)| so_far)
}

/// Whether a stored fill goes on though nobody reads it.
struct Readers {
    policy: AbandonedFills,
    /// What had come when the last reader left.
    alone_from: Option<u64>,
}

impl Readers {
    fn want_more(&mut self, fill: &Fill) -> bool {
        // What is passed ends with its one reader, when there is no room for more.
        let Some((so_far, length)) = fill.stored_bytes().filter(|_| !fill.has_readers()) else {
            self.alone_from = None;
            return true;
        };
        let from = *self.alone_from.get_or_insert(so_far);
        match (self.policy, length) {
            (AbandonedFills::Finish, _) => true,
            (AbandonedFills::Cancel, _) => false,
            (AbandonedFills::Half, Some(length)) => so_far >= length / 2 || length - so_far <= REST_BYTES_MAX,
            (AbandonedFills::Half, None) => so_far - from < UNREAD_BYTES_MAX,
        }
    }

    /// Whether to be woken when the last one leaves.
    fn may_leave(&self, fill: &Fill) -> bool {
        self.policy != AbandonedFills::Finish && self.alone_from.is_none() && fill.stored_bytes().is_some()
    }
}

/// What is known of content whose rest can be fetched by itself.
struct Resumption {
    etag: Vec<u8>,
    length: u64,
    left: usize,
}

impl Resumption {
    /// Of a response that is stored, by a strong entity tag and a length, unless its backend serves no ranges.
    fn of(request: &Request, head: &ResponseHead, fill: &Fill) -> Option<Self> {
        let fields = &head.fields;
        fill.stored_bytes()?;
        let serves = !fields.list("accept-ranges").any(|unit| unit.eq_ignore_ascii_case(b"none"));
        let length = framing::content_length(fields).ok().flatten()?;
        let etag = strong_etag(fields)?;
        let applies = serves && head.status == 200 && request.head.method == Method::Get;
        applies.then(|| Self { etag: etag.to_vec(), length, left: RESUMES_MAX })
    }

    /// Fetches what is missing from `from` on, over a new connection, to another backend if there is one. Gives its
    /// exchange, and where its content ends.
    ///
    /// # Errors
    /// With `failure`, what the content broke off with, if the rest is not to be had.
    async fn resume(
        &mut self,
        worker: &Worker,
        request: &Request,
        client: IpAddr,
        broken: &Exchange,
        from: u64,
        failure: Failure,
    ) -> Result<(Exchange, u64), Failure> {
        let mut failed = broken.backend_id();
        let head = request.write(client, worker.node(), Some((from, &self.etag)));
        while self.left > 0 {
            self.left -= 1;
            match ask(worker, &request.route, &head, &mut failed).await {
                Ok(exchange) => {
                    let Some(end) = self.continues(&exchange.head, from) else {
                        tracing::debug!(status = exchange.head.status, "the rest is of something else");
                        return Err(failure);
                    };
                    tracing::debug!(target = %request.head.target, from, reason = %failure, "fill resumed");
                    return Ok((exchange, end));
                }
                Err(error) => tracing::debug!(%error, "the rest could not be fetched"),
            }
        }
        Err(failure)
    }

    /// Where the content of a response ends that goes on at `from`.
    fn continues(&self, head: &ResponseHead, from: u64) -> Option<u64> {
        let part = head.fields.get("content-range").and_then(range::parse_content_range)?;
        let range = part.range?;
        let same = strong_etag(&head.fields) == Some(&*self.etag);
        let goes_on = head.status == 206 && range.start == from && part.length == Some(self.length);
        (same && goes_on).then_some(range.end)
    }
}

/// One attempt, on a new connection, `failed` last; which backend it went to is put there.
async fn ask(
    worker: &Worker,
    route: &Route,
    head: &[u8],
    failed: &mut BackendId,
) -> Result<Exchange, Failure> {
    let connection = worker.connect(route, Wanted::NewElsewhere(*failed)).await?;
    *failed = connection.backend_id();
    let outgoing = Outgoing { method: Method::Get, head, content: &mut None, interim: None };
    Ok(Exchange::start(connection, outgoing, worker.config()).await?)
}
