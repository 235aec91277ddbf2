//! Shutdown signal that stops every role of the process.

use tokio::sync::watch;

/// Resolves when the process should stop. Clones share the signal.
#[derive(Debug, Clone)]
pub(crate) struct Shutdown {
    requested: watch::Receiver<bool>,
}

/// Requests the shutdown, also when dropped.
#[derive(Debug)]
pub(crate) struct Trigger {
    request: watch::Sender<bool>,
}

/// Creates a trigger and the signal that it sets.
pub(crate) fn channel() -> (Trigger, Shutdown) {
    let (request, requested) = watch::channel(false);
    (Trigger { request }, Shutdown { requested })
}

impl Trigger {
    /// Requests the shutdown.
    pub(crate) fn request(&self) {
        self.request.send_replace(true);
    }
}

impl Shutdown {
    /// Waits for the shutdown request.
    pub(crate) async fn requested(mut self) {
        // An error means that the trigger was dropped, which also requests the shutdown.
        let _ = self.requested.wait_for(|requested| *requested).await;
    }
}
