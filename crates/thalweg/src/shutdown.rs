//! One signal that ends every role of the process.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// Resolves when the process is to end; any number of copies.
#[derive(Debug, Clone)]
pub(crate) struct Shutdown {
    asked: watch::Receiver<bool>,
}

/// Asks for the end. Dropping it asks too.
#[derive(Debug)]
pub(crate) struct Trigger {
    ask: watch::Sender<bool>,
}

/// A trigger and what it ends.
pub(crate) fn channel() -> (Trigger, Shutdown) {
    let (ask, asked) = watch::channel(false);
    (Trigger { ask }, Shutdown { asked })
}

impl Trigger {
    /// Asks for the end.
    pub(crate) fn ask(&self) {
        self.ask.send_replace(true);
    }
}

impl Shutdown {
    /// Waits until the end is asked for.
    pub(crate) async fn asked(mut self) {
        // An error says that the trigger is gone, which asks for the end too.
        let _ = self.asked.wait_for(|asked| *asked).await;
    }
}

/// SIGINT (Ctrl-C) and SIGTERM, caught instead of ending the process; and those by which other servers are told to reopen
/// their logs, which mean nothing here.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// While they are caught they do not end the process.
    _ignored: [Signal; 3],
}

impl Signals {
    /// Catches them from here on.
    ///
    /// # Errors
    /// If the process cannot listen for signals.
    pub(crate) fn catch() -> io::Result<Self> {
        let ignored = [SignalKind::hangup(), SignalKind::user_defined1(), SignalKind::user_defined2()];
        let [first, second, third] = ignored.map(signal);
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            _ignored: [first?, second?, third?],
        })
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
