//! A round in progress: the steps of a decision, in order, on a copy of the state.

use super::observe::observe;
use super::{Change, Decision, Moment, RoundOutcome, last_window};
use crate::basis::{Basis, Changes};
use crate::entry::{Entry, Phase};
use crate::evidence::tuned_variance;
use crate::left_alone::LeftAlone;
use crate::pool::{Estimate, Pool};
use crate::reason::Reason;
use crate::selection::bottom_group;
use crate::settings::Settings;
use crate::state::State;
use crate::switchback::{ClosedPairs, RuleSalt};
use crate::window::{Sample, Window};

pub(super) struct DecisionRound<'a> {
    pub(super) settings: &'a Settings,
    pub(super) window: &'a Window,
    pub(super) moment: Moment,
    pub(super) state: State,
    pub(super) decision: Decision,
    pub(super) changes_left: usize,
    pub(super) changes: Changes,
    /// Whether the window is older than the last decided window, because the clock was set back.
    pub(super) is_set_back: bool,
    pub(super) left_alone: LeftAlone,
}

impl<'a> DecisionRound<'a> {
    /// Starts a round on a copy of `state`, advanced by `elapsed` windows.
    pub(super) fn new(
        settings: &'a Settings,
        state: &State,
        window: &'a Window,
        elapsed: u64,
        moment: Moment,
        basis: Basis,
    ) -> Self {
        let is_set_back = last_window(state, &basis).is_some_and(|last| window.number < last);
        let changes = state.basis.as_ref().map(|before| basis.changes_since(before)).unwrap_or_default();
        let is_steered = |prefix| state.entry(prefix).is_some_and(|entry| entry.steered().is_some());
        let left_alone = LeftAlone::new(&settings.left_alone);
        let (ranks, bottom) = bottom_group(settings, &left_alone, window, is_steered);
        // `u64::MAX` exceeds the length of any history, so it clears every history.
        let elapsed = if changes.discards_histories { u64::MAX } else { elapsed };
        let entries = observe(settings, &state.entries, window, &ranks, bottom, elapsed);
        let mut guard = state.guard.clone();
        guard.pause_windows = guard.pause_windows.saturating_sub(1);
        let state = State {
            window: Some(window.number),
            basis: Some(basis),
            guard,
            bottom_bytes_per_s: bottom,
            entries,
            quiet_rounds: if window.prefixes.is_empty() { state.quiet_rounds.saturating_add(1) } else { 0 },
            ..without_entries(state)
        };
        let decision = Decision {
            window: window.number,
            round: RoundOutcome::Decided,
            ranked: ranks.iter().flatten().count(),
            bottom_bytes_per_s: bottom,
            entered: Vec::new(),
            left: Vec::new(),
            changed: changes.settings.clone(),
            promising: Vec::new(),
            proved: Vec::new(),
            pairs: ClosedPairs::default(),
            steered: 0,
            pool: None,
            content: None,
        };
        Self {
            settings,
            window,
            moment,
            changes,
            is_set_back,
            left_alone,
            state,
            decision,
            changes_left: settings.changes_max,
        }
    }

    pub(super) fn run(mut self) -> (State, Decision) {
        self.adopt_edge_bundle();
        self.discard_invalidated();
        self.redraw_after_set_back();
        self.add_evidence();
        let pool = Pool::of(&self.estimates());
        self.state.pool = pool;
        self.decision.pool = pool;
        self.judge(pool);
        self.apply_guardrail();
        self.apply_limits();
        self.admit();
        self.state.entries.retain(|entry| !entry.is_forgotten());
        for changes in [&mut self.decision.entered, &mut self.decision.left] {
            changes.sort_unstable_by_key(|change| change.prefix);
        }
        self.decision.steered = self.state.steered().count();
        (self.state, self.decision)
    }

    /// Adds the window's outcomes to each trial's evidence.
    fn add_evidence(&mut self) {
        for entry in &mut self.state.entries {
            let Phase::Steered(steered) = &mut entry.phase else { continue };
            let sample = self.window.sample(entry.prefix);
            steered.windows = steered.windows.saturating_add(1);
            if let Some(proof) = &mut steered.proof {
                proof.rounds = proof.rounds.saturating_add(1);
            }
            let is_quiet = sample.is_none_or(|sample| sample.connections() == 0);
            steered.quiet_windows = if is_quiet { steered.quiet_windows.saturating_add(1) } else { 0 };
            // Skip bundles not issued from this state, because their held-out share is unknown.
            let (bundles, holdout) = (steered.from_bundle..=self.state.bundle, steered.holdout());
            let salt = steered.rule_salt();
            if let Some(switchback) = &mut steered.switchback {
                switchback.windows = switchback.windows.saturating_add(1);
                let nothing = Sample::default();
                let rule = RuleSalt { prefix: entry.prefix, salt: salt.as_str() };
                let outcomes_min = self.settings.connections_min;
                let (number, sample) = (self.window.number, sample.unwrap_or(&nothing));
                switchback.add(rule, number, bundles, sample, outcomes_min, &mut self.decision.pairs);
                continue;
            }
            let (Some(sample), true) = (sample, steered.holdout_millionths > 0) else { continue };
            let outcomes = sample.outcomes.iter().filter(|outcome| bundles.contains(&outcome.bundle));
            let (sum_before, variance_before) = steered.evidence.sum_and_variance();
            steered.evidence.add(outcomes, holdout);
            let (sum, variance) = steered.evidence.sum_and_variance();
            if let Some(proof) = &mut steered.proof {
                proof.reversal.add(sum - sum_before, variance - variance_before, tuned_variance(holdout));
            }
        }
    }

    /// Returns the estimates of all current and recently ended trials, regardless of how they
    /// ended. The estimate of a prefix whose proof is too old is excluded, even after the prefix is
    /// withdrawn.
    fn estimates(&self) -> Vec<Estimate> {
        let settings = self.settings;
        let is_recent = |rounds: u32| rounds < settings.cool_off_windows;
        let estimate = |entry: &Entry| match &entry.phase {
            Phase::Idle => None,
            Phase::CoolingOff(it) => it.estimate.filter(|_| is_recent(it.estimate_rounds)),
            Phase::Steered(it) if it.proof.as_ref().is_none_or(|proof| is_recent(proof.rounds)) => {
                it.estimate(settings)
            }
            Phase::Steered(_) => None,
        };
        self.state.entries.iter().filter_map(estimate).collect()
    }

    /// Withdraws a prefix, unless the round's limit on changes is reached. Safety withdrawals
    /// ignore the limit.
    pub(super) fn withdraw(&mut self, entry: &mut Entry, reason: Reason) {
        if !reason.is_safety() {
            if self.changes_left == 0 {
                return;
            }
            self.changes_left -= 1;
        }
        entry.leave(reason, self.settings);
        self.decision.left.push(Change { prefix: entry.prefix, reason });
    }
}

/// Copies the fields that carry over to the next state, without cloning the entries.
fn without_entries(state: &State) -> State {
    State {
        bundle: state.bundle,
        rules_digest: state.rules_digest,
        trials: state.trials.clone(),
        pool: state.pool,
        ..State::default()
    }
}
