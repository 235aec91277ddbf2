//! Signal handling while an emulation runs: a signal kills the processes in the namespaces and
//! terminates this process. A program with results to save can receive the first signal instead; a
//! second signal then terminates everything immediately.

use std::io;
use std::process;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rustix::process::Signal;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use super::{Emulation, leftover, mounts, uplink};
use crate::signals::Signals;

/// Channel to forward the next signal to, if any.
type NextSignal = Arc<Mutex<Option<oneshot::Sender<Signal>>>>;

/// Signal handlers installed before the emulation starts.
#[derive(Debug)]
pub struct SignalSetup {
    runtime: Runtime,
    signals: Signals,
}

/// Signal handling for a running emulation.
#[derive(Debug)]
pub struct SignalHandler(NextSignal);

impl SignalSetup {
    /// Installs the handlers. Signals are queued until the emulation has started.
    ///
    /// # Errors
    ///
    /// Returns an error if a handler cannot be installed.
    pub fn install() -> io::Result<Self> {
        let (runtime, signals) = Signals::install()?;
        Ok(Self { runtime, signals })
    }

    /// Starts handling signals. A signal kills the processes in the emulation's namespaces and
    /// terminates this process. Namespaces and devices disappear with the processes.
    pub fn attach(self, emulation: &Emulation) -> SignalHandler {
        let Self { runtime, mut signals } = self;
        let next = NextSignal::default();
        let (id, note, forward_to) = (emulation.id.clone(), emulation.note.path().to_owned(), next.clone());
        thread::spawn(move || {
            let signal = runtime.block_on(async {
                loop {
                    let signal = signals.next().await;
                    let receiver = forward_to.lock().unwrap_or_else(PoisonError::into_inner).take();
                    // If the receiver was dropped, handle the signal here.
                    if receiver.is_none_or(|receiver| receiver.send(signal).is_err()) {
                        return signal;
                    }
                }
            });
            leftover::end_within(&id);
            uplink::remove(&id);
            mounts::unmount_all();
            leftover::remove(&note);
            process::exit(128 + signal.as_raw());
        });
        SignalHandler(next)
    }
}

impl SignalHandler {
    /// Forwards the next signal to the returned receiver instead of terminating the process.
    /// Dropping the receiver cancels this.
    pub fn forward_next(&self) -> oneshot::Receiver<Signal> {
        let (sender, receiver) = oneshot::channel();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        receiver
    }
}
