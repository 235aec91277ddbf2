//! Scores of a simulation against the truth: additive sums over windows and PoPs, and the results
//! derived from them.

use serde::Serialize;
use thalweg_record::Prefix;

use super::Plan;
use super::reversals::Reversals;
use super::world::{Effect, Rules, World};
use crate::decide::Decision;
use crate::settings::Settings;
use crate::state::State;

/// Divisor that gives the length of the late part of a simulation: the last quarter, by which most
/// trials have ended.
const LATE_PART: u64 = 4;

/// Sums over windows. Gains are log goodput summed over connections. Fields named `late_` cover
/// only the last quarter of the windows.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Tally {
    /// Number of rounds.
    pub rounds: u64,
    /// Number of connections.
    pub connections: f64,
    /// Gain from the actual decisions.
    pub gain: f64,
    /// Gain if all prefixes were steered.
    pub gain_all: f64,
    /// Gain if exactly the prefixes with a gain were steered.
    pub gain_oracle: f64,
    /// Gain if the prefixes with the largest gains were steered, up to the limit.
    pub gain_capped: f64,
    /// Number of connections in the late windows.
    pub late_connections: f64,
    /// [`Tally::gain`] in the late windows.
    pub late_gain: f64,
    /// [`Tally::gain_all`] in the late windows.
    pub late_gain_all: f64,
    /// [`Tally::gain_oracle`] in the late windows.
    pub late_gain_oracle: f64,
    /// [`Tally::gain_capped`] in the late windows.
    pub late_gain_capped: f64,
    /// Number of steered prefixes, summed over the late windows.
    pub late_steered: f64,
    /// Number of steered prefixes that are truly helped, summed over the late windows.
    pub late_steered_helped: f64,
    /// Number of steered prefixes that are truly harmed, summed over the late windows.
    pub late_steered_harmed: f64,
    /// Number of helped prefixes, steered or not, summed over the late windows.
    pub late_helped: f64,
    /// Number of connections of helped prefixes in the late windows.
    pub late_helped_connections: f64,
    /// Number of connections of prefixes both helped and steered, in the late windows.
    pub late_helped_steered_connections: f64,
    /// Number of steered connections of harmed prefixes in the late windows.
    pub late_harmed_steered_connections: f64,
    /// Number of late rounds.
    pub late_rounds: u64,
    /// Number of prefixes admitted in late rounds.
    pub late_entered: u64,
    /// Number of prefixes withdrawn in late rounds.
    pub late_left: u64,
    /// Maximum number of prefixes admitted in one round.
    pub entered_max: u64,
    /// Number of rounds stopped by the guardrail.
    pub stopped: u64,
    /// Number of prefixes declared helped, over all windows.
    pub declared: u64,
    /// Number of prefixes declared helped although they had no gain at the time.
    pub false_discoveries: u64,
    /// Reversals of proved prefixes.
    pub reversals: Reversals,
    /// Indices of the places that gain most from steering. Recomputed regularly, because places
    /// change.
    #[serde(skip)]
    capped: Vec<usize>,
}

impl Tally {
    /// Adds a window simulated under `rules`. `state` is the state from the last decision.
    pub(super) fn add_window(
        &mut self,
        plan: &Plan,
        settings: &Settings,
        world: &World,
        (rules, state): (&Rules, &State),
        number: u64,
    ) {
        if self.capped.is_empty() || number.is_multiple_of(12) {
            self.capped = best(world, settings.steered_max);
        }
        let connections = |at: usize| f64::from(world.connections[at]);
        let (mut all, mut gain_all, mut gain_oracle) = (0.0, 0.0, 0.0);
        let (mut helped, mut helped_connections) = (0.0, 0.0);
        for (at, place) in world.places.iter().enumerate() {
            let own = connections(at);
            all += own;
            gain_all += own * place.gain;
            gain_oracle += own * place.gain.max(0.0);
            if place.effect == Effect::Helps {
                helped += 1.0;
                helped_connections += own;
            }
        }
        let gain_capped: f64 =
            self.capped.iter().map(|at| connections(*at) * world.places[*at].gain.max(0.0)).sum();
        let mut gain = 0.0;
        let is_late = is_late(plan, number);
        for rule in &rules.rules {
            let share = 1.0 - rule.held_out_share(number);
            let place = world.find(rule.prefix);
            let own = place.map_or(0.0, connections);
            let truth = place.map(|at| &world.places[at]);
            gain += own * share * truth.map_or(0.0, |place| place.gain);
            if is_late {
                let is = |effect| f64::from(u8::from(truth.is_some_and(|place| place.effect == effect)));
                self.late_steered += 1.0;
                self.late_steered_helped += is(Effect::Helps);
                self.late_steered_harmed += is(Effect::Harms);
                self.late_helped_steered_connections += own * is(Effect::Helps);
                self.late_harmed_steered_connections += own * share * is(Effect::Harms);
            }
        }
        self.reversals.add_window(world, state);
        self.connections += all;
        self.gain += gain;
        self.gain_all += gain_all;
        self.gain_oracle += gain_oracle;
        self.gain_capped += gain_capped;
        if is_late {
            self.late_connections += all;
            self.late_gain += gain;
            self.late_gain_all += gain_all;
            self.late_gain_oracle += gain_oracle;
            self.late_gain_capped += gain_capped;
            self.late_helped += helped;
            self.late_helped_connections += helped_connections;
        }
    }

    pub(super) fn add_decision(&mut self, plan: &Plan, world: &World, decision: &Decision, number: u64) {
        let entered = decision.entered.len() as u64;
        self.rounds += 1;
        self.declared += decision.proved.len() as u64;
        let gains = |prefix: &Prefix| world.find(*prefix).is_some_and(|at| world.places[at].gain > 0.0);
        self.false_discoveries += decision.proved.iter().filter(|prefix| !gains(prefix)).count() as u64;
        self.entered_max = self.entered_max.max(entered);
        self.stopped += u64::from(decision.round == crate::decide::RoundOutcome::Stopped);
        if is_late(plan, number) {
            self.late_rounds += 1;
            self.late_entered += entered;
            self.late_left += decision.left.len() as u64;
        }
    }

    pub(super) fn end(&mut self) {
        self.capped = Vec::new();
        self.reversals.end();
    }

    /// Adds another PoP's tally.
    pub fn add(&mut self, other: &Self) {
        let mut sums = [
            (&mut self.connections, other.connections),
            (&mut self.gain, other.gain),
            (&mut self.gain_all, other.gain_all),
            (&mut self.gain_oracle, other.gain_oracle),
            (&mut self.gain_capped, other.gain_capped),
            (&mut self.late_connections, other.late_connections),
            (&mut self.late_gain, other.late_gain),
            (&mut self.late_gain_all, other.late_gain_all),
            (&mut self.late_gain_oracle, other.late_gain_oracle),
            (&mut self.late_gain_capped, other.late_gain_capped),
            (&mut self.late_steered, other.late_steered),
            (&mut self.late_steered_helped, other.late_steered_helped),
            (&mut self.late_steered_harmed, other.late_steered_harmed),
            (&mut self.late_helped, other.late_helped),
            (&mut self.late_helped_connections, other.late_helped_connections),
            (&mut self.late_helped_steered_connections, other.late_helped_steered_connections),
            (&mut self.late_harmed_steered_connections, other.late_harmed_steered_connections),
        ];
        sums.iter_mut().for_each(|(sum, other)| **sum += *other);
        self.rounds += other.rounds;
        self.late_rounds += other.late_rounds;
        self.late_entered += other.late_entered;
        self.late_left += other.late_left;
        self.entered_max = self.entered_max.max(other.entered_max);
        self.stopped += other.stopped;
        self.declared += other.declared;
        self.false_discoveries += other.false_discoveries;
        self.reversals.add(&other.reversals);
    }
}

/// Returns the indices of the `count` places whose traffic gains most from BBR.
fn best(world: &World, count: usize) -> Vec<usize> {
    let gain = |at: &usize| world.traffic_share(*at) * world.places[*at].gain;
    let mut places: Vec<_> = (0..world.places.len()).collect();
    if count < places.len() {
        places.select_nth_unstable_by(count, |one, other| gain(other).total_cmp(&gain(one)));
        places.truncate(count);
    }
    places
}

fn is_late(plan: &Plan, number: u64) -> bool {
    number >= plan.windows - plan.windows / LATE_PART
}

/// The result of a simulation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Parameters of the simulation.
    pub plan: Plan,
    /// Tally of the simulation with proof.
    pub with_proof: Tally,
    /// Tally of the simulation by duty cycle and flap rate alone, without a holdout.
    pub alone: Tally,
}

/// Score of one policy. Goodputs are geometric means over connections, as gains relative to all
/// CUBIC.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Name of the policy.
    pub name: &'static str,
    /// Goodput over all windows.
    pub goodput: f64,
    /// Goodput over the last quarter.
    pub late_goodput: f64,
    /// Late goodput lost compared with the capped oracle.
    pub late_regret: f64,
    /// Share of steered prefixes that are helped.
    pub precision: Option<f64>,
    /// Share of prefixes declared helped that were not helped at the time.
    pub false_discoveries: Option<f64>,
    /// Share of helped prefixes that are steered.
    pub recall: Option<f64>,
    /// Share of the connections of helped prefixes that belong to steered prefixes.
    pub recall_connections: Option<f64>,
    /// Share of all connections that are steered although their prefix is harmed.
    pub harmed_connections: Option<f64>,
    /// Mean number of steered prefixes per PoP.
    pub steered: Option<f64>,
    /// Mean number of prefixes admitted per round.
    pub entered: Option<f64>,
    /// Share of steered prefixes that remain steered in the next round.
    pub kept: Option<f64>,
}

impl Report {
    /// Adds another PoP's report.
    pub fn add(&mut self, other: &Self) {
        self.with_proof.add(&other.with_proof);
        self.alone.add(&other.alone);
    }

    /// Returns one row per policy.
    pub fn rows(&self) -> Vec<Row> {
        let tally = &self.with_proof;
        let known = |name, gain, late_gain| plain(name, tally, gain, late_gain);
        vec![
            known("oracle", tally.gain_oracle, tally.late_gain_oracle),
            known("oracle, capped", tally.gain_capped, tally.late_gain_capped),
            decided("with proof", tally),
            decided("duty cycle alone", &self.alone),
            known("all bbr", tally.gain_all, tally.late_gain_all),
            known("all cubic", 0.0, 0.0),
        ]
    }
}

fn plain(name: &'static str, tally: &Tally, gain: f64, late_gain: f64) -> Row {
    let late = (late_gain / tally.late_connections).exp_m1();
    Row {
        name,
        goodput: (gain / tally.connections).exp_m1(),
        late_goodput: late,
        late_regret: (tally.late_gain_capped / tally.late_connections).exp_m1() - late,
        precision: None,
        false_discoveries: None,
        recall: None,
        recall_connections: None,
        harmed_connections: None,
        steered: None,
        entered: None,
        kept: None,
    }
}

fn decided(name: &'static str, tally: &Tally) -> Row {
    let part = |part: f64, whole: f64| (whole > 0.0).then(|| part / whole);
    Row {
        precision: part(tally.late_steered_helped, tally.late_steered),
        false_discoveries: part(tally.false_discoveries as f64, tally.declared as f64),
        recall: part(tally.late_steered_helped, tally.late_helped),
        recall_connections: part(tally.late_helped_steered_connections, tally.late_helped_connections),
        harmed_connections: part(tally.late_harmed_steered_connections, tally.late_connections),
        steered: part(tally.late_steered, tally.late_rounds as f64),
        entered: part(tally.late_entered as f64, tally.late_rounds as f64),
        kept: part(tally.late_steered - tally.late_left as f64, tally.late_steered),
        ..plain(name, tally, tally.gain, tally.late_gain)
    }
}
