//! Bundle updates after decisions. Withdrawals reach all edges at once. Additions become a
//! candidate, which is later promoted or rolled back.

use std::collections::BTreeSet;

use thalweg_bundle::{Bundle, Content, Faults, MADE_UNIX_S_MAX, REASON_BYTES_MAX, Rule, Tenant};

use super::rules::{added, by_key, reduced, steers_alike};
use super::{Candidate, Edge, RollbackReason, Rollout, Stage, Transition};
use crate::entry::Entry;
use crate::settings::{Settings, normalized_hosts};
use crate::state::BUNDLES_MAX;
use crate::tenants::{RuleKey, Tenants};

/// Maximum number of bundles issued by one event.
const BUNDLES_AT_ONCE: u64 = 4;

/// Reason why reducing a valid bundle cannot fail.
const SUBSET_IS_VALID: &str = "a valid bundle stays valid when rules are removed or hold out another share";

/// Content intended for all edges. Only rules are tried on canaries first: host opt-outs and tenant
/// changes enter every bundle at once.
struct Target {
    hosts_left_alone: Vec<String>,
    /// Tenants named in settings.
    tenants: Vec<Tenant>,
    rules: Vec<Rule>,
}

impl Target {
    fn of(settings: &Settings, tenants: &Tenants) -> Self {
        Self {
            hosts_left_alone: normalized_hosts(&settings.hosts_left_alone),
            tenants: settings.tenants.iter().map(|it| Tenant { hosts: it.hosts().to_vec() }).collect(),
            rules: tenants.rules(settings),
        }
    }

    /// Returns the tenants of a bundle with these rules: tenants named in settings, and hosts that
    /// are their own tenants.
    fn tenants_of(&self, rules: &[Rule]) -> Vec<Tenant> {
        let is_named = |name: &String| self.tenants.iter().any(|it| it.hosts.first() == Some(name));
        let unnamed = rules.iter().map(|rule| &rule.tenant);
        let unnamed: BTreeSet<_> = unnamed.filter(|name| !name.is_empty() && !is_named(name)).collect();
        let unnamed = unnamed.into_iter().map(|name| Tenant { hosts: vec![name.clone()] });
        self.tenants.iter().cloned().chain(unnamed).collect()
    }
}

impl Rollout {
    /// Updates the bundles after the states are decided. Must be called even if nothing changed.
    ///
    /// The states adopt the new bundle numbers. Rules that cannot become a bundle are withdrawn
    /// from the states.
    pub fn apply_decisions(
        &mut self,
        settings: &Settings,
        tenants: &mut Tenants,
        now_unix_s: u64,
    ) -> Vec<Transition> {
        self.advance(settings, now_unix_s);
        self.rounds = self.rounds.saturating_add(1);
        if self.are_numbers_exhausted(tenants) {
            return Vec::new();
        }
        // The states may be older than the edges' bundles, whose rules are then unknown.
        tenants.advance_bundle_number(self.newest);
        let target = Target::of(settings, tenants);
        self.drop_unassigned(&target);
        let is_first = self.stable.is_none();
        let mut transitions = self.reduce(tenants, &target, now_unix_s);
        transitions.extend(self.propose(settings, tenants, &target, is_first, now_unix_s));
        transitions.extend(self.choose_canaries(settings, now_unix_s));
        transitions
    }

    /// Returns whether bundle numbers have run out, which only a damaged state can cause. The
    /// bundles are then left unchanged.
    fn are_numbers_exhausted(&self, tenants: &Tenants) -> bool {
        tenants.bundle().max(self.newest) > BUNDLES_MAX - BUNDLES_AT_ONCE
    }

    fn stable_rules(&self) -> &[Rule] {
        self.stable.as_ref().map_or(&[], |bundle| &bundle.content().rules)
    }

    /// Drops a candidate that no edge has received if its rules are outdated, which makes room for
    /// a newer candidate.
    fn drop_unassigned(&mut self, target: &Target) {
        let is_old =
            |it: &Candidate| it.stage == Stage::Unassigned && it.bundle.content().rules != target.rules;
        if let Some(candidate) = self.candidate.take_if(|it| is_old(it)) {
            self.rounds = self.rounds.saturating_add(candidate.rounds);
        }
    }

    /// Removes rules missing from the target. Canaries always get higher numbers than other edges,
    /// so no edge's number decreases when a candidate ends.
    fn reduce(&mut self, tenants: &mut Tenants, target: &Target, now_unix_s: u64) -> Vec<Transition> {
        let stable = reduced(self.stable_rules(), &target.rules);
        let candidate = self.candidate.as_ref().map(|it| reduced(&it.bundle.content().rules, &target.rules));
        let ended = candidate.as_ref().is_some_and(|rules| added(&stable, rules).is_empty());
        let candidate = candidate.filter(|_| !ended);
        let is_reduced = self.stable.as_ref().is_none_or(|bundle| {
            let before = bundle.content();
            before.rules != stable
                || before.hosts_left_alone != target.hosts_left_alone
                || before.tenants != target.tenants_of(&stable)
        });
        let is_reduced = is_reduced || self.is_overtaken(tenants, target);
        let mut transitions = Vec::new();
        if ended && let Some(candidate) = self.candidate.take() {
            transitions.push(Transition::Ended { number: candidate.bundle.content().number });
        }
        if ended || is_reduced {
            let (left, steered) = (self.stable_rules().len() - stable.len(), stable.len());
            let reason = format!("window {}: {left} leave, {steered} steered", window(tenants));
            let bundle =
                self.make_bundle(tenants, stable, target, reason, now_unix_s).expect(SUBSET_IS_VALID);
            transitions.push(Transition::Reduced { number: bundle.content().number });
            self.stable = Some(bundle);
        }
        if let (Some(before), Some(rules)) = (&self.candidate, candidate)
            && (is_reduced || rules != before.bundle.content().rules)
        {
            let reason = before.bundle.content().reason.clone();
            let bundle = self.make_bundle(tenants, rules, target, reason, now_unix_s).expect(SUBSET_IS_VALID);
            transitions.push(Transition::CandidateReduced { number: bundle.content().number });
            self.candidate.iter_mut().for_each(|it| it.bundle = bundle.clone());
        }
        transitions
    }

    /// Returns whether a bundle number above those of the active bundles is in use for unknown
    /// rules: an edge reports the number, or a state has adopted the number and therefore ignores
    /// connections under the active bundles. A bundle with a higher number must then be
    /// distributed.
    fn is_overtaken(&self, tenants: &Tenants, target: &Target) -> bool {
        let is_above = |given: &Bundle, edge: &Edge| edge.number > Some(given.content().number);
        let is_overtaken = |name: &String, edge: &Edge| {
            self.assigned(name).is_some_and(|given| is_above(given, edge)) && self.has_vote(name)
        };
        if self.edges.iter().any(|(name, edge)| is_overtaken(name, edge)) {
            return true;
        }
        let target = by_key(&target.rules);
        let is_late = |number: u64, rule: &Rule| {
            let is_same = target.get(&RuleKey::of(rule)).is_some_and(|own| steers_alike(own, rule));
            let state = tenants.states().get(&rule.tenant);
            let steered = state.and_then(|state| state.entry(rule.prefix)).and_then(Entry::steered);
            is_same && steered.is_some_and(|steered| number < steered.from_bundle)
        };
        let out = self.stable.iter().chain(self.candidate.iter().map(|it| &it.bundle));
        out.map(Bundle::content).any(|it| it.rules.iter().any(|rule| is_late(it.number, rule)))
    }

    /// Proposes the target's additions as a candidate, unless a candidate exists.
    fn propose(
        &mut self,
        settings: &Settings,
        tenants: &mut Tenants,
        target: &Target,
        is_first: bool,
        now_unix_s: u64,
    ) -> Vec<Transition> {
        if self.candidate.is_some() {
            return Vec::new();
        }
        let rounds = std::mem::take(&mut self.rounds);
        let stable = by_key(self.stable_rules());
        let added = added(self.stable_rules(), &target.rules);
        if added.is_empty() {
            return Vec::new();
        }
        let entering = added.iter().filter(|rule| !stable.contains_key(&RuleKey::of(rule))).count();
        let entering_max = settings.changes_max.saturating_mul(rounds as usize);
        let fault = if target.rules.len() > settings.steered_max {
            Some(format!(
                "{} prefixes are steered, but the limit is {}",
                target.rules.len(),
                settings.steered_max
            ))
        } else if entering > entering_max && !is_first {
            Some(format!("{entering} prefixes enter, but the limit is {entering_max} in {rounds} rounds"))
        } else {
            None
        };
        let keys: Vec<_> = added.iter().copied().map(RuleKey::of).collect();
        let (changing, steered) = (added.len() - entering, target.rules.len());
        let reason = format!(
            "window {}: {entering} enter, {changing} with a smaller holdout, {steered} steered",
            window(tenants)
        );
        let bundle = match fault {
            Some(fault) => Err(fault),
            None => self
                .make_bundle(tenants, target.rules.clone(), target, reason, now_unix_s)
                .map_err(|faults| faults.to_string()),
        };
        match bundle {
            Ok(bundle) => {
                let number = bundle.content().number;
                self.candidate = Some(Candidate {
                    bundle,
                    since_unix_s: now_unix_s,
                    canaries: Default::default(),
                    stage: Stage::Unassigned,
                    rounds,
                });
                vec![Transition::Proposed { number }]
            }
            Err(reason) => {
                tenants.withdraw(settings, &keys);
                let mut transitions = self.reduce(tenants, &Target::of(settings, tenants), now_unix_s);
                transitions.push(Transition::Rejected { reason, withdrawn: keys });
                transitions
            }
        }
    }

    /// Distributes the candidate to all edges.
    pub(super) fn promote(&mut self, is_shown: bool) -> Vec<Transition> {
        let Some(candidate) = self.candidate.take() else { return Vec::new() };
        let number = candidate.bundle.content().number;
        self.stable = Some(candidate.bundle);
        vec![Transition::Promoted { number, is_shown }]
    }

    /// Rolls the candidate back: withdraws its additions from the states, and gives all edges the
    /// last good rules in a new bundle.
    pub(super) fn roll_back(
        &mut self,
        settings: &Settings,
        tenants: &mut Tenants,
        why: RollbackReason,
        now_unix_s: u64,
    ) -> Vec<Transition> {
        if self.are_numbers_exhausted(tenants) {
            return Vec::new();
        }
        let Some(candidate) = self.candidate.take() else { return Vec::new() };
        self.rounds = self.rounds.saturating_add(candidate.rounds);
        let Content { number, rules: tried, .. } = candidate.bundle.content();
        let withdrawn: Vec<_> = added(self.stable_rules(), tried).into_iter().map(RuleKey::of).collect();
        tenants.withdraw(settings, &withdrawn);
        let target = Target::of(settings, tenants);
        let last_good = reduced(self.stable_rules(), &target.rules);
        let reason = format!("bundle {number} rolled back: {why}");
        let bundle =
            self.make_bundle(tenants, last_good, &target, reason, now_unix_s).expect(SUBSET_IS_VALID);
        let by = bundle.content().number;
        self.stable = Some(bundle);
        vec![Transition::RolledBack { number: *number, by, why, withdrawn }]
    }

    /// Builds a bundle with the next number. If a prefix's rule differs from the state's, the
    /// prefix's connections under this bundle are not counted.
    fn make_bundle(
        &mut self,
        tenants: &mut Tenants,
        rules: Vec<Rule>,
        target: &Target,
        reason: String,
        now_unix_s: u64,
    ) -> Result<Bundle, Faults> {
        // The target's own rules get the number of their decision, unless a newer bundle exists.
        let decided = tenants.bundle();
        let is_decided = rules == target.rules && decided > self.newest;
        self.newest = if is_decided { decided } else { decided.max(self.newest) + 1 };
        tenants.set_bundle_number(self.newest);
        tenants.ignore_mismatched(&rules, &target.rules);
        Bundle::new(Content {
            number: self.newest,
            made_unix_s: now_unix_s.min(MADE_UNIX_S_MAX),
            reason: one_line(&reason, REASON_BYTES_MAX),
            hosts_left_alone: target.hosts_left_alone.clone(),
            tenants: target.tenants_of(&rules),
            rules,
            experiments: Vec::new(),
        })
    }
}

/// Returns the number of the last decided window.
fn window(tenants: &Tenants) -> u64 {
    tenants.window().unwrap_or_default()
}

/// Replaces control characters in `text` with spaces and truncates it to `bytes_max` bytes.
pub(super) fn one_line(text: &str, bytes_max: usize) -> String {
    let mut line: String =
        text.chars().map(|char| if char.is_control() { ' ' } else { char }).take(bytes_max).collect();
    line.truncate(line.floor_char_boundary(bytes_max));
    line
}
