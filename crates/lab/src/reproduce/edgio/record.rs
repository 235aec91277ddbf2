//! The record of a run: what the controller and the edges report, polled every second.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context;
use thalweg_netem::scenario::Scenario;
use tokio::sync::watch;
use tokio::time::interval;

use super::controller::{ActiveBundle, Change, Explanation, RolloutEvent, Round, active_bundle};
use super::networks::{NETWORKS, POPS, of_pop};
use super::parts::{EDGES, admin, controller, edge_name};
use super::unix_s;

/// Interval between requests to the controller and the edges.
const POLL_EVERY: Duration = Duration::from_secs(1);

/// What was reported of one PoP.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PopRecord {
    /// The controller's decisions.
    pub rounds: Vec<Round>,
    /// Each change of an edge's bundle, as the edge itself reports it.
    pub bundles: Vec<BundleChange>,
    /// The rollout's newest events.
    pub events: Vec<RolloutEvent>,
}

/// An edge has changed its bundle.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BundleChange {
    /// Unix time at which the change was noticed.
    pub unix_s: f64,
    /// The edge, counted from zero.
    pub edge: usize,
    /// The edge's new bundle.
    pub bundle: ActiveBundle,
}

impl PopRecord {
    /// Returns the bundle that an edge used last.
    fn last_bundle(&self, edge: usize) -> ActiveBundle {
        let changes = self.bundles.iter().rev();
        changes.clone().find(|change| change.edge == edge).map_or_else(ActiveBundle::default, |it| it.bundle)
    }

    /// Returns the time at which each edge first used a bundle with rules, in Unix seconds.
    pub fn first_steered(&self) -> [Option<f64>; EDGES] {
        std::array::from_fn(|edge| {
            let steers = |change: &&BundleChange| {
                change.edge == edge && change.bundle.rules.is_some_and(|rules| rules > 0)
            };
            self.bundles.iter().find(steers).map(|change| change.unix_s)
        })
    }

    /// Returns the text of the first event about a bundle that was rolled back.
    pub fn rolled_back(&self) -> Option<&str> {
        self.events.iter().map(|event| event.text.as_str()).find(|text| text.contains("rolled back"))
    }

    /// Returns the number of edges that the controller reports to refuse a bundle.
    pub fn refusing(&self, pop: usize) -> usize {
        let refuses = |edge: &usize| {
            let text = format!("{} refuses", edge_name(pop, *edge));
            self.events.iter().any(|event| event.text.starts_with(&text))
        };
        (0..EDGES).filter(refuses).count()
    }
}

/// Everything reported in a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Record {
    /// One record for each of [`POPS`].
    pub pops: [PopRecord; POPS.len()],
    /// Prefix and explanation of each network, in the order of [`NETWORKS`].
    pub networks: Vec<(String, Explanation)>,
}

impl Record {
    /// Creates an empty record.
    pub fn of(scenario: &Scenario) -> Self {
        let prefixes = NETWORKS.iter().zip(&scenario.paths).map(|(network, path)| network.prefix(path));
        let networks = prefixes.map(|prefix| (prefix, Explanation::default())).collect();
        Self { pops: Default::default(), networks }
    }
}

/// Polls the controller and the edges.
pub(super) struct Poller<'a> {
    pub(super) record: Mutex<Record>,
    pub(super) started_unix_s: f64,
    /// Ends polling once the record satisfies it.
    pub(super) is_done: fn(&Record) -> bool,
    pub(super) log: &'a (dyn Fn(&str) + Sync),
}

impl Poller<'_> {
    /// Polls until stopped, or until the record is complete.
    ///
    /// # Errors
    ///
    /// Returns an error if the controller or an edge does not respond as it should.
    pub(super) async fn run(&self, mut stopped: watch::Receiver<()>) -> anyhow::Result<()> {
        let mut ticks = interval(POLL_EVERY);
        loop {
            tokio::select! {
                _ = ticks.tick() => self.poll().await.context("polling")?,
                // This completes when the sender is dropped.
                _ = stopped.changed() => return self.poll().await.context("polling"),
            }
            if (self.is_done)(&self.record()) {
                return Ok(());
            }
        }
    }

    /// Returns the record.
    pub(super) fn into_record(self) -> Record {
        self.record.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn poll(&self) -> anyhow::Result<()> {
        for pop in 0..POPS.len() {
            self.poll_rounds(pop).await?;
            self.poll_edges(pop).await?;
        }
        Ok(())
    }

    async fn poll_rounds(&self, pop: usize) -> anyhow::Result<()> {
        let last = self.record().pops[pop].rounds.last().map(|round| round.unix_s);
        let rounds = controller(pop).rounds(last.unwrap_or(self.started_unix_s as u64)).await?;
        if rounds.is_empty() {
            return Ok(());
        }
        let mut explained = Vec::new();
        for (index, _) in of_pop(pop) {
            let prefix = self.record().networks[index].0.clone();
            explained.push((index, controller(pop).explain(&prefix).await?));
        }
        rounds.iter().for_each(|round| self.print_round(pop, round));
        let mut record = self.record();
        record.pops[pop].rounds.extend(rounds);
        explained.into_iter().for_each(|(index, newer)| record.networks[index].1.update(newer));
        Ok(())
    }

    async fn poll_edges(&self, pop: usize) -> anyhow::Result<()> {
        for edge in 0..EDGES {
            let bundle = active_bundle(admin(pop, edge)).await?;
            let mut record = self.record();
            if record.pops[pop].last_bundle(edge) != bundle {
                record.pops[pop].bundles.push(BundleChange { unix_s: unix_s(), edge, bundle });
            }
        }
        let events = controller(pop).events().await?;
        self.record().pops[pop].events = events;
        Ok(())
    }

    /// Prints the changes in a round.
    fn print_round(&self, pop: usize, round: &Round) {
        let record = self.record();
        let name = |prefix: &str| {
            let number = record.networks.iter().position(|(it, _)| it == prefix);
            number.map_or(prefix.to_owned(), |number| NETWORKS[number].name.to_owned())
        };
        let changes = |what: &str, changes: &[Change]| {
            let words = changes.iter().map(|it| format!("{} {what} ({})", name(&it.prefix), it.reason));
            words.collect::<Vec<_>>()
        };
        let mut all = changes("entered", &round.entered);
        all.extend(round.promising.iter().map(|prefix| format!("{} promising", name(prefix))));
        all.extend(round.proved.iter().map(|prefix| format!("{} shown to be helped", name(prefix))));
        all.extend(changes("left", &round.left));
        let at_s = round.unix_s as f64 - self.started_unix_s;
        let p10 = round.delivery_rate.all.map_or(0.0, |lows| lows.p10 * 8e-6);
        (self.log)(&format!(
            "{at_s:4.0} s  {}  p10 {p10:5.2} Mbit/s  {} steered  {}",
            POPS[pop],
            round.steered,
            all.join(", ")
        ));
    }
}
