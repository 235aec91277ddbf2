//! Reversals: proved prefixes that become harmed, and the time until they are withdrawn.

use std::collections::BTreeMap;

use serde::Serialize;
use thalweg_record::Prefix;

use super::world::{Effect, World};
use crate::state::State;

/// Reversals of proved prefixes, with the time until withdrawal.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Reversals {
    /// For each withdrawn prefix, the number of windows from reversal to withdrawal, and the number
    /// of the prefix's connections in these windows.
    pub withdrawn: Vec<(u64, u64)>,
    /// Number of reversed prefixes still steered at the end.
    pub open: u64,
    /// Reversed prefixes still steered, each with its number of windows and connections so far.
    #[serde(skip)]
    under_way: BTreeMap<Prefix, (u64, u64)>,
}

impl Reversals {
    /// Adds a window. `state` is the state before the window is decided.
    pub(super) fn add_window(&mut self, world: &World, state: &State) {
        let is_harmed =
            |prefix| world.find(prefix).is_some_and(|at| world.places[at].effect == Effect::Harms);
        let is_steered = |prefix| state.entry(prefix).is_some_and(|entry| entry.steered().is_some());
        for (entry, steered) in state.steered() {
            if steered.proof.is_some() && is_harmed(entry.prefix) {
                self.under_way.entry(entry.prefix).or_default();
            }
        }
        let withdrawn = &mut self.withdrawn;
        self.under_way.retain(|prefix, (windows, connections)| {
            if !is_steered(*prefix) {
                withdrawn.push((*windows, *connections));
                return false;
            }
            *windows += 1;
            *connections += world.find(*prefix).map_or(0, |at| u64::from(world.connections[at]));
            // Drop prefixes that are no longer harmed or were replaced.
            is_harmed(*prefix)
        });
    }

    pub(super) fn end(&mut self) {
        self.open = self.under_way.len() as u64;
        self.under_way.clear();
        self.withdrawn.sort_unstable();
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.withdrawn.extend(&other.withdrawn);
        self.withdrawn.sort_unstable();
        self.open += other.open;
    }

    /// Returns the `share` quantile of the number of windows until withdrawal.
    pub fn windows(&self, share: f64) -> Option<u64> {
        let last = self.withdrawn.len().checked_sub(1)?;
        Some(self.withdrawn[(share * last as f64).round() as usize].0)
    }

    /// Returns the median number of connections until withdrawal.
    pub fn connections(&self) -> Option<u64> {
        let mut all: Vec<_> = self.withdrawn.iter().map(|(_, connections)| *connections).collect();
        all.sort_unstable();
        all.get(all.len() / 2).copied()
    }
}
