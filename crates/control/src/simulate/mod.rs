//! Simulation of PoPs with synthetic traffic and known effects, against which decisions are scored.
//!
//! Each PoP is simulated separately, once with proof and once by duty cycles alone. The results for
//! "all BBR", "all CUBIC" and the oracles are computed from the known effects. All input is
//! synthetic; `world.rs` lists the assumptions.

#[cfg(test)]
mod clients;
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

/// Maximum number of PoPs in a plan.
pub const POPS_MAX: usize = 1_000;
/// Maximum number of windows in a plan: 5 weeks of 5-minute windows.
pub const WINDOWS_MAX: u64 = 10_080;

/// Parameters of a simulation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Plan {
    /// Number of PoPs, at most [`POPS_MAX`].
    pub pops: usize,
    /// Number of prefixes per PoP, at most [`PREFIXES_MAX`](crate::PREFIXES_MAX).
    pub prefixes: usize,
    /// Number of windows, at most [`WINDOWS_MAX`].
    pub windows: u64,
    /// Random seed. Each seed produces different traffic and effects.
    pub seed: u64,
    /// Mean number of connections per prefix and window at the busiest hour.
    pub connections_per_prefix: f64,
    /// Share of prefixes replaced per day.
    pub churn_per_day: f64,
    /// Share of prefixes whose BBR effect is redrawn per day.
    pub changes_per_day: f64,
    /// Share of prefixes whose gain depends on slowness: slow prefixes gain, fast prefixes lose.
    pub slowness: f64,
    /// Share of connections that stall: each loses an exponentially distributed amount of log
    /// goodput, with mean 1.
    pub stalls: f64,
    /// Share of connections with a socket sample.
    pub sampled: f64,
    /// Number of windows until edges apply a decision.
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

/// Simulates PoP `pop` of the plan under `settings`. Calls `progress` after each of `2 ×
/// plan.windows` windows, and returns `None` as soon as it returns false.
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

/// Simulates one PoP under the given settings.
fn day(plan: &Plan, settings: &Settings, pop: usize, progress: &mut dyn FnMut() -> bool) -> Option<Tally> {
    let mut world = World::new(plan, settings, pop);
    let (mut state, mut tally) = (State::default(), Tally::default());
    // Rules that edges will apply in the next windows, soonest first.
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
