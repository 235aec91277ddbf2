//! State changes made outside decisions, mostly by the rollout: see [`crate::rollout`].

use std::collections::HashMap;

use thalweg_bundle::Rule;
use thalweg_record::Prefix;

use crate::entry::Entry;
use crate::reason::Reason;
use crate::rollout::steers_alike;
use crate::settings::Settings;
use crate::state::State;

impl State {
    /// Advances to `bundle`, a number not issued from this state, if it is newer. Connections then
    /// count only from the next bundle on, because the rules they used until then are unknown.
    pub(crate) fn advance_bundle_number(&mut self, bundle: u64) {
        if bundle <= self.bundle {
            return;
        }
        self.bundle = bundle;
        self.rules_digest = None;
        for steered in self.entries.iter_mut().filter_map(Entry::steered_mut) {
            steered.from_bundle = bundle + 1;
        }
    }

    /// Withdraws the prefixes added by a rolled-back bundle, as failed trials. Also pauses
    /// admission, as the guardrail does, because whatever made edges refuse the bundle or perform
    /// worse may affect the next one.
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

    /// Withdraws all prefixes of a removed tenant and returns their number. The prefixes may
    /// re-enter normally if the tenant returns.
    pub(crate) fn withdraw_all(&mut self, settings: &Settings) -> usize {
        let steered = self.entries.iter_mut().filter(|entry| entry.steered().is_some());
        steered.map(|entry| entry.leave(Reason::Changed, settings)).count()
    }

    /// Finds the prefixes whose rule in the newest bundle (`rules`) differs from the state's
    /// (`own`), and ignores their connections under this and earlier bundles.
    pub(crate) fn ignore_mismatched(&mut self, rules: &[Rule], own: &[Rule]) {
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
