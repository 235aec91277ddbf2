//! Socket collector: a thread that periodically dumps the machine's sockets and reads destroy
//! events as they arrive.
//!
//! The machines in a fleet should not all dump at the same moment. Each machine therefore has an
//! offset within the period, derived from its name.

use std::num::NonZeroU32;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::time::{ClockId, clock_gettime};
use thalweg_record::{Record, Stage};
use thalweg_tcp::diag::{Diag, Error, Events, EventsRead, Extensions, Filter, Socket};

use super::intake::{CHUNK_RECORDS, Intake};
use super::saved::Saved;
use super::tracker::Tracker;
use crate::clock::Moment;

/// Size of the receive buffer for destroy events in bytes, as accounted by the kernel: room for
/// about 50,000 events.
const EVENTS_QUEUE_BYTES: usize = 64 << 20;

/// Minimum interval between saves of socket totals.
const SAVE_INTERVAL_MIN: Duration = Duration::from_secs(5);
/// Maximum interval between saves, even without a dump. The spool keeps all records since the last
/// save, so rare saves would fill it.
const SAVE_INTERVAL_MAX: Duration = Duration::from_secs(60);

/// Collector configuration.
#[derive(Debug)]
pub struct SocketsConfig {
    /// Host name, which determines the offset of the host's dumps.
    pub host: String,
    /// Interval between dumps.
    pub period: Duration,
    /// Filter that selects the sockets to collect.
    pub filter: Filter,
    /// Sampling rate: one in this many matching sockets is tracked, for its entire lifetime.
    pub one_in: NonZeroU32,
    /// Network namespaces to collect from; if empty, only the process's own namespace.
    pub places: Vec<Namespace>,
}

impl SocketsConfig {
    /// Returns a hash of the settings that decide which sockets are tracked.
    fn choice(&self) -> u64 {
        twox_hash::XxHash3_64::oneshot(format!("{:?} {}", self.filter, self.one_in).as_bytes())
    }
}

/// A network namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespace {
    /// Name under which the namespace appears in records.
    pub name: String,
    /// Path of the namespace file, such as `/run/netns/NAME`.
    pub path: PathBuf,
}

/// The collector's counters.
#[derive(Debug, Default)]
pub struct CollectorFigures {
    /// Rounds of dumps over all namespaces, including rounds in which a dump failed.
    pub dumps: AtomicU64,
    /// Failed dumps, counted per namespace.
    pub dumps_failed: AtomicU64,
    /// Sockets in the last dump, across all namespaces.
    pub sockets: AtomicU64,
    /// Duration of the last dump in microseconds.
    pub dump_us: AtomicU64,
    /// Total CPU time of all dumps in microseconds.
    pub dump_cpu_us: AtomicU64,
    /// Destroy events recorded.
    pub destroyed: AtomicU64,
    /// Destroy events lost by the kernel.
    pub events_lost: AtomicU64,
}

/// A socket collector, which runs until stopped.
#[derive(Debug)]
pub struct Collector {
    config: SocketsConfig,
    watched: Vec<Watched>,
    intake: Intake,
    figures: Arc<CollectorFigures>,
    stop: Arc<OwnedFd>,
    saved: Option<Instant>,
}

/// Handle that stops a [`Collector`].
#[derive(Debug, Clone)]
pub struct Stop(Arc<OwnedFd>);

impl Stop {
    /// Wakes the collector and makes it stop.
    pub fn stop(&self) {
        // Writing to an eventfd blocks only if the counter would reach 2^64 - 1.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

/// A namespace with its sock_diag sockets, one for dumps and one for events.
#[derive(Debug)]
struct Watched {
    name: Option<String>,
    diag: Diag,
    events: Events,
    tracker: Tracker,
}

impl Collector {
    /// Opens the namespaces. Trackers continue from `saved` if it was saved with the same filter
    /// and sampling rate.
    ///
    /// # Errors
    ///
    /// Returns an error if the kernel lacks sock_diag, or a namespace cannot be entered.
    pub fn open(config: SocketsConfig, intake: Intake, saved: Option<Saved>) -> Result<(Self, Stop), Error> {
        let mut saved = saved.filter(|saved| saved.of == config.choice()).unwrap_or_default().namespaces;
        let mut tracker = |name: Option<String>| match saved.remove(name.as_deref().unwrap_or_default()) {
            Some(known) => Tracker::resumed(name, config.one_in, known, Moment::now()),
            None => Tracker::new(name, config.one_in),
        };
        let mut watched = Vec::new();
        for Namespace { name, path } in &config.places {
            let (diag, events) = (Diag::open_in(path)?, Events::open_in(path, EVENTS_QUEUE_BYTES)?);
            watched.push(Watched {
                name: Some(name.clone()),
                diag,
                events,
                tracker: tracker(Some(name.clone())),
            });
        }
        if watched.is_empty() {
            let (diag, events) = (Diag::open()?, Events::open(EVENTS_QUEUE_BYTES)?);
            watched.push(Watched { name: None, diag, events, tracker: tracker(None) });
        }
        for Watched { name, events, .. } in &watched {
            let queue_bytes = events.queue_bytes()?;
            if queue_bytes < EVENTS_QUEUE_BYTES {
                let (wanted_bytes, namespace) = (EVENTS_QUEUE_BYTES, name.as_deref());
                let why = "destroy events may be lost: without CAP_NET_ADMIN their receive buffer is small";
                tracing::warn!(namespace, queue_bytes, wanted_bytes, "{why}");
            }
        }
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).map_err(|error| Error::Io(error.into()))?);
        let figures = Arc::default();
        Ok((Self { config, watched, intake, figures, stop: stop.clone(), saved: None }, Stop(stop)))
    }

    /// Returns the collector's counters, which are updated while it runs.
    pub fn figures(&self) -> Arc<CollectorFigures> {
        self.figures.clone()
    }

    /// Collects until stopped, then makes a final dump to record the latest counts.
    pub fn run(mut self) {
        let mut next = Instant::now() + offset(&self.config.host, self.config.period);
        // Dump at once. Otherwise, a connection that is already open but closes before the first
        // dump would be mistaken for a new connection.
        self.dump();
        self.save(false);
        loop {
            let save_due = self.saved.map_or(next, |saved| saved + SAVE_INTERVAL_MAX);
            let is_stopped = self.wait_until(next.min(save_due));
            self.read_events();
            let now = Instant::now();
            if now >= next || is_stopped {
                self.dump();
                self.save(is_stopped);
                next += self.config.period;
                if next <= now {
                    // More than a period late, as after a suspend. Skip the missed dumps.
                    next = now + self.config.period;
                }
            } else if now >= save_due {
                self.save(false);
            }
            if is_stopped {
                return;
            }
        }
    }

    /// Queues the socket totals to be saved, if a save is due or `is_last` is set.
    fn save(&mut self, is_last: bool) {
        if !is_last && self.saved.is_some_and(|saved| saved.elapsed() < SAVE_INTERVAL_MIN) {
            return;
        }
        self.saved = Some(Instant::now());
        let mut out = Saved::begin(self.config.choice(), Moment::now().unix_us, self.watched.len());
        self.watched.iter().for_each(|watched| watched.tracker.save(&mut out));
        self.intake.push_socket_state(out);
    }

    /// Waits until a destroy event arrives, a stop is requested or `next` is reached. Returns
    /// whether a stop was requested.
    fn wait_until(&self, next: Instant) -> bool {
        let left = next.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut fds: Vec<PollFd<'_>> = vec![PollFd::new(&*self.stop, PollFlags::IN)];
        let event_fds = self.watched.iter().map(|watched| watched.events.as_fd());
        fds.extend(event_fds.map(|fd: BorrowedFd<'_>| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        // Treat a signal or an error as a timeout, because the caller checks all conditions again.
        let _ = poll(&mut fds, Some(&timeout));
        fds[0].revents().contains(PollFlags::IN)
    }

    /// Reads all pending destroy events.
    fn read_events(&mut self) {
        for watched in &mut self.watched {
            let now = Moment::now();
            let Watched { name, events, tracker, .. } = watched;
            let mut each = |socket: &Socket| {
                if self.config.filter.holds_ends(socket)
                    && let Some(ended) = tracker.destroyed(socket, now)
                {
                    self.figures.destroyed.fetch_add(1, Relaxed);
                    self.intake.push_ended(ended);
                }
            };
            match events.read(&mut each) {
                Ok(read) => {
                    let lost = lost(read);
                    if lost > 0 {
                        tracker.note_lost_events();
                    }
                    self.figures.events_lost.fetch_add(lost, Relaxed);
                    self.intake.count_lost(Stage::Events, lost);
                }
                Err(error) => {
                    tracker.note_lost_events();
                    self.figures.events_lost.fetch_add(1, Relaxed);
                    self.intake.count_lost(Stage::Events, 1);
                    tracing::error!(%error, namespace = name.as_deref(), "cannot read destroy events");
                }
            }
        }
    }

    fn dump(&mut self) {
        let (started, cpu_started) = (Instant::now(), thread_cpu());
        let mut sockets = 0;
        for watched in &mut self.watched {
            let Watched { name, diag, tracker, .. } = watched;
            let now = Moment::now();
            let mut chunk = Vec::new();
            let each = |socket: &Socket| {
                chunk.extend(tracker.dumped(socket, now).map(|record| Record::Socket(Box::new(record))));
                if chunk.len() == CHUNK_RECORDS {
                    self.intake.push_dump(std::mem::take(&mut chunk));
                }
            };
            let dumped = diag.dump(&self.config.filter, Extensions::ALL, each);
            self.intake.push_dump(chunk);
            match dumped {
                Ok(dumped) => {
                    sockets += dumped.sockets;
                    tracker.end_dump();
                }
                Err(error) => {
                    self.figures.dumps_failed.fetch_add(1, Relaxed);
                    tracing::error!(%error, namespace = name.as_deref(), "cannot dump sockets");
                }
            }
            self.intake.count_lost(Stage::Events, tracker.take_untracked());
        }
        let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.figures.dumps.fetch_add(1, Relaxed);
        self.figures.sockets.store(sockets, Relaxed);
        self.figures.dump_us.store(micros(started.elapsed()), Relaxed);
        self.figures.dump_cpu_us.fetch_add(micros(thread_cpu().saturating_sub(cpu_started)), Relaxed);
    }
}

/// Returns the number of lost events. If the kernel does not count them, each overrun counts as one
/// event.
fn lost(read: EventsRead) -> u64 {
    read.lost.unwrap_or(read.overruns)
}

/// Returns a host's offset within the period.
fn offset(host: &str, period: Duration) -> Duration {
    let hash = twox_hash::XxHash3_64::oneshot(host.as_bytes()) >> 32;
    period.mul_f64(hash as f64 / f64::from(u32::MAX))
}

/// Returns the CPU time used by this thread.
fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dumps_of_many_machines_are_spread_over_the_period() {
        const NAMES: usize = 1000;
        let period = Duration::from_secs(10);
        for domain in ["", ".fra1.example.net"] {
            let mut each_second = [0; 10];
            for number in 0..NAMES {
                let offset = offset(&format!("edge-{number}{domain}"), period);
                assert!(offset < period, "{offset:?}");
                each_second[offset.as_secs() as usize] += 1;
            }
            // About 100 are expected per second. Names that differ in a single digit hash less
            // evenly than random names.
            assert!(each_second.iter().all(|names| (50..=150).contains(names)), "{each_second:?}");
        }
        assert_eq!(offset("a", period), offset("a", period));
    }
}
