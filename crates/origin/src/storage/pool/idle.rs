//! Idle connections to one host, reused last in, first out.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::Stats;
use super::connection::Connection;

/// Idle connections, the most recently used one last.
#[derive(Debug)]
pub(super) struct IdleList {
    /// Maximum idle time. Zero disables reuse.
    limit: Duration,
    stats: Arc<Stats>,
    list: Mutex<List>,
}

#[derive(Debug, Default)]
struct List {
    connections: Vec<(Instant, Connection)>,
    /// Whether a task closes connections once they reach the limit.
    is_watched: bool,
}

impl IdleList {
    pub(super) fn new(limit: Duration, stats: Arc<Stats>) -> Arc<IdleList> {
        Arc::new(IdleList { limit, stats, list: Mutex::default() })
    }

    /// Takes the most recently used connection that is still open.
    pub(super) async fn pop(&self) -> Option<Connection> {
        loop {
            let (since, mut connection) = self.lock().connections.pop()?;
            self.stats.idle.dec();
            if since.elapsed() >= self.limit {
                self.expire(&connection);
            } else if connection.life().wake() && connection.is_ready().await {
                return Some(connection);
            }
        }
    }

    /// Keeps a connection whose response was read to its end.
    pub(super) fn push(self: &Arc<Self>, connection: Connection) {
        if self.limit.is_zero() || !connection.may_be_kept() || !connection.life().rest() {
            return;
        }
        self.stats.idle.inc();
        let mut list = self.lock();
        list.connections.push((Instant::now(), connection));
        if !list.is_watched {
            list.is_watched = true;
            tokio::spawn(watch(Arc::downgrade(self)));
        }
    }

    /// Closes the connections that reached the limit and forgets those that the server closed.
    /// Returns when to call this again, or `None` if no connection remains.
    fn sweep(&self) -> Option<Duration> {
        let mut list = self.lock();
        let before = list.connections.len();
        list.connections.retain(|(since, connection)| {
            let is_old = since.elapsed() >= self.limit;
            if is_old {
                self.expire(connection);
            }
            !is_old && !connection.is_closed()
        });
        self.stats.idle.dec_by(i64::try_from(before - list.connections.len()).unwrap_or(i64::MAX));
        let oldest = list.connections.first().map(|(since, _)| *since);
        list.is_watched = oldest.is_some();
        oldest.map(|since| self.limit.saturating_sub(since.elapsed()))
    }

    /// Counts an idle connection that is about to be closed at the limit.
    fn expire(&self, connection: &Connection) {
        if connection.life().wake() {
            self.stats.expired.inc();
        }
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sweeps the list until it is empty.
async fn watch(list: Weak<IdleList>) {
    while let Some(pause) = list.upgrade().and_then(|list| list.sweep()) {
        sleep(pause).await;
    }
}
