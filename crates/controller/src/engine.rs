//! The thread that decides: records go in one after the other, windows close by the clock, and each is decided, written and
//! told.
//!
//! **Invariant:** nobody else changes what is known; others read a [`View`], which is replaced as a whole.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::ready;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use thalweg_bundle::Bundle;
use thalweg_control::{
    Collector, Counts, Decision, Moment, Round, SCOPES_MAX, Scope, Settings, State, Window, decide,
};
use thalweg_record::{Batch, Source};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{MissedTickBehavior, interval};
use twox_hash::XxHash3_64;

use crate::Config;
use crate::document::{Document, Heard};
use crate::figures::Figures;
use crate::round::Told;
use crate::store::{Kept, Store, StoreError};

/// How often it is looked whether a window is over.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Batches and questions that wait for the engine; who has more waits.
const WAITING_MAX: usize = 16;
/// Machines whose position is known: of more, what comes again is counted twice.
const SOURCES_MAX: usize = 100_000;
/// Edges of a PoP that are remembered; others get their bundle as well.
const EDGES_MAX: usize = 10_000;

/// What the engine is asked.
#[derive(Debug)]
pub(crate) enum Message {
    /// To take a batch; tells the number after the last record that it has of the source.
    Records(Batch, oneshot::Sender<u64>),
    /// To take a batch in which nothing came before.
    Read(Batch),
    /// Which number is the first that it has not from this host and epoch, if it has any.
    Position { host: String, epoch: u64, tell: oneshot::Sender<Option<u64>> },
    /// Which bundle an edge is to have.
    Poll { pop: String, edge: Option<String>, heard: Heard, tell: oneshot::Sender<Option<Arc<Document>>> },
}

/// What is known of a PoP, for who reads.
#[derive(Debug, Default)]
pub(crate) struct View {
    pub(crate) state: State,
    pub(crate) bundle: Option<Arc<Document>>,
}

/// What is known of an edge, for who reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Edge {
    pub(crate) heard: Heard,
    pub(crate) unix_s: u64,
}

/// What everybody may read.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    views: RwLock<BTreeMap<String, Arc<View>>>,
    edges: RwLock<BTreeMap<String, BTreeMap<String, Edge>>>,
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

    /// The edges of a PoP that have asked.
    pub(crate) fn edges(&self, pop: &str) -> BTreeMap<String, Edge> {
        self.edges.read().unwrap_or_else(PoisonError::into_inner).get(pop).cloned().unwrap_or_default()
    }

    fn set(&self, pop: &str, view: View) {
        self.views.write().unwrap_or_else(PoisonError::into_inner).insert(pop.to_owned(), Arc::new(view));
    }

    fn set_edge(&self, pop: &str, name: String, edge: Edge) {
        let mut pops = self.edges.write().unwrap_or_else(PoisonError::into_inner);
        if pops.len() == SCOPES_MAX && !pops.contains_key(pop) {
            return;
        }
        let edges = pops.entry(pop.to_owned()).or_default();
        if edges.len() < EDGES_MAX || edges.contains_key(&name) {
            edges.insert(name, edge);
        }
        self.figures.edges.set(pops.values().map(BTreeMap::len).sum::<usize>() as f64);
    }
}

/// How the engine is reached.
#[derive(Debug, Clone)]
pub(crate) struct Handle {
    pub(crate) messages: mpsc::Sender<Message>,
    /// Changes with each bundle.
    pub(crate) bundles: watch::Receiver<u64>,
    pub(crate) shared: Arc<Shared>,
}

/// The thread's own.
#[derive(Debug)]
pub(crate) struct Engine {
    settings: Settings,
    seed: u64,
    collector: Collector,
    store: Store,
    /// The number after the last record of each source, by host; an older epoch's is of no use.
    positions: HashMap<String, (u64, u64)>,
    pending: VecDeque<(Scope, Window)>,
    counted: Counts,
    messages: mpsc::Receiver<Message>,
    bundles: watch::Sender<u64>,
    shared: Arc<Shared>,
}

impl Engine {
    /// With what the file has.
    pub(crate) fn open(config: &Config) -> Result<(Self, Handle), StoreError> {
        let store = Store::open(&config.database)?;
        let seed = store.seed()?;
        let shared = Arc::new(Shared::default());
        for Kept { pop, state, bundle } in store.kept()? {
            shared.set(&pop, View { state, bundle: bundle.map(Document::new) });
        }
        let (send, messages) = mpsc::channel(WAITING_MAX);
        let (bundles, changed) = watch::channel(0);
        let handle = Handle { messages: send, bundles: changed, shared: shared.clone() };
        let engine = Self {
            settings: config.settings.clone(),
            seed,
            collector: Collector::new(config.settings.clone()),
            store,
            positions: HashMap::new(),
            pending: VecDeque::new(),
            counted: Counts::default(),
            messages,
            bundles,
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
                _ = tick.tick() => self.close(),
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
            Message::Position { host, epoch, tell } => {
                let known = self.positions.get(&host).filter(|(of, _)| *of == epoch);
                let _ = tell.send(known.map(|(_, next)| *next));
            }
            Message::Poll { pop, edge, heard, tell } => {
                if let Some(name) = edge {
                    self.shared.set_edge(&pop, name, Edge { heard, unix_s: now_unix_s() });
                }
                let _ = tell.send(self.shared.view(&pop).and_then(|view| view.bundle.clone()));
            }
        }
    }

    /// Takes what is new of a batch; gives the number after its last record.
    fn take(&mut self, batch: &Batch) -> u64 {
        let Source { host, epoch, .. } = &batch.source;
        let known = self.positions.get(host).filter(|(of, _)| of == epoch).map_or(0, |(_, next)| *next);
        let repeated = batch.entries.partition_point(|entry| entry.number < known);
        self.shared.figures.repeated.inc_by(repeated as u64);
        self.add(batch, repeated);
        let next = batch.entries.last().map_or(known, |last| known.max(last.number.saturating_add(1)));
        if self.positions.len() < SOURCES_MAX || self.positions.contains_key(host) {
            self.positions.insert(host.clone(), (*epoch, next));
        }
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

    fn close(&mut self) {
        self.pending.extend(self.collector.close(now_unix_s()));
        self.count();
    }

    fn count(&mut self) {
        let (counts, before, figures) = (self.collector.counts(), self.counted, &self.shared.figures);
        figures.late.inc_by(counts.late - before.late);
        figures.early.inc_by(counts.early - before.early);
        figures.over_limit.inc_by(counts.over_limit - before.over_limit);
        self.counted = counts;
    }

    /// Decides the window that has waited longest.
    fn decide_next(&mut self) {
        let Some((Scope { pop, .. }, window)) = self.pending.pop_front() else { return };
        let before = self.shared.view(&pop).unwrap_or_default();
        let edges = self.shared.edges(&pop);
        let moment = Moment {
            now_unix_s: now_unix_s(),
            seed: XxHash3_64::oneshot_with_seed(self.seed, pop.as_bytes()),
            acknowledged_bundle: edges.values().map(|edge| edge.heard.number).max().unwrap_or(0),
        };
        let (state, decision) = decide(&self.settings, &before.state, &window, moment);
        match decision.round {
            Round::Decided | Round::Stopped => self.keep(&pop, &before, state, &window, &decision),
            kept => tracing::info!(pop, window = window.number, ?kept, "window not decided"),
        }
    }

    /// Writes a round and tells it. What cannot be written has not been: the next window is decided on what was known before.
    fn keep(&mut self, pop: &str, before: &View, state: State, window: &Window, decision: &Decision) {
        let made = decision.content.clone().map(|content| {
            // What a decision makes passes the edges' own checker: this one is it.
            Bundle::new(content).map(Document::new)
        });
        let made = match made.transpose() {
            Ok(made) => made,
            Err(faults) => {
                self.shared.figures.failures.inc();
                tracing::error!(pop, %faults, "the controller has made a bundle that edges would refuse");
                return;
            }
        };
        let told = Told::of(&self.settings, window, decision);
        if let Err(error) = self.store.keep(pop, &state, &told, made.as_deref()) {
            self.shared.figures.failures.inc();
            tracing::error!(pop, window = window.number, %error, "a round cannot be written, and counts for nothing");
            return;
        }
        let Decision { entered, left, steered, .. } = decision;
        let bundle = made.as_ref().map(|document| document.number());
        let (entered, left) = (entered.len(), left.len());
        tracing::info!(pop, window = window.number, entered, left, steered, bundle, "decided");
        let is_new = made.is_some();
        self.shared.set(pop, View { state, bundle: made.or_else(|| before.bundle.clone()) });
        let figures = &self.shared.figures;
        figures.rounds.inc();
        let steered = self.shared.views().iter().map(|(_, view)| view.state.steered().count()).sum::<usize>();
        figures.steered.set(steered as f64);
        if is_new {
            figures.bundles.inc();
            self.bundles.send_modify(|version| *version += 1);
        }
    }
}

pub(crate) fn now_unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
