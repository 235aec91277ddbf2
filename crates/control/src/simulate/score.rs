//! How well it was decided, by the truth: sums that add up over windows and PoPs, and what follows from them.

use serde::Serialize;
use thalweg_record::Prefix;

use super::Plan;
use super::reversals::Reversals;
use super::world::{Effect, Rules, World};
use crate::decide::Decision;
use crate::settings::Settings;
use crate::state::State;

/// The last part of the day, in which most has been learned: a quarter.
const LATE_PART: u64 = 4;

/// Sums over windows. Gains are log goodput of connections, added up; `late` ones are of the last quarter of the windows.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Tally {
    /// Rounds.
    pub rounds: u64,
    /// Connections.
    pub connections: f64,
    /// What was decided.
    pub gain: f64,
    /// Everything steered.
    pub gain_all: f64,
    /// Everything steered that gains.
    pub gain_oracle: f64,
    /// The same, as many prefixes as may be steered: those that gain the most.
    pub gain_capped: f64,
    /// Likewise of the late windows.
    pub late_connections: f64,
    /// See [`Tally::gain`].
    pub late_gain: f64,
    /// See [`Tally::gain_all`].
    pub late_gain_all: f64,
    /// See [`Tally::gain_oracle`].
    pub late_gain_oracle: f64,
    /// See [`Tally::gain_capped`].
    pub late_gain_capped: f64,
    /// Steered prefixes in the late windows,
    pub late_steered: f64,
    /// of those by what is true of them: helped,
    pub late_steered_helped: f64,
    /// and harmed;
    pub late_steered_harmed: f64,
    /// Prefixes that are helped, whether steered or not.
    pub late_helped: f64,
    /// Connections of those,
    pub late_helped_connections: f64,
    /// and those of them in steered prefixes.
    pub late_helped_steered_connections: f64,
    /// Connections that were steered in prefixes that are harmed.
    pub late_harmed_steered_connections: f64,
    /// Late rounds.
    pub late_rounds: u64,
    /// Prefixes that entered in these,
    pub late_entered: u64,
    /// and that left.
    pub late_left: u64,
    /// The most that entered in any round.
    pub entered_max: u64,
    /// Rounds that the guardrail has stopped.
    pub stopped: u64,
    /// Prefixes that were told to be helped, in all windows,
    pub told: u64,
    /// and of these such as gained nothing then, or lost.
    pub told_falsely: u64,
    /// What became of those that turned.
    pub reversals: Reversals,
    /// Places that gain the most, with what they gain of each connection of the PoP; found again as they change.
    #[serde(skip)]
    capped: Vec<usize>,
}

impl Tally {
    /// Adds a window that went by these rules, while `state` is what was decided last.
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
            let share = 1.0 - rule.holdout;
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
        self.told += decision.proved.len() as u64;
        let gains = |prefix: &Prefix| world.find(*prefix).is_some_and(|at| world.places[at].gain > 0.0);
        self.told_falsely += decision.proved.iter().filter(|prefix| !gains(prefix)).count() as u64;
        self.entered_max = self.entered_max.max(entered);
        self.stopped += u64::from(decision.round == crate::decide::Round::Stopped);
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

    /// Adds another PoP's.
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
        self.told += other.told;
        self.told_falsely += other.told_falsely;
        self.reversals.add(&other.reversals);
    }
}

/// The places whose traffic gains the most by BBR.
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

/// What a simulation has come to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// What was simulated.
    pub plan: Plan,
    /// The decision as it is.
    pub with_proof: Tally,
    /// By duty cycle and flap rate alone, without holdout.
    pub alone: Tally,
}

/// A way to decide, and how it did. Goodputs are geometric means over connections, as parts above all CUBIC.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The way.
    pub name: &'static str,
    /// Goodput over all windows.
    pub goodput: f64,
    /// Goodput over the last quarter.
    pub late_goodput: f64,
    /// What is missing there to the oracle that steers as many prefixes as may be.
    pub late_regret: f64,
    /// Of steered prefixes, those that are helped.
    pub precision: Option<f64>,
    /// Of prefixes told to be helped in all windows, those that were not then.
    pub false_discoveries: Option<f64>,
    /// Of helped prefixes, those that are steered.
    pub recall: Option<f64>,
    /// Of connections in helped prefixes, those in steered ones.
    pub recall_connections: Option<f64>,
    /// Of all connections, those steered in harmed prefixes.
    pub harmed_connections: Option<f64>,
    /// Steered prefixes of a PoP.
    pub steered: Option<f64>,
    /// Prefixes that enter in a round.
    pub entered: Option<f64>,
    /// Of steered prefixes, those that are still in the next round.
    pub kept: Option<f64>,
}

impl Report {
    /// Adds another PoP's.
    pub fn add(&mut self, other: &Self) {
        self.with_proof.add(&other.with_proof);
        self.alone.add(&other.alone);
    }

    /// A row for each way to decide.
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
        false_discoveries: part(tally.told_falsely as f64, tally.told as f64),
        recall: part(tally.late_steered_helped, tally.late_helped),
        recall_connections: part(tally.late_helped_steered_connections, tally.late_helped_connections),
        harmed_connections: part(tally.late_harmed_steered_connections, tally.late_connections),
        steered: part(tally.late_steered, tally.late_rounds as f64),
        entered: part(tally.late_entered as f64, tally.late_rounds as f64),
        kept: part(tally.late_steered - tally.late_left as f64, tally.late_steered),
        ..plain(name, tally, tally.gain, tally.late_gain)
    }
}
