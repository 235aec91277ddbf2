//! What becomes of a state by bundles that no decision has made: see [`crate::rollout`].

use std::collections::HashMap;

use thalweg_bundle::Rule;
use thalweg_record::Prefix;

use crate::entry::Entry;
use crate::reason::Reason;
use crate::rollout::steers_alike;
use crate::settings::Settings;
use crate::state::State;

impl State {
    /// Goes on from a bundle of others, if that is newer: it is not known by what rules connections went until the next one.
    pub(crate) fn go_on_from(&mut self, bundle: u64) {
        if bundle <= self.bundle {
            return;
        }
        self.bundle = bundle;
        self.rules_digest = None;
        for steered in self.entries.iter_mut().filter_map(Entry::steered_mut) {
            steered.from_bundle = bundle + 1;
        }
    }

    /// Takes back what a bundle has brought that was rolled back, as after trials that failed, and pauses as the guardrail does: what made
    /// edges refuse one bundle or do worse by it may do so with the next.
    pub(crate) fn withdraw(&mut self, settings: &Settings, prefixes: &[Prefix]) {
        for prefix in prefixes {
            let at = self.entries.binary_search_by_key(prefix, |entry| entry.prefix);
            let Some(entry) = at.ok().and_then(|at| self.entries.get_mut(at)) else { continue };
            if entry.steered().is_some() {
                entry.leave(Reason::RolledBack, settings);
                entry.reason = Reason::CoolingOff;
            }
        }
        self.guard.pause_windows = self.guard.pause_windows.max(settings.guardrail_pause_windows);
    }

    /// Takes all back whose tenant is none any more; how many. They may enter again as any do, should it be one again.
    pub(crate) fn take_back_all(&mut self, settings: &Settings) -> usize {
        let steered = self.entries.iter_mut().filter(|entry| entry.steered().is_some());
        steered.map(|entry| entry.leave(Reason::Changed, settings)).count()
    }

    /// Counts connections of a prefix only beyond the newest bundle, if its rule there is another one than the state's.
    pub(crate) fn discount(&mut self, rules: &[Rule], own: &[Rule]) {
        let own: HashMap<_, _> = own.iter().map(|rule| (rule.prefix, rule)).collect();
        for rule in
            rules.iter().filter(|rule| own.get(&rule.prefix).is_none_or(|own| !steers_alike(own, rule)))
        {
            let at = self.entries.binary_search_by_key(&rule.prefix, |entry| entry.prefix);
            let entry = at.ok().and_then(|at| self.entries.get_mut(at));
            if let Some(steered) = entry.and_then(Entry::steered_mut) {
                steered.from_bundle = self.bundle + 1;
            }
        }
    }
}
