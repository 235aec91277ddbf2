//! HTTP client that sends one request after another, over a persistent connection or a new one per
//! request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng};
use thalweg_http::ResponseHead;

use super::caller::{Caller, NoResponse, times};
use super::cmcd::{ObjectType, Report};
use super::connection::{Exchange, Timeouts};
use super::content::Content;
use super::figures::Time;
use super::pacer::Pacer;
use super::recorder::{Arrivals, Counted, InFlight, Recorder};
use super::response::{Sink, check_range};
use super::sources::Sources;
use super::target::Target;
use super::{ErrorKind, Failure};

/// Pause after a failed connection attempt in the closed model.
pub const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Behaviour of all clients.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Targets to request; at least one.
    pub targets: Vec<Target>,
    /// Seed for choosing targets at random. If `None`, each client requests all targets in turn,
    /// and clients start at different targets.
    pub random: Option<u64>,
    /// Size of the consecutive ranges in which to request the content; if `None`, all content is
    /// requested at once.
    pub range_bytes: Option<u64>,
    /// Whether to open a new connection for each request.
    pub is_fresh: bool,
    /// Whether to compare every byte with [`Content`].
    pub verify: bool,
    /// Encoded bitrate to report with CMCD, in kbit/s, if known. The outer `None` sends no CMCD.
    pub cmcd: Option<Option<u64>>,
    /// Time limits.
    pub timeouts: Timeouts,
    /// Source addresses.
    pub sources: Sources,
}

/// Decides when a client may start a request.
#[derive(Debug, Clone, Default)]
pub(super) struct Starter {
    /// Number of requests that may still start, across all threads; unlimited if `None`.
    pub(super) budget: Option<Arc<AtomicU64>>,
    /// Pacer of the open model; if `None`, a client's next request may start when the previous one
    /// completes.
    pub(super) pacer: Option<Arc<Pacer>>,
}

impl Starter {
    /// Waits until a request may start and returns its due time, which is `Some(None)` in the
    /// closed model. Returns `None` when no more requests may start.
    pub(super) async fn next(&self) -> Option<Option<Instant>> {
        let due = match &self.pacer {
            Some(pacer) => Some(pacer.next_ticket().await?),
            None => None,
        };
        let one_less = |left: u64| left.checked_sub(1);
        let may_start =
            self.budget.as_ref().is_none_or(|budget| budget.fetch_update(Relaxed, Relaxed, one_less).is_ok());
        may_start.then_some(due)
    }

    /// Returns whether no more requests may start.
    pub(super) fn is_exhausted(&self) -> bool {
        self.budget.as_ref().is_some_and(|budget| budget.load(Relaxed) == 0)
    }
}

/// One client.
pub(super) struct Client {
    index: usize,
    plan: Arc<Plan>,
    starter: Starter,
    recorder: Recorder,
    random: Option<StdRng>,
    caller: Caller,
    target: usize,
    /// Offset of the next range; at 0, the client moves to the next target.
    offset: u64,
    request: Vec<u8>,
}

impl Client {
    pub(super) fn new(index: usize, plan: &Arc<Plan>, starter: &Starter, recorder: &Recorder) -> Self {
        let random = plan.random.map(|seed| StdRng::seed_from_u64(seed ^ (index as u64).rotate_left(32)));
        Self {
            index,
            plan: Arc::clone(plan),
            starter: starter.clone(),
            recorder: recorder.clone(),
            random,
            caller: Caller::new(plan.sources.of(index), plan.timeouts, recorder.clone()),
            // The first step moves to target `index`.
            target: (index + plan.targets.len() - 1) % plan.targets.len(),
            offset: 0,
            request: Vec::new(),
        }
    }

    /// Sends requests until no more may start.
    pub(super) async fn run(mut self) {
        while let Some(due) = self.starter.next().await {
            self.step();
            let is_connected = self.send_request(due).await;
            if !is_connected && due.is_none() {
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        }
    }

    /// Moves to the next target, unless ranges of the current one remain.
    fn step(&mut self) {
        if self.offset == 0 {
            let count = self.plan.targets.len();
            self.target = match &mut self.random {
                Some(random) => random.random_range(0..count),
                None => (self.target + 1) % count,
            };
        }
    }

    /// Sends one request, measured from its due time. Returns `false` if no connection could be
    /// opened.
    async fn send_request(&mut self, due: Option<Instant>) -> bool {
        let plan = Arc::clone(&self.plan);
        let target = &plan.targets[self.target];
        let started = Instant::now();
        let counted = self.recorder.begin(due.unwrap_or(started));
        self.write_request(target);
        if let Some(due) = due {
            self.recorder.time(counted, Time::Lateness, started.saturating_duration_since(due));
        }
        let in_flight = InFlight::new(&self.recorder, counted, due);
        let mut sink = ResponseSink::new(self, target, counted);
        let done = self.caller.call(target, &self.request, counted, &mut sink).await;
        in_flight.finish();
        if plan.is_fresh {
            self.caller.close();
        }
        match done {
            Ok(exchange) => {
                let failure =
                    status_failure(exchange.status, target).or_else(|| sink.missing(&exchange, target));
                self.advance(&exchange, sink.complete_length);
                let times = times(&exchange, started, due);
                let status = Some(exchange.status);
                self.recorder.end(counted, exchange.last_byte, status, &times, failure.as_ref());
                true
            }
            Err(NoResponse { failure, is_connected }) => {
                self.offset = 0;
                self.recorder.end(counted, Instant::now(), sink.status, &[], Some(&failure));
                is_connected
            }
        }
    }

    fn write_request(&mut self, target: &Target) {
        let range = self.plan.range_bytes.map(|bytes| (self.offset, self.offset + bytes - 1));
        let more = self.plan.cmcd.map(|bitrate_kbit_per_s| {
            let path = target.target.split_once('?').map_or(&*target.target, |(path, _)| path);
            let content = path.rsplit_once('/').map_or(path, |(directory, _)| directory);
            let session = format!("{:016x}-{}", self.recorder.run(), self.index);
            let object = ObjectType::of(path);
            let bitrate_bits_per_s = bitrate_kbit_per_s.unwrap_or_default() * 1000;
            Report { bitrate_bits_per_s, ..Report::new(&session, content, object) }.fields()
        });
        target.write_request(range, more.as_deref().unwrap_or_default(), &mut self.request);
    }

    /// Sets the start of the next range.
    fn advance(&mut self, exchange: &Exchange, complete_length: Option<u64>) {
        let next = self.offset + exchange.content_bytes;
        let is_more = exchange.status == 206 && complete_length.is_none_or(|length| next < length);
        self.offset = if is_more { next } else { 0 };
    }
}

/// Returns the failure for a status of 400 or above.
pub(super) fn status_failure(status: u16, target: &Target) -> Option<Failure> {
    let kind = match status {
        400..500 => ErrorKind::Status4xx,
        500.. => ErrorKind::Status5xx,
        _ => return None,
    };
    Some(Failure::new(kind, format!("{}: responded with {status}", target.url)))
}

/// Counts one response and compares it with the expected content.
struct ResponseSink {
    arrivals: Arrivals,
    /// The requested range.
    range: Option<(u64, u64)>,
    is_verified: bool,
    /// Expected content; `None` if the content is not compared.
    verify: Option<Content>,
    /// Offset of the next content byte.
    offset: u64,
    status: Option<u16>,
    complete_length: Option<u64>,
}

impl ResponseSink {
    fn new(client: &Client, target: &Target, counted: Counted) -> Self {
        let range = client.plan.range_bytes.map(|bytes| (client.offset, client.offset + bytes - 1));
        Self {
            arrivals: Arrivals::new(&client.recorder, counted),
            range,
            is_verified: client.plan.verify,
            verify: client.plan.verify.then_some(target.content),
            offset: client.offset,
            status: None,
            complete_length: None,
        }
    }
}

impl ResponseSink {
    /// Returns a failure if content is verified and the response has an unexpected status, no
    /// content, or content of the wrong length.
    fn missing(&self, exchange: &Exchange, target: &Target) -> Option<Failure> {
        if !self.is_verified {
            return None;
        }
        let (status, bytes) = (exchange.status, exchange.content_bytes);
        let complete_bytes = if self.range.is_some() { self.complete_length } else { Some(bytes) };
        let what = match target.content_bytes {
            _ if !matches!(status, 200 | 206) => format!("responded with {status}"),
            _ if bytes == 0 => "responded without content".to_owned(),
            Some(expected) if complete_bytes.is_some_and(|complete| complete != expected) => {
                format!("responded with {} bytes instead of {expected}", complete_bytes.unwrap_or_default())
            }
            _ => return None,
        };
        Some(Failure::new(ErrorKind::Content, format!("{}: {what}", target.url)))
    }
}

impl Sink for ResponseSink {
    fn head(&mut self, head: &ResponseHead) -> Result<(), Failure> {
        self.status = Some(head.status);
        if head.status >= 300 {
            // Error responses do not have the expected content.
            self.verify = None;
            return Ok(());
        }
        let Some((first, last)) = self.range else { return Ok(()) };
        self.complete_length = check_range(head, first, last)?;
        Ok(())
    }

    fn is_reading(&self) -> bool {
        self.verify.is_some()
    }

    fn read(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let Some(content) = self.verify else { return Ok(()) };
        if let Some(at) = content.find_difference(self.offset, bytes) {
            return Err(Failure::new(
                ErrorKind::Content,
                format!("byte {at} differs from the expected content"),
            ));
        }
        self.offset += bytes.len() as u64;
        Ok(())
    }

    fn arrived(&mut self, at: Instant, bytes: u64) {
        self.arrivals.content(at, bytes);
    }

    fn chunk(&mut self, at: Instant) {
        self.arrivals.chunk(at);
    }
}
