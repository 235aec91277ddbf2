//! The end by a signal, for programs that have nothing else to see to than the emulation: it ends what runs in the namespaces,
//! and this process. Who has something to save first is told instead; a second signal then ends it at once.

use std::io;
use std::process;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rustix::process::Signal;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use super::{Emulation, leftover, namespace};
use crate::signals::Signals;

/// Who is told of the next signal.
type Told = Arc<Mutex<Option<oneshot::Sender<Signal>>>>;

/// Signals that were taken before there is an emulation.
#[derive(Debug)]
pub struct Ending {
    runtime: Runtime,
    signals: Signals,
}

/// What happens when a signal comes, while an emulation runs.
#[derive(Debug)]
pub struct EndsOnSignals(Told);

impl Ending {
    /// Takes the signals. Those that come from now on are heard once there is an emulation.
    ///
    /// # Errors
    /// If they cannot be had.
    pub fn prepare() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let signals = {
            let _within = runtime.enter();
            Signals::take()?
        };
        Ok(Self { runtime, signals })
    }

    /// Has a signal end this process, and what runs in the emulation's namespaces with it. Namespaces and devices go with the
    /// processes.
    pub fn of(self, emulation: &Emulation) -> EndsOnSignals {
        let Self { runtime, mut signals } = self;
        let told = Told::default();
        let (id, note, to_tell) = (emulation.id.clone(), emulation.note.path().to_owned(), told.clone());
        thread::spawn(move || {
            let signal = runtime.block_on(async {
                loop {
                    let signal = signals.next().await;
                    let teller = to_tell.lock().unwrap_or_else(PoisonError::into_inner).take();
                    // Who does not listen any more is not told.
                    if teller.is_none_or(|teller| teller.send(signal).is_err()) {
                        return signal;
                    }
                }
            });
            leftover::end_within(&id);
            namespace::unmount_all();
            leftover::remove(&note);
            process::exit(128 + signal.as_raw());
        });
        EndsOnSignals(told)
    }
}

impl EndsOnSignals {
    /// Is told of the next signal instead, as long as what this returns is there.
    pub fn tell_instead(&self) -> oneshot::Receiver<Signal> {
        let (sender, receiver) = oneshot::channel();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        receiver
    }
}
