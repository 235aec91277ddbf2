//! What came of it: the time before and after, what became of each network, and whether what has to hold does. Pure.

use std::time::Duration;

use super::networks::{NETWORKS, Truth};
use super::told::{Arms, Explained, Lows, Round};
use super::{Early, Plan, viewers};
use crate::cc::statistics::{Ratio, ratio};
use crate::emulation::Lateness;
use crate::reproduce::{Headline, Said};

/// Rounds at the beginning that are left out: the first window has viewers only in part.
const BEGINNING_ROUNDS: usize = 1;

/// What was measured.
#[derive(Debug)]
pub struct Outcome {
    /// What was asked for.
    pub plan: Plan,
    /// Why it is not all of that, where it is not.
    pub early: Option<Early>,
    /// When viewers began.
    pub begun_unix_s: f64,
    /// Each round of the controller.
    pub rounds: Vec<Round>,
    /// Of each network, in the order of [`NETWORKS`]: as records have it, and what the controller knows of it.
    pub networks: Vec<(String, Explained)>,
    /// What viewers saw.
    pub seen: viewers::Seen,
    /// How late the emulation was.
    pub lateness: Lateness,
}

/// What became of a network.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The end of the round's window, from the beginning on.
    pub at_s: f64,
    /// What.
    pub what: What,
    /// Why, in the controller's word.
    pub reason: String,
}

/// What may become of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// It is on trial.
    Entered,
    /// It is shown to be helped.
    Helped,
    /// It is not steered any more.
    Left,
}

impl What {
    /// In tables.
    pub fn name(self) -> &'static str {
        match self {
            What::Entered => "entered",
            What::Helped => "helped",
            What::Left => "left",
        }
    }
}

/// Something that has to hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// What.
    pub what: &'static str,
    /// Whether it does.
    pub holds: bool,
    /// How it is.
    pub told: String,
}

impl Outcome {
    /// Nothing yet.
    pub fn new(plan: Plan) -> Self {
        Self {
            plan,
            early: None,
            begun_unix_s: 0.0,
            rounds: Vec::new(),
            networks: Vec::new(),
            seen: viewers::Seen::default(),
            lateness: Lateness::default(),
        }
    }

    /// When a round's window ended, from the beginning on.
    pub fn at_s(&self, round: &Round) -> f64 {
        round.unix_s as f64 - self.begun_unix_s
    }

    /// What became of the network of that number.
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
                .for_each(|it| note(What::Entered, &it.reason));
            round.proved.iter().filter(|it| *it == prefix).for_each(|_| note(What::Helped, "helped"));
            round.left.iter().filter(|it| it.prefix == *prefix).for_each(|it| note(What::Left, &it.reason));
        }
        events
    }

    /// Rounds until the first network entered: by then no edge had a rule.
    pub fn before(&self) -> &[Round] {
        match self.rounds.iter().position(|round| !round.entered.is_empty()) {
            Some(first) => self.rounds.get(BEGINNING_ROUNDS..=first).unwrap_or_default(),
            None => &[],
        }
    }

    /// The last rounds, as many as the plan says, of those after the first network entered.
    pub fn after(&self) -> &[Round] {
        let from = self.rounds.iter().position(|round| !round.entered.is_empty());
        let rest = from.and_then(|first| self.rounds.get(first + 1..)).unwrap_or_default();
        &rest[rest.len().saturating_sub(self.plan.rounds_after)..]
    }

    /// How many times as much it was after as before, on average over rounds.
    pub fn rise(&self, of: impl Fn(&Round) -> Arms, low: impl Fn(Lows) -> f64) -> Option<Ratio> {
        let values =
            |rounds: &[Round]| rounds.iter().filter_map(|round| of(round).all.map(&low)).collect::<Vec<_>>();
        let (before, after) = (values(self.before()), values(self.after()));
        (!before.is_empty() && !after.is_empty()).then(|| ratio(&after, &before))
    }

    /// The figures that were published, and here.
    pub fn headlines(&self) -> Vec<Headline> {
        let headline = |what: &str, published, rise: Option<Ratio>| Headline {
            what: what.to_owned(),
            published,
            here: rise.as_ref().map(|rise| rise.ratio),
            interval: rise.and_then(|rise| rise.interval),
            but: None,
        };
        let rate = |low: fn(Lows) -> f64| self.rise(|round| round.delivery_rate, low);
        vec![
            headline("p5 of delivery rate, after / before", Said::Between(2.0, 2.0), rate(|lows| lows.p5)),
            headline("p10 of delivery rate, after / before", Said::Between(2.0, 2.0), rate(|lows| lows.p10)),
            headline(
                "p10 of goodput, after / before",
                Said::Between(1.12, 1.12),
                self.rise(|round| round.goodput, |lows| lows.p10),
            ),
        ]
    }

    /// What has to hold, and whether it does.
    pub fn checks(&self) -> Vec<Check> {
        let found = self.are(Truth::Gains, |events| events.iter().any(|event| event.what == What::Helped));
        let withdrawn = self.are(Truth::Loses, |events| {
            events.iter().any(|event| event.what == What::Entered)
                && events.last().is_some_and(|event| event.what == What::Left)
        });
        vec![
            check("found and shown to be helped, of those that gain", &found),
            check("tried and withdrawn, of those that lose", &withdrawn),
            self.is_up("p5 of delivery rate is up", |lows| lows.p5),
            self.is_up("p10 of delivery rate is up", |lows| lows.p10),
        ]
    }

    /// Whether delivery rate has risen by all of the interval.
    fn is_up(&self, what: &'static str, low: impl Fn(Lows) -> f64) -> Check {
        let interval = self.rise(|round| round.delivery_rate, low).and_then(|rise| rise.interval);
        let told = interval.map(|(least, most)| format!("{least:.2} to {most:.2} times"));
        Check {
            what,
            holds: interval.is_some_and(|(least, _)| least > 1.0),
            told: told.unwrap_or_else(|| "not measured".to_owned()),
        }
    }

    /// Networks that were told to be helped and do not gain, in truth.
    pub fn false_ones(&self) -> Vec<&'static str> {
        let helped =
            |(number, _): &(usize, _)| self.events(*number).iter().any(|event| event.what == What::Helped);
        let others = NETWORKS.iter().enumerate().filter(|(_, network)| network.truth != Truth::Gains);
        others.filter(helped).map(|(_, network)| network.name).collect()
    }

    /// Networks of that truth, and whether that is so of their events.
    fn are(&self, truth: Truth, is: impl Fn(&[Event]) -> bool) -> Vec<(&'static str, bool)> {
        let those = NETWORKS.iter().enumerate().filter(|(_, network)| network.truth == truth);
        those.map(|(number, network)| (network.name, is(&self.events(number)))).collect()
    }

    /// The median goodput that viewers of a network had between two times, bits per second.
    pub fn median_bits_per_s(&self, network: usize, from: Duration, to: Duration) -> Option<f64> {
        let of =
            |response: &&viewers::Response| response.network == network && (from..to).contains(&response.at);
        let mut goodputs: Vec<f64> =
            self.seen.responses.iter().filter(of).map(viewers::Response::goodput_bits_per_s).collect();
        goodputs.sort_unstable_by(f64::total_cmp);
        goodputs.get(goodputs.len() / 2).copied()
    }

    /// From when to when the rounds before were, and those after.
    pub fn times(&self) -> [Option<(Duration, Duration)>; 2] {
        let window_s = self.plan.window.as_secs_f64();
        [self.before(), self.after()].map(|rounds| {
            let (first, last) = (rounds.first()?, rounds.last()?);
            let from = Duration::try_from_secs_f64(self.at_s(first) - window_s).ok()?;
            Some((from, Duration::try_from_secs_f64(self.at_s(last)).ok()?))
        })
    }

    /// The program's exit status: of a signal as the shell has it; 1 if not all was measured, or something that has to hold does not,
    /// or responses failed, or the emulation was late.
    pub fn exit_status(&self) -> u8 {
        if let Some(early) = &self.early {
            return early.exit_status();
        }
        let is_late = self.lateness.is_late() || self.lateness.is_missing();
        u8::from(is_late || self.seen.failed > 0 || !self.checks().iter().all(|check| check.holds))
    }
}

fn check(what: &'static str, networks: &[(&'static str, bool)]) -> Check {
    let told = networks.iter().map(|(name, is)| format!("{name} {}", if *is { "yes" } else { "no" }));
    Check { what, holds: networks.iter().all(|(_, is)| *is), told: told.collect::<Vec<_>>().join(", ") }
}

#[cfg(test)]
pub(crate) mod tests;
