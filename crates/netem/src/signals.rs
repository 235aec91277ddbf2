//! Termination signals: SIGINT, SIGTERM, and SIGHUP, which counts as SIGTERM.
//!
//! Handlers must be installed before starting anything that a signal would leave behind. Signals
//! are then queued until read.

use std::io;

use rustix::process::Signal;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// Installed signal handlers.
#[derive(Debug)]
pub struct Signals {
    interrupts: Stream,
    terminations: Stream,
    hangups: Stream,
}

impl Signals {
    /// Installs the handlers. Also returns a runtime for this thread on which to wait for signals.
    ///
    /// # Errors
    /// If a handler or the runtime cannot be created.
    pub fn install() -> io::Result<(Runtime, Self)> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let within = runtime.enter();
        let signals = Self {
            interrupts: signal(SignalKind::interrupt())?,
            terminations: signal(SignalKind::terminate())?,
            hangups: signal(SignalKind::hangup())?,
        };
        drop(within);
        Ok((runtime, signals))
    }

    /// Waits for the next signal: `INT` or `TERM`.
    pub async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupts.recv() => Signal::INT,
            _ = self.terminations.recv() => Signal::TERM,
            _ = self.hangups.recv() => Signal::TERM,
        }
    }
}
