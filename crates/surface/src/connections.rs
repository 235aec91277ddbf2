//! Open connections of a surface: counted, limited, and closed to make room for new ones.
//!
//! A connection is idle while it has no request, that is, during a TLS handshake, between requests,
//! and while a request head is incomplete. At the limit, a new connection replaces the one that has
//! been idle for longest. A client that holds idle connections thus cannot lock out others.
//!
//! **Invariant:** a connection with a request in progress is never closed to make room.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The open connections of a surface.
#[derive(Debug, Clone)]
pub(crate) struct Connections(Arc<Mutex<Open>>);

#[derive(Debug)]
struct Open {
    count: usize,
    count_max: usize,
    /// Idle connections, in the order in which they became idle.
    idle: BTreeMap<u64, Arc<Notify>>,
    /// Key of the next entry in `idle`.
    next: u64,
}

/// An open connection, counted until dropped.
#[derive(Debug)]
pub(crate) struct Connection {
    all: Connections,
    close: Arc<Notify>,
    /// Key in `idle`, unless a request is in progress.
    idle: Mutex<Option<u64>>,
}

/// A request in progress, until dropped.
#[derive(Debug)]
pub(crate) struct InProgress(Arc<Connection>);

impl Connections {
    pub(crate) fn new(count_max: usize) -> Self {
        let open = Open { count: 0, count_max, idle: BTreeMap::new(), next: 0 };
        Self(Arc::new(Mutex::new(open)))
    }

    /// Admits a connection. At the limit, closes another one, or returns `None` if none is idle.
    pub(crate) fn admit(&self) -> Option<Arc<Connection>> {
        let mut open = lock(&self.0);
        if open.count >= open.count_max && !open.close_idlest() {
            return None;
        }
        open.count += 1;
        let close = Arc::new(Notify::new());
        let idle = Mutex::new(Some(open.add_idle(&close)));
        Some(Arc::new(Connection { all: self.clone(), close, idle }))
    }

    /// Closes the connection that has been idle for longest, and returns whether there was one.
    pub(crate) fn close_idlest(&self) -> bool {
        lock(&self.0).close_idlest()
    }
}

impl Open {
    fn add_idle(&mut self, close: &Arc<Notify>) -> u64 {
        let key = self.next;
        self.next += 1;
        self.idle.insert(key, close.clone());
        key
    }

    fn close_idlest(&mut self) -> bool {
        let idlest = self.idle.pop_first();
        idlest.inspect(|(_, close)| close.notify_one()).is_some()
    }
}

impl Connection {
    /// Waits until the connection must close to make room.
    pub(crate) async fn closed(&self) {
        self.close.notified().await;
    }

    /// Marks a request as in progress until the result is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> InProgress {
        let key = lock(&self.idle).take();
        if let Some(key) = key {
            lock(&self.all.0).idle.remove(&key);
        }
        InProgress(self.clone())
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        let Connection { all, close, idle } = &*self.0;
        let key = lock(&all.0).add_idle(close);
        *lock(idle) = Some(key);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let key = lock(&self.idle).take();
        let mut open = lock(&self.all.0);
        open.count -= 1;
        if let Some(key) = key {
            open.idle.remove(&key);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic fails the test")]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    async fn is_closed(connection: &Connection) -> bool {
        timeout(Duration::from_millis(1), connection.closed()).await.is_ok()
    }

    #[tokio::test]
    async fn new_connection_replaces_the_one_idle_for_longest() {
        let all = Connections::new(3);
        let [first, second, third] = [(); 3].map(|()| all.admit().unwrap());
        let request = first.begin();
        let fourth = all.admit().unwrap();
        assert!(!is_closed(&first).await && is_closed(&second).await && !is_closed(&third).await);
        drop(second);
        // The first connection has been idle for a shorter time than the third.
        drop(request);
        let _fifth = all.admit().unwrap();
        assert!(!is_closed(&first).await && is_closed(&third).await && !is_closed(&fourth).await);
    }

    #[tokio::test]
    async fn requests_in_progress_are_never_closed() {
        let all = Connections::new(2);
        let [first, second] = [(); 2].map(|()| all.admit().unwrap());
        let requests = [first.begin(), second.begin()];
        assert!(all.admit().is_none() && !all.close_idlest());
        drop(requests);
        assert!(all.admit().is_some());
        drop((first, second));
        assert_eq!(lock(&all.0).count, 0);
        assert!(lock(&all.0).idle.is_empty());
    }
}
