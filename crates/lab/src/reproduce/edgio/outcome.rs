//! Results: rates before and after steering, each network's history, and checks.

use std::time::Duration;

use serde::Serialize;
use thalweg_netem::emulation::Lateness;

use super::controller::{Explanation, LowPercentiles, Percentiles, Round};
use super::networks::{NETWORKS, POPS, Truth, World};
use super::record::{PopRecord, Record};
use super::{EDGES, EarlyEnd, Plan, edge_name, viewers};
use crate::cc::statistics::{Ratio, ratio};
use crate::reproduce::{Headline, PublishedValue};

/// Published ratio of the low percentiles of delivery rate, for one large residential provider.
pub const DELIVERY_RATE_TIMES: f64 = 2.0;
/// Published ratio of the 10th percentile of goodput.
pub const GOODPUT_TIMES: f64 = 1.12;
/// Number of initial rounds to skip, because viewers are only partly active in the first window.
const BEGINNING_ROUNDS: usize = 1;

/// Results of a reproduction.
#[derive(Debug)]
pub struct Outcome {
    /// The measured plan.
    pub plan: Plan,
    /// Reason why measuring ended early; `None` if the plan was completed.
    pub early: Option<EarlyEnd>,
    /// Unix time at which viewers started.
    pub started_unix_s: f64,
    /// What the controller and the edges reported.
    pub record: Record,
    /// Viewers' results.
    pub viewer_results: viewers::ViewerResults,
    /// What was reported while bundles were damaged, and the number of failed responses; `None` if
    /// measuring ended before.
    pub damaged: Option<(Record, u64)>,
    /// Lateness of the emulation.
    pub lateness: Lateness,
}

/// An event in a network's history.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Event {
    /// End of the round's window, in seconds after the start.
    pub at_s: f64,
    /// The kind of event.
    pub what: EventKind,
    /// The reason, as the controller's keyword.
    pub reason: String,
}

/// Kinds of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EventKind {
    /// The trial starts.
    Entered,
    /// The trial showed a gain within the network.
    Promising,
    /// The network was shown to be helped as a whole.
    Helped,
    /// The controller stops steering the network.
    Left,
}

impl EventKind {
    /// Returns the name used in tables.
    pub fn name(self) -> &'static str {
        match self {
            EventKind::Entered => "entered",
            EventKind::Promising => "promising",
            EventKind::Helped => "helped",
            EventKind::Left => "left",
        }
    }
}

/// A condition on the results.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// The condition.
    pub what: String,
    /// Whether the condition holds.
    pub holds: bool,
    /// Evidence for or against the condition, for display.
    #[serde(rename = "told")]
    pub evidence: String,
}

impl Outcome {
    /// Creates an outcome without measurements.
    pub fn new(plan: Plan) -> Self {
        Self {
            plan,
            early: None,
            started_unix_s: 0.0,
            record: Record::default(),
            viewer_results: viewers::ViewerResults::default(),
            damaged: None,
            lateness: Lateness::default(),
        }
    }

    /// Returns the end of a round's window, in seconds after the start.
    pub fn at_s(&self, round: &Round) -> f64 {
        round.unix_s as f64 - self.started_unix_s
    }

    /// Returns the rounds of a PoP.
    pub fn rounds(&self, pop: usize) -> &[Round] {
        &self.record.pops[pop].rounds
    }

    /// Returns the controller's last explanation of a network, an index into [`NETWORKS`].
    pub fn explanation(&self, network: usize) -> Option<&Explanation> {
        self.record.networks.get(network).map(|(_, explanation)| explanation)
    }

    /// Returns the history of network `network`, an index into [`NETWORKS`].
    pub fn events(&self, network: usize) -> Vec<Event> {
        let Some((prefix, _)) = self.record.networks.get(network) else { return Vec::new() };
        let mut events = Vec::new();
        for round in self.rounds(NETWORKS[network].pop) {
            let at_s = self.at_s(round);
            let mut note = |what, reason: &str| events.push(Event { at_s, what, reason: reason.to_owned() });
            round
                .entered
                .iter()
                .filter(|it| it.prefix == *prefix)
                .for_each(|it| note(EventKind::Entered, &it.reason));
            round
                .promising
                .iter()
                .filter(|it| *it == prefix)
                .for_each(|_| note(EventKind::Promising, "promising"));
            round.proved.iter().filter(|it| *it == prefix).for_each(|_| note(EventKind::Helped, "helped"));
            round
                .left
                .iter()
                .filter(|it| it.prefix == *prefix)
                .for_each(|it| note(EventKind::Left, &it.reason));
        }
        events
    }

    /// Returns a PoP's rounds up to and including the one in which the first network entered. Until
    /// then, no edge had a steering rule.
    pub fn before(&self, pop: usize) -> &[Round] {
        let rounds = self.rounds(pop);
        match rounds.iter().position(|round| !round.entered.is_empty()) {
            Some(first) => rounds.get(BEGINNING_ROUNDS..=first).unwrap_or_default(),
            None => &[],
        }
    }

    /// Returns a PoP's last [`Plan::rounds_after`] rounds, excluding any before the first network
    /// entered.
    pub fn after(&self, pop: usize) -> &[Round] {
        let rounds = self.rounds(pop);
        let from = rounds.iter().position(|round| !round.entered.is_empty());
        let rest = from.and_then(|first| rounds.get(first + 1..)).unwrap_or_default();
        &rest[rest.len().saturating_sub(self.plan.rounds_after)..]
    }

    /// Returns the mean across a PoP's rounds [`after`](Self::after) divided by the mean across its
    /// rounds [`before`](Self::before).
    pub fn rise(
        &self,
        pop: usize,
        of: impl Fn(&Round) -> Percentiles,
        low: impl Fn(LowPercentiles) -> f64,
    ) -> Option<Ratio> {
        let values =
            |rounds: &[Round]| rounds.iter().filter_map(|round| of(round).all.map(&low)).collect::<Vec<_>>();
        let (before, after) = (values(self.before(pop)), values(self.after(pop)));
        (!before.is_empty() && !after.is_empty()).then(|| ratio(&after, &before))
    }

    /// Returns the published figures and those measured here, for each PoP.
    pub fn headlines(&self) -> Vec<Headline> {
        if self.plan.world != World::Mixed {
            return Vec::new();
        }
        let headline = |pop: usize, what: &str, published: f64, rise: Option<Ratio>| Headline {
            what: format!("{}: {what}, after / before", POPS[pop]),
            published: PublishedValue::Between(published, published),
            here: rise.as_ref().map(|rise| rise.ratio),
            interval: rise.and_then(|rise| rise.interval),
            caveat: None,
        };
        let of_pop = |pop| {
            let rate = |low: fn(LowPercentiles) -> f64| self.rise(pop, |round| round.delivery_rate, low);
            let goodput = self.rise(pop, |round| round.goodput, |lows| lows.p10);
            [
                headline(pop, "p5 of delivery rate", DELIVERY_RATE_TIMES, rate(|lows| lows.p5)),
                headline(pop, "p10 of delivery rate", DELIVERY_RATE_TIMES, rate(|lows| lows.p10)),
                headline(pop, "p10 of goodput", GOODPUT_TIMES, goodput),
            ]
        };
        (0..POPS.len()).flat_map(of_pop).collect()
    }

    /// Checks the results. A plan without proofs is too short for the checks of effects.
    pub fn checks(&self) -> Vec<Check> {
        if self.plan.world != World::Mixed {
            let tried = self.plan.has_proofs.then(|| self.are_tried());
            return [self.are_false()].into_iter().chain(tried).collect();
        }
        let mut checks = vec![self.are_found(), self.are_false()];
        if self.plan.has_proofs {
            checks.push(self.are_helped());
            checks.push(self.are_withdrawn());
            for pop in 0..POPS.len() {
                let rate = |round: &Round| round.delivery_rate;
                checks.push(self.is_up(pop, "p5 of delivery rate", rate, |lows| lows.p5));
                checks.push(self.is_up(pop, "p10 of delivery rate", rate, |lows| lows.p10));
                checks.push(self.is_up(pop, "p10 of goodput", |round| round.goodput, |lows| lows.p10));
            }
        }
        checks.push(self.is_canary_first());
        checks.push(self.is_damage_refused());
        checks
    }

    /// Checks that the networks that gain from the start were found to be slow.
    fn are_found(&self) -> Check {
        let entered = |events: &[Event]| events.iter().any(|event| event.what == EventKind::Entered);
        let found = self.matching(|truth| truth == Truth::Gains, entered);
        of_networks("found, of those that gain", &found)
    }

    /// Checks that at least half of the networks completed a trial. Otherwise, that none was
    /// declared helped would mean little.
    fn are_tried(&self) -> Check {
        let is_decided = |event: &Event| matches!(event.what, EventKind::Promising | EventKind::Left);
        let tried = self.matching(|_| true, |events| events.iter().any(is_decided));
        let decided = tried.iter().filter(|(_, is)| *is).count();
        Check {
            what: "at least half of the networks completed a trial".to_owned(),
            holds: 2 * decided >= tried.len(),
            evidence: format!("{decided} of {}", tried.len()),
        }
    }

    fn are_helped(&self) -> Check {
        let gains = |truth| matches!(truth, Truth::Gains | Truth::GainsLater);
        of_networks("shown to be helped as a whole, of those that gain", &self.matching(gains, are_helped))
    }

    fn are_withdrawn(&self) -> Check {
        let withdrawn = self.matching(
            |truth| truth == Truth::Loses,
            |events| {
                events.iter().any(|event| event.what == EventKind::Entered)
                    && events.last().is_some_and(|event| event.what == EventKind::Left)
            },
        );
        of_networks("tried and withdrawn, of those that lose", &withdrawn)
    }

    /// Checks that no network is declared helped that does not gain.
    fn are_false(&self) -> Check {
        let declared: Vec<_> = self
            .matching(Truth::is_without_gain, are_helped)
            .into_iter()
            .filter_map(|(name, is)| is.then_some(name))
            .collect();
        let evidence = if declared.is_empty() { "none".to_owned() } else { declared.join(", ") };
        Check {
            what: "no network is declared helped that does not gain".to_owned(),
            holds: declared.is_empty(),
            evidence,
        }
    }

    /// Checks that a low percentile of a PoP's rounds rose: the interval of its ratio lies above 1.
    fn is_up(
        &self,
        pop: usize,
        name: &str,
        of: impl Fn(&Round) -> Percentiles,
        low: impl Fn(LowPercentiles) -> f64,
    ) -> Check {
        let interval = self.rise(pop, of, low).and_then(|rise| rise.interval);
        let evidence = interval.map(|(least, most)| format!("{least:.2} to {most:.2} times"));
        Check {
            what: format!("{name} is up in {}", POPS[pop]),
            holds: interval.is_some_and(|(least, _)| least > 1.0),
            evidence: evidence.unwrap_or_else(|| "not measured".to_owned()),
        }
    }

    /// Checks that in each PoP, one edge used the first bundle with rules at least a window before
    /// the other.
    fn is_canary_first(&self) -> Check {
        let window_s = self.plan.window.as_secs_f64();
        let (mut holds, mut evidence) = (true, Vec::new());
        for (pop, record) in self.record.pops.iter().enumerate() {
            let times = record.first_steered();
            let known: Vec<f64> = times.into_iter().flatten().collect();
            let first = known.iter().copied().fold(f64::INFINITY, f64::min);
            let last = known.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            holds &= known.len() == EDGES && last - first >= window_s;
            for (edge, time) in times.into_iter().enumerate() {
                let time = time.map_or("never".to_owned(), |at| format!("{:.0} s", at - self.started_unix_s));
                evidence.push(format!("{} {time}", edge_name(pop, edge)));
            }
        }
        let what = "one edge of each PoP gets rules before the other".to_owned();
        Check { what, holds, evidence: evidence.join(", ") }
    }

    /// Checks that each PoP's edges refused the damaged bundle, so that it was rolled back, and
    /// that it cost no response.
    fn is_damage_refused(&self) -> Check {
        let what = "damaged bundle is refused by the edges and rolled back".to_owned();
        let Some((record, failed)) = &self.damaged else {
            return Check { what, holds: false, evidence: "not measured".to_owned() };
        };
        let of_pop = |(pop, record): (usize, &PopRecord)| {
            let used = record.first_steered().iter().flatten().count();
            let refusing = record.refusing(pop);
            let text = record.rolled_back().unwrap_or("not rolled back");
            let evidence = format!("{}: {refusing} of {EDGES} refused it, {used} used it; {text}", POPS[pop]);
            (used == 0 && refusing > 0 && record.rolled_back().is_some(), evidence)
        };
        let pops: Vec<_> = record.pops.iter().enumerate().map(of_pop).collect();
        let mut evidence: Vec<_> = pops.iter().map(|(_, evidence)| evidence.clone()).collect();
        evidence.push(format!("{failed} responses failed"));
        Check {
            what,
            holds: *failed == 0 && pops.iter().all(|(holds, _)| *holds),
            evidence: evidence.join("; "),
        }
    }

    /// Returns the networks of these truths, each with the result of `is` for its history.
    fn matching(
        &self,
        of: impl Fn(Truth) -> bool,
        is: impl Fn(&[Event]) -> bool,
    ) -> Vec<(&'static str, bool)> {
        let networks = self.plan.world.networks();
        let those = networks.iter().enumerate().filter(|(_, network)| of(network.truth));
        those.map(|(number, network)| (network.name, is(&self.events(number)))).collect()
    }

    /// Returns the median goodput of a network's viewers between two times, in bits per second.
    pub fn median_bits_per_s(&self, network: usize, from: Duration, to: Duration) -> Option<f64> {
        let of =
            |response: &&viewers::Response| response.network == network && (from..to).contains(&response.at);
        let mut goodputs: Vec<f64> = self
            .viewer_results
            .responses
            .iter()
            .filter(of)
            .map(viewers::Response::goodput_bits_per_s)
            .collect();
        goodputs.sort_unstable_by(f64::total_cmp);
        goodputs.get(goodputs.len() / 2).copied()
    }

    /// Returns the time spans of a PoP's rounds [`before`](Self::before) and
    /// [`after`](Self::after).
    pub fn times(&self, pop: usize) -> [Option<(Duration, Duration)>; 2] {
        let window_s = self.plan.window.as_secs_f64();
        [self.before(pop), self.after(pop)].map(|rounds| {
            let (first, last) = (rounds.first()?, rounds.last()?);
            let from = Duration::try_from_secs_f64(self.at_s(first) - window_s).ok()?;
            Some((from, Duration::try_from_secs_f64(self.at_s(last)).ok()?))
        })
    }

    /// Returns the program's exit status: 128 plus the signal number after a signal; 1 if the plan
    /// was not completed, a condition fails, responses failed, or the emulation was late; otherwise
    /// 0.
    pub fn exit_status(&self) -> u8 {
        if let Some(early) = &self.early {
            return early.exit_status();
        }
        let is_late = self.lateness.is_late() || self.lateness.is_missing();
        u8::from(is_late || self.viewer_results.failed > 0 || !self.checks().iter().all(|check| check.holds))
    }
}

fn are_helped(events: &[Event]) -> bool {
    events.iter().any(|event| event.what == EventKind::Helped)
}

fn of_networks(what: &str, networks: &[(&'static str, bool)]) -> Check {
    let evidence = networks.iter().map(|(name, is)| format!("{name} {}", if *is { "yes" } else { "no" }));
    Check {
        what: what.to_owned(),
        holds: networks.iter().all(|(_, is)| *is),
        evidence: evidence.collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
pub(crate) mod tests;
