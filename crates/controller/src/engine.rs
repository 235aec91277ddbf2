//! The thread that decides: records go in one after the other, windows close by the clock, and each is decided, written and
//! told.
//!
//! **Invariant:** nobody else changes what is known; others read a [`View`], which is replaced as a whole.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::ready;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use thalweg_control::{Closed, Collector, Counts, Decision, Round, SCOPES_MAX, Settings, Tenants};
use thalweg_record::{Batch, Source};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{MissedTickBehavior, interval};
use twox_hash::XxHash3_64;

use crate::Config;
use crate::document::{Document, Heard};
use crate::figures::Figures;
use crate::pop::Pop;
use crate::store::{Store, StoreError};

/// How often it is looked whether a window is over.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Batches and questions that wait for the engine; who has more waits.
const WAITING_MAX: usize = 16;
/// How long windows are held open for what is not read from Kafka yet, seconds.
const HELD_S_MAX: u64 = 900;
/// How far behind windows have to be for rollouts to wait for them, seconds.
const BEHIND_S: u64 = 60;
/// Sources (a machine, and a start of its agent's numbers) whose position is known.
const SOURCES_MAX: usize = 100_000;
/// What the engine is asked.
#[derive(Debug)]
pub(crate) enum Message {
    /// To take a batch; tells the number after the last record that it has of the source.
    Records(Batch, oneshot::Sender<u64>),
    /// To take a batch in which nothing came before.
    Read(Batch),
    /// To what time, seconds since the Unix epoch, Kafka is read; nothing where it cannot be told.
    ReadTo(Option<u64>),
    /// Which number is the first that it has not from this host and epoch, if it has any.
    Position { host: String, epoch: u64, tell: oneshot::Sender<Option<u64>> },
    /// Which bundle an edge is to have; and what it says, if it says something.
    Poll { pop: String, edge: Option<String>, heard: Option<Heard>, tell: oneshot::Sender<Answer> },
    /// The edges of a PoP; null where none is known, or what is known is not written yet.
    Edges { pop: String, tell: oneshot::Sender<Value> },
}

/// What an edge is answered.
#[derive(Debug)]
pub(crate) enum Answer {
    /// What it is to have; nothing before there is any. And by what it is known that this may have become another.
    Document(Option<Arc<Document>>, watch::Receiver<()>),
    /// Nothing now: what is known could not be written.
    Unwritten,
}

/// What is known of a PoP, for who reads.
#[derive(Debug, Default)]
pub(crate) struct View {
    pub(crate) tenants: Tenants,
    /// The number of the bundle that all edges have but canaries.
    pub(crate) bundle: Option<u64>,
}

/// What everybody may read.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    views: RwLock<BTreeMap<String, Arc<View>>>,
    pub(crate) figures: Figures,
}

impl Shared {
    /// What is known of a PoP; nothing before its first round.
    pub(crate) fn view(&self, pop: &str) -> Option<Arc<View>> {
        self.views.read().unwrap_or_else(PoisonError::into_inner).get(pop).cloned()
    }

    /// What is known of every PoP.
    pub(crate) fn views(&self) -> Vec<(String, Arc<View>)> {
        let views = self.views.read().unwrap_or_else(PoisonError::into_inner);
        views.iter().map(|(pop, view)| (pop.clone(), view.clone())).collect()
    }

    /// The number of the bundle that a PoP is known to have.
    fn bundle(&self, pop: &str) -> Option<u64> {
        self.view(pop)?.bundle
    }

    fn set(&self, name: &str, pop: &Pop) {
        let view = Arc::new(View { tenants: pop.tenants.clone(), bundle: pop.bundle() });
        self.views.write().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), view);
    }
}

/// How the engine is reached.
#[derive(Debug, Clone)]
pub(crate) struct Handle {
    pub(crate) messages: mpsc::Sender<Message>,
    /// Changes when something was written of any PoP.
    pub(crate) changes: watch::Receiver<()>,
    pub(crate) shared: Arc<Shared>,
}

/// How it is reached by who does not keep it going: it ends when nobody else can ask.
#[derive(Debug, Clone)]
pub(crate) struct WeakHandle {
    messages: mpsc::WeakSender<Message>,
    pub(crate) changes: watch::Receiver<()>,
    pub(crate) shared: Arc<Shared>,
}

impl Handle {
    pub(crate) fn downgrade(&self) -> WeakHandle {
        let Self { messages, changes, shared } = self.clone();
        WeakHandle { messages: messages.downgrade(), changes, shared }
    }
}

impl WeakHandle {
    /// Whether somebody else may ask.
    pub(crate) fn is_open(&self) -> bool {
        self.messages.strong_count() > 0
    }

    /// Sends; nothing once the engine ends.
    pub(crate) fn send(&self, message: Message) -> Option<()> {
        self.messages.upgrade()?.blocking_send(message).ok()
    }

    /// The PoPs of which something is known.
    pub(crate) fn pops(&self) -> impl Iterator<Item = String> + use<> {
        self.shared.views().into_iter().map(|(pop, _)| pop)
    }
}

/// The thread's own.
#[derive(Debug)]
pub(crate) struct Engine {
    settings: Settings,
    seed: u64,
    collector: Collector,
    store: Store,
    pops: BTreeMap<String, Pop>,
    /// The number after the last record of each source, by host and epoch.
    positions: HashMap<(String, u64), u64>,
    /// To what time Kafka is read, if it is.
    read_to_unix_s: Option<u64>,
    reads_kafka: bool,
    pending: VecDeque<Closed>,
    /// When it may be tried again to write.
    retry_at: Instant,
    counted: Counts,
    messages: mpsc::Receiver<Message>,
    /// Changes when something was written of any PoP, or there is another.
    changes: watch::Sender<()>,
    shared: Arc<Shared>,
}

impl Engine {
    /// With what the file has.
    pub(crate) fn open(config: &Config) -> Result<(Self, Handle), StoreError> {
        let mut store = Store::open(&config.database)?;
        let seed = store.seed()?;
        let shared = Arc::new(Shared::default());
        let mut pops: BTreeMap<_, _> = store.pops()?.into_iter().collect();
        for (name, pop) in &mut pops {
            for (tenant, state, steered) in pop.tenants.keep(&config.settings) {
                if steered > 0 {
                    let told =
                        "not a tenant any more: its networks leave, what is known of them stays in the file";
                    tracing::warn!(pop = name, tenant, steered, "{told}");
                }
                let is_kept = steered > 0 || !pop.tenants.is_past(&state);
                store.set_aside(name, &tenant, is_kept.then_some(&state))?;
            }
            pop.rollout.resume(now_unix_s());
        }
        for (name, pop) in pops.iter().filter(|(_, pop)| pop.tenants.window().is_some()) {
            shared.set(name, pop);
        }
        shared.figures.steered.set(steered(&pops) as f64);
        let (send, messages) = mpsc::channel(WAITING_MAX);
        let changes = watch::Sender::new(());
        let handle = Handle { messages: send, changes: changes.subscribe(), shared: shared.clone() };
        let engine = Self {
            settings: config.settings.clone(),
            seed,
            collector: Collector::new(config.settings.clone()),
            store,
            pops,
            positions: HashMap::new(),
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

    /// Runs until nobody can ask any more.
    pub(crate) fn run(mut self) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        match runtime {
            Ok(runtime) => runtime.block_on(self.serve()),
            Err(error) => tracing::error!(%error, "the controller cannot start its runtime"),
        }
    }

    async fn serve(&mut self) {
        let mut tick = interval(LOOK_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // In turn, at random: between two decisions those that ask are heard, and records hold no decision up.
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
            Message::Records(batch, tell) => {
                let _ = tell.send(self.take(&batch)); // who has gone asks again
            }
            Message::Read(batch) => self.add(&batch, 0),
            Message::ReadTo(unix_s) => self.read_to_unix_s = unix_s,
            Message::Position { host, epoch, tell } => {
                let _ = tell.send(self.positions.get(&(host, epoch)).copied());
            }
            Message::Poll { pop, edge, heard, tell } => {
                let _ = tell.send(self.poll(&pop, edge.as_deref(), heard.as_ref()));
            }
            Message::Edges { pop, tell } => {
                let written = self.pops.get(&pop).filter(|pop| pop.unwritten.is_empty());
                let _ = tell.send(written.map(Pop::edges).unwrap_or_default());
            }
        }
    }

    /// What an edge is to have. Of a PoP without records nothing is kept: whoever asks may have its name wrong.
    fn poll(&mut self, name: &str, edge: Option<&str>, heard: Option<&Heard>) -> Answer {
        if let (Some(edge), Some(heard), Some(pop)) = (edge, heard, self.pops.get_mut(name)) {
            pop.hear(&self.settings, edge, heard, now_unix_s());
            self.write(name);
        }
        let Some(pop) = self.pops.get_mut(name) else {
            return Answer::Document(None, self.changes.subscribe());
        };
        if !pop.unwritten.is_empty() {
            return Answer::Unwritten;
        }
        Answer::Document(pop.document(edge.unwrap_or_default()), pop.changes.subscribe())
    }

    /// Takes what is new of a batch; gives the number after its last record.
    fn take(&mut self, batch: &Batch) -> u64 {
        let Source { host, epoch, .. } = &batch.source;
        let key = (host.clone(), *epoch);
        let known = self.positions.get(&key).copied().unwrap_or(0);
        let repeated = batch.entries.partition_point(|entry| entry.number < known);
        self.shared.figures.repeated.inc_by(repeated as u64);
        self.add(batch, repeated);
        let next = batch.entries.last().map_or(known, |last| known.max(last.number.saturating_add(1)));
        if self.positions.len() == SOURCES_MAX {
            self.positions.clear(); // what comes again now is counted twice, once in years of restarts
        }
        self.positions.insert(key, next);
        next
    }

    /// Adds the records of a batch from a place on.
    fn add(&mut self, batch: &Batch, from: usize) {
        let now_unix_s = now_unix_s();
        for entry in &batch.entries[from..] {
            self.collector.add(&batch.source, entry, now_unix_s);
        }
        self.shared.figures.records.inc_by((batch.entries.len() - from) as u64);
        self.count();
    }

    /// Lets time pass: windows close, edges are missed, and what could not be written is tried again.
    fn tick(&mut self) {
        let now_unix_s = now_unix_s();
        let closes_unix_s = self.closes_unix_s(now_unix_s);
        self.pending.extend(self.collector.close(closes_unix_s));
        self.count();
        // What is still held open, or is not decided, tells nothing against a candidate.
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
        self.shared.figures.edges.set(edges as f64);
    }

    /// The clock by which windows close: it waits for what is not read yet, but not for ever.
    fn closes_unix_s(&self, now_unix_s: u64) -> u64 {
        if !self.reads_kafka {
            return now_unix_s;
        }
        let read_to = self.read_to_unix_s.unwrap_or(0).min(now_unix_s);
        read_to.max(now_unix_s.saturating_sub(held_s_max(&self.settings)))
    }

    fn count(&mut self) {
        let (counts, before, figures) = (self.collector.counts(), self.counted, &self.shared.figures);
        figures.late.inc_by(counts.late - before.late);
        figures.early.inc_by(counts.early - before.early);
        figures.over_limit.inc_by(counts.over_limit - before.over_limit);
        self.counted = counts;
    }

    /// Decides the windows that have waited longest.
    fn decide_next(&mut self) {
        let Some(Closed { pop: name, window, windows }) = self.pending.pop_front() else { return };
        if !self.pops.contains_key(&name) && self.pops.len() == SCOPES_MAX {
            self.shared.figures.over_limit.inc_by(window.records);
            return;
        }
        let seed = XxHash3_64::oneshot_with_seed(self.seed, name.as_bytes());
        let pop = self.pops.entry(name.clone()).or_insert_with(|| {
            self.changes.send_replace(());
            Pop::default()
        });
        let closed = pop.close(&self.settings, (&window, windows), seed, now_unix_s());
        self.shared.figures.over_limit.inc_by(closed.over_limit);
        for (tenant, Decision { window, round, entered, left, steered, .. }) in closed.decisions {
            let (entered, left) = (entered.len(), left.len());
            tracing::info!(pop = name, tenant, window, ?round, entered, left, steered, "window closed");
            if matches!(round, Round::Decided | Round::Stopped) {
                self.shared.figures.rounds.inc();
            }
        }
        self.write(&name);
    }

    /// Writes what is not written of a PoP, and tells it then; what cannot be written is tried again each second, and no edge of the PoP
    /// is answered meanwhile.
    fn write(&mut self, name: &str) {
        let Some(pop) = self.pops.get_mut(name).filter(|pop| !pop.unwritten.is_empty()) else { return };
        if Instant::now() < self.retry_at {
            return;
        }
        if let Err(error) = self.store.keep(name, pop, now_unix_s()) {
            self.retry_at = Instant::now() + LOOK_EVERY;
            self.shared.figures.failures.inc();
            tracing::error!(pop = name, %error, "what is known cannot be written: edges hear nothing until it is");
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
        self.shared.figures.steered.set(steered(&self.pops) as f64);
    }
}

/// How long windows are held open, seconds: so long that all that are read again after a restart are known to have been decided.
pub(crate) fn held_s_max(settings: &Settings) -> u64 {
    let known_s = u64::from(settings.history_windows).saturating_sub(1).saturating_mul(settings.window_s);
    known_s.saturating_sub(settings.late_s).min(HELD_S_MAX)
}

/// Prefixes that are steered, of all PoPs.
fn steered(pops: &BTreeMap<String, Pop>) -> usize {
    pops.values().map(|pop| pop.rollout.stable().map_or(0, |bundle| bundle.content().rules.len())).sum()
}

pub(crate) fn now_unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
