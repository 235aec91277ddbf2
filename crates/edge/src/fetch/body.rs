//! Body pump: copies content from the backend into the fill. It resumes a broken transfer where
//! possible, and may stop early if the fill has no readers.
//!
//! A slice is cut off at its length and always fetched to its end. If the transfer breaks, the
//! reader fetches the slice again.
//!
//! **Invariant:** a resumed transfer continues the same content, with the same strong entity tag
//! and complete length, at the exact offset (RFC 9110 §14.2, §13.1.5). Otherwise the fill fails
//! with the original error.

use std::net::IpAddr;

use thalweg_cache::{Failure, Fill};
use thalweg_http::validators::strong_etag;
use thalweg_http::{Method, ResponseHead, framing, range};

use super::exchange::{Exchange, OutgoingRequest};
use super::request::Request;
use super::slices::Extent;
use crate::backend::{BackendId, Route, Wanted};
use crate::clock::now_ms;
use crate::config::AbandonedFills;
use crate::worker::Worker;

/// Maximum number of attempts to resume the transfer of one response.
const RESUMES_MAX: usize = 3;
/// Maximum number of missing bytes at which an abandoned fill continues even if less than half of
/// the content has arrived.
const REST_BYTES_MAX: u64 = 1 << 20;
/// Maximum number of bytes fetched after the last reader leaves, if the content length is unknown.
const UNREAD_BYTES_MAX: u64 = 4 << 20;

/// Copies the content of `exchange` into `fill`, limited by `extent`. Returns the last exchange.
pub(super) async fn copy(
    worker: &Worker,
    request: &Request,
    client: IpAddr,
    mut exchange: Exchange,
    fill: &mut Fill,
    extent: &Extent,
) -> Result<Exchange, Failure> {
    let (mut limit, policy, mut resumption) = match extent {
        Extent::First(bytes) => (CopyLimit::First(*bytes), AbandonedFills::Finish, None),
        Extent::All(_) => {
            let policy =
                if request.is_background { AbandonedFills::Finish } else { worker.config().abandoned_fills };
            (CopyLimit::Before(u64::MAX), policy, Resumption::of(request, &exchange.head, fill))
        }
    };
    let mut abandonment = Abandonment { policy, alone_from: None };
    loop {
        let failure = match copy_exchange(&mut exchange, fill, &mut abandonment, &mut limit).await {
            Ok(()) if resumption.as_ref().is_none_or(|whole| so_far(fill) == whole.length) => {
                return Ok(exchange);
            }
            Ok(()) => Failure::Backend("the resumed response ended too early".into()),
            Err(CopyError::Final(failure)) => return Err(failure),
            Err(CopyError::Broken(failure)) => failure,
        };
        let Some(resumption) = &mut resumption else { return Err(failure) };
        let (resumed, end) =
            resumption.resume(worker, request, client, &exchange, so_far(fill), failure).await?;
        (exchange, limit) = (resumed, CopyLimit::Before(end));
    }
}

/// Limit on the content copied from one exchange.
enum CopyLimit {
    /// All content, which must not extend beyond this offset.
    Before(u64),
    /// This many bytes only; the rest is left unread.
    First(u64),
}

/// Why copying stopped.
enum CopyError {
    /// The backend's connection broke or timed out.
    Broken(Failure),
    Final(Failure),
}

/// Copies the content of one exchange.
async fn copy_exchange(
    exchange: &mut Exchange,
    fill: &mut Fill,
    abandonment: &mut Abandonment,
    limit: &mut CopyLimit,
) -> Result<(), CopyError> {
    while !matches!(limit, CopyLimit::First(0)) {
        exchange.while_uploading(fill.room()).await.map_err(CopyError::Final)?;
        if !abandonment.should_continue(fill) && fill.give_up() {
            return Err(CopyError::Final(Failure::Abandoned));
        }
        let next = tokio::select! {
            biased;
            next = exchange.next() => next,
            () = fill.deserted(), if abandonment.watches_readers(fill) => continue,
        };
        let Some(mut bytes) = next.map_err(|error| CopyError::Broken(error.into()))? else {
            return match limit {
                CopyLimit::Before(_) => Ok(()),
                CopyLimit::First(_) => {
                    Err(CopyError::Broken(Failure::Backend("the content is too short".into())))
                }
            };
        };
        match limit {
            CopyLimit::Before(end) if *end - so_far(fill) < bytes.len() as u64 => {
                return Err(CopyError::Final(Failure::Backend("the resumed response is too long".into())));
            }
            CopyLimit::Before(_) => {}
            CopyLimit::First(left) => {
                bytes.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= bytes.len() as u64;
            }
        }
        fill.append(bytes, now_ms()).map_err(|_| CopyError::Final(Failure::NoRoom))?;
    }
    Ok(())
}

fn so_far(fill: &Fill) -> u64 {
    fill.stored_bytes().map_or(0, |(so_far, _)| so_far)
}

/// Decides whether a stored fill continues without readers.
struct Abandonment {
    policy: AbandonedFills,
    /// Number of bytes received when the last reader left.
    alone_from: Option<u64>,
}

impl Abandonment {
    fn should_continue(&mut self, fill: &Fill) -> bool {
        // A passed response needs no check: once its only reader has left, writing to its full
        // buffer fails.
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

    /// Returns whether to wake up when the last reader leaves.
    fn watches_readers(&self, fill: &Fill) -> bool {
        self.policy != AbandonedFills::Finish && self.alone_from.is_none() && fill.stored_bytes().is_some()
    }
}

/// A response whose missing content can be requested separately.
struct Resumption {
    etag: Vec<u8>,
    length: u64,
    left: usize,
}

impl Resumption {
    /// Prepares to resume a stored response. Returns `None` without a strong entity tag or a
    /// length, or if the backend does not serve ranges.
    fn of(request: &Request, head: &ResponseHead, fill: &Fill) -> Option<Self> {
        let fields = &head.fields;
        fill.stored_bytes()?;
        let serves = !fields.list("accept-ranges").any(|unit| unit.eq_ignore_ascii_case(b"none"));
        let length = framing::content_length(fields).ok().flatten()?;
        let etag = strong_etag(fields)?;
        let applies = serves && head.status == 200 && request.head.method == Method::Get;
        applies.then(|| Self { etag: etag.to_vec(), length, left: RESUMES_MAX })
    }

    /// Fetches the content from offset `from` on a new connection, preferably to another backend.
    /// Returns the exchange and the offset at which its content ends.
    ///
    /// # Errors
    ///
    /// Returns `failure`, the original error, if the rest cannot be fetched.
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
            match request_rest(worker, &request.route, &head, &mut failed).await {
                Ok(exchange) => {
                    let Some(end) = self.rest_end(&exchange.head, from) else {
                        tracing::debug!(status = exchange.head.status, "cannot resume: content differs");
                        return Err(failure);
                    };
                    tracing::debug!(target = %request.head.target, from, reason = %failure, "fill resumed");
                    return Ok((exchange, end));
                }
                Err(error) => tracing::debug!(%error, "cannot resume: request failed"),
            }
        }
        Err(failure)
    }

    /// Returns the end offset of the response's content if the response continues the stored
    /// content at `from`.
    fn rest_end(&self, head: &ResponseHead, from: u64) -> Option<u64> {
        let part = head.fields.get("content-range").and_then(range::parse_content_range)?;
        let range = part.range?;
        let same = strong_etag(&head.fields) == Some(&*self.etag);
        let continues = head.status == 206 && range.start == from && part.length == Some(self.length);
        (same && continues).then_some(range.end)
    }
}

/// Makes one attempt on a new connection. Uses the backend `failed` only as a last resort, and
/// updates `failed` to the backend used.
async fn request_rest(
    worker: &Worker,
    route: &Route,
    head: &[u8],
    failed: &mut BackendId,
) -> Result<Exchange, Failure> {
    let connection = worker.connect(route, Wanted::NewElsewhere(*failed)).await?;
    *failed = connection.backend_id();
    let outgoing = OutgoingRequest { method: Method::Get, head, content: &mut None, interim: None };
    Ok(Exchange::start(connection, outgoing, worker.config()).await?)
}
