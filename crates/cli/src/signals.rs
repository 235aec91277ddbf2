//! Signals that stop the program.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGINT (Ctrl-C) and SIGTERM, caught to stop cleanly. SIGHUP, SIGUSR1 and SIGUSR2 are ignored:
/// log rotation may send them to make servers reopen their logs, and by default they would end the
/// process.
#[derive(Debug)]
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// Catching these signals prevents them from ending the process.
    _ignored: [Signal; 3],
}

impl Signals {
    /// Starts catching the signals.
    ///
    /// # Errors
    ///
    /// Returns an error if the process cannot listen for signals.
    pub fn catch() -> io::Result<Self> {
        let ignored = [SignalKind::hangup(), SignalKind::user_defined1(), SignalKind::user_defined2()];
        let [first, second, third] = ignored.map(signal);
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            _ignored: [first?, second?, third?],
        })
    }

    /// Waits for the next SIGINT or SIGTERM.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
