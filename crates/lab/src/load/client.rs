//! One client: asks for one thing after another, over a connection that it keeps or a new one each time.

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
use super::recorder::{Arrivals, Counted, Recorder, UnderWay};
use super::response::{Sink, check_range};
use super::sources::Sources;
use super::target::Target;
use super::{ErrorKind, Failure};

/// A client that cannot connect waits so long before it tries again, unless a rate says when it does.
pub const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// What all clients do.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What is asked for, at least one.
    pub targets: Vec<Target>,
    /// At random from this seed; else in turn, each client beginning at another.
    pub random: Option<u64>,
    /// Ranges of so many bytes, one after the other, until the content's end; else all of it.
    pub range_bytes: Option<u64>,
    /// A new connection for each request.
    pub is_fresh: bool,
    /// Whether every byte is compared with [`Content`].
    pub verify: bool,
    /// Whether requests carry CMCD, and with which bitrate in kbit/s.
    pub cmcd: Option<Option<u64>>,
    /// How long what may take.
    pub timeouts: Timeouts,
    /// Where clients connect from.
    pub sources: Sources,
}

/// What lets a client begin a request.
#[derive(Debug, Clone, Default)]
pub(super) struct Starter {
    /// Requests that may still be begun, in all threads; else any number.
    pub(super) budget: Option<Arc<AtomicU64>>,
    /// When they are due; else as soon as the one before has ended.
    pub(super) pacer: Option<Arc<Pacer>>,
}

impl Starter {
    /// Waits until a request may begin, and says when it was due, if a rate says so. `None` if there are to be no more.
    pub(super) async fn next(&self) -> Option<Option<Instant>> {
        let due = match &self.pacer {
            Some(pacer) => Some(pacer.take().await?),
            None => None,
        };
        let one_less = |left: u64| left.checked_sub(1);
        let may_begin =
            self.budget.as_ref().is_none_or(|budget| budget.fetch_update(Relaxed, Relaxed, one_less).is_ok());
        may_begin.then_some(due)
    }

    /// Whether no request may be begun any more.
    pub(super) fn is_exhausted(&self) -> bool {
        self.budget.as_ref().is_some_and(|budget| budget.load(Relaxed) == 0)
    }
}

/// A client.
pub(super) struct Client {
    index: usize,
    plan: Arc<Plan>,
    starter: Starter,
    recorder: Recorder,
    random: Option<StdRng>,
    caller: Caller,
    target: usize,
    /// Where the next range begins; 0 if another target is due.
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
            // The first step goes to the target of its own index.
            target: (index + plan.targets.len() - 1) % plan.targets.len(),
            offset: 0,
            request: Vec::new(),
        }
    }

    /// Asks until nothing more may be begun.
    pub(super) async fn run(mut self) {
        while let Some(due) = self.starter.next().await {
            self.step();
            let is_connected = self.ask(due).await;
            if !is_connected && due.is_none() {
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        }
    }

    /// On to the next target, unless there is more of this one.
    fn step(&mut self) {
        if self.offset == 0 {
            let count = self.plan.targets.len();
            self.target = match &mut self.random {
                Some(random) => random.random_range(0..count),
                None => (self.target + 1) % count,
            };
        }
    }

    /// One request, counted from when it was due; whether there was a connection for it.
    async fn ask(&mut self, due: Option<Instant>) -> bool {
        let plan = Arc::clone(&self.plan);
        let target = &plan.targets[self.target];
        let begun = Instant::now();
        let counted = self.recorder.begin(due.unwrap_or(begun));
        self.write_request(target);
        if let Some(due) = due {
            self.recorder.time(counted, Time::Lateness, begun.saturating_duration_since(due));
        }
        let under_way = UnderWay::new(&self.recorder, counted, due);
        let mut taker = Taker::new(self, target, counted);
        let done = self.caller.call(target, &self.request, counted, &mut taker).await;
        under_way.ended();
        if plan.is_fresh {
            self.caller.close();
        }
        match done {
            Ok(exchange) => {
                let failure = refuse(exchange.status, target).or_else(|| taker.missing(&exchange, target));
                self.advance(&exchange, taker.complete_length);
                let times = times(&exchange, begun, due);
                let status = Some(exchange.status);
                self.recorder.end(counted, exchange.last_byte, status, &times, failure.as_ref());
                true
            }
            Err(NoResponse { failure, is_connected }) => {
                self.offset = 0;
                self.recorder.end(counted, Instant::now(), taker.status, &[], Some(&failure));
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

    /// Where the next range begins.
    fn advance(&mut self, exchange: &Exchange, complete_length: Option<u64>) {
        let next = self.offset + exchange.content_bytes;
        let is_more = exchange.status == 206 && complete_length.is_none_or(|length| next < length);
        self.offset = if is_more { next } else { 0 };
    }
}

/// A status that is an error.
pub(super) fn refuse(status: u16, target: &Target) -> Option<Failure> {
    let kind = match status {
        400..500 => ErrorKind::Status4xx,
        500.. => ErrorKind::Status5xx,
        _ => return None,
    };
    Some(Failure::new(kind, format!("{}: answered with {status}", target.url)))
}

/// What takes one response: counts it, and compares it with what it should be.
struct Taker {
    arrivals: Arrivals,
    /// The range asked for.
    range: Option<(u64, u64)>,
    is_verified: bool,
    /// As long as what comes is to be compared.
    verify: Option<Content>,
    /// Of the next byte.
    offset: u64,
    status: Option<u16>,
    complete_length: Option<u64>,
}

impl Taker {
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

impl Taker {
    /// What `--verify` misses in a response that has no wrong byte: the content, or the end of it.
    fn missing(&self, exchange: &Exchange, target: &Target) -> Option<Failure> {
        if !self.is_verified {
            return None;
        }
        let (status, bytes) = (exchange.status, exchange.content_bytes);
        let complete_bytes = if self.range.is_some() { self.complete_length } else { Some(bytes) };
        let what = match target.content_bytes {
            _ if !matches!(status, 200 | 206) => format!("answered with {status}"),
            _ if bytes == 0 => "answered without content".to_owned(),
            Some(asked) if complete_bytes.is_some_and(|complete| complete != asked) => {
                format!("answered with {} bytes instead of {asked}", complete_bytes.unwrap_or_default())
            }
            _ => return None,
        };
        Some(Failure::new(ErrorKind::Content, format!("{}: {what}", target.url)))
    }
}

impl Sink for Taker {
    fn head(&mut self, head: &ResponseHead) -> Result<(), Failure> {
        self.status = Some(head.status);
        if head.status >= 300 {
            // Content of another kind.
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
                format!("byte {at} is not what path and offset say"),
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
