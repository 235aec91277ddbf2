//! Recorder that collects the measurements of one thread's clients for the main thread.
//!
//! Requests that start during the warm-up are not counted. The lock is almost never contended and
//! costs about 20 ns; the main thread copies the figures once per second.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::Failure;
use super::figures::{Figures, Time};
use crate::viewer::figures::Viewers;

/// Clock of a run. It is monotonic even if the system clock is changed.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    /// Time at which the run started.
    pub began: Instant,
    /// Unix time at which the run started.
    pub began_wall: Duration,
}

/// Adds measurements to the figures of one thread.
#[derive(Debug, Clone)]
pub struct Recorder {
    figures: Arc<Mutex<Figures>>,
    clock: Clock,
    from: Instant,
    run: u64,
}

/// Whether a request is counted.
#[derive(Debug, Clone, Copy)]
pub struct Counted {
    is_counted: bool,
}

impl Clock {
    /// Creates a clock that starts now.
    pub fn start() -> Self {
        // Treat a system clock before 1970 as 1970.
        let began_wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { began: Instant::now(), began_wall }
    }

    /// Returns the time since the start of the run.
    pub fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Returns the current Unix time.
    pub fn wall(&self) -> Duration {
        self.began_wall + self.now()
    }

    /// Returns the Unix time at `at`, in microseconds.
    pub fn unix_us(&self, at: Instant) -> u64 {
        micros(self.began_wall + at.saturating_duration_since(self.began))
    }
}

impl Recorder {
    /// Creates a recorder that counts requests from `from` on. `run` identifies the run.
    pub fn new(clock: Clock, from: Instant, run: u64) -> Self {
        Self { figures: Arc::default(), clock, from, run }
    }

    /// Returns the figures so far.
    pub fn figures(&self) -> MutexGuard<'_, Figures> {
        // Ignore poisoning: a panic while counting loses at most one count.
        self.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the run's clock.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Returns the number that identifies the run.
    pub fn run(&self) -> u64 {
        self.run
    }

    fn unix_s(&self, at: Instant) -> u64 {
        (self.clock.began_wall + at.saturating_duration_since(self.clock.began)).as_secs()
    }

    /// Counts the start of a client.
    pub fn client_begins(&self) {
        let unix_s = self.unix_s(Instant::now());
        let mut figures = self.figures();
        figures.clients += 1;
        figures.second(unix_s).clients_begun += 1;
    }

    /// Counts the end of a client.
    pub fn client_ends(&self) {
        let unix_s = self.unix_s(Instant::now());
        self.figures().second(unix_s).clients_ended += 1;
    }

    /// Counts a request that started or was due at `at`.
    pub fn begin(&self, at: Instant) -> Counted {
        let is_counted = at >= self.from;
        if is_counted {
            self.figures().begun += 1;
        }
        Counted { is_counted }
    }

    /// Counts a completed request with its times and, if any, its status and failure.
    pub fn end(
        &self,
        request: Counted,
        at: Instant,
        status: Option<u16>,
        times: &[(Time, Duration)],
        failure: Option<&Failure>,
    ) {
        if !request.is_counted {
            return;
        }
        let unix_s = self.unix_s(at);
        let mut figures = self.figures();
        figures.requests += 1;
        if let Some(status) = status {
            *figures.statuses.entry(status).or_default() += 1;
        }
        for (time, value) in times {
            figures.record(*time, micros(*value));
        }
        let second = figures.second(unix_s);
        second.requests += 1;
        let ttfb = times.iter().filter(|(time, _)| *time == Time::Ttfb);
        ttfb.for_each(|(_, value)| second.ttfb.record(micros(*value)));
        if let Some(failure) = failure {
            second.errors += 1;
            figures.fail(failure.kind, self.clock.unix_us(at), &failure.detail);
        }
    }

    /// Counts unusable content of a request that completed without an error.
    pub fn fault(&self, failure: &Failure) {
        let at = Instant::now();
        let unix_s = self.unix_s(at);
        let mut figures = self.figures();
        figures.second(unix_s).errors += 1;
        figures.fail(failure.kind, self.clock.unix_us(at), &failure.detail);
    }

    /// Records a time of a request.
    pub fn time(&self, request: Counted, time: Time, value: Duration) {
        if request.is_counted {
            self.figures().record(time, micros(value));
        }
    }

    /// Counts received content bytes of a request.
    pub fn content(&self, request: Counted, at: Instant, bytes: u64) {
        if request.is_counted {
            let unix_s = self.unix_s(at);
            let mut figures = self.figures();
            figures.content_bytes += bytes;
            figures.second(unix_s).content_bytes += bytes;
        }
    }

    /// Counts an idle connection closed by the server.
    pub fn reconnect(&self, request: Counted) {
        if request.is_counted {
            self.figures().reconnects += 1;
        }
    }

    /// Records a time of a viewer.
    pub fn viewer_time(&self, time: Time, value: Duration) {
        self.figures().record(time, micros(value));
    }

    /// Updates the viewer totals.
    pub fn viewers(&self, count: impl FnOnce(&mut Viewers)) {
        count(self.figures().viewers.get_or_insert_default());
    }
}

/// Records the content and chunks of one response as they arrive.
#[derive(Debug)]
pub(super) struct Arrivals {
    recorder: Recorder,
    counted: Counted,
    last_chunk: Option<Instant>,
}

impl Arrivals {
    pub(super) fn new(recorder: &Recorder, counted: Counted) -> Self {
        Self { recorder: recorder.clone(), counted, last_chunk: None }
    }

    /// Counts received content bytes.
    pub(super) fn content(&self, at: Instant, bytes: u64) {
        self.recorder.content(self.counted, at, bytes);
    }

    /// Records the time between the previous chunk, if any, and the chunk that completed at `at`.
    pub(super) fn chunk(&mut self, at: Instant) {
        if let Some(before) = self.last_chunk.replace(at) {
            self.recorder.time(self.counted, Time::ChunkGap, at.saturating_duration_since(before));
        }
    }
}

/// A request in flight in the open model. If it is dropped because time is up, the time since its
/// due time is recorded. Without this record, a server that hangs would be judged only by its
/// earlier responses.
#[derive(Debug)]
pub(super) struct InFlight<'a>(Option<(&'a Recorder, Instant)>);

impl<'a> InFlight<'a> {
    pub(super) fn new(recorder: &'a Recorder, request: Counted, due: Option<Instant>) -> Self {
        Self(due.filter(|_| request.is_counted).map(|due| (recorder, due)))
    }

    pub(super) fn finish(mut self) {
        self.0 = None;
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if let Some((recorder, due)) = self.0 {
            recorder.figures().record(Time::Ttlb, micros(due.elapsed()));
        }
    }
}

/// Converts a duration to whole microseconds.
pub(crate) fn micros(value: Duration) -> u64 {
    u64::try_from(value.as_micros()).unwrap_or(u64::MAX)
}
