//! A synthetic day: PoPs whose truth is known, so that decisions can be judged by it.
//!
//! Each PoP is simulated by itself, once under the decision as it is and once by duty cycles alone; what all BBR, all CUBIC and
//! oracles would have had follows from the truth. Nothing here is measured: `world.rs` has what is assumed.

mod reversals;
mod score;
mod world;

use std::collections::VecDeque;

use serde::Serialize;
use thalweg_bundle::Share;

pub use reversals::Reversals;
pub use score::{Report, Row, Tally};
pub use world::Effect;
#[cfg(test)]
pub(crate) use world::normal;

use crate::decide::{Moment, decide};
use crate::settings::Settings;
use crate::state::State;
use world::{Rules, World};

/// PoPs of a plan.
pub const POPS_MAX: usize = 1_000;
/// Windows of a plan: 5 weeks of five minutes.
pub const WINDOWS_MAX: u64 = 10_080;

/// What is simulated.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Plan {
    /// PoPs, at most [`POPS_MAX`].
    pub pops: usize,
    /// Prefixes of each, at most [`PREFIXES_MAX`](crate::PREFIXES_MAX).
    pub prefixes: usize,
    /// Windows, at most [`WINDOWS_MAX`].
    pub windows: u64,
    /// Another seed makes another day.
    pub seed: u64,
    /// Connections for each prefix and window, at the busiest hour, on average over prefixes.
    pub connections_per_prefix: f64,
    /// The share of prefixes that are replaced by others within a day.
    pub churn_per_day: f64,
    /// The share of prefixes for which what BBR does is drawn anew within a day.
    pub changes_per_day: f64,
    /// The share of prefixes whose gain goes with slowness: slow ones gain, others lose.
    pub slowness: f64,
    /// The share of connections that something stalls: they lose an exponential part of their log goodput, 1 on average.
    pub stalls: f64,
    /// The share of connections with a sample of their socket.
    pub sampled: f64,
    /// Windows from a decision to when edges go by its bundle.
    pub delay_windows: usize,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            pops: 2,
            prefixes: 5_000,
            windows: 288,
            seed: 1,
            connections_per_prefix: 1.0,
            churn_per_day: 0.1,
            changes_per_day: 0.1,
            slowness: 0.0,
            stalls: 0.1,
            sampled: 0.5,
            delay_windows: 1,
        }
    }
}

/// Simulates PoP `pop` of the plan under `settings`. `progress` is told of each window that is done, of
/// `2 × plan.windows`; whether to go on is what it gives back.
pub fn simulate(
    plan: &Plan,
    settings: &Settings,
    pop: usize,
    progress: &mut dyn FnMut() -> bool,
) -> Option<Report> {
    let alone = Settings { holdout_trial: Share::default(), ..settings.clone() };
    let with_proof = day(plan, settings, pop, progress)?;
    let alone = day(plan, &alone, pop, progress)?;
    Some(Report { plan: plan.clone(), with_proof, alone })
}

/// A day of one PoP under one way to decide.
fn day(plan: &Plan, settings: &Settings, pop: usize, progress: &mut dyn FnMut() -> bool) -> Option<Tally> {
    let mut world = World::new(plan, settings, pop);
    let (mut state, mut tally) = (State::default(), Tally::default());
    // What edges go by in the next windows, the nearest first.
    let mut bundles: VecDeque<Rules> = vec![Rules::default(); plan.delay_windows].into();
    for number in 0..plan.windows {
        bundles.push_back(Rules::of(&state));
        let rules = bundles.pop_front().unwrap_or_default();
        let window = world.window(number, &rules);
        tally.add_window(plan, settings, &world, (&rules, &state), number);
        let now_unix_s = (number + 1) * settings.window_s;
        let moment = Moment { now_unix_s, seed: plan.seed, acknowledged_bundle: state.bundle };
        let (next, decision) = decide(settings, &state, &window, moment);
        tally.add_decision(plan, &world, &decision, number);
        state = next;
        if !progress() {
            return None;
        }
    }
    tally.end();
    Some(tally)
}

#[cfg(test)]
mod tests;
