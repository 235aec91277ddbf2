//! Synthetic world: the truth about each prefix, and the windows generated from it.
//!
//! Assumptions:
//! - BBR helps a third of the prefixes, has no effect on a third and harms a third, as on 30 real
//!   paths, of which 10 were more than 10 % better and 10 more than 10 % worse. Gains and losses
//!   are at least 10 %; the excess is exponentially distributed with a mean of 20 %. The neutral
//!   third stays within 5 %. Unless the plan says otherwise, the gain is independent of slowness,
//!   which is the hardest case for a rule based on slowness. For some prefixes, the gain changes
//!   within the day.
//! - Traffic is heavy-tailed: the k-th largest prefix has k^-0.8 times the traffic of the largest.
//! - Prefix medians are log-normal around 6 Mbit/s, and connections are log-normal around their
//!   prefix's median. All connections of a prefix shift together by some percent in each window. A
//!   quarter of the prefixes are slower in the evening, by up to two thirds.
//! - Some connections stall and lose much of their goodput, so noise is skewed and heavy-tailed.
//!   Some connections have no socket samples. Edges apply a bundle one window after its decision.
//! - Some harmed prefixes retransmit far more under BBR, as if behind a policer.

use std::collections::HashMap;
use std::f64::consts::TAU;
use std::net::Ipv4Addr;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use serde::Serialize;
use thalweg_bundle::is_block_held_out;
use thalweg_record::Prefix;

use super::Plan;
use crate::entry::{Entry, Steered};
use crate::settings::{Measure, Settings};
use crate::state::State;
use crate::window::{Arm, Outcome, Sample, Window};

/// Seconds in a day.
const DAY_S: u64 = 86_400;
/// Effect at which a prefix counts as helped or harmed: 10 %.
const EFFECT_MIN: f64 = 0.1;
const EFFECT_MEAN: f64 = 0.2;
const TAIL_EXPONENT: f64 = -0.8;

/// Effect of BBR on a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Goodput is more than 10 % higher.
    Helps,
    /// Goodput stays within 5 %.
    Nothing,
    /// Goodput is more than 10 % lower.
    Harms,
}

/// A prefix and its true properties.
#[derive(Debug, Clone)]
pub(super) struct SimulatedPrefix {
    pub(super) prefix: Prefix,
    pub(super) effect: Effect,
    /// Effect on log goodput.
    pub(super) gain: f64,
    /// Speed relative to other prefixes, in standard deviations.
    speed: f64,
    ln_goodput: f64,
    spread: f64,
    /// Drop in log goodput at the busiest hour.
    evening: f64,
    min_rtt_us: u64,
    retransmitted: f64,
    retransmitted_rise: f64,
}

/// Assignment of a prefix's connections to arms.
#[derive(Debug, Clone)]
pub(super) struct Rule {
    pub(super) prefix: Prefix,
    holdout: f64,
    /// Length of a switchback's blocks, in windows, and the rule's salt.
    switchback: Option<(u32, String)>,
}

impl Rule {
    /// Returns the share of the prefix's connections that are held out in a window.
    pub(super) fn held_out_share(&self, window: u64) -> f64 {
        let Some((block_windows, salt)) = &self.switchback else { return self.holdout };
        let is_held_out = is_block_held_out(self.prefix, salt, window / u64::from(*block_windows));
        f64::from(u8::from(is_held_out))
    }
}

/// A bundle as applied by edges.
#[derive(Debug, Clone, Default)]
pub(super) struct Rules {
    pub(super) bundle: u64,
    pub(super) rules: Vec<Rule>,
}

impl Rules {
    pub(super) fn of(state: &State) -> Self {
        let rule = |(entry, steered): (&Entry, &Steered)| Rule {
            prefix: entry.prefix,
            holdout: steered.holdout(),
            switchback: steered.switchback.as_ref().map(|it| (it.block_windows, steered.rule_salt())),
        };
        Self { bundle: state.bundle, rules: state.steered().map(rule).collect() }
    }
}

pub(super) struct World {
    plan: Plan,
    settings: Settings,
    random: Xoshiro256PlusPlus,
    /// Separate random number generator for truths and churn, so that decisions do not influence
    /// them.
    truths: Xoshiro256PlusPlus,
    pub(super) places: Vec<SimulatedPrefix>,
    /// Cumulative traffic of the places, in index order.
    traffic: Vec<f64>,
    at: HashMap<Prefix, usize>,
    next_prefix: u32,
    /// Time of day in the PoP at the start, as a fraction of a day.
    phase: f64,
    /// Number of connections of each place in the newest window.
    pub(super) connections: Vec<u32>,
}

impl World {
    pub(super) fn new(plan: &Plan, settings: &Settings, pop: usize) -> Self {
        let seed = plan.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(pop as u64);
        let mut truths = Xoshiro256PlusPlus::seed_from_u64(seed);
        let phase = truths.random();
        let mut sum = 0.0;
        let traffic = (1..=plan.prefixes).map(|rank| {
            sum += (rank as f64).powf(TAIL_EXPONENT);
            sum
        });
        let mut world = Self {
            plan: plan.clone(),
            settings: settings.clone(),
            random: Xoshiro256PlusPlus::seed_from_u64(!seed),
            traffic: traffic.collect(),
            truths,
            places: Vec::with_capacity(plan.prefixes),
            at: HashMap::with_capacity(plan.prefixes),
            next_prefix: 0,
            phase,
            connections: vec![0; plan.prefixes],
        };
        for at in 0..plan.prefixes {
            let place = world.place();
            world.at.insert(place.prefix, at);
            world.places.push(place);
        }
        world
    }

    /// Finds the place of a prefix, unless the prefix was replaced.
    pub(super) fn find(&self, prefix: Prefix) -> Option<usize> {
        self.at.get(&prefix).copied()
    }

    /// Returns the traffic of a place as a share of the total.
    pub(super) fn traffic_share(&self, at: usize) -> f64 {
        let before = at.checked_sub(1).map_or(0.0, |before| self.traffic[before]);
        (self.traffic[at] - before) / self.traffic[self.traffic.len() - 1]
    }

    /// Draws a new prefix and its truth.
    fn place(&mut self) -> SimulatedPrefix {
        let prefix = Prefix::of_client(Ipv4Addr::from_bits(self.next_prefix << 8).into());
        self.next_prefix += 1;
        let random = &mut self.truths;
        let speed = normal(random);
        let (effect, gain) = effect(random, speed, self.plan.slowness);
        let is_policed = effect == Effect::Harms && random.random_bool(0.3);
        SimulatedPrefix {
            prefix,
            effect,
            gain,
            speed,
            ln_goodput: (6e6_f64 / 8.0).ln() + 0.8 * speed,
            spread: random.random_range(0.4..0.8),
            evening: if random.random_bool(0.25) { random.random_range(0.2..1.1) } else { 0.0 },
            min_rtt_us: (30_000.0 * (0.7 * normal(random)).exp()) as u64,
            retransmitted: 0.01 * (0.5 * normal(random)).exp(),
            retransmitted_rise: if is_policed {
                random.random_range(0.05..0.15)
            } else {
                random.random_range(0.0..0.01)
            },
        }
    }

    /// Draws the number of prefixes affected in one window by an event that affects the share
    /// `per_day` of all prefixes each day.
    fn affected_prefixes(&mut self, per_day: f64) -> usize {
        let windows = DAY_S as f64 / self.settings.window_s as f64;
        let affected = per_day * self.plan.prefixes as f64 / windows;
        affected as usize + usize::from(self.truths.random_bool(affected.fract()))
    }

    /// Redraws BBR's effect on some prefixes and replaces others, as expected in one window.
    fn churn(&mut self) {
        for _ in 0..self.affected_prefixes(self.plan.changes_per_day) {
            let at = self.truths.random_range(0..self.places.len());
            let (effect, gain) = effect(&mut self.truths, self.places[at].speed, self.plan.slowness);
            (self.places[at].effect, self.places[at].gain) = (effect, gain);
        }
        for _ in 0..self.affected_prefixes(self.plan.churn_per_day) {
            let at = self.truths.random_range(0..self.places.len());
            let place = self.place();
            self.at.remove(&self.places[at].prefix);
            self.at.insert(place.prefix, at);
            self.places[at] = place;
        }
    }

    /// Returns how busy the PoP is: 1 at the busiest hour, 0 at the quietest.
    fn busyness(&self, number: u64) -> f64 {
        let day = (number * self.settings.window_s % DAY_S) as f64 / DAY_S as f64;
        0.5 + 0.5 * (TAU * (day + self.phase)).cos()
    }

    /// Generates the next window, with edges applying `rules`.
    pub(super) fn window(&mut self, number: u64, rules: &Rules) -> Window {
        if number > 0 {
            self.churn();
        }
        let ruled: HashMap<usize, f64> = rules
            .rules
            .iter()
            .filter_map(|rule| Some((self.find(rule.prefix)?, rule.held_out_share(number))))
            .collect();
        let busyness = self.busyness(number);
        let mean = self.plan.connections_per_prefix * self.plan.prefixes as f64 * (0.3 + 0.7 * busyness);
        // With a mean in the hundreds and above, a Poisson variable is nearly normal.
        let count = (mean + mean.sqrt() * normal(&mut self.random)).max(0.0) as u64;
        let all = self.traffic[self.traffic.len() - 1];
        self.connections.fill(0);
        let mut touched = Vec::new();
        for _ in 0..count {
            let draw = all * self.random.random::<f64>();
            let at = self.traffic.partition_point(|upto| *upto <= draw).min(self.traffic.len() - 1);
            if self.connections[at] == 0 {
                touched.push(at);
            }
            self.connections[at] += 1;
        }
        let mut prefixes: Vec<_> = touched
            .into_iter()
            .map(|at| {
                (
                    self.places[at].prefix,
                    self.sample(at, busyness, ruled.get(&at).copied(), number, rules.bundle),
                )
            })
            .collect();
        prefixes.sort_unstable_by_key(|(prefix, _)| *prefix);
        Window { number, records: count, lost: 0, prefixes, ..Window::default() }
    }

    fn sample(&mut self, at: usize, busyness: f64, holdout: Option<f64>, number: u64, bundle: u64) -> Sample {
        let (place, random) = (&self.places[at], &mut self.random);
        let connections = self.connections[at];
        let mut sample = Sample::default();
        sample.min_rtt_us.add_times(place.min_rtt_us, connections.into());
        let level = place.ln_goodput - place.evening * busyness.powi(2) + 0.15 * normal(random);
        for _ in 0..connections {
            let arm = match holdout {
                None => Arm::Other,
                Some(holdout) if random.random_bool(holdout) => Arm::HeldOut,
                Some(_) => Arm::Steered,
            };
            let rise = if arm == Arm::Steered { 1.0 } else { 0.0 };
            let stall =
                if random.random_bool(self.plan.stalls) { (1.0 - random.random::<f64>()).ln() } else { 0.0 };
            let ln_goodput = (level + place.spread * normal(random) + stall + rise * place.gain).max(0.0);
            let into = sample.arm_mut(arm);
            into.connections += 1;
            let rate = ln_goodput.exp() as u64;
            match self.settings.measure {
                Measure::DeliveryRate => into.delivery_rate.add(rate),
                Measure::Goodput => into.goodput.add(rate),
            }
            if arm != Arm::Steered {
                sample.ln_goodput.add(ln_goodput);
            }
            if arm != Arm::Other {
                let share = place.retransmitted + rise * place.retransmitted_rise;
                let share = share * (0.7 * normal(random)).exp();
                sample.outcomes.push(Outcome {
                    bundle,
                    period: number,
                    is_steered: arm == Arm::Steered,
                    ln_goodput,
                    retransmitted_share: random.random_bool(self.plan.sampled).then_some(share.min(1.0)),
                });
            }
        }
        sample
    }
}

/// Draws BBR's effect on a prefix with this speed, and the size of the effect on log goodput.
fn effect(random: &mut Xoshiro256PlusPlus, speed: f64, slowness: f64) -> (Effect, f64) {
    let size = EFFECT_MIN - EFFECT_MEAN * (1.0 - random.random::<f64>()).ln();
    let third = if random.random_bool(slowness) {
        // These bounds split a normal distribution into thirds.
        if speed < -0.43 { 0 } else { 1 + i32::from(speed > 0.43) }
    } else {
        random.random_range(0..3)
    };
    match third {
        0 => (Effect::Helps, size),
        1 => (Effect::Nothing, random.random_range(-0.05..0.05)),
        _ => (Effect::Harms, -size),
    }
}

/// Draws from the standard normal distribution (Marsaglia's polar method).
pub(crate) fn normal(random: &mut Xoshiro256PlusPlus) -> f64 {
    loop {
        let (x, y) = (random.random_range(-1.0..1.0), random.random_range(-1.0..1.0));
        let square: f64 = x * x + y * y;
        if square > 0.0 && square < 1.0 {
            return x * (-2.0 * square.ln() / square).sqrt();
        }
    }
}
