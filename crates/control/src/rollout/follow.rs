//! Bundles follow the states: what these have taken back is taken back everywhere at once, what it adds becomes a candidate; and what
//! becomes of candidates.

use std::collections::BTreeSet;

use thalweg_bundle::{Bundle, Content, Faults, MADE_UNIX_S_MAX, REASON_BYTES_MAX, Rule, Tenant};

use super::rules::{added, by_whom, reduced, steers_alike};
use super::{Candidate, Edge, Rollout, Stage, Transition, Why};
use crate::decide::names;
use crate::entry::Entry;
use crate::settings::Settings;
use crate::state::BUNDLES_MAX;
use crate::tenants::{Tenants, Whom};

/// Bundles that one event makes at most.
const BUNDLES_AT_ONCE: u64 = 4;

/// Why a bundle of some of the rules of one before is valid.
const FEWER: &str =
    "rules of a valid bundle, some with another share held out, under settings that were checked";

/// What the states would have all edges do. Who opts out of rules is no trial: it holds in every bundle at once, and so does who has rules
/// of its own.
struct Target {
    hosts_left_alone: Vec<String>,
    /// Those that settings name.
    tenants: Vec<Tenant>,
    rules: Vec<Rule>,
}

impl Target {
    fn of(settings: &Settings, tenants: &Tenants) -> Self {
        Self {
            hosts_left_alone: names(&settings.hosts_left_alone),
            tenants: settings.tenants.iter().map(|it| Tenant { hosts: it.hosts().to_vec() }).collect(),
            rules: tenants.rules(settings),
        }
    }

    /// The tenants of a bundle with these rules: beside those that settings name, hosts that are tenants by themselves.
    fn tenants_of(&self, rules: &[Rule]) -> Vec<Tenant> {
        let is_named = |name: &String| self.tenants.iter().any(|it| it.hosts.first() == Some(name));
        let unnamed = rules.iter().map(|rule| &rule.tenant);
        let unnamed: BTreeSet<_> = unnamed.filter(|name| !name.is_empty() && !is_named(name)).collect();
        let unnamed = unnamed.into_iter().map(|name| Tenant { hosts: vec![name.clone()] });
        self.tenants.iter().cloned().chain(unnamed).collect()
    }
}

impl Rollout {
    /// Follows the states after each of their decisions, also of one that changes nothing.
    ///
    /// They take numbers of bundles over; what may not become a bundle leaves them.
    pub fn decided(
        &mut self,
        settings: &Settings,
        tenants: &mut Tenants,
        now_unix_s: u64,
    ) -> Vec<Transition> {
        self.advance(settings, now_unix_s);
        self.rounds = self.rounds.saturating_add(1);
        if self.is_at_end(tenants) {
            return Vec::new();
        }
        // Of an older state it is not known what connections went by since.
        tenants.go_on_from(self.newest);
        let target = Target::of(settings, tenants);
        self.drop_unheard(&target);
        let is_first = self.stable.is_none();
        let mut told = self.reduce(tenants, &target, now_unix_s);
        told.extend(self.propose(settings, tenants, &target, is_first, now_unix_s));
        told.extend(self.choose(settings, now_unix_s));
        told
    }

    /// Numbers have run out, of a state that no controller has made: all stays as it is.
    fn is_at_end(&self, tenants: &Tenants) -> bool {
        tenants.bundle().max(self.newest) > BUNDLES_MAX - BUNDLES_AT_ONCE
    }

    fn stable_rules(&self) -> &[Rule] {
        self.stable.as_ref().map_or(&[], |bundle| &bundle.content().rules)
    }

    /// A candidate that no edge has yet makes room for a newer one.
    fn drop_unheard(&mut self, target: &Target) {
        let is_old = |it: &Candidate| it.stage == Stage::Unheard && it.bundle.content().rules != target.rules;
        if let Some(candidate) = self.candidate.take_if(|it| is_old(it)) {
            self.rounds = self.rounds.saturating_add(candidate.rounds);
        }
    }

    /// Takes back what the target has no more. Canaries get numbers above those of all others, so that nobody's goes down when a
    /// candidate ends.
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
        let mut told = Vec::new();
        if ended && let Some(candidate) = self.candidate.take() {
            told.push(Transition::Ended { number: candidate.bundle.content().number });
        }
        if ended || is_reduced {
            let (left, steered) = (self.stable_rules().len() - stable.len(), stable.len());
            let reason = format!("window {}: {left} leave, {steered} steered", window(tenants));
            let bundle = self.make(tenants, stable, target, reason, now_unix_s).expect(FEWER);
            told.push(Transition::Reduced { number: bundle.content().number });
            self.stable = Some(bundle);
        }
        if let (Some(before), Some(rules)) = (&self.candidate, candidate)
            && (is_reduced || rules != before.bundle.content().rules)
        {
            let reason = before.bundle.content().reason.clone();
            let bundle = self.make(tenants, rules, target, reason, now_unix_s).expect(FEWER);
            told.push(Transition::CandidateReduced { number: bundle.content().number });
            self.candidate.iter_mut().for_each(|it| it.bundle = bundle.clone());
        }
        told
    }

    /// Whether there is a higher number than those that are out, of which it is not known what it says: an edge has it, or a state has
    /// heard of it, so that connections do not count that go by its own rule. All get the same by a number above that.
    fn is_overtaken(&self, tenants: &Tenants, target: &Target) -> bool {
        let is_above = |given: &Bundle, edge: &Edge| edge.number > Some(given.content().number);
        if self.edges.iter().any(|(name, edge)| self.given(name).is_some_and(|given| is_above(given, edge))) {
            return true;
        }
        let target = by_whom(&target.rules);
        let is_late = |number: u64, rule: &Rule| {
            let is_same = target.get(&Whom::of(rule)).is_some_and(|own| steers_alike(own, rule));
            let state = tenants.states().get(&rule.tenant);
            let steered = state.and_then(|state| state.entry(rule.prefix)).and_then(Entry::steered);
            is_same && steered.is_some_and(|steered| number < steered.from_bundle)
        };
        let out = self.stable.iter().chain(self.candidate.iter().map(|it| &it.bundle));
        out.map(Bundle::content).any(|it| it.rules.iter().any(|rule| is_late(it.number, rule)))
    }

    /// Tries what the target adds, unless something is tried already.
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
        let stable = by_whom(self.stable_rules());
        let added = added(self.stable_rules(), &target.rules);
        if added.is_empty() {
            return Vec::new();
        }
        let entering = added.iter().filter(|rule| !stable.contains_key(&Whom::of(rule))).count();
        let entering_max = settings.changes_max.saturating_mul(rounds as usize);
        let fault = if target.rules.len() > settings.steered_max {
            Some(format!("{} are steered, and {} are the most", target.rules.len(), settings.steered_max))
        } else if entering > entering_max && !is_first {
            Some(format!("{entering} enter, and {entering_max} are the most in {rounds} rounds"))
        } else {
            None
        };
        let whom: Vec<_> = added.iter().copied().map(Whom::of).collect();
        let (changing, steered) = (added.len() - entering, target.rules.len());
        let reason = format!(
            "window {}: {entering} enter, {changing} are held out less, {steered} steered",
            window(tenants)
        );
        let bundle = match fault {
            Some(fault) => Err(fault),
            None => self
                .make(tenants, target.rules.clone(), target, reason, now_unix_s)
                .map_err(|faults| faults.to_string()),
        };
        match bundle {
            Ok(bundle) => {
                let number = bundle.content().number;
                self.candidate = Some(Candidate {
                    bundle,
                    since_unix_s: now_unix_s,
                    canaries: Default::default(),
                    stage: Stage::Unheard,
                    rounds,
                });
                vec![Transition::Proposed { number }]
            }
            Err(reason) => {
                tenants.withdraw(settings, &whom);
                let mut told = self.reduce(tenants, &Target::of(settings, tenants), now_unix_s);
                told.push(Transition::Rejected { reason, withdrawn: whom });
                told
            }
        }
    }

    /// Gives all edges the candidate.
    pub(super) fn promote(&mut self, is_shown: bool) -> Vec<Transition> {
        let Some(candidate) = self.candidate.take() else { return Vec::new() };
        let number = candidate.bundle.content().number;
        self.stable = Some(candidate.bundle);
        vec![Transition::Promoted { number, is_shown }]
    }

    /// Takes the candidate back: what it adds leaves the states, and all edges get the last good rules by a new bundle.
    pub(super) fn roll_back(
        &mut self,
        settings: &Settings,
        tenants: &mut Tenants,
        why: Why,
        now_unix_s: u64,
    ) -> Vec<Transition> {
        if self.is_at_end(tenants) {
            return Vec::new();
        }
        let Some(candidate) = self.candidate.take() else { return Vec::new() };
        self.rounds = self.rounds.saturating_add(candidate.rounds);
        let Content { number, rules: tried, .. } = candidate.bundle.content();
        let withdrawn: Vec<_> = added(self.stable_rules(), tried).into_iter().map(Whom::of).collect();
        tenants.withdraw(settings, &withdrawn);
        let target = Target::of(settings, tenants);
        let last_good = reduced(self.stable_rules(), &target.rules);
        let reason = format!("bundle {number} is rolled back: {why}");
        let bundle = self.make(tenants, last_good, &target, reason, now_unix_s).expect(FEWER);
        let by = bundle.content().number;
        self.stable = Some(bundle);
        vec![Transition::RolledBack { number: *number, by, why, withdrawn }]
    }

    /// A bundle with the next number. Connections of a prefix whose rule there is another one than the state's do not count.
    fn make(
        &mut self,
        tenants: &mut Tenants,
        rules: Vec<Rule>,
        target: &Target,
        reason: String,
        now_unix_s: u64,
    ) -> Result<Bundle, Faults> {
        // What the states steer has the number that the decisions gave it, unless a bundle was made since.
        let decided = tenants.bundle();
        let is_decided = rules == target.rules && decided > self.newest;
        self.newest = if is_decided { decided } else { decided.max(self.newest) + 1 };
        tenants.number(self.newest);
        tenants.discount(&rules, &target.rules);
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

/// The window that was decided last.
fn window(tenants: &Tenants) -> u64 {
    tenants.window().unwrap_or_default()
}

/// A text without control characters, of so many bytes at most.
pub(super) fn one_line(text: &str, bytes_max: usize) -> String {
    let mut line: String =
        text.chars().map(|char| if char.is_control() { ' ' } else { char }).take(bytes_max).collect();
    line.truncate(line.floor_char_boundary(bytes_max));
    line
}
