//! Sink thread: writes the spool's batches to a sink in order.
//!
//! **Invariant:** a failed batch is retried until it is stored; only then is the next batch
//! attempted.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use tokio::sync::Notify;

use crate::backoff::Backoff;
use crate::error::{Error, SinkError};
use crate::sink::Sink;
use crate::spool::{Lag, Reader, Spool};

/// Notifies a thread's owner when dropped, including when the thread panics.
pub(crate) struct NotifyOnDrop(pub(crate) Arc<Notify>);

impl Drop for NotifyOnDrop {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

/// A running sink.
#[derive(Debug)]
pub struct Runner {
    thread: JoinHandle<()>,
    state: Arc<SinkState>,
}

/// A sink's progress and health, for metrics.
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
    /// Starts a thread for each sink, which stores the records already in the spool and the records
    /// that arrive later. All readers are opened before the first thread starts, because the spool
    /// deletes records that no reader needs. `ended` is notified when any of the threads exits.
    ///
    /// # Errors
    ///
    /// Returns an error if the spool cannot create a reader, or the system cannot start a thread.
    pub fn start_all(
        spool: &Arc<Spool>,
        sinks: Vec<Box<dyn Sink>>,
        ended: &Arc<Notify>,
    ) -> Result<Vec<Self>, Error> {
        let readers = sinks.iter().map(|sink| spool.reader(sink.name())).collect::<Result<Vec<_>, _>>()?;
        let sinks = sinks.into_iter().zip(readers);
        sinks.map(|(sink, reader)| Self::spawn(spool, sink, reader, ended)).collect()
    }

    /// Starts a thread for a single sink.
    ///
    /// # Errors
    ///
    /// Returns an error if the spool cannot create a reader, or the system cannot start a thread.
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
        let (shared, notify_on_drop) = (Arc::clone(&state), NotifyOnDrop(Arc::clone(ended)));
        let thread = thread::Builder::new()
            .name(format!("sink-{name}"))
            .spawn(move || {
                let _notify_on_drop = notify_on_drop;
                shared.run(reader, sink);
            })
            .map_err(|cause| Error::of(format!("cannot start thread for sink {name}"), cause))?;
        Ok(Self { thread, state })
    }

    /// Returns the sink's progress and health.
    pub fn state(&self) -> &Arc<SinkState> {
        &self.state
    }

    /// Returns whether the sink's thread is still running.
    pub fn is_running(&self) -> bool {
        !self.thread.is_finished()
    }

    /// Waits for the sink's thread to exit, which it does after the spool is closed.
    pub fn join(self) {
        if self.thread.join().is_err() {
            tracing::error!(sink = self.state.name, "sink thread panicked");
        }
    }
}

impl SinkState {
    /// Returns the sink's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the number of records stored since the process started.
    pub fn stored(&self) -> u64 {
        self.kept.load(Relaxed)
    }

    /// Returns the number of records deleted from the spool before the sink read them, counted
    /// since the spool was created. Includes deleted records that the sink would only have read
    /// later.
    pub fn lost(&self) -> u64 {
        self.lost.load(Relaxed) + self.spool.gone(self.next.load(Relaxed))
    }

    /// Returns the number of failed operations that were retried.
    pub fn retries(&self) -> u64 {
        self.retries.load(Relaxed)
    }

    /// Returns the number of batches treated as stored although the sink could not verify that its
    /// server still has them.
    pub fn unverified(&self) -> u64 {
        self.unverified.load(Relaxed)
    }

    /// Returns the records and bytes in the spool that the sink has not stored yet.
    pub fn lag(&self) -> Lag {
        self.spool.lag(self.position.load(Relaxed))
    }

    /// Returns the current error, or `None` if the sink is storing records.
    pub fn error(&self) -> Option<String> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn run(&self, mut reader: Reader, mut sink: Box<dyn Sink>) {
        let Some(position) = self.attempt(|| sink.position(self.spool.source())) else { return };
        if let Some(position) = position {
            reader.resume(position);
            self.publish_position(&reader);
        }
        let mut given = reader.position();
        while let Some(batch) = reader.next_batch() {
            self.publish_position(&reader);
            if self.attempt(|| sink.store(&batch)).is_none() {
                return;
            }
            given = batch.entries.last().map_or(given, |last| last.number + 1);
            reader.done(sink.stored(given));
            self.unverified.store(sink.unverified(), Relaxed);
            self.kept.fetch_add(batch.entries.len() as u64, Relaxed);
            self.publish_position(&reader);
        }
        if self.attempt(|| sink.finish()).is_some() {
            reader.done(sink.stored(given));
            self.publish_position(&reader);
        }
    }

    fn publish_position(&self, reader: &Reader) {
        self.lost.store(reader.lost(), Relaxed);
        self.position.store(reader.position(), Relaxed);
        self.next.store(reader.next_number(), Relaxed);
    }

    /// Retries `step` until it succeeds. Returns `None` if it still fails once the time to drain
    /// the spool has run out.
    fn attempt<T>(&self, mut step: impl FnMut() -> Result<T, SinkError>) -> Option<T> {
        let mut backoff = Backoff::default();
        loop {
            match step() {
                Ok(done) => {
                    self.log_change(None);
                    return Some(done);
                }
                Err(error) => self.log_change(Some(&error)),
            }
            if self.spool.is_over() {
                return None;
            }
            self.retries.fetch_add(1, Relaxed);
            self.spool.wait(backoff.pause());
        }
    }

    /// Logs an error if it differs from the previous one, and logs the recovery from an error.
    fn log_change(&self, error: Option<&SinkError>) {
        let text = error.map(|error| format!("{error}: {}", error.cause));
        let mut known = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        if *known == text {
            return;
        }
        match (error, &text) {
            (Some(error), Some(text)) if error.is_passing => {
                tracing::warn!(sink = self.name, error = text, "sink failed, retrying");
            }
            (_, Some(text)) => {
                tracing::error!(sink = self.name, error = text, "sink failed and needs attention, retrying");
            }
            (_, None) => tracing::info!(sink = self.name, "sink recovered"),
        }
        *known = text;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use thalweg_record::{Batch, Source};

    use super::*;
    use crate::testing::{Dir, TIME_US, open_spool, record};

    /// A sink that stores at once but is slow to return its name.
    struct Late(&'static str, Duration);

    impl Sink for Late {
        fn name(&self) -> &'static str {
            thread::sleep(self.1);
            self.0
        }

        fn position(&mut self, _: &Source) -> Result<Option<u64>, SinkError> {
            Ok(None)
        }

        fn store(&mut self, _: &Batch) -> Result<(), SinkError> {
            Ok(())
        }
    }

    #[test]
    fn first_sink_to_start_leaves_records_for_the_next() {
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
            assert_eq!((state.stored(), state.lost()), (8000, 0), "{}", state.name());
        }
    }
}
