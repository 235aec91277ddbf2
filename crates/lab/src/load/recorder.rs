//! Where the clients of a thread count what they measure; the main thread looks on.
//!
//! What began in the warm-up is not counted. The lock is one thread's, some 20 ns; once a second the main thread takes a copy.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::Failure;
use super::figures::{Figures, Time};
use crate::viewer::figures::Viewers;

/// The clock of a run: it goes evenly, whatever sets the machine's meanwhile.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    /// When the run began.
    pub began: Instant,
    /// The wall clock then, since 1970.
    pub began_wall: Duration,
}

/// Counts into the figures of one thread.
#[derive(Debug, Clone)]
pub struct Recorder {
    figures: Arc<Mutex<Figures>>,
    clock: Clock,
    from: Instant,
    run: u64,
}

/// A request that is being counted.
#[derive(Debug, Clone, Copy)]
pub struct Counted {
    is_counted: bool,
}

impl Clock {
    /// One that begins now.
    pub fn start() -> Self {
        // A clock before 1970 is no clock.
        let began_wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { began: Instant::now(), began_wall }
    }

    /// Time since it began.
    pub fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// The wall clock now, since 1970.
    pub fn wall(&self) -> Duration {
        self.began_wall + self.now()
    }

    /// The wall clock at that time, in microseconds since 1970.
    pub fn unix_us(&self, at: Instant) -> u64 {
        micros(self.began_wall + at.saturating_duration_since(self.began))
    }
}

impl Recorder {
    /// Counts what begins from then on; `run` tells this run from others.
    pub fn new(clock: Clock, from: Instant, run: u64) -> Self {
        Self { figures: Arc::default(), clock, from, run }
    }

    /// The figures so far.
    pub fn figures(&self) -> MutexGuard<'_, Figures> {
        // What panics while it counts has at most one count too few.
        self.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The clock of the run.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// What tells this run from others.
    pub fn run(&self) -> u64 {
        self.run
    }

    fn unix_s(&self, at: Instant) -> u64 {
        (self.clock.began_wall + at.saturating_duration_since(self.clock.began)).as_secs()
    }

    /// A client begins.
    pub fn client_begins(&self) {
        let unix_s = self.unix_s(Instant::now());
        let mut figures = self.figures();
        figures.clients += 1;
        figures.second(unix_s).clients_begun += 1;
    }

    /// A client has nothing more to do.
    pub fn client_ends(&self) {
        let unix_s = self.unix_s(Instant::now());
        self.figures().second(unix_s).clients_ended += 1;
    }

    /// A request begins, or was due, at that time.
    pub fn begin(&self, at: Instant) -> Counted {
        let is_counted = at >= self.from;
        if is_counted {
            self.figures().begun += 1;
        }
        Counted { is_counted }
    }

    /// The request ended at that time: with a status if there was one, with these times, with or without an error.
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
        if let Some(failure) = failure {
            second.errors += 1;
            figures.fail(failure.kind, self.clock.unix_us(at), &failure.detail);
        }
    }

    /// What came could not be used, though the request ended well.
    pub fn fault(&self, failure: &Failure) {
        let at = Instant::now();
        let unix_s = self.unix_s(at);
        let mut figures = self.figures();
        figures.second(unix_s).errors += 1;
        figures.fail(failure.kind, self.clock.unix_us(at), &failure.detail);
    }

    /// A time that belongs to the request.
    pub fn time(&self, request: Counted, time: Time, value: Duration) {
        if request.is_counted {
            self.figures().record(time, micros(value));
        }
    }

    /// So many bytes of the request's content arrived at that time.
    pub fn content(&self, request: Counted, at: Instant, bytes: u64) {
        if request.is_counted {
            let unix_s = self.unix_s(at);
            let mut figures = self.figures();
            figures.content_bytes += bytes;
            figures.second(unix_s).content_bytes += bytes;
        }
    }

    /// An idle connection had been closed.
    pub fn reconnect(&self, request: Counted) {
        if request.is_counted {
            self.figures().reconnects += 1;
        }
    }

    /// A time of a viewer.
    pub fn viewer_time(&self, time: Time, value: Duration) {
        self.figures().record(time, micros(value));
    }

    /// Counts something of viewers.
    pub fn viewers(&self, count: impl FnOnce(&mut Viewers)) {
        count(self.figures().viewers.get_or_insert_default());
    }
}

/// What arrives of one response.
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

    /// So many bytes of content.
    pub(super) fn content(&self, at: Instant, bytes: u64) {
        self.recorder.content(self.counted, at, bytes);
    }

    /// The end of a chunk.
    pub(super) fn chunk(&mut self, at: Instant) {
        if let Some(before) = self.last_chunk.replace(at) {
            self.recorder.time(self.counted, Time::ChunkGap, at.saturating_duration_since(before));
        }
    }
}

/// A request of an open model, until it has ended: one that is given up, as time is up, counts as long as it has lasted since it
/// was due. Without that a server that stands still would be judged by what it answered before.
#[derive(Debug)]
pub(super) struct UnderWay<'a>(Option<(&'a Recorder, Instant)>);

impl<'a> UnderWay<'a> {
    pub(super) fn new(recorder: &'a Recorder, request: Counted, due: Option<Instant>) -> Self {
        Self(due.filter(|_| request.is_counted).map(|due| (recorder, due)))
    }

    pub(super) fn ended(mut self) {
        self.0 = None;
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if let Some((recorder, due)) = self.0 {
            recorder.figures().record(Time::Ttlb, micros(due.elapsed()));
        }
    }
}

/// In whole microseconds.
pub(crate) fn micros(value: Duration) -> u64 {
    u64::try_from(value.as_micros()).unwrap_or(u64::MAX)
}
