//! Prefixes that were shown to be helped and then turn to be harmed: how long until they are left alone.

use std::collections::BTreeMap;

use serde::Serialize;
use thalweg_record::Prefix;

use super::world::{Effect, World};
use crate::state::State;

/// Reversals of prefixes that were shown to be helped, by windows until they are not steered any more.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Reversals {
    /// Of each that was withdrawn, windows from the reversal on, and the prefix's connections in them.
    pub withdrawn: Vec<(u64, u64)>,
    /// Those that are steered at the end.
    pub open: u64,
    /// Those under way: windows, and connections.
    #[serde(skip)]
    under_way: BTreeMap<Prefix, (u64, u64)>,
}

impl Reversals {
    /// Goes on by a window that is to be decided after `state`.
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
            // What gains again, or is not there any more, tells nothing.
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

    /// Windows within which this share of the withdrawn ones was.
    pub fn windows(&self, share: f64) -> Option<u64> {
        let last = self.withdrawn.len().checked_sub(1)?;
        Some(self.withdrawn[(share * last as f64).round() as usize].0)
    }

    /// The median of connections until then.
    pub fn connections(&self) -> Option<u64> {
        let mut all: Vec<_> = self.withdrawn.iter().map(|(_, connections)| *connections).collect();
        all.sort_unstable();
        all.get(all.len() / 2).copied()
    }
}
