//! Accept loop: one thread per core, each with its own runtime and its own listener on the shared
//! port. A connection stays on the thread that accepted it.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::sync::watch;

use crate::transport::http1;
use crate::warnings::{WarningLimit, warn_limited};
use crate::worker::{Shared, Worker};

/// Pause after a failed accept. Without it, the loop would spin while the process has no free file
/// descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Rate limits for warnings that any client can trigger, across all workers.
static ACCEPT_FAILURES: WarningLimit = WarningLimit::new();
static REFUSALS: WarningLimit = WarningLimit::new();

/// Runs worker `number` until `stop` is true, then waits up to the shutdown time limit for its
/// responses to finish.
pub(crate) fn run(
    shared: Arc<Shared>,
    number: usize,
    listener: TcpListener,
    mut stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let worker = Arc::new(Worker::new(shared, number));
        tokio::select! {
            () = accept(&worker, &listener) => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
        worker.stop().await;
        Ok(())
    });
    // Do not wait for name look-ups in progress.
    runtime.shutdown_background();
    ended
}

async fn accept(worker: &Arc<Worker>, listener: &tokio::net::TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, client)) => serve(worker, stream, client),
            Err(error) => {
                warn_limited!(ACCEPT_FAILURES, %error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn serve(worker: &Arc<Worker>, stream: tokio::net::TcpStream, client: SocketAddr) {
    let open = Open::new(worker.shared());
    let limit = worker.config().connections_max;
    if worker.shared().connections.load(Relaxed) > limit {
        warn_limited!(REFUSALS, %client, limit, "too many connections");
        return;
    }
    let worker_of_task = worker.clone();
    worker.spawn(async move {
        http1::serve(worker_of_task, stream, client).await;
        drop(open);
    });
}

/// Guard that counts an open client connection until dropped.
struct Open(Arc<Shared>);

impl Open {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.connections.fetch_add(1, Relaxed);
        Self(shared.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Relaxed);
    }
}
