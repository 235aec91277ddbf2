//! Decoding and validation of a stored [`State`]. Even if the stored bytes were damaged, a decision
//! on the decoded state never panics, produces a NaN or issues a bundle that edges refuse.
//!
//! The accepted ranges match what this crate writes. Window and failure counts are not limited,
//! because they saturate when incremented.
//!
//! **Invariant:** every state produced by a decision passes validation.

use std::fmt;

use serde::Deserialize;
use thalweg_record::Prefix;

use crate::entry::{CoolingOff, Entry, Phase, Promise, Proof, Steered};
use crate::evidence::Evidence;
use crate::online::Trials;
use crate::pool::{Estimate, POOL_MIN};
use crate::sequential::{Mean, VALUES_MAX};
use crate::settings::PREFIXES_MAX;
use crate::signs::DIFFERENCE_MAX;
use crate::state::{BUNDLES_MAX, STATE_FORMAT, State};
use crate::switchback::{PAIRS_MAX, Switchback};
use crate::upgrade::{FORMAT_BEFORE, upgrade};

/// Logarithm of the largest goodput in a record (2^64 bytes per second), rounded up.
const LN_GOODPUT_MAX: f64 = 45.0;
/// Maximum effect of one connection: [`LN_GOODPUT_MAX`] divided by the smallest arm share (0.01),
/// rounded up.
const EFFECT_MAX: f64 = 1e4;
/// Maximum variance of effects. With half of the effects at each extreme, the variance of a small
/// sample slightly exceeds [`EFFECT_MAX`] squared.
const POOL_VARIANCE_MAX: f64 = 2.0 * EFFECT_MAX * EFFECT_MAX;
/// Maximum logarithm of an e-value.
const LN_E_MAX: f64 = 1e17;
/// Maximum window number. One-second windows reach it in the year 6325.
pub(crate) const WINDOW_MAX: u64 = 1 << 37;
/// Maximum held-out share, in millionths, so that at least 1 % of clients are steered.
const HOLDOUT_MILLIONTHS_MAX: u32 = 990_000;

/// A field whose value is out of range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldFault {
    /// Path to the field.
    pub field: String,
    /// Requirement, phrased to follow "must be".
    pub expected: &'static str,
}

impl fmt::Display for FieldFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} must be {}", self.field, self.expected)
    }
}

/// A failure to decode a stored state.
#[derive(Debug)]
pub enum StateError {
    /// The bytes are not JSON with the expected structure.
    Json(serde_json::Error),
    /// The format version is not supported.
    Format {
        /// Version found.
        found: u32,
        /// Version supported by this program.
        read: u32,
    },
    /// The bundles in a stored rollout have an unsupported format.
    Bundles {
        /// Format of the first such bundle.
        found: u32,
        /// Format supported by this program.
        read: u32,
    },
    /// A field is out of range.
    Field(FieldFault),
}

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(_) => f.write_str("cannot parse stored control state"),
            Self::Format { found, read } => {
                write!(f, "stored state has format {found}; expected format {read}")
            }
            Self::Bundles { found, read } => {
                write!(f, "stored bundles have format {found}; expected format {read}")
            }
            Self::Field(fault) => write!(f, "invalid control state: {fault}"),
        }
    }
}

impl std::error::Error for StateError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Json(cause) => Some(cause),
            Self::Format { .. } | Self::Bundles { .. } | Self::Field(_) => None,
        }
    }
}

impl State {
    /// Decodes the output of [`State::encode`], in the current or the previous format.
    ///
    /// # Errors
    ///
    /// Returns an error if the bytes are not JSON with the expected structure and format version,
    /// or a field is out of range.
    pub fn decode(bytes: &[u8]) -> Result<Self, StateError> {
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }
        let Version { format } = serde_json::from_slice(bytes).map_err(StateError::Json)?;
        let state: Self = match format {
            STATE_FORMAT => serde_json::from_slice(bytes).map_err(StateError::Json)?,
            FORMAT_BEFORE => {
                let before = serde_json::from_slice(bytes).map_err(StateError::Json)?;
                serde_json::from_value(upgrade(before)).map_err(StateError::Json)?
            }
            found => return Err(StateError::Format { found, read: STATE_FORMAT }),
        };
        check(&state).map_err(StateError::Field)?;
        Ok(state)
    }
}

pub(crate) type Checked = Result<(), FieldFault>;

pub(crate) fn ensure(holds: bool, field: &str, expected: &'static str) -> Checked {
    if holds { Ok(()) } else { Err(FieldFault { field: field.to_owned(), expected }) }
}

/// Prepends `field` to the path of a fault.
pub(crate) fn within(field: &str, checked: Checked) -> Checked {
    checked.map_err(|fault| FieldFault { field: format!("{field}.{}", fault.field), ..fault })
}

/// Checks the state and returns the first field out of range as an error.
pub(crate) fn check(state: &State) -> Checked {
    ensure(state.window.is_none_or(|number| number <= WINDOW_MAX), "window", "at most 2^37")?;
    ensure(state.bundle <= BUNDLES_MAX, "bundle", "at most 2^53")?;
    let has_both = state.window.is_some() == state.basis.is_some();
    ensure(has_both, "basis", "present if and only if a window is")?;
    trials(state)?;
    let is_rate = |rate: f64| rate > 0.0 && rate <= LN_GOODPUT_MAX.exp();
    ensure(state.bottom_bytes_per_s.is_none_or(is_rate), "bottom_bytes_per_s", "a rate above zero")?;
    if let Some(pool) = &state.pool {
        ensure(pool.mean.abs() <= EFFECT_MAX, "pool.mean", "from -10000 to 10000")?;
        ensure((0.0..=POOL_VARIANCE_MAX).contains(&pool.variance), "pool.variance", "at least 0")?;
        ensure((POOL_MIN..=PREFIXES_MAX).contains(&pool.prefixes), "pool.prefixes", "from 8 to 200000")?;
        ensure(pool.weight > 0.0, "pool.weight", "above 0")?;
        ensure(pool.variance_own > 0.0, "pool.variance_own", "above 0")?;
    }
    ensure(state.entries.len() <= PREFIXES_MAX, "entries", "at most 200000 prefixes")?;
    let in_order = state.entries.is_sorted_by(|one, next| one.prefix < next.prefix);
    ensure(in_order, "entries", "sorted by prefix, without duplicates")?;
    state.entries.iter().try_for_each(|it| within(&format!("entries[{}]", it.prefix), entry(it, state)))
}

/// Checks that the numbers of trials and of switchbacks are unique, and that their counts are
/// consistent: each switchback is a discovery, has failed, or is undecided. Once the numbers run
/// out, trials share the last number.
fn trials(state: &State) -> Checked {
    let Trials { started, switchbacks, discoveries } = state.trials;
    ensure(
        discoveries <= switchbacks && switchbacks <= started && started <= VALUES_MAX,
        "trials",
        "at most 2^53 started, and no more switchbacks than trials or discoveries than switchbacks",
    )?;
    if started == VALUES_MAX {
        return Ok(());
    }
    let undecided: Vec<_> = state.steered().filter_map(|(_, it)| it.switchback.as_ref()).collect();
    ensure(
        discoveries + undecided.len() as u64 <= switchbacks,
        "trials.told",
        "at most the number of switchbacks started minus those still undecided",
    )?;
    let is_unique = |mut numbers: Vec<u64>| {
        numbers.sort_unstable();
        numbers.is_sorted_by(|one, next| one < next)
    };
    let numbers = state.steered().map(|(_, steered)| steered.trial).collect();
    ensure(is_unique(numbers), "entries", "unique in their trial numbers")?;
    let numbers = undecided.iter().map(|it| it.number).collect();
    ensure(is_unique(numbers), "entries", "unique in their switchback numbers")
}

fn entry(entry: &Entry, state: &State) -> Checked {
    let is_client = Prefix::of_client(entry.prefix.first()) == entry.prefix;
    ensure(is_client, "prefix", "an IPv4 /24 or an IPv6 /56")?;
    ensure(entry.history.is_whole(), "history.in_group", "a subset of the observed windows")?;
    let is_count = (0.0..=u32::MAX as f32).contains(&entry.connections);
    ensure(is_count, "connections", "from 0 to 2^32")?;
    ensure(entry.ln_goodput.is_none_or(|ln| is_ln_goodput(ln.into())), "ln_goodput", "from 0 to 45")?;
    match &entry.phase {
        Phase::Idle => Ok(()),
        Phase::Steered(it) => within("phase.Steered", steered(it, state)),
        Phase::CoolingOff(it) => within("phase.CoolingOff", cooling_off(it)),
    }
}

fn steered(steered: &Steered, state: &State) -> Checked {
    let held = steered.holdout_millionths;
    let is_share = held == 0 || (10_000..=HOLDOUT_MILLIONTHS_MAX).contains(&held);
    ensure(is_share, "holdout_millionths", "0, or from 10000 to 990000")?;
    let is_counted = (1..=state.trials.started).contains(&steered.trial);
    ensure(is_counted, "trial", "the number of a trial that has started")?;
    ensure(steered.from_bundle <= state.bundle + 1, "from_bundle", "at most the next bundle's number")?;
    within("evidence", evidence(&steered.evidence))?;
    steered.promise.as_ref().map_or(Ok(()), |it| within("promise", promise(it)))?;
    let follows_up = usize::from(steered.switchback.is_some()) + usize::from(steered.proof.is_some());
    let is_followed_up = follows_up == usize::from(steered.promise.is_some());
    ensure(is_followed_up, "promise", "followed by either a switchback or a proof")?;
    let number_max = state.trials.switchbacks;
    steered.switchback.as_ref().map_or(Ok(()), |it| within("switchback", switchback(it, number_max)))?;
    steered.proof.as_ref().map_or(Ok(()), |it| within("proof", proof(it, number_max)))
}

fn promise(promise: &Promise) -> Checked {
    ensure(promise.ln_e.abs() <= LN_E_MAX, "ln_e", "from -1e17 to 1e17")?;
    within("goodput", mean(&promise.goodput))
}

fn switchback(switchback: &Switchback, number_max: u64) -> Checked {
    let is_counted = (1..=number_max).contains(&switchback.number);
    ensure(is_counted, "number", "the number of a switchback that has started")?;
    ensure(switchback.block_windows > 0, "block_windows", "at least 1")?;
    ensure(switchback.pairs.len() <= PAIRS_MAX, "pairs", "at most 1000")?;
    let is_difference = |it: f64| it.abs() <= DIFFERENCE_MAX;
    let are_differences = switchback
        .pairs
        .iter()
        .all(|it| is_difference(it.ln_goodput) && it.retransmitted.is_none_or(is_difference));
    ensure(are_differences, "pairs", "from -45 to 45")?;
    switchback.open_means().try_for_each(|it| within("open", mean(it)))
}

fn proof(proof: &Proof, number_max: u64) -> Checked {
    ensure(proof.ln_e.abs() <= LN_E_MAX, "ln_e", "from -1e17 to 1e17")?;
    let is_finite = proof.reversal.ln_e.iter().all(|ln_e| ln_e.abs() <= LN_E_MAX);
    ensure(is_finite, "reversal.ln_e", "from -1e17 to 1e17")?;
    within("switchback", switchback(&proof.switchback, number_max))
}

fn cooling_off(cooling: &CoolingOff) -> Checked {
    cooling.estimate.as_ref().map_or(Ok(()), |it| within("estimate", estimate(it)))
}

fn estimate(estimate: &Estimate) -> Checked {
    ensure(estimate.effect.abs() <= EFFECT_MAX, "effect", "from -10000 to 10000")?;
    let variance = estimate.variance;
    ensure(variance > 0.0 && variance <= 4.0 * EFFECT_MAX * EFFECT_MAX, "variance", "above 0")
}

fn evidence(evidence: &Evidence) -> Checked {
    within("goodput", mean(&evidence.goodput))?;
    let variance_max = EFFECT_MAX * EFFECT_MAX * VALUES_MAX as f64;
    ensure((0.0..=variance_max).contains(&evidence.toss_variance), "toss_variance", "at least 0")?;
    within("retransmitted", mean(&evidence.retransmitted))?;
    let baseline = evidence.baseline_ln_goodput;
    ensure(baseline.is_none_or(is_ln_goodput), "baseline_ln_goodput", "from 0 to 45")?;
    let is_share = (0.0..=1.0).contains(&evidence.baseline_retransmitted);
    ensure(is_share, "baseline_retransmitted", "from 0 to 1")
}

/// Checks a mean of effects.
pub(crate) fn mean(mean: &Mean) -> Checked {
    ensure(mean.count <= VALUES_MAX, "count", "at most 2^53")?;
    ensure(mean.count > 0 || *mean == Mean::default(), "count", "above 0 if mean or squares is not 0")?;
    ensure(mean.mean.abs() <= EFFECT_MAX, "mean", "from -10000 to 10000")?;
    let squares_max = 4.0 * EFFECT_MAX * EFFECT_MAX * mean.count as f64;
    ensure((0.0..=squares_max).contains(&mean.squares), "squares", "at least 0 and consistent with count")
}

fn is_ln_goodput(ln: f64) -> bool {
    (0.0..=LN_GOODPUT_MAX).contains(&ln)
}
