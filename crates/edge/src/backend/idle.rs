//! Idle connections to one backend, kept separately for each worker.

use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::Instant;

/// Maximum number of idle connections to one backend per worker. Above this, the oldest is closed.
const IDLE_MAX: usize = 64;
/// Maximum time an idle connection is kept; shorter than the usual server timeout.
pub(super) const IDLE_TIME_MAX: Duration = Duration::from_secs(30);

/// Idle connections to one backend: one queue per worker, oldest connection first.
#[derive(Debug)]
pub(super) struct Idle(Box<[Mutex<Queue>]>);

type Queue = VecDeque<(Instant, TcpStream)>;

impl Idle {
    pub(super) fn new(workers: usize) -> Self {
        Self((0..workers).map(|_| Mutex::default()).collect())
    }

    pub(super) fn of(&self, worker: usize) -> MutexGuard<'_, Queue> {
        self.0[worker].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn take(&self, worker: usize) -> Option<TcpStream> {
        let mut queue = self.of(worker);
        while let Some((since, stream)) = queue.pop_back() {
            if since.elapsed() < IDLE_TIME_MAX && is_quiet(&stream) {
                return Some(stream);
            }
        }
        None
    }

    pub(super) fn put(&self, worker: usize, stream: TcpStream) {
        let mut queue = self.of(worker);
        close_old(&mut queue);
        if queue.len() == IDLE_MAX {
            queue.pop_front();
        }
        queue.push_back((Instant::now(), stream));
    }

    pub(super) fn close_old(&self) {
        for worker in 0..self.0.len() {
            close_old(&mut self.of(worker));
        }
    }
}

fn close_old(queue: &mut Queue) {
    while queue.front().is_some_and(|(since, _)| since.elapsed() >= IDLE_TIME_MAX) {
        queue.pop_front();
    }
}

/// Returns whether the connection is open and has nothing to read: the backend has neither closed
/// it nor sent unsolicited data.
fn is_quiet(stream: &TcpStream) -> bool {
    matches!(stream.try_read(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}
