//! Limits per sender: requests and records per second, open requests, and distinct connections and
//! prefixes per window.
//!
//! Rates are limited by token buckets. A batch is accepted while its sender has any credit left,
//! and is then charged in full, so that even the largest batch an agent can send is eventually
//! accepted.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use thalweg_record::{Entry, Prefix, Record};
use tokio::time::Instant;
use twox_hash::XxHash3_64;

use super::Role;

/// Maximum number of requests per second from one sender, averaged over [`REQUESTS_BURST_MAX`]
/// requests.
const REQUESTS_PER_S_MAX: f64 = 20.0;
/// Maximum number of requests from one sender in a burst.
const REQUESTS_BURST_MAX: f64 = 200.0;
/// Time over which the rate of records is averaged, in seconds.
const RECORDS_BURST_S: f64 = 60.0;
/// Maximum number of bundle requests from one edge that wait at the same time.
const POLLS_MAX: usize = 4;
/// Maximum number of batches from one agent that are received at the same time.
const BATCHES_MAX: usize = 2;
/// Maximum number of distinct connections reported by one agent in a window.
const CONNECTIONS_MAX: usize = 500_000;
/// Number of distinct connections reported by all agents in a window above which each agent is
/// limited to this number divided by [`SENDERS_MAX`].
const CONNECTIONS_TOTAL_MAX: usize = 8_000_000;
/// Maximum number of senders. Beyond it, the senders that have been idle for longest are forgotten.
const SENDERS_MAX: usize = 30_000;
/// Maximum number of records checked without releasing the lock, which all senders share.
const RECORDS_LOCKED_MAX: usize = 4_096;

/// Limits that operators may set.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Maximum number of records per second from one agent, averaged over a minute.
    pub records_per_s_max: usize,
    /// Maximum number of distinct client networks reported by one agent in a window.
    pub prefixes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { records_per_s_max: 50_000, prefixes_max: 50_000 }
    }
}

/// A sender to which limits apply.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) role: Role,
    pub(crate) pop: String,
    pub(crate) name: String,
}

/// A reached limit.
#[derive(Debug)]
pub(crate) struct Busy {
    pub(crate) why: String,
    /// Time after which a request may succeed.
    pub(crate) retry_after: Duration,
}

/// Use of all limits, by sender.
#[derive(Debug)]
pub(crate) struct Quotas {
    limits: Limits,
    senders: Arc<Mutex<Senders>>,
}

#[derive(Debug, Default)]
struct Senders {
    known: HashMap<Key, Sender>,
    /// Window in which the connections and prefixes were counted.
    window: u64,
    /// Number of distinct connections of all senders.
    connections: usize,
}

#[derive(Debug)]
struct Sender {
    requests: Bucket,
    records: Bucket,
    /// Number of requests in progress: see [`Quotas::open`].
    open: usize,
    seen: Instant,
    clients: Clients,
}

/// Distinct clients of a sender in a window.
#[derive(Debug, Default)]
struct Clients {
    /// Hashes of the clients' addresses and ports.
    connections: HashSet<u64>,
    prefixes: HashSet<Prefix>,
}

/// Client of a record.
#[derive(Debug, Clone, Copy)]
struct Client {
    connection: u64,
    prefix: Prefix,
}

impl Client {
    /// Returns the record's client, or `None` if the record has none.
    fn of(entry: &Entry) -> Option<Self> {
        let client = match &entry.record {
            Record::Socket(socket) => socket.client,
            Record::Response(response) => response.client,
            Record::Loss(_) => return None,
        };
        let connection = XxHash3_64::oneshot(client.to_string().as_bytes());
        Some(Self { connection, prefix: Prefix::of_client(client.ip()) })
    }
}

/// Credit that refills at a constant rate up to a maximum.
#[derive(Debug)]
struct Bucket {
    credit: f64,
    at: Instant,
}

impl Bucket {
    /// Adds the credit for the time since the last call. Returns the wait until there is credit.
    fn refill(&mut self, per_s: f64, credit_max: f64, now: Instant) -> Result<(), Duration> {
        let passed_s = now.saturating_duration_since(self.at).as_secs_f64();
        self.credit = (self.credit + passed_s * per_s).min(credit_max);
        self.at = now;
        if self.credit >= 1.0 {
            return Ok(());
        }
        Err(Duration::from_secs_f64(((1.0 - self.credit) / per_s).ceil().max(1.0)))
    }
}

/// A request in progress that counts against a limit until dropped.
#[derive(Debug)]
pub(crate) struct Open {
    senders: Arc<Mutex<Senders>>,
    key: Key,
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(sender) = lock(&self.senders).known.get_mut(&self.key) {
            sender.open = sender.open.saturating_sub(1);
        }
    }
}

impl Quotas {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self { limits: limits.clone(), senders: Arc::default() }
    }

    /// Counts a request against the sender's limit.
    ///
    /// # Errors
    ///
    /// Returns an error if the sender has reached its limit.
    pub(crate) fn take_request(&self, key: &Key) -> Result<(), Busy> {
        let (mut senders, now) = (lock(&self.senders), Instant::now());
        let bucket = &mut senders.sender(key, &self.limits, now).requests;
        let refilled = bucket.refill(REQUESTS_PER_S_MAX, REQUESTS_BURST_MAX, now);
        refilled.map_err(|retry_after| Busy {
            why: format!("more than {REQUESTS_PER_S_MAX} requests per second"),
            retry_after,
        })?;
        bucket.credit -= 1.0;
        Ok(())
    }

    /// Counts a request in progress: a waiting edge, or a batch that is being received.
    ///
    /// # Errors
    ///
    /// Returns an error if the sender has reached its limit.
    pub(crate) fn open(&self, key: &Key) -> Result<Open, Busy> {
        let open_max = if key.role == Role::Edge { POLLS_MAX } else { BATCHES_MAX };
        let (mut senders, now) = (lock(&self.senders), Instant::now());
        let sender = senders.sender(key, &self.limits, now);
        if sender.open >= open_max {
            let why = format!("more than {open_max} requests at the same time");
            return Err(Busy { why, retry_after: Duration::from_secs(1) });
        }
        sender.open += 1;
        Ok(Open { senders: self.senders.clone(), key: key.clone() })
    }

    /// Counts records against the sender's limit.
    ///
    /// # Errors
    ///
    /// Returns an error if the sender has no credit left.
    pub(crate) fn take_records(&self, key: &Key, records: usize) -> Result<(), Busy> {
        let (mut senders, now) = (lock(&self.senders), Instant::now());
        let per_s = self.limits.records_per_s_max as f64;
        let bucket = &mut senders.sender(key, &self.limits, now).records;
        bucket.refill(per_s, per_s * RECORDS_BURST_S, now).map_err(|retry_after| {
            let why = format!("more than {per_s} records per second");
            Busy { why, retry_after }
        })?;
        bucket.credit -= records as f64;
        Ok(())
    }

    /// Removes the records of connections and prefixes beyond the sender's limits in this window.
    /// Returns their number.
    pub(crate) fn limit_clients(&self, key: &Key, window: u64, entries: &mut Vec<Entry>) -> usize {
        // The lock is not held while records are hashed or dropped.
        let clients: Vec<_> = entries.iter().map(Client::of).collect();
        let mut is_within = Vec::with_capacity(clients.len());
        for clients in clients.chunks(RECORDS_LOCKED_MAX) {
            self.count_clients(key, window, clients, &mut is_within);
        }
        let before = entries.len();
        let mut is_within = is_within.into_iter();
        entries.retain(|_| is_within.next().unwrap_or_default());
        before - entries.len()
    }

    /// Counts clients, and adds to `is_within` whether each is within the sender's limits.
    fn count_clients(&self, key: &Key, window: u64, clients: &[Option<Client>], is_within: &mut Vec<bool>) {
        let mut senders = lock(&self.senders);
        let old = senders.begin(window);
        let mut connections = senders.connections;
        let sender = senders.sender(key, &self.limits, Instant::now());
        let prefixes_max = self.limits.prefixes_max;
        let is_counted = |client: &Option<Client>| {
            client.as_ref().is_none_or(|client| sender.clients.count(client, prefixes_max, &mut connections))
        };
        is_within.extend(clients.iter().map(is_counted));
        senders.connections = connections;
        drop(senders);
        drop(old);
    }
}

impl Clients {
    /// Counts a client unless it exceeds a limit, and returns whether it was counted. `connections`
    /// is the number of distinct connections of all senders.
    fn count(&mut self, client: &Client, prefixes_max: usize, connections: &mut usize) -> bool {
        let Client { connection, prefix } = client;
        if self.prefixes.len() >= prefixes_max && !self.prefixes.contains(prefix) {
            return false;
        }
        let is_shared = *connections >= CONNECTIONS_TOTAL_MAX;
        let own_max = if is_shared { CONNECTIONS_TOTAL_MAX / SENDERS_MAX } else { CONNECTIONS_MAX };
        if self.connections.len() >= own_max && !self.connections.contains(connection) {
            return false;
        }
        *connections += usize::from(self.connections.insert(*connection));
        self.prefixes.insert(*prefix);
        true
    }
}

impl Senders {
    /// Removes the clients of earlier windows, and returns them. There may be many, so the caller
    /// drops them after releasing the lock.
    fn begin(&mut self, window: u64) -> Vec<Clients> {
        if self.window == window {
            return Vec::new();
        }
        (self.window, self.connections) = (window, 0);
        self.known.values_mut().map(|sender| std::mem::take(&mut sender.clients)).collect()
    }

    fn sender(&mut self, key: &Key, limits: &Limits, now: Instant) -> &mut Sender {
        if self.known.len() >= SENDERS_MAX && !self.known.contains_key(key) {
            self.forget();
        }
        let full = |credit| Bucket { credit, at: now };
        let sender = self.known.entry(key.clone()).or_insert_with(|| Sender {
            requests: full(REQUESTS_BURST_MAX),
            records: full(limits.records_per_s_max as f64 * RECORDS_BURST_S),
            open: 0,
            seen: now,
            clients: Clients::default(),
        });
        sender.seen = now;
        sender
    }

    /// Forgets the 10 % of senders that have been idle for longest, except those with requests in
    /// progress.
    fn forget(&mut self) {
        let mut seen: Vec<_> = self.known.values().map(|sender| sender.seen).collect();
        let (_, oldest, _) = seen.select_nth_unstable(SENDERS_MAX / 10);
        let oldest = *oldest;
        self.known.retain(|_, sender| sender.seen > oldest || sender.open > 0);
        self.connections = self.known.values().map(|sender| sender.clients.connections.len()).sum();
    }
}

fn lock(senders: &Mutex<Senders>) -> MutexGuard<'_, Senders> {
    senders.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use thalweg_record::{Network, SocketRecord};
    use tokio::time::advance;

    use super::*;

    fn key(role: Role, name: &str) -> Key {
        Key { role, pop: "fra1".into(), name: name.into() }
    }

    #[tokio::test(start_paused = true)]
    async fn rates_are_limited_per_sender_and_refill() {
        let quotas = Quotas::new(&Limits { records_per_s_max: 10, ..Limits::default() });
        let (one, other) = (key(Role::Edge, "one"), key(Role::Edge, "other"));
        let accepted = (0..1_000).filter(|_| quotas.take_request(&one).is_ok()).count();
        assert_eq!(accepted, 200);
        let busy = quotas.take_request(&one).unwrap_err();
        assert_eq!(
            (busy.why.as_str(), busy.retry_after),
            ("more than 20 requests per second", Duration::from_secs(1))
        );
        assert!(quotas.take_request(&other).is_ok());
        advance(busy.retry_after).await;
        assert_eq!((0..100).filter(|_| quotas.take_request(&one).is_ok()).count(), 20);

        // A batch larger than the credit is accepted, and paid off later.
        assert!(quotas.take_records(&one, 1_000).is_ok());
        let busy = quotas.take_records(&one, 1).unwrap_err();
        assert_eq!(busy.retry_after, Duration::from_secs(41));
        advance(busy.retry_after).await;
        assert!(quotas.take_records(&one, 1).is_ok());
    }

    #[tokio::test]
    async fn open_requests_are_limited_and_released() {
        let quotas = Quotas::new(&Limits::default());
        for (role, open_max) in [(Role::Edge, 4), (Role::Agent, 2)] {
            let key = key(role, "one");
            let mut open: Vec<_> = (0..open_max).map(|_| quotas.open(&key).unwrap()).collect();
            assert!(quotas.open(&key).is_err());
            open.pop();
            assert!(quotas.open(&key).is_ok());
        }
    }

    fn entry(client: &str) -> Entry {
        let socket = SocketRecord::new(1, client.parse().unwrap(), "192.0.2.1:80".parse().unwrap());
        Entry { number: 0, network: Network::default(), record: Record::Socket(Box::new(socket)) }
    }

    #[tokio::test]
    async fn clients_are_limited_per_window_in_batches_of_any_size() {
        let quotas = Quotas::new(&Limits { prefixes_max: 2, ..Limits::default() });
        let (one, other) = (key(Role::Agent, "one"), key(Role::Agent, "other"));
        // More records than are checked at once, from three networks in turn.
        let count = 2 * RECORDS_LOCKED_MAX + 1;
        let batch = || -> Vec<_> { (0..count).map(|at| entry(&format!("10.0.{}.1:{at}", at % 3))).collect() };
        let limit = |key: &Key, window| {
            let mut entries = batch();
            let dropped = quotas.limit_clients(key, window, &mut entries);
            let is_third =
                |entry: &Entry| Client::of(entry).unwrap().prefix == Prefix::of_client([10, 0, 2, 1].into());
            assert!(!entries.iter().any(is_third));
            assert_eq!(entries.len() + dropped, count);
            dropped
        };
        for (key, window) in [(&one, 1), (&one, 1), (&other, 1), (&one, 2)] {
            assert_eq!(limit(key, window), count / 3);
            let connections = lock(&quotas.senders).known[key].clients.connections.len();
            assert_eq!(connections, count - count / 3);
        }
        let senders = lock(&quotas.senders);
        assert_eq!(senders.connections, count - count / 3, "those of the earlier window are forgotten");
        assert!(senders.known[&other].clients.connections.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn idle_senders_are_forgotten_at_the_limit() {
        let quotas = Quotas::new(&Limits::default());
        let held = key(Role::Edge, "held");
        let _open = quotas.open(&held).unwrap();
        for at in 0..SENDERS_MAX + 10 {
            advance(Duration::from_millis(1)).await;
            quotas.take_request(&key(Role::Edge, &at.to_string())).unwrap();
        }
        let senders = lock(&quotas.senders);
        assert!(senders.known.len() <= SENDERS_MAX && senders.known.len() > SENDERS_MAX / 2);
        assert!(senders.known.contains_key(&held), "its request is in progress");
        assert!(senders.known.contains_key(&key(Role::Edge, &(SENDERS_MAX + 9).to_string())));
    }
}
