//! A sink's thread: the spool's batches, one after the other, each until it is kept.
//!
//! **Invariant:** a batch that was not kept is kept before the next one is tried, however long that takes.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::Notify;

use crate::agent::TellsEnd;
use crate::spool::{Lag, Reader, Spool};
use crate::{Error, Sink, SinkError};

/// The pause after the first failure; each one after that doubles it.
const BACKOFF_MIN: Duration = Duration::from_millis(100);
/// No pause is longer.
const BACKOFF_MAX: Duration = Duration::from_secs(10);

/// A running sink.
#[derive(Debug)]
pub struct Runner {
    thread: JoinHandle<()>,
    state: Arc<SinkState>,
}

/// How a sink is, for metrics.
#[derive(Debug)]
pub struct SinkState {
    name: &'static str,
    spool: Arc<Spool>,
    kept: AtomicU64,
    lost: AtomicU64,
    retries: AtomicU64,
    unverified: AtomicU64,
    position: AtomicU64,
    next: AtomicU64,
    error: Mutex<Option<String>>,
}

impl Runner {
    /// Has sinks keep what is in the spool and what comes: all that the spool has, since what one is done with goes once no other
    /// needs it. The end of a sink's thread is told to `ended`.
    ///
    /// # Errors
    /// When the spool gives one no reader, or the system no thread.
    pub fn start_all(
        spool: &Arc<Spool>,
        sinks: Vec<Box<dyn Sink>>,
        ended: &Arc<Notify>,
    ) -> Result<Vec<Self>, Error> {
        let readers = sinks.iter().map(|sink| spool.reader(sink.name())).collect::<Result<Vec<_>, _>>()?;
        let sinks = sinks.into_iter().zip(readers);
        sinks.map(|(sink, reader)| Self::spawn(spool, sink, reader, ended)).collect()
    }

    /// Has the only sink keep what is in the spool and what comes.
    ///
    /// # Errors
    /// When the spool gives it no reader, or the system no thread.
    pub fn start(spool: &Arc<Spool>, sink: Box<dyn Sink>) -> Result<Self, Error> {
        let reader = spool.reader(sink.name())?;
        Self::spawn(spool, sink, reader, &Arc::default())
    }

    fn spawn(
        spool: &Arc<Spool>,
        sink: Box<dyn Sink>,
        reader: Reader,
        ended: &Arc<Notify>,
    ) -> Result<Self, Error> {
        let name = sink.name();
        let state = Arc::new(SinkState {
            name,
            spool: Arc::clone(spool),
            kept: AtomicU64::new(0),
            lost: AtomicU64::new(reader.lost()),
            retries: AtomicU64::new(0),
            unverified: AtomicU64::new(0),
            position: AtomicU64::new(reader.position()),
            next: AtomicU64::new(reader.next_number()),
            error: Mutex::new(None),
        });
        let (shared, tells_end) = (Arc::clone(&state), TellsEnd(Arc::clone(ended)));
        let thread = thread::Builder::new()
            .name(format!("sink-{name}"))
            .spawn(move || {
                let _tells_end = tells_end;
                shared.run(reader, sink);
            })
            .map_err(|cause| Error::of(format!("cannot start the thread of sink {name}"), cause))?;
        Ok(Self { thread, state })
    }

    /// How it is.
    pub fn state(&self) -> &Arc<SinkState> {
        &self.state
    }

    /// Whether its thread goes on.
    pub fn is_running(&self) -> bool {
        !self.thread.is_finished()
    }

    /// Waits for the sink's end, which comes after the spool was closed.
    pub fn join(self) {
        if self.thread.join().is_err() {
            tracing::error!(sink = self.state.name, "sink panicked");
        }
    }
}

impl SinkState {
    /// The sink's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Records that the sink took since the process began.
    pub fn kept(&self) -> u64 {
        self.kept.load(Relaxed)
    }

    /// Records that were gone from the spool before the sink read them, since the spool was made, and those that are gone by
    /// now though it has not come to them.
    pub fn lost(&self) -> u64 {
        self.lost.load(Relaxed) + self.spool.gone(self.next.load(Relaxed))
    }

    /// Failures after which it was tried again.
    pub fn retries(&self) -> u64 {
        self.retries.load(Relaxed)
    }

    /// Batches taken for kept of which the sink cannot say whether they are there.
    pub fn unverified(&self) -> u64 {
        self.unverified.load(Relaxed)
    }

    /// What it has before it.
    pub fn lag(&self) -> Lag {
        self.spool.lag(self.position.load(Relaxed))
    }

    /// Why it does not keep what it is given, if it does not.
    pub fn error(&self) -> Option<String> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn run(&self, mut reader: Reader, mut sink: Box<dyn Sink>) {
        let Some(position) = self.attempt(|| sink.position(self.spool.source())) else { return };
        if let Some(position) = position {
            reader.resume(position);
            self.note(&reader);
        }
        let mut given = reader.position();
        while let Some(batch) = reader.next_batch() {
            self.note(&reader);
            if self.attempt(|| sink.keep(&batch)).is_none() {
                return;
            }
            given = batch.entries.last().map_or(given, |last| last.number + 1);
            reader.done(sink.kept(given));
            self.unverified.store(sink.unverified(), Relaxed);
            self.kept.fetch_add(batch.entries.len() as u64, Relaxed);
            self.note(&reader);
        }
        if self.attempt(|| sink.finish()).is_some() {
            reader.done(sink.kept(given));
            self.note(&reader);
        }
    }

    fn note(&self, reader: &Reader) {
        self.lost.store(reader.lost(), Relaxed);
        self.position.store(reader.position(), Relaxed);
        self.next.store(reader.next_number(), Relaxed);
    }

    /// Tries until it succeeds; `None` when the time for that is over.
    fn attempt<T>(&self, mut step: impl FnMut() -> Result<T, SinkError>) -> Option<T> {
        let mut pause = BACKOFF_MIN;
        loop {
            match step() {
                Ok(done) => {
                    self.tell(None);
                    return Some(done);
                }
                Err(error) => self.tell(Some(&error)),
            }
            if self.spool.is_over() {
                return None;
            }
            self.retries.fetch_add(1, Relaxed);
            self.spool.wait(pause);
            pause = (pause * 2).min(BACKOFF_MAX);
        }
    }

    /// Logs an error that is another than before, and the end of one.
    fn tell(&self, error: Option<&SinkError>) {
        let text = error.map(|error| format!("{error}: {}", error.cause));
        let mut known = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        if *known == text {
            return;
        }
        match (error, &text) {
            (Some(error), Some(text)) if error.is_passing => {
                tracing::warn!(sink = self.name, error = text, "sink keeps nothing, trying again");
            }
            (_, Some(text)) => {
                tracing::error!(sink = self.name, error = text, "sink keeps nothing until this is put right");
            }
            (_, None) => tracing::info!(sink = self.name, "sink keeps records again"),
        }
        *known = text;
    }
}

#[cfg(test)]
mod tests {
    use thalweg_record::{Batch, Source};

    use super::*;
    use crate::testing::{Dir, TIME_US, open_spool, record};

    /// Keeps everything at once, but takes its time to say its name.
    struct Late(&'static str, Duration);

    impl Sink for Late {
        fn name(&self) -> &'static str {
            thread::sleep(self.1);
            self.0
        }

        fn position(&mut self, _: &Source) -> Result<Option<u64>, SinkError> {
            Ok(None)
        }

        fn keep(&mut self, _: &Batch) -> Result<(), SinkError> {
            Ok(())
        }
    }

    #[test]
    fn a_sink_that_starts_first_leaves_the_next_what_it_needs() {
        let dir = Dir::absent("runner-first");
        let spool = open_spool(&dir.0, 1 << 20);
        let readers = [spool.reader("first").unwrap(), spool.reader("late").unwrap()];
        for at in 0..8 {
            spool.append((at * 1000..(at + 1) * 1000).map(record).collect(), TIME_US);
        }
        drop((readers, spool));
        let spool = open_spool(&dir.0, 1 << 20);
        let sinks = [Late("first", Duration::ZERO), Late("late", Duration::from_millis(300))];
        let runners =
            Runner::start_all(&spool, sinks.map(|sink| Box::new(sink) as _).into(), &Arc::default()).unwrap();
        spool.close(Duration::from_secs(60));
        for runner in runners {
            let state = Arc::clone(runner.state());
            runner.join();
            assert_eq!((state.kept(), state.lost()), (8000, 0), "{}", state.name());
        }
    }
}
