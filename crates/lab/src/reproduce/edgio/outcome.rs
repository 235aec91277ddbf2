//! Results: rates before and after steering, each network's history, and checks.

use std::time::Duration;

use serde::Serialize;
use thalweg_netem::emulation::Lateness;

use super::controller::{Explanation, LowPercentiles, Percentiles, Round};
use super::networks::{NETWORKS, Truth};
use super::{EarlyEnd, Plan, viewers};
use crate::cc::statistics::{Ratio, ratio};
use crate::reproduce::{Headline, PublishedValue};

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
    /// All rounds reported by the controller.
    pub rounds: Vec<Round>,
    /// Prefix and explanation of each network, in the order of [`NETWORKS`].
    pub networks: Vec<(String, Explanation)>,
    /// Viewers' results.
    pub viewer_results: viewers::ViewerResults,
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
    /// The trial showed that BBR helps.
    Helped,
    /// The controller stops steering the network.
    Left,
}

impl EventKind {
    /// Returns the name used in tables.
    pub fn name(self) -> &'static str {
        match self {
            EventKind::Entered => "entered",
            EventKind::Helped => "helped",
            EventKind::Left => "left",
        }
    }
}

/// A condition on the results.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// The condition.
    pub what: &'static str,
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
            rounds: Vec::new(),
            networks: Vec::new(),
            viewer_results: viewers::ViewerResults::default(),
            lateness: Lateness::default(),
        }
    }

    /// Returns the end of a round's window, in seconds after the start.
    pub fn at_s(&self, round: &Round) -> f64 {
        round.unix_s as f64 - self.started_unix_s
    }

    /// Returns the history of network `network`, an index into [`NETWORKS`].
    pub fn events(&self, network: usize) -> Vec<Event> {
        let Some((prefix, _)) = self.networks.get(network) else { return Vec::new() };
        let mut events = Vec::new();
        for round in &self.rounds {
            let at_s = self.at_s(round);
            let mut note = |what, reason: &str| events.push(Event { at_s, what, reason: reason.to_owned() });
            round
                .entered
                .iter()
                .filter(|it| it.prefix == *prefix)
                .for_each(|it| note(EventKind::Entered, &it.reason));
            round.proved.iter().filter(|it| *it == prefix).for_each(|_| note(EventKind::Helped, "helped"));
            round
                .left
                .iter()
                .filter(|it| it.prefix == *prefix)
                .for_each(|it| note(EventKind::Left, &it.reason));
        }
        events
    }

    /// Returns the rounds up to and including the one in which the first network entered. Until
    /// then, no edge had a steering rule.
    pub fn before(&self) -> &[Round] {
        match self.rounds.iter().position(|round| !round.entered.is_empty()) {
            Some(first) => self.rounds.get(BEGINNING_ROUNDS..=first).unwrap_or_default(),
            None => &[],
        }
    }

    /// Returns the last [`Plan::rounds_after`] rounds, excluding any before the first network
    /// entered.
    pub fn after(&self) -> &[Round] {
        let from = self.rounds.iter().position(|round| !round.entered.is_empty());
        let rest = from.and_then(|first| self.rounds.get(first + 1..)).unwrap_or_default();
        &rest[rest.len().saturating_sub(self.plan.rounds_after)..]
    }

    /// Returns the mean across the rounds [`after`](Self::after) divided by the mean across the
    /// rounds [`before`](Self::before).
    pub fn rise(
        &self,
        of: impl Fn(&Round) -> Percentiles,
        low: impl Fn(LowPercentiles) -> f64,
    ) -> Option<Ratio> {
        let values =
            |rounds: &[Round]| rounds.iter().filter_map(|round| of(round).all.map(&low)).collect::<Vec<_>>();
        let (before, after) = (values(self.before()), values(self.after()));
        (!before.is_empty() && !after.is_empty()).then(|| ratio(&after, &before))
    }

    /// Returns the published figures and those measured here.
    pub fn headlines(&self) -> Vec<Headline> {
        let headline = |what: &str, published, rise: Option<Ratio>| Headline {
            what: what.to_owned(),
            published,
            here: rise.as_ref().map(|rise| rise.ratio),
            interval: rise.and_then(|rise| rise.interval),
            caveat: None,
        };
        let rate = |low: fn(LowPercentiles) -> f64| self.rise(|round| round.delivery_rate, low);
        vec![
            headline(
                "p5 of delivery rate, after / before",
                PublishedValue::Between(2.0, 2.0),
                rate(|lows| lows.p5),
            ),
            headline(
                "p10 of delivery rate, after / before",
                PublishedValue::Between(2.0, 2.0),
                rate(|lows| lows.p10),
            ),
            headline(
                "p10 of goodput, after / before",
                PublishedValue::Between(1.12, 1.12),
                self.rise(|round| round.goodput, |lows| lows.p10),
            ),
        ]
    }

    /// Checks all conditions.
    pub fn checks(&self) -> Vec<Check> {
        let found =
            self.matching(Truth::Gains, |events| events.iter().any(|event| event.what == EventKind::Helped));
        let withdrawn = self.matching(Truth::Loses, |events| {
            events.iter().any(|event| event.what == EventKind::Entered)
                && events.last().is_some_and(|event| event.what == EventKind::Left)
        });
        vec![
            check("found and shown to be helped, of those that gain", &found),
            check("tried and withdrawn, of those that lose", &withdrawn),
            self.is_up("p5 of delivery rate is up", |lows| lows.p5),
            self.is_up("p10 of delivery rate is up", |lows| lows.p10),
        ]
    }

    /// Checks that the interval of the rise in delivery rate lies above 1.
    fn is_up(&self, what: &'static str, low: impl Fn(LowPercentiles) -> f64) -> Check {
        let interval = self.rise(|round| round.delivery_rate, low).and_then(|rise| rise.interval);
        let evidence = interval.map(|(least, most)| format!("{least:.2} to {most:.2} times"));
        Check {
            what,
            holds: interval.is_some_and(|(least, _)| least > 1.0),
            evidence: evidence.unwrap_or_else(|| "not measured".to_owned()),
        }
    }

    /// Returns the networks shown to be helped although BBR does not help them.
    pub fn falsely_helped(&self) -> Vec<&'static str> {
        let helped = |(number, _): &(usize, _)| {
            self.events(*number).iter().any(|event| event.what == EventKind::Helped)
        };
        let others = NETWORKS.iter().enumerate().filter(|(_, network)| network.truth != Truth::Gains);
        others.filter(helped).map(|(_, network)| network.name).collect()
    }

    /// Returns the networks whose truth is `truth`, each with the result of `is` for its history.
    fn matching(&self, truth: Truth, is: impl Fn(&[Event]) -> bool) -> Vec<(&'static str, bool)> {
        let those = NETWORKS.iter().enumerate().filter(|(_, network)| network.truth == truth);
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

    /// Returns the time spans of the rounds [`before`](Self::before) and [`after`](Self::after).
    pub fn times(&self) -> [Option<(Duration, Duration)>; 2] {
        let window_s = self.plan.window.as_secs_f64();
        [self.before(), self.after()].map(|rounds| {
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

fn check(what: &'static str, networks: &[(&'static str, bool)]) -> Check {
    let evidence = networks.iter().map(|(name, is)| format!("{name} {}", if *is { "yes" } else { "no" }));
    Check {
        what,
        holds: networks.iter().all(|(_, is)| *is),
        evidence: evidence.collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
pub(crate) mod tests;
