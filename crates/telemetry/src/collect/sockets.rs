//! The sockets of the machine: a dump each period, and the destroyed ones as they go, on one thread.
//!
//! Dumps of many machines must not come at the same moment: each machine has an offset within the period, by its name.

use std::num::NonZeroU32;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::time::{ClockId, clock_gettime};
use thalweg_record::{Record, Stage};
use thalweg_tcp::diag::{Diag, Error, Events, Extensions, Filter, Heard, Socket};

use super::intake::{CHUNK_RECORDS, Intake};
use super::saved::Saved;
use super::tracker::Tracker;
use crate::clock::Moment;

/// The queue of destroyed sockets, in bytes as the kernel counts them: some 50,000 events.
const EVENTS_QUEUE_BYTES: usize = 64 << 20;

/// What sockets have counted is saved no more often.
const SAVE_INTERVAL_MIN: Duration = Duration::from_secs(5);
/// Nor less often, also between dumps: the spool keeps all records since.
const SAVE_INTERVAL_MAX: Duration = Duration::from_secs(60);

/// What is collected.
#[derive(Debug)]
pub struct SocketsConfig {
    /// The machine's name, by which dumps are spread.
    pub host: String,
    /// Between dumps.
    pub period: Duration,
    /// The sockets that are wanted.
    pub filter: Filter,
    /// Of those, one in so many, each followed for its life.
    pub one_in: NonZeroU32,
    /// The network namespaces, the process's own if there is none.
    pub places: Vec<Place>,
}

impl SocketsConfig {
    /// What decides which sockets are followed.
    fn choice(&self) -> u64 {
        twox_hash::XxHash3_64::oneshot(format!("{:?} {}", self.filter, self.one_in).as_bytes())
    }
}

/// A network namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Its name in records.
    pub name: String,
    /// Its file.
    pub path: PathBuf,
}

/// What the collector has done so far.
#[derive(Debug, Default)]
pub struct CollectorFigures {
    /// Dumps.
    pub dumps: AtomicU64,
    /// Dumps that could not be made.
    pub dumps_failed: AtomicU64,
    /// Sockets in the last dump, of all namespaces.
    pub sockets: AtomicU64,
    /// How long the last dump took.
    pub dump_us: AtomicU64,
    /// The CPU time of all dumps.
    pub dump_cpu_us: AtomicU64,
    /// Sockets of which the last words were heard.
    pub destroyed: AtomicU64,
    /// Events of destroyed sockets that were lost.
    pub events_lost: AtomicU64,
}

/// Collects until it is stopped.
#[derive(Debug)]
pub struct Collector {
    config: SocketsConfig,
    watched: Vec<Watched>,
    intake: Intake,
    figures: Arc<CollectorFigures>,
    stop: Arc<OwnedFd>,
    saved: Option<Instant>,
}

/// Ends a [`Collector`].
#[derive(Debug, Clone)]
pub struct Stop(Arc<OwnedFd>);

impl Stop {
    /// Wakes the collector, which then ends.
    pub fn stop(&self) {
        // An eventfd takes eight bytes unless it counts to 2^64.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

/// A namespace with its ears.
#[derive(Debug)]
struct Watched {
    name: Option<String>,
    diag: Diag,
    events: Events,
    tracker: Tracker,
}

impl Collector {
    /// Opens the namespaces. Trackers go on with what is `saved` of them, if that is of the same choice of sockets.
    ///
    /// # Errors
    /// When the kernel has no sock_diag, or a namespace cannot be entered.
    pub fn open(config: SocketsConfig, intake: Intake, saved: Option<Saved>) -> Result<(Self, Stop), Error> {
        let mut saved = saved.filter(|saved| saved.of == config.choice()).unwrap_or_default().namespaces;
        let mut tracker = |name: Option<String>| match saved.remove(name.as_deref().unwrap_or_default()) {
            Some(known) => Tracker::going_on(name, config.one_in, known, Moment::now()),
            None => Tracker::new(name, config.one_in),
        };
        let mut watched = Vec::new();
        for Place { name, path } in &config.places {
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
                let why = "ends of connections may be lost: the kernel's queue of them is short without CAP_NET_ADMIN";
                tracing::warn!(namespace, queue_bytes, wanted_bytes, "{why}");
            }
        }
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).map_err(|error| Error::Io(error.into()))?);
        let figures = Arc::default();
        Ok((Self { config, watched, intake, figures, stop: stop.clone(), saved: None }, Stop(stop)))
    }

    /// What it has done so far, also while it runs.
    pub fn figures(&self) -> Arc<CollectorFigures> {
        self.figures.clone()
    }

    /// Collects until it is stopped; then once more, so that what happened until then is there.
    pub fn run(mut self) {
        let mut next = Instant::now() + offset(&self.config.host, self.config.period);
        // What is there at the start is known from the start: else a connection that ends before the first dump would seem to
        // have come and gone since.
        self.dump();
        self.save(false);
        loop {
            let save_due = self.saved.map_or(next, |saved| saved + SAVE_INTERVAL_MAX);
            let is_stopped = self.wait_until(next.min(save_due));
            self.hear();
            let now = Instant::now();
            if now >= next || is_stopped {
                self.dump();
                self.save(is_stopped);
                next += self.config.period;
                if next <= now {
                    // Behind by more than a period, as after a suspend: the dumps in between have no sense any more.
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

    /// Has what sockets have counted saved, if that is due or the last time.
    fn save(&mut self, is_last: bool) {
        if !is_last && self.saved.is_some_and(|saved| saved.elapsed() < SAVE_INTERVAL_MIN) {
            return;
        }
        self.saved = Some(Instant::now());
        let mut out = Saved::begin(self.config.choice(), Moment::now().unix_us, self.watched.len());
        self.watched.iter().for_each(|watched| watched.tracker.save(&mut out));
        self.intake.save(out);
    }

    /// Waits until something was destroyed, or until `next`; whether the end was asked for.
    fn wait_until(&self, next: Instant) -> bool {
        let left = next.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut fds: Vec<PollFd<'_>> = vec![PollFd::new(&*self.stop, PollFlags::IN)];
        let ears = self.watched.iter().map(|watched| watched.events.as_fd());
        fds.extend(ears.map(|fd: BorrowedFd<'_>| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        // A signal or a failure is as good as a timeout: everything is looked at again.
        let _ = poll(&mut fds, Some(&timeout));
        fds[0].revents().contains(PollFlags::IN)
    }

    /// Reads the events that wait.
    fn hear(&mut self) {
        for watched in &mut self.watched {
            let now = Moment::now();
            let Watched { name, events, tracker, .. } = watched;
            let mut each = |socket: &Socket| {
                if self.config.filter.holds_ends(socket)
                    && let Some(record) = tracker.destroyed(socket, now)
                {
                    self.figures.destroyed.fetch_add(1, Relaxed);
                    self.intake.put(Record::Socket(Box::new(record)), Stage::Events);
                }
            };
            match events.read(&mut each) {
                Ok(heard) => {
                    let lost = lost(heard);
                    if lost > 0 {
                        tracker.lost_events();
                    }
                    self.figures.events_lost.fetch_add(lost, Relaxed);
                    self.intake.lost(Stage::Events, lost);
                }
                Err(error) => {
                    tracker.lost_events();
                    self.figures.events_lost.fetch_add(1, Relaxed);
                    self.intake.lost(Stage::Events, 1);
                    tracing::error!(%error, namespace = name.as_deref(), "cannot read a destroyed socket");
                }
            }
        }
    }

    fn dump(&mut self) {
        let (begun, cpu_begun) = (Instant::now(), thread_cpu());
        let mut sockets = 0;
        for watched in &mut self.watched {
            let Watched { name, diag, tracker, .. } = watched;
            let now = Moment::now();
            let mut chunk = Vec::new();
            let each = |socket: &Socket| {
                chunk.extend(tracker.dumped(socket, now).map(|record| Record::Socket(Box::new(record))));
                if chunk.len() == CHUNK_RECORDS {
                    self.intake.put_all(std::mem::take(&mut chunk));
                }
            };
            let dumped = diag.dump(&self.config.filter, Extensions::DELIVERY, each);
            self.intake.put_all(chunk);
            match dumped {
                Ok(dumped) => {
                    sockets += dumped.sockets;
                    tracker.end_dump();
                }
                Err(error) => {
                    self.figures.dumps_failed.fetch_add(1, Relaxed);
                    tracing::error!(%error, namespace = name.as_deref(), "cannot dump the sockets");
                }
            }
            self.intake.lost(Stage::Events, tracker.take_untracked());
        }
        let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.figures.dumps.fetch_add(1, Relaxed);
        self.figures.sockets.store(sockets, Relaxed);
        self.figures.dump_us.store(micros(begun.elapsed()), Relaxed);
        self.figures.dump_cpu_us.fetch_add(micros(thread_cpu().saturating_sub(cpu_begun)), Relaxed);
    }
}

/// Events that were lost; where the kernel does not count them, at least one for each overrun.
fn lost(heard: Heard) -> u64 {
    heard.lost.unwrap_or(heard.overruns)
}

/// Where in the period a machine's dumps are.
fn offset(host: &str, period: Duration) -> Duration {
    let place = twox_hash::XxHash3_64::oneshot(host.as_bytes()) >> 32;
    period.mul_f64(place as f64 / f64::from(u32::MAX))
}

/// The CPU time of this thread.
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
            // A hundred each, give or take half of it: names that differ in a digit are not as good as chance.
            assert!(each_second.iter().all(|names| (50..=150).contains(names)), "{each_second:?}");
        }
        assert_eq!(offset("a", period), offset("a", period));
    }
}
