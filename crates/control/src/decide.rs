//! The decision of one round for one scope (a PoP or one of its tenants), as a pure function.
//!
//! ```text
//! observe the window → discard what depends on changed settings → add evidence
//!   → pool all trials → verdicts → guardrail → limits → admission → rules
//! ```
//!
//! Safety withdrawals take effect at once. All other changes share one limit per round, and
//! withdrawals take precedence over admissions.

mod admit;
mod judge;
mod limits;
mod observe;
mod resume;
mod round;
mod withdraw;

pub(crate) use resume::BUNDLES_BELIEVED_MAX;
use thalweg_bundle::{Content, Rule, Share};
use thalweg_record::Prefix;
use twox_hash::XxHash3_64;

use crate::basis::Basis;
use crate::check::WINDOW_MAX;
use crate::entry::{Entry, Steered};
use crate::pool::Pool;
use crate::reason::Reason;
use crate::settings::{Settings, normalized_hosts};
use crate::state::{BUNDLES_MAX, State};
use crate::switchback::{ClosedPairs, Switchback};
use crate::window::{Window, follows};

/// Outcome of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoundOutcome {
    /// The window was decided.
    Decided,
    /// The guardrail stopped the round: it withdrew prefixes on trial and paused admission.
    Stopped,
    /// The PoP reported no traffic. The state is unchanged.
    Silent,
    /// The window was already decided or is older than the last decided window. The state is
    /// unchanged.
    Repeated,
    /// The window has not ended by the clock, or its number exceeds the maximum for a state. The
    /// state is unchanged.
    Early,
}

/// A prefix admitted or withdrawn, and the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// The prefix.
    pub prefix: Prefix,
    /// The reason for the change.
    pub reason: Reason,
}

/// Time of a decision, its random seed, and the newest acknowledged bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Current time, in Unix seconds.
    pub now_unix_s: u64,
    /// Seed for random choices.
    pub seed: u64,
    /// Highest bundle number acknowledged by an edge of the scope; 0 without an acknowledgement. A
    /// number above half of [`BUNDLES_MAX`] cannot come from a controller and is ignored.
    pub acknowledged_bundle: u64,
}

/// Result of a round.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// Window number.
    pub window: u64,
    /// Outcome of the round.
    pub round: RoundOutcome,
    /// Number of ranked prefixes.
    pub ranked: usize,
    /// Largest prefix median in the bottom group, in bytes per second. `None` without a bottom
    /// group.
    pub bottom_bytes_per_s: Option<f64>,
    /// Admitted prefixes, sorted.
    pub entered: Vec<Change>,
    /// Withdrawn prefixes, sorted.
    pub left: Vec<Change>,
    /// Changed settings that discarded evidence or histories in this round.
    pub changed: Vec<&'static str>,
    /// Prefixes that became promising in this round, sorted: steered clients do better than
    /// held-out clients of the same prefix.
    pub promising: Vec<Prefix>,
    /// Prefixes proved in this round to be helped as a whole, sorted.
    pub proved: Vec<Prefix>,
    /// Pairs of blocks closed in this round, across all switchbacks.
    pub pairs: ClosedPairs,
    /// Number of steered prefixes after this round.
    pub steered: usize,
    /// Distribution of effects across all trials. `None` with too few trials.
    pub pool: Option<Pool>,
    /// Contents of the new bundle if the rules changed. Always valid, with the next bundle number.
    pub content: Option<Content>,
}

/// Decides a window and returns the next state. The same arguments always produce the same
/// decision.
pub fn decide(settings: &Settings, state: &State, window: &Window, moment: Moment) -> (State, Decision) {
    decide_tenant(settings, state, window, moment, !window.prefixes.is_empty())
}

/// Like [`decide`], for one of several tenants. If the PoP reported any traffic, an empty window
/// means that the tenant had no traffic.
pub(crate) fn decide_tenant(
    settings: &Settings,
    state: &State,
    window: &Window,
    moment: Moment,
    pop_has_traffic: bool,
) -> (State, Decision) {
    let unchanged = |round| {
        let decision = Decision {
            window: window.number,
            round,
            ranked: 0,
            bottom_bytes_per_s: None,
            entered: Vec::new(),
            left: Vec::new(),
            changed: Vec::new(),
            promising: Vec::new(),
            proved: Vec::new(),
            pairs: ClosedPairs::default(),
            steered: state.steered().count(),
            pool: state.pool,
            content: None,
        };
        (state.clone(), decision)
    };
    let elapsed = match elapsed(settings, state, window, moment.now_unix_s) {
        Ok(elapsed) => elapsed,
        Err(round) => return unchanged(round),
    };
    let basis = Basis::of(settings);
    if !pop_has_traffic {
        // Keep the old window number, so that the next window with traffic also counts the silent
        // windows as elapsed.
        return unchanged(RoundOutcome::Silent);
    }
    let (mut state, mut decision) =
        round::DecisionRound::new(settings, state, window, elapsed, moment, basis).run();
    decision.content = new_bundle(settings, &mut state, &decision, moment);
    (state, decision)
}

/// Returns the number of windows since the last decided window, or the outcome if this window
/// cannot be decided.
pub(crate) fn elapsed(
    settings: &Settings,
    state: &State,
    window: &Window,
    now_unix_s: u64,
) -> Result<u64, RoundOutcome> {
    let over_unix_s = window.number.saturating_add(1).saturating_mul(settings.window_s);
    if over_unix_s > now_unix_s || window.number > WINDOW_MAX {
        return Err(RoundOutcome::Early);
    }
    let basis = Basis::of(settings);
    let last = last_window(state, &basis);
    follows(last, window.number, settings.history_windows).ok_or(RoundOutcome::Repeated)
}

/// Returns the number of the last decided window, converted to the window length of `basis`.
fn last_window(state: &State, basis: &Basis) -> Option<u64> {
    let (last, before) = state.window.zip(state.basis.as_ref())?;
    Some(before.renumber(last, basis))
}

/// Builds the next bundle for a state. Returns `None` if the rules equal those of the last bundle,
/// or if the bundle numbers have run out.
fn new_bundle(
    settings: &Settings,
    state: &mut State,
    decision: &Decision,
    moment: Moment,
) -> Option<Content> {
    let rules = rules(settings, state);
    let hosts_left_alone = normalized_hosts(&settings.hosts_left_alone);
    let rule_set = format!("{hosts_left_alone:?} {rules:?}");
    let digest = Some(XxHash3_64::oneshot(rule_set.as_bytes()));
    if digest == state.rules_digest || state.bundle == BUNDLES_MAX {
        return None;
    }
    state.rules_digest = digest;
    state.bundle += 1;
    Some(Content {
        number: state.bundle,
        made_unix_s: moment.now_unix_s,
        reason: reason(decision),
        hosts_left_alone,
        tenants: Vec::new(),
        rules,
        experiments: Vec::new(),
    })
}

/// Returns the rules of a state, sorted by prefix.
pub(crate) fn rules(settings: &Settings, state: &State) -> Vec<Rule> {
    state.steered().map(|(entry, steered)| rule(settings, entry, steered)).collect()
}

/// Formats the reason stated in the bundle.
fn reason(decision: &Decision) -> String {
    let Decision { window, entered, left, steered, changed, .. } = decision;
    let changed = match changed.as_slice() {
        [] => String::new(),
        changed => format!("; state discarded because settings changed: {}", changed.join(", ")),
    };
    format!("window {window}: {} enter, {} leave, {steered} steered{changed}", entered.len(), left.len())
}

/// Returns the rule for a steered prefix. The rule's reason text changes only when the rule itself
/// changes.
fn rule(settings: &Settings, entry: &Entry, steered: &Steered) -> Rule {
    let entered = if steered.is_explored { "explored" } else { "slow" };
    let stage = match (steered.holdout_millionths, &steered.proof) {
        (0, _) => "by duty cycle alone",
        (_, Some(_)) => "helped as a whole",
        (_, None) if steered.switchback.is_some() => "promising within the network",
        (_, None) => "on trial",
    };
    let block_s = |it: &Switchback| settings.window_s.saturating_mul(it.block_windows.into());
    Rule {
        tenant: String::new(),
        prefix: entry.prefix,
        congestion_control: settings.congestion_control.clone(),
        size_bytes_min: Some(settings.goodput_bytes_min),
        initcwnd: None,
        initrwnd: None,
        holdout: Share::from_millionths(steered.holdout_millionths).unwrap_or_default(),
        period_s: u32::try_from(settings.window_s).ok(),
        switchback_block_s: steered.switchback.as_ref().and_then(|it| block_s(it).try_into().ok()),
        salt: steered.rule_salt(),
        reason: format!("{entered}, {stage}"),
    }
}
