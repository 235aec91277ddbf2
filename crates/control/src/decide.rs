//! The decision: one round of one scope, as a pure function.
//!
//! ```text
//! observe the window → discard what settings have made void → evidence → what all show together → verdicts → guardrail
//!   → limits → who enters → rules
//! ```
//!
//! What leaves for safety leaves at once; all other changes of a round are bounded together, those that leave before those that
//! enter.

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
use crate::settings::Settings;
use crate::state::{BUNDLES_MAX, State};
use crate::window::{Window, follows};

/// What became of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Round {
    /// It was decided.
    Decided,
    /// The guardrail has stopped it: all that were on trial have left.
    Stopped,
    /// The PoP has reported nothing: all is as it was.
    Silent,
    /// The window was decided before, or is from before the one that was: all is as it was.
    Repeated,
    /// The window is not over by the clock, or its number is above those that a state can have: all is as it was.
    Early,
}

/// A prefix that has entered, has left or was shown to be helped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// The prefix.
    pub prefix: Prefix,
    /// Why.
    pub reason: Reason,
}

/// When and for whom a window is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// The clock, seconds since the Unix epoch.
    pub now_unix_s: u64,
    /// What chance goes by.
    pub seed: u64,
    /// The highest number of a bundle that an edge of the scope acknowledges; 0 if none does. One above
    /// half of [`BUNDLES_MAX`] is no controller's, and is not believed.
    pub acknowledged_bundle: u64,
}

/// What a round has decided.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// The window's number.
    pub window: u64,
    /// What became of the round.
    pub round: Round,
    /// Prefixes that were ranked.
    pub ranked: usize,
    /// The largest median of the bottom group, bytes per second; absent if there was none.
    pub bottom_bytes_per_s: Option<f64>,
    /// Prefixes that enter, in order.
    pub entered: Vec<Change>,
    /// Prefixes that leave, in order.
    pub left: Vec<Change>,
    /// Settings that have changed since the round before, for which evidence or histories were discarded.
    pub changed: Vec<&'static str>,
    /// Prefixes that are now shown to be helped, in order.
    pub proved: Vec<Prefix>,
    /// Prefixes that are steered from now on.
    pub steered: usize,
    /// What all that were tried show together; absent of too few.
    pub pool: Option<Pool>,
    /// The bundle that says so, where it is not the one before: valid, its number one higher.
    pub content: Option<Content>,
}

/// Decides a window. The same arguments make the same decision.
pub fn decide(settings: &Settings, state: &State, window: &Window, moment: Moment) -> (State, Decision) {
    decide_heard(settings, state, window, moment, !window.prefixes.is_empty())
}

/// The same for one of several tenants: an empty window says that nobody asked for it, if the PoP is heard.
pub(crate) fn decide_heard(
    settings: &Settings,
    state: &State,
    window: &Window,
    moment: Moment,
    is_heard: bool,
) -> (State, Decision) {
    let kept = |round| {
        let decision = Decision {
            window: window.number,
            round,
            ranked: 0,
            bottom_bytes_per_s: None,
            entered: Vec::new(),
            left: Vec::new(),
            changed: Vec::new(),
            proved: Vec::new(),
            steered: state.steered().count(),
            pool: state.pool,
            content: None,
        };
        (state.clone(), decision)
    };
    let elapsed = match elapsed(settings, state, window, moment.now_unix_s) {
        Ok(elapsed) => elapsed,
        Err(round) => return kept(round),
    };
    let basis = Basis::of(settings);
    if !is_heard {
        // Not even the window's number is taken over: what passes until the PoP is heard again is told by the next.
        return kept(Round::Silent);
    }
    let (mut state, mut decision) = round::Taken::new(settings, state, window, elapsed, moment, basis).run();
    decision.content = new_bundle(settings, &mut state, &decision, moment);
    (state, decision)
}

/// How many windows it is after the last one that was decided; else what becomes of it.
pub(crate) fn elapsed(
    settings: &Settings,
    state: &State,
    window: &Window,
    now_unix_s: u64,
) -> Result<u64, Round> {
    let over_unix_s = window.number.saturating_add(1).saturating_mul(settings.window_s);
    if over_unix_s > now_unix_s || window.number > WINDOW_MAX {
        return Err(Round::Early);
    }
    let basis = Basis::of(settings);
    let last = state.window.zip(state.basis.as_ref()).map(|(last, before)| before.renumber(last, &basis));
    follows(last, window.number, settings.history_windows).ok_or(Round::Repeated)
}

/// The bundle of a state, if its rules are not those that edges are known to go by.
fn new_bundle(
    settings: &Settings,
    state: &mut State,
    decision: &Decision,
    moment: Moment,
) -> Option<Content> {
    let rules = rules(settings, state);
    let hosts_left_alone = names(&settings.hosts_left_alone);
    let said = format!("{hosts_left_alone:?} {rules:?}");
    let digest = Some(XxHash3_64::oneshot(said.as_bytes()));
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

/// The rules of a state, in the order of prefixes.
pub(crate) fn rules(settings: &Settings, state: &State) -> Vec<Rule> {
    state.steered().map(|(entry, steered)| rule(settings, entry, steered)).collect()
}

/// Why there is a bundle.
fn reason(decision: &Decision) -> String {
    let Decision { window, entered, left, steered, changed, .. } = decision;
    let changed = match changed.as_slice() {
        [] => String::new(),
        changed => format!("; changed, so that what was known is discarded: {}", changed.join(", ")),
    };
    format!("window {window}: {} enter, {} leave, {steered} steered{changed}", entered.len(), left.len())
}

/// Names in lower case, each once.
pub(crate) fn names(hosts: &[String]) -> Vec<String> {
    let mut hosts: Vec<_> = hosts.iter().map(|host| host.to_ascii_lowercase()).collect();
    hosts.sort_unstable();
    hosts.dedup();
    hosts
}

/// The rule of a steered prefix. Its reason says nothing that changes while the rule does not.
fn rule(settings: &Settings, entry: &Entry, steered: &Steered) -> Rule {
    let entered = if steered.is_explored { "explored" } else { "slow" };
    let stage = match (steered.holdout_millionths, &steered.proof) {
        (0, _) => "by duty cycle alone",
        (_, None) => "on trial",
        (_, Some(_)) => "shown to be helped",
    };
    Rule {
        tenant: String::new(),
        prefix: entry.prefix,
        congestion_control: settings.congestion_control.clone(),
        size_bytes_min: Some(settings.goodput_bytes_min),
        holdout: Share::from_millionths(steered.holdout_millionths).unwrap_or_default(),
        salt: format!("{:x}", steered.salt),
        reason: format!("{entered}, {stage}"),
    }
}
