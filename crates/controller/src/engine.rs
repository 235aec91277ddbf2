//! Engine thread: adds records to windows, closes windows when they can no longer get records, then
//! decides, stores and publishes each window.
//!
//! **Invariant:** only this thread changes the state. Other threads read a [`View`], which is
//! immutable and replaced after each change.

use std::collections::{BTreeMap, VecDeque};
use std::future::ready;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use thalweg_control::{
    ClosedWindows, Collector, Counts, Decision, RoundOutcome, SCOPES_MAX, Settings, Tenants,
};
use thalweg_record::{Batch, Source};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{MissedTickBehavior, interval};
use twox_hash::XxHash3_64;

use crate::config::Config;
use crate::document::{Document, EdgeReport};
use crate::metrics::Metrics;
use crate::pop::Pop;
use crate::positions::Positions;
use crate::sites::{Admission, Sites};
use crate::store::{Store, StoreError};

/// Interval at which the engine checks for windows to close.
const TICK_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of messages queued for the engine. Above it, senders wait.
const WAITING_MAX: usize = 16;
/// Maximum time, in seconds, for which windows are held open for records not yet read from Kafka.
const HELD_S_MAX: u64 = 900;
/// Rollouts pause once windows have been held open for longer than this time, in seconds.
const BEHIND_S: u64 = 60;
/// A request to the engine.
#[derive(Debug)]
pub(crate) enum Message {
    /// Adds a batch and replies with the source's next record number, which is at least `next`. The
    /// batch may lack records that were dropped.
    Records { batch: Batch, next: u64, reply: oneshot::Sender<u64> },
    /// Adds a batch from Kafka, which contains no repeated records.
    KafkaRecords(Batch),
    /// Reports the time up to which Kafka has been read, in seconds since the Unix epoch; `None` if
    /// unknown.
    KafkaReadTo(Option<u64>),
    /// Requests the next record number of a source. The reply is `None` if it is unknown.
    Position(Source, oneshot::Sender<Option<u64>>),
    /// Requests an edge's bundle, and passes on the status that the edge reports.
    Poll { pop: String, edge: Option<String>, report: EdgeReport, reply: oneshot::Sender<PollReply> },
    /// Requests a PoP's edges. The reply is null if no edge is known or the PoP's state is not
    /// stored yet.
    Edges { pop: String, reply: oneshot::Sender<Value> },
}

/// Reply to an edge's bundle request.
#[derive(Debug)]
pub(crate) enum PollReply {
    /// The edge's document, if one exists yet, and a receiver that is notified when the document
    /// may have changed.
    Document(Option<Arc<Document>>, watch::Receiver<()>),
    /// No document can be returned, because the PoP's state is not stored yet.
    NotStored,
}

/// Snapshot of a PoP's state for readers.
#[derive(Debug, Default)]
pub(crate) struct View {
    pub(crate) tenants: Tenants,
    /// Number of the stable bundle.
    pub(crate) bundle: Option<u64>,
}

/// State shared with readers.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    views: RwLock<BTreeMap<String, Arc<View>>>,
    pub(crate) metrics: Metrics,
}

impl Shared {
    /// Returns a PoP's snapshot, or `None` before its first round.
    pub(crate) fn view(&self, pop: &str) -> Option<Arc<View>> {
        self.views.read().unwrap_or_else(PoisonError::into_inner).get(pop).cloned()
    }

    /// Returns the snapshots of all PoPs.
    pub(crate) fn views(&self) -> Vec<(String, Arc<View>)> {
        let views = self.views.read().unwrap_or_else(PoisonError::into_inner);
        views.iter().map(|(pop, view)| (pop.clone(), view.clone())).collect()
    }

    /// Returns the published number of a PoP's stable bundle, if any.
    fn bundle(&self, pop: &str) -> Option<u64> {
        self.view(pop)?.bundle
    }

    fn remove(&self, name: &str) {
        self.views.write().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    fn set(&self, name: &str, pop: &Pop) {
        let view = Arc::new(View { tenants: pop.tenants.clone(), bundle: pop.bundle() });
        self.views.write().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), view);
    }
}

/// Handle to the engine.
#[derive(Debug, Clone)]
pub(crate) struct Handle {
    pub(crate) messages: mpsc::Sender<Message>,
    pub(crate) shared: Arc<Shared>,
}

/// Handle that does not keep the engine alive. The engine stops when the last strong handle is
/// dropped.
#[derive(Debug, Clone)]
pub(crate) struct WeakHandle {
    messages: mpsc::WeakSender<Message>,
    pub(crate) shared: Arc<Shared>,
}

impl Handle {
    pub(crate) fn downgrade(&self) -> WeakHandle {
        WeakHandle { messages: self.messages.downgrade(), shared: self.shared.clone() }
    }
}

impl WeakHandle {
    /// Returns whether a strong handle still exists.
    pub(crate) fn is_open(&self) -> bool {
        self.messages.strong_count() > 0
    }

    /// Sends a message. Returns `None` if the engine has stopped.
    pub(crate) fn send(&self, message: Message) -> Option<()> {
        self.messages.upgrade()?.blocking_send(message).ok()
    }
}

/// State owned by the engine thread.
#[derive(Debug)]
pub(crate) struct Engine {
    settings: Settings,
    seed: u64,
    collector: Collector,
    store: Store,
    pops: BTreeMap<String, Pop>,
    sites: Sites,
    positions: Positions,
    /// Time up to which Kafka has been read, in seconds since the Unix epoch; `None` if unknown.
    read_to_unix_s: Option<u64>,
    reads_kafka: bool,
    pending: VecDeque<ClosedWindows>,
    /// Earliest time of the next attempt to store, after a failure.
    retry_at: Instant,
    counted: Counts,
    messages: mpsc::Receiver<Message>,
    /// Notifies subscribers when a PoP has been stored or added.
    changes: watch::Sender<()>,
    shared: Arc<Shared>,
}

impl Engine {
    /// Opens the database and loads the stored state.
    pub(crate) fn open(config: &Config) -> Result<(Self, Handle), StoreError> {
        let mut store = Store::open(&config.database)?;
        let seed = store.seed()?;
        let shared = Arc::new(Shared::default());
        let mut pops: BTreeMap<_, _> = store.pops()?.into_iter().collect();
        for (name, pop) in &mut pops {
            for (tenant, state, steered) in pop.tenants.retain_configured(&config.settings) {
                if steered > 0 {
                    tracing::warn!(
                        pop = name,
                        tenant,
                        steered,
                        "prefixes of a removed tenant withdrawn; the tenant's state stays in the database"
                    );
                }
                let is_kept = steered > 0 || !pop.tenants.is_outdated(&state);
                store.set_aside(name, &tenant, is_kept.then_some(&state))?;
            }
            pop.rollout.resume(now_unix_s());
        }
        for (name, pop) in pops.iter().filter(|(_, pop)| pop.tenants.window().is_some()) {
            shared.set(name, pop);
        }
        shared.metrics.steered.set(steered(&pops) as f64);
        let mut collector = Collector::new(config.settings.clone(), sampling_seed());
        for (name, window) in pops.iter().filter_map(|(name, pop)| Some((name, pop.tenants.window()?))) {
            collector.resume(name, window);
        }
        let (send, messages) = mpsc::channel(WAITING_MAX);
        let changes = watch::Sender::new(());
        let handle = Handle { messages: send, shared: shared.clone() };
        let engine = Self {
            settings: config.settings.clone(),
            seed,
            collector,
            store,
            sites: Sites::of(pops.keys().cloned(), now_unix_s()),
            pops,
            positions: Positions::default(),
            read_to_unix_s: None,
            reads_kafka: config.kafka.is_some(),
            pending: VecDeque::new(),
            retry_at: Instant::now(),
            counted: Counts::default(),
            messages,
            changes,
            shared,
        };
        Ok((engine, handle))
    }

    /// Runs until the last strong handle is dropped.
    pub(crate) fn run(mut self) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        match runtime {
            Ok(runtime) => runtime.block_on(self.serve()),
            Err(error) => tracing::error!(%error, "cannot start controller runtime"),
        }
    }

    async fn serve(&mut self) {
        let mut tick = interval(TICK_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // `select!` polls its branches in random order, so requests are answered between
            // decisions and records do not delay decisions.
            tokio::select! {
                message = self.messages.recv() => match message {
                    Some(message) => self.answer(message),
                    None => return,
                },
                _ = tick.tick() => self.tick(),
                () = ready(()), if !self.pending.is_empty() => self.decide_next(),
            }
        }
    }

    fn answer(&mut self, message: Message) {
        match message {
            Message::Records { batch, next, reply } => {
                let _ = reply.send(self.add_new(&batch, next)); // a disconnected agent repeats its request
            }
            Message::KafkaRecords(batch) => self.add(&batch, 0),
            Message::KafkaReadTo(unix_s) => self.read_to_unix_s = unix_s,
            Message::Position(source, reply) => {
                let _ = reply.send(self.positions.next(&source));
            }
            Message::Poll { pop, edge, report, reply } => {
                let _ = reply.send(self.poll(&pop, edge.as_deref(), &report));
            }
            Message::Edges { pop, reply } => {
                let written = self.pops.get(&pop).filter(|pop| pop.unwritten.is_empty());
                let _ = reply.send(written.map(Pop::edges).unwrap_or_default());
            }
        }
    }

    /// Returns the reply to an edge. An unknown PoP is not stored until it has records, because its
    /// name may be wrong.
    fn poll(&mut self, name: &str, edge: Option<&str>, report: &EdgeReport) -> PollReply {
        if let (Some(edge), Some(pop)) = (edge, self.pops.get_mut(name)) {
            pop.poll(&self.settings, edge, report, now_unix_s());
            self.write(name);
        }
        let Some(pop) = self.pops.get_mut(name) else {
            return PollReply::Document(None, self.changes.subscribe());
        };
        if !pop.unwritten.is_empty() {
            return PollReply::NotStored;
        }
        PollReply::Document(pop.document(edge.unwrap_or_default()), pop.changes.subscribe())
    }

    /// Adds a batch's new records. Returns the source's next record number.
    fn add_new(&mut self, batch: &Batch, next: u64) -> u64 {
        let known = self.positions.next(&batch.source).unwrap_or(0);
        let repeated = batch.entries.partition_point(|entry| entry.number < known);
        self.shared.metrics.repeated.inc_by(repeated as u64);
        self.add(batch, repeated);
        let next = known.max(next);
        self.positions.set(&batch.source, next);
        next
    }

    /// Adds a batch's records from index `from` on.
    fn add(&mut self, batch: &Batch, from: usize) {
        let (now_unix_s, new) = (now_unix_s(), &batch.entries[from..]);
        if new.is_empty() {
            return;
        }
        if !self.admit(&batch.source.pop, now_unix_s) {
            self.shared.metrics.over_limit.inc_by(new.len() as u64);
            return;
        }
        for entry in new {
            self.collector.add(&batch.source, entry, now_unix_s);
        }
        self.shared.metrics.records.inc_by(new.len() as u64);
        self.count();
    }

    /// Returns whether records of a PoP are accepted. A new PoP may replace an idle PoP, whose data
    /// is then deleted.
    fn admit(&mut self, name: &str, now_unix_s: u64) -> bool {
        let is_steering = |pop: &str| self.pops.get(pop).is_some_and(Pop::is_steering);
        match self.sites.admit(name, &self.settings, now_unix_s, is_steering) {
            Admission::Known => true,
            Admission::Full => false,
            Admission::Replaces(idle) => {
                if let Err(error) = self.store.remove_pop(&idle) {
                    self.shared.metrics.failures.inc();
                    tracing::error!(pop = idle, %error, "cannot delete an idle PoP's state");
                }
                self.collector.remove_pop(&idle);
                self.pops.remove(&idle);
                self.shared.remove(&idle);
                self.shared.metrics.pops_evicted.inc();
                tracing::warn!(pop = idle, by = name, "idle PoP removed: the limit on PoPs is reached");
                true
            }
        }
    }

    /// Closes windows that have ended, checks rollouts for silent edges, and retries storing.
    fn tick(&mut self) {
        let now_unix_s = now_unix_s();
        let closes_unix_s = self.closes_unix_s(now_unix_s);
        self.pending.extend(self.collector.close(closes_unix_s));
        self.count();
        // Pause rollouts while windows are still held open or undecided, so that missing data does
        // not count against a candidate.
        let held_s = now_unix_s.saturating_sub(closes_unix_s);
        let is_held = held_s > BEHIND_S && held_s < held_s_max(&self.settings);
        let is_behind = is_held || !self.pending.is_empty();
        let names: Vec<_> = self.pops.keys().cloned().collect();
        for name in names {
            if let Some(pop) = self.pops.get_mut(&name).filter(|_| !is_behind) {
                pop.tick(&self.settings, now_unix_s);
            }
            self.write(&name);
        }
        let edges: usize = self.pops.values().map(|pop| pop.rollout.edges().len()).sum();
        self.shared.metrics.edges.set(edges as f64);
        let is_silent = |pop: &&Pop| pop.is_silent(&self.settings, closes_unix_s);
        self.shared.metrics.pops_silent.set(self.pops.values().filter(is_silent).count() as f64);
        let paused = self.pops.values().filter(|pop| pop.is_paused()).count();
        self.shared.metrics.pops_paused.set(paused as f64);
    }

    /// Returns the time up to which windows are closed. This time lags behind the clock, up to a
    /// limit, while records have not been read from Kafka.
    fn closes_unix_s(&self, now_unix_s: u64) -> u64 {
        if !self.reads_kafka {
            return now_unix_s;
        }
        let read_to = self.read_to_unix_s.unwrap_or(0).min(now_unix_s);
        read_to.max(now_unix_s.saturating_sub(held_s_max(&self.settings)))
    }

    fn count(&mut self) {
        let (counts, before, metrics) = (self.collector.counts(), self.counted, &self.shared.metrics);
        metrics.late.inc_by(counts.late - before.late);
        metrics.early.inc_by(counts.early - before.early);
        metrics.over_limit.inc_by(counts.over_limit - before.over_limit);
        metrics.sampled_out.inc_by(counts.sampled_out - before.sampled_out);
        self.counted = counts;
    }

    /// Decides the closed windows that have waited longest: those of one PoP and time span.
    fn decide_next(&mut self) {
        let Some(ClosedWindows { pop: name, window, windows }) = self.pending.pop_front() else { return };
        if !self.sites.contains(&name) || !self.pops.contains_key(&name) && self.pops.len() >= SCOPES_MAX {
            self.shared.metrics.over_limit.inc_by(window.records);
            return;
        }
        let seed = XxHash3_64::oneshot_with_seed(self.seed, name.as_bytes());
        let pop = self.pops.entry(name.clone()).or_insert_with(|| {
            self.changes.send_replace(());
            Pop::default()
        });
        let closed = pop.close(&self.settings, &window, windows, seed, now_unix_s());
        self.shared.metrics.over_limit.inc_by(closed.over_limit);
        for (tenant, Decision { window, round, entered, left, steered, pairs, .. }) in closed.decisions {
            let (entered, left) = (entered.len(), left.len());
            tracing::info!(pop = name, tenant, window, ?round, entered, left, steered, "window closed");
            self.shared.metrics.count_pairs(pairs);
            if matches!(round, RoundOutcome::Decided | RoundOutcome::Stopped) {
                self.shared.metrics.rounds.inc();
            }
        }
        self.write(&name);
    }

    /// Stores a PoP's changes and then publishes them. A failed attempt is repeated after
    /// [`TICK_INTERVAL`]; until it succeeds, the PoP's edges get no bundle.
    fn write(&mut self, name: &str) {
        let Some(pop) = self.pops.get_mut(name).filter(|pop| !pop.unwritten.is_empty()) else { return };
        if Instant::now() < self.retry_at {
            return;
        }
        if let Err(error) = self.store.save(name, pop, now_unix_s()) {
            self.retry_at = Instant::now() + TICK_INTERVAL;
            self.shared.metrics.failures.inc();
            tracing::error!(pop = name, %error, "cannot persist controller state: bundle replies suspended until it succeeds");
            return;
        }
        for transition in &pop.unwritten.transitions {
            tracing::info!(pop = name, "{transition}");
        }
        let is_decided = pop.tenants.window().is_some();
        let is_other = self.shared.bundle(name) != pop.bundle();
        if is_decided && (pop.unwritten.states || is_other) {
            self.shared.set(name, pop);
        }
        pop.written();
        pop.changes.send_replace(());
        self.changes.send_replace(());
        self.shared.metrics.steered.set(steered(&self.pops) as f64);
    }
}

/// Returns the maximum time, in seconds, for which windows are held open. This time is bounded so
/// that all windows read again after a restart are recognised as already decided.
pub(crate) fn held_s_max(settings: &Settings) -> u64 {
    let known_s = u64::from(settings.history_windows).saturating_sub(1).saturating_mul(settings.window_s);
    known_s.saturating_sub(settings.late_s).min(HELD_S_MAX)
}

/// Returns the number of steered prefixes across all PoPs.
fn steered(pops: &BTreeMap<String, Pop>) -> usize {
    pops.values().map(|pop| pop.rollout.stable().map_or(0, |bundle| bundle.content().rules.len())).sum()
}

/// Returns a random seed from the operating system, for the sampling of clients. The seed is not
/// stored.
fn sampling_seed() -> u64 {
    RandomState::new().hash_one(())
}

pub(crate) fn now_unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
