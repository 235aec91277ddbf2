//! A round that is taken: the steps of a decision, in order, on a copy of the state.

use super::observe::observe;
use super::{Change, Decision, Moment, Round};
use crate::basis::{Basis, Changes};
use crate::entry::{Entry, Phase, Proof, Steered};
use crate::evidence::Evidence;
use crate::online::needed;
use crate::pool::{Estimate, Pool};
use crate::reason::Reason;
use crate::selection::{bottom_group, is_left_alone, is_no_longer_slow};
use crate::settings::Settings;
use crate::state::State;
use crate::window::Window;

/// What is to become of a steered prefix.
#[derive(Debug, Clone)]
enum Verdict {
    Stays(Reason),
    Proved(Proof),
    /// What was shown is too old to go by: it is begun anew.
    Renewed,
    Leaves(Reason),
}

pub(super) struct Taken<'a> {
    pub(super) settings: &'a Settings,
    pub(super) window: &'a Window,
    pub(super) moment: Moment,
    pub(super) state: State,
    pub(super) decision: Decision,
    pub(super) changes_left: usize,
    pub(super) changes: Changes,
}

impl<'a> Taken<'a> {
    /// Takes a window over into a copy of the state, which it follows after so many windows.
    pub(super) fn new(
        settings: &'a Settings,
        state: &State,
        window: &'a Window,
        elapsed: u64,
        moment: Moment,
        basis: Basis,
    ) -> Self {
        let changes = state.basis.as_ref().map(|before| basis.changes_since(before)).unwrap_or_default();
        let is_steered = |prefix| state.entry(prefix).is_some_and(|entry| entry.steered().is_some());
        let (ranks, bottom) = bottom_group(settings, window, is_steered);
        // All of a history is older than so many windows.
        let elapsed = if changes.discards_histories { u64::MAX } else { elapsed };
        let entries = observe(settings, &state.entries, window, (&ranks, bottom), elapsed);
        let mut guard = state.guard.clone();
        guard.pause_windows = guard.pause_windows.saturating_sub(1);
        let state = State {
            window: Some(window.number),
            basis: Some(basis),
            guard,
            bottom_bytes_per_s: bottom,
            entries,
            ..without_entries(state)
        };
        let decision = Decision {
            window: window.number,
            round: Round::Decided,
            ranked: ranks.iter().flatten().count(),
            bottom_bytes_per_s: bottom,
            entered: Vec::new(),
            left: Vec::new(),
            changed: changes.settings.clone(),
            proved: Vec::new(),
            steered: 0,
            pool: None,
            content: None,
        };
        Self { settings, window, moment, changes, state, decision, changes_left: settings.changes_max }
    }

    pub(super) fn run(mut self) -> (State, Decision) {
        self.follow_edges();
        self.discard();
        self.learn();
        let pool = Pool::of(&self.estimates());
        self.state.pool = pool.map(Into::into);
        self.decision.pool = pool;
        self.judge(pool);
        self.keep_guard();
        self.keep_limits();
        self.admit();
        self.state.entries.retain(|entry| !entry.is_forgotten());
        for changes in [&mut self.decision.entered, &mut self.decision.left] {
            changes.sort_unstable_by_key(|change| change.prefix);
        }
        self.decision.steered = self.state.steered().count();
        (self.state, self.decision)
    }

    /// Adds what the window shows of each trial.
    fn learn(&mut self) {
        for entry in &mut self.state.entries {
            let Phase::Steered(steered) = &mut entry.phase else { continue };
            let sample = self.window.sample(entry.prefix);
            if let Some(proof) = &mut steered.proof {
                proof.rounds = proof.rounds.saturating_add(1);
            }
            steered.windows = steered.windows.saturating_add(1);
            let is_quiet = sample.is_none_or(|sample| sample.connections() == 0);
            steered.quiet_windows = if is_quiet { steered.quiet_windows.saturating_add(1) } else { 0 };
            let (Some(sample), true) = (sample, steered.holdout_millionths > 0) else { continue };
            let (from, holdout) = (steered.from_bundle, steered.holdout());
            let outcomes = sample.outcomes.iter().filter(move |outcome| outcome.bundle >= from);
            steered.evidence.add(outcomes, holdout);
        }
    }

    /// What each trial has shown that is under way or has ended not long ago, however it has.
    fn estimates(&self) -> Vec<Estimate> {
        let settings = self.settings;
        let is_recent = |rounds: u32| rounds < settings.cool_off_windows;
        let estimate = |entry: &Entry| match &entry.phase {
            Phase::Idle => None,
            Phase::CoolingOff(it) => it.estimate.filter(|_| is_recent(it.rounds)),
            Phase::Steered(it) if it.proof.as_ref().is_none_or(|proof| is_recent(proof.rounds)) => {
                it.estimate(settings)
            }
            Phase::Steered(_) => None,
        };
        self.state.entries.iter().filter_map(estimate).collect()
    }

    /// Tells trials to be helped: those that need at most so many told.
    fn tell(&mut self) -> f64 {
        let trials: Vec<_> = self
            .state
            .steered()
            .filter(|(_, steered)| steered.proof.is_none())
            .filter(|(entry, steered)| self.veto(entry, steered).is_none())
            .filter_map(|(_, steered)| Some((steered.trial, self.ln_e_helped(steered)?)))
            .collect();
        self.state.trials.tell(&trials, self.settings.false_discovery_share)
    }

    fn ln_e_helped(&self, steered: &Steered) -> Option<f64> {
        let is_enough = steered.evidence.is_enough(self.settings.evidence_connections_min);
        (is_enough && steered.holdout_millionths > 0).then(|| steered.evidence.ln_e_helped(steered.holdout()))
    }

    fn judge(&mut self, pool: Option<Pool>) {
        let told = self.tell();
        let mut entries = std::mem::take(&mut self.state.entries);
        for entry in &mut entries {
            let Phase::Steered(steered) = &entry.phase else { continue };
            match self.verdict(entry, steered, pool, told) {
                Verdict::Stays(reason) => entry.reason = reason,
                Verdict::Proved(proof) => self.prove(entry, proof),
                Verdict::Renewed => renew(entry),
                Verdict::Leaves(reason) => self.take_back(entry, reason),
            }
        }
        self.state.entries = entries;
    }

    /// For what a prefix leaves whatever else is shown of it.
    fn veto(&self, entry: &Entry, steered: &Steered) -> Option<Reason> {
        let settings = self.settings;
        let evidence = &steered.evidence;
        if is_left_alone(settings, entry.prefix) {
            return Some(Reason::LeftAlone);
        }
        if steered.quiet_windows >= settings.history_windows {
            return Some(Reason::Gone);
        }
        if steered.holdout_millionths == 0 {
            return None;
        }
        if evidence.is_skewed(steered.holdout()) {
            return Some(Reason::Skewed);
        }
        if !evidence.is_enough(settings.evidence_connections_min) {
            return None;
        }
        let is_sure = |ln_e: f64| ln_e >= -settings.false_harm_share.ln();
        let has_resent = evidence.retransmitted.count >= 2 * u64::from(settings.evidence_connections_min);
        let resent = evidence.retransmitted.ln_e_above(settings.retransmitted_rise_max);
        if has_resent && resent.is_some_and(is_sure) {
            return Some(Reason::Retransmits);
        }
        is_sure(evidence.ln_e_harmed(steered.holdout())).then_some(Reason::Harmed)
    }

    fn verdict(&self, entry: &Entry, steered: &Steered, pool: Option<Pool>, told: f64) -> Verdict {
        let settings = self.settings;
        let on_trial = match (steered.is_renewed, steered.is_explored) {
            (true, _) => Reason::Renewed,
            (false, true) => Reason::Explored,
            (false, false) => Reason::Slow,
        };
        let is_proved = steered.proof.is_some();
        if let Some(reason) = self.veto(entry, steered) {
            return Verdict::Leaves(reason);
        }
        if let Some(verdict) = self.shown(steered, told) {
            return verdict;
        }
        if on_trial == Reason::Slow && !is_proved && is_no_longer_slow(settings, entry) {
            return Verdict::Leaves(Reason::NoLongerSlow);
        }
        if steered.holdout_millionths == 0 || steered.windows < settings.trial_windows_max {
            return Verdict::Stays(if is_proved { Reason::Helped } else { on_trial });
        }
        if is_proved {
            // Evidence that began anew before it was enough would never show harm where there are few connections.
            let is_enough = steered.evidence.is_enough(settings.evidence_connections_min);
            return if is_enough { Verdict::Renewed } else { Verdict::Stays(Reason::Helped) };
        }
        let shrunken = pool.zip(steered.estimate(settings)).map(|(pool, own)| pool.shrink(own));
        let likely = shrunken.map(|shrunken| shrunken.probability_above(settings.effect_min));
        if likely.is_some_and(|likely| likely >= settings.pooled_keep) {
            Verdict::Stays(Reason::Likely)
        } else {
            Verdict::Leaves(Reason::NotHelped)
        }
    }

    /// What the evidence shows by itself, if it does.
    fn shown(&self, steered: &Steered, told: f64) -> Option<Verdict> {
        let settings = self.settings;
        let ln_e = self.ln_e_helped(steered)?;
        let goodput = &steered.evidence.goodput;
        if steered.proof.is_none() && needed(steered.trial, ln_e, settings.false_discovery_share) <= told {
            return Some(Verdict::Proved(Proof { ln_e, goodput: goodput.clone(), rounds: 0 }));
        }
        let interval = goodput.interval(settings.false_harm_share)?;
        (interval.high < settings.effect_min).then_some(Verdict::Leaves(Reason::NotHelped))
    }

    /// Fewer are held out from now on. What is shown from then on is evidence of its own.
    fn prove(&mut self, entry: &mut Entry, proof: Proof) {
        let Phase::Steered(steered) = &mut entry.phase else { return };
        steered.proof = Some(proof);
        steered.holdout_millionths = self.settings.holdout.millionths();
        steered.from_bundle = self.state.bundle + 1;
        steered.failures = 0;
        self.decision.proved.push(entry.prefix);
        renew(entry);
    }

    /// Takes a rule back, if as many may be changed in this round.
    pub(super) fn take_back(&mut self, entry: &mut Entry, reason: Reason) {
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

/// Begins the evidence anew, from where the baselines are.
fn renew(entry: &mut Entry) {
    let Phase::Steered(steered) = &mut entry.phase else { return };
    steered.windows = 0;
    steered.evidence = Evidence {
        baseline_retransmitted: steered.evidence.baseline_retransmitted,
        ..Evidence::from(steered.evidence.baseline_ln_goodput)
    };
    entry.reason = Reason::Helped;
}

/// All of a state but its entries, which are many.
fn without_entries(state: &State) -> State {
    State {
        bundle: state.bundle,
        rules_digest: state.rules_digest,
        trials: state.trials.clone(),
        pool: state.pool,
        ..State::default()
    }
}
