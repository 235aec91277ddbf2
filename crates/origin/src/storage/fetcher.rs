//! Requests to remote storage: repeated after temporary failures, and hedged when slow.
//!
//! Repetitions and hedges have budgets, so they cannot multiply the load of storage that is
//! overloaded. A repetition takes a token, and every ten responses give one back. A hedge is a
//! second request sent when the first byte is later than that of 95 % of recent reads; the first
//! good response wins. Of a hundred reads, at most two are hedged.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use futures_util::future::{Either, select};
use hyper::http::response::Parts;
use hyper::{Request, Response};
use tokio::time::{sleep, timeout};

use super::pool::{Content, Failure, FailureKind, Pool};

/// Maximum attempts for a request.
const ATTEMPTS_MAX: u32 = 4;
/// Pause before the second attempt, doubled for each further one. The actual pause is random,
/// between half of this and all of it.
const PAUSE: Duration = Duration::from_millis(50);
/// Maximum tokens for repetitions, in tenths.
const TOKENS_MAX: u64 = 100;
/// Tokens for one repetition, in tenths. A response gives back one tenth.
const TOKENS_PER_ATTEMPT: u64 = 10;
/// Recent reads whose first byte is remembered.
const RECENT_READS: usize = 256;
/// Reads after which the 95th percentile is computed again. There are no hedges before.
const READS_PER_UPDATE: u64 = 32;
/// Reads per hedge: 2 %.
const READS_PER_HEDGE: u64 = 50;
/// Minimum time before a hedge, so that noise on a fast network causes none.
const HEDGE_AFTER_MIN: Duration = Duration::from_millis(10);
/// Maximum length of the content of an error response, in bytes.
const ERROR_BYTES_MAX: usize = 64 << 10;

/// Judges the head of a response: whether it is what was requested.
pub(super) type Accept<'a> = &'a (dyn Fn(&Parts) -> Result<(), FailureKind> + Sync);

/// Sends requests to one library.
#[derive(Debug)]
pub(crate) struct Fetcher {
    pool: Pool,
    /// Tokens in tenths.
    tokens: AtomicU64,
    first_bytes: Mutex<FirstBytes>,
    /// Microseconds after which a read is hedged; 0 if not yet known.
    hedge_after_us: AtomicU64,
}

/// Times from request to first byte, in microseconds.
#[derive(Debug, Default)]
struct FirstBytes {
    recent_us: Vec<u64>,
    next: usize,
}

impl Fetcher {
    pub(super) fn new(pool: Pool) -> Fetcher {
        Fetcher {
            pool,
            tokens: AtomicU64::new(TOKENS_MAX),
            first_bytes: Mutex::default(),
            hedge_after_us: AtomicU64::new(0),
        }
    }

    /// Returns the time to the first byte that 95 % of recent reads stayed below.
    pub(crate) fn first_byte_p95(&self) -> Option<Duration> {
        Some(self.hedge_after_us.load(Ordering::Relaxed)).filter(|us| *us > 0).map(Duration::from_micros)
    }

    /// Sends a request until its response is acceptable. `is_read` marks a ranged read, which may
    /// be hedged.
    pub(super) async fn fetch(
        &self,
        request: &Request<Bytes>,
        is_read: bool,
        accept: Accept<'_>,
    ) -> Result<Response<Content>, Failure> {
        let mut attempt = 1;
        loop {
            let sent =
                if is_read { self.hedged(request).await } else { self.pool.send(request.clone()).await };
            let failure = match sent {
                Ok(response) => match self.judge(response, accept).await {
                    Ok(response) => {
                        self.give_back();
                        return Ok(response);
                    }
                    Err(failure) => failure,
                },
                Err(failure) => failure,
            };
            self.pool.stats().fail(failure.kind);
            if !failure.kind.may_pass() || attempt == ATTEMPTS_MAX || !self.may_repeat() {
                return Err(failure);
            }
            tracing::debug!(%failure, kind = failure.kind.name(), attempt, "storage request repeated");
            sleep(pause(attempt)).await;
            attempt += 1;
        }
    }

    /// Takes a token for a repetition. Returns false if the budget is used up.
    pub(super) fn may_repeat(&self) -> bool {
        let take = |tokens: u64| tokens.checked_sub(TOKENS_PER_ATTEMPT);
        let is_allowed = self.tokens.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).is_ok();
        let stats = self.pool.stats();
        if is_allowed { &stats.repeated } else { &stats.unrepeated }.inc();
        is_allowed
    }

    pub(super) fn pool(&self) -> &Pool {
        &self.pool
    }

    fn give_back(&self) {
        let give = |tokens: u64| (tokens < TOKENS_MAX).then_some(tokens + 1);
        let _ = self.tokens.fetch_update(Ordering::AcqRel, Ordering::Acquire, give);
    }

    /// Returns the response if its head is acceptable. Otherwise returns a failure; for an error
    /// status, its message includes the reason given in the content.
    async fn judge(
        &self,
        response: Response<Content>,
        accept: Accept<'_>,
    ) -> Result<Response<Content>, Failure> {
        let (head, content) = response.into_parts();
        let Err(kind) = accept(&head) else { return Ok(Response::from_parts(head, content)) };
        if head.status.is_success() {
            // The content can be long, so it is not read.
            let message = match kind {
                FailureKind::Range => "storage did not send the requested range",
                FailureKind::Changed | FailureKind::Version => "storage sent another version",
                _ => "unexpected response from storage",
            };
            return Err(Failure::new(kind, message));
        }
        let content = content.collect(ERROR_BYTES_MAX).await.unwrap_or_default();
        Err(refusal(kind, &head, &String::from_utf8_lossy(&content)))
    }

    /// Sends a read, and a second one if the first is slow and the budget allows it.
    async fn hedged(&self, request: &Request<Bytes>) -> Result<Response<Content>, Failure> {
        let (begun, stats) = (Instant::now(), self.pool.stats());
        stats.reads.inc();
        let mut first = pin!(self.pool.send(request.clone()));
        let sent = match self.first_byte_p95() {
            None => first.await,
            Some(p95) => match timeout(p95.max(HEDGE_AFTER_MIN), &mut first).await {
                Ok(sent) => sent,
                Err(_) if stats.hedges.get() * READS_PER_HEDGE >= stats.reads.get() => first.await,
                Err(_) => {
                    stats.hedges.inc();
                    let second = pin!(self.pool.send_at_once(request.clone()));
                    match select(first, second).await {
                        Either::Left((Ok(response), _)) => Ok(response),
                        Either::Left((Err(failure), second)) => second.await.unwrap_or(Err(failure)),
                        Either::Right((Some(Ok(response)), _)) if response.status().is_success() => {
                            stats.hedges_won.inc();
                            Ok(response)
                        }
                        Either::Right((_, first)) => first.await,
                    }
                }
            },
        };
        if sent.is_ok() {
            self.remember(begun.elapsed());
        }
        sent
    }

    fn remember(&self, first_byte: Duration) {
        let us = u64::try_from(first_byte.as_micros()).unwrap_or(u64::MAX);
        let mut times = self.first_bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let at = times.next % RECENT_READS;
        match times.recent_us.get_mut(at) {
            Some(time) => *time = us,
            None => times.recent_us.push(us),
        }
        times.next += 1;
        if (times.next as u64).is_multiple_of(READS_PER_UPDATE) {
            let mut sorted = times.recent_us.clone();
            sorted.sort_unstable();
            self.hedge_after_us.store(sorted[(sorted.len() - 1) * 95 / 100].max(1), Ordering::Relaxed);
        }
    }
}

/// Returns a random pause before the attempt after `attempt`.
fn pause(attempt: u32) -> Duration {
    let pause = PAUSE * 2_u32.pow(attempt - 1);
    let nanos = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.subsec_nanos());
    pause / 2 + pause / 2 * (nanos % 1000) / 1000
}

/// Describes an error response.
fn refusal(kind: FailureKind, head: &Parts, content: &str) -> Failure {
    let element = |name: &str| {
        let (_, rest) = content.split_once(&format!("<{name}>"))?;
        rest.split_once("</").map(|(text, _)| text.trim())
    };
    let status = head.status;
    let Some(code) = element("Code") else {
        return Failure::new(kind, format!("storage responded with {status}"));
    };
    let kind = match code {
        "ExpiredToken" | "InvalidToken" | "TokenRefreshRequired" | "InvalidAccessKeyId" => {
            FailureKind::Credentials
        }
        _ => kind,
    };
    let region = head.headers.get("x-amz-bucket-region").and_then(|region| region.to_str().ok());
    let remedy = match (code, region) {
        ("PermanentRedirect" | "AuthorizationHeaderMalformed", Some(region)) => {
            format!("; set s3_region = \"{region}\"")
        }
        ("AccessDenied" | "SignatureDoesNotMatch", _) => {
            String::from("; the credentials need s3:ListBucket and s3:GetObject")
        }
        _ => String::new(),
    };
    let message = element("Message").unwrap_or_default();
    Failure::new(kind, format!("storage responded with {status}: {code}: {message}{remedy}"))
}
