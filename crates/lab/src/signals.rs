//! Signals that ask this program to end: SIGINT, SIGTERM, and SIGHUP, which is taken for SIGTERM.
//!
//! They are taken before anything is started that would be left behind if one came; from then on they wait to be heard.

use std::io;

use rustix::process::Signal;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// The signals, taken.
#[derive(Debug)]
pub struct Signals {
    interrupts: Stream,
    terminations: Stream,
    hangups: Stream,
}

impl Signals {
    /// Takes them, within a runtime.
    ///
    /// # Errors
    /// If they cannot be had.
    pub fn take() -> io::Result<Self> {
        Ok(Self {
            interrupts: signal(SignalKind::interrupt())?,
            terminations: signal(SignalKind::terminate())?,
            hangups: signal(SignalKind::hangup())?,
        })
    }

    /// The next one: `INT` or `TERM`.
    pub async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupts.recv() => Signal::INT,
            _ = self.terminations.recv() => Signal::TERM,
            _ = self.hangups.recv() => Signal::TERM,
        }
    }
}
