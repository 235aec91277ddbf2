//! Signals that end the program.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGINT (Ctrl-C) and SIGTERM, caught to stop cleanly. SIGHUP, SIGUSR1 and SIGUSR2, which make
/// other servers reopen their logs, are ignored.
#[derive(Debug)]
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// While these signals are caught, they do not end the process.
    _ignored: [Signal; 3],
}

impl Signals {
    /// Starts catching the signals.
    ///
    /// # Errors
    /// Fails if the process cannot listen for signals.
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
