//! Handlers for the termination signals SIGINT, SIGTERM and SIGHUP. SIGHUP is treated as SIGTERM.
//!
//! Install the handlers before creating anything that needs cleanup on a signal. Signals that
//! arrive afterwards are queued until read.

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
    /// Installs the handlers. Returns them with a runtime on which this thread can wait for
    /// signals.
    ///
    /// # Errors
    ///
    /// Returns an error if a handler or the runtime cannot be created.
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

    /// Waits for the next signal and returns it as `INT` or `TERM`.
    pub async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupts.recv() => Signal::INT,
            _ = self.terminations.recv() => Signal::TERM,
            _ = self.hangups.recv() => Signal::TERM,
        }
    }
}
