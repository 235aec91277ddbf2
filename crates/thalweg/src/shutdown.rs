//! Shutdown signal that stops every role of the process.

use tokio::sync::watch;

/// Receiver of the shutdown request. Clones receive the same request.
#[derive(Debug, Clone)]
pub(crate) struct Shutdown {
    requested: watch::Receiver<bool>,
}

/// Sender of the shutdown request. Dropping it also requests the shutdown.
#[derive(Debug)]
pub(crate) struct Trigger {
    request: watch::Sender<bool>,
}

/// Creates a connected sender and receiver.
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
