//! What each field of a state has to be that was read from a disk or a network: whoever wrote it, a round that goes by it ends
//! in a decision, never in a panic, a number that is none, or a bundle that edges refuse.
//!
//! Ranges are those of what this crate itself writes. Counts of windows and failures have none: what adds to them saturates.
//!
//! **Invariant:** a state that a decision has made passes.

use std::fmt;

use thalweg_record::Prefix;

use crate::entry::{CoolingOff, Entry, Phase, Proof, Steered};
use crate::evidence::Evidence;
use crate::online::Trials;
use crate::pool::{Estimate, POOL_MIN};
use crate::sequential::{Mean, VALUES_MAX};
use crate::settings::PREFIXES_MAX;
use crate::state::{BUNDLES_MAX, State};

/// The logarithm of the largest goodput that a record can have, 2^64 bytes per second, and a bit.
const LN_GOODPUT_MAX: f64 = 45.0;
/// The largest effect of one connection: [`LN_GOODPUT_MAX`] over the least share of an arm, which is 0.01, and more.
const EFFECT_MAX: f64 = 1e4;
/// The largest variance of effects: where half are at either end it is above [`EFFECT_MAX`] squared, by what few of them are.
const POOL_VARIANCE_MAX: f64 = 2.0 * EFFECT_MAX * EFFECT_MAX;
/// The logarithm of an e-value.
const LN_E_MAX: f64 = 1e17;
/// The number of a window: of one second, one in the year 6325.
pub(crate) const WINDOW_MAX: u64 = 1 << 37;
/// The share held out, in millionths: one arm has 1 % at least.
const HOLDOUT_MILLIONTHS_MAX: u32 = 990_000;

/// A field out of its range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldFault {
    /// Which, from the state down.
    pub field: String,
    /// What it has to be.
    pub expected: &'static str,
}

impl fmt::Display for FieldFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} has to be {}", self.field, self.expected)
    }
}

pub(crate) type Checked = Result<(), FieldFault>;

pub(crate) fn ensure(holds: bool, field: &str, expected: &'static str) -> Checked {
    if holds { Ok(()) } else { Err(FieldFault { field: field.to_owned(), expected }) }
}

/// Says in which field the one is that a check has found.
pub(crate) fn within(field: &str, checked: Checked) -> Checked {
    checked.map_err(|fault| FieldFault { field: format!("{field}.{}", fault.field), ..fault })
}

/// The first field of a state that is out of its range.
pub(crate) fn check(state: &State) -> Checked {
    ensure(state.window.is_none_or(|number| number <= WINDOW_MAX), "window", "at most 2^37")?;
    ensure(state.bundle <= BUNDLES_MAX, "bundle", "at most 2^53")?;
    let has_both = state.window.is_some() == state.basis.is_some();
    ensure(has_both, "basis", "there where a window is, and only there")?;
    trials(state)?;
    let is_rate = |rate: f64| rate > 0.0 && rate <= LN_GOODPUT_MAX.exp();
    ensure(state.bottom_bytes_per_s.is_none_or(is_rate), "bottom_bytes_per_s", "a rate above zero")?;
    if let Some(pool) = &state.pool {
        ensure(pool.mean.abs() <= EFFECT_MAX, "pool.mean", "an effect on log goodput")?;
        ensure((0.0..=POOL_VARIANCE_MAX).contains(&pool.variance), "pool.variance", "at least 0")?;
        ensure((POOL_MIN..=PREFIXES_MAX).contains(&pool.prefixes), "pool.prefixes", "from 8 to 200000")?;
        ensure(pool.weight > 0.0, "pool.weight", "above 0")?;
        ensure(pool.variance_own > 0.0, "pool.variance_own", "above 0")?;
    }
    ensure(state.entries.len() <= PREFIXES_MAX, "entries", "at most 200000 prefixes")?;
    let in_order = state.entries.is_sorted_by(|one, next| one.prefix < next.prefix);
    ensure(in_order, "entries", "in the order of their prefixes, each once")?;
    state.entries.iter().try_for_each(|it| within(&format!("entries[{}]", it.prefix), entry(it, state)))
}

/// Each trial has a number of its own, and is either told or may be yet. Of numbers that have run out the last is given to all.
fn trials(state: &State) -> Checked {
    let Trials { begun, told } = state.trials;
    ensure(told <= begun && begun <= VALUES_MAX, "trials", "at most 2^53 begun, and at most those told")?;
    if begun == VALUES_MAX {
        return Ok(());
    }
    let untold = state.steered().filter(|(_, steered)| steered.proof.is_none()).count() as u64;
    ensure(told + untold <= begun, "trials.told", "at most those begun, without those on trial")?;
    let mut numbers: Vec<_> = state.steered().map(|(_, steered)| steered.trial).collect();
    numbers.sort_unstable();
    ensure(numbers.is_sorted_by(|one, next| one < next), "entries", "each of another trial")
}

fn entry(entry: &Entry, state: &State) -> Checked {
    let is_client = Prefix::of_client(entry.prefix.first()) == entry.prefix;
    ensure(is_client, "prefix", "a /24 of IPv4 or a /56 of IPv6")?;
    ensure(entry.history.is_whole(), "history.in_group", "windows that were observed")?;
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
    let is_counted = (1..=state.trials.begun).contains(&steered.trial);
    ensure(is_counted, "trial", "the number of one that has begun")?;
    ensure(steered.from_bundle <= state.bundle + 1, "from_bundle", "at most the next bundle's number")?;
    within("evidence", evidence(&steered.evidence))?;
    steered.proof.as_ref().map_or(Ok(()), |it| within("proof", proof(it)))
}

fn proof(proof: &Proof) -> Checked {
    ensure(proof.ln_e.abs() <= LN_E_MAX, "ln_e", "the logarithm of an e-value")?;
    let is_finite = proof.reversal.ln_e.iter().all(|ln_e| ln_e.abs() <= LN_E_MAX);
    ensure(is_finite, "reversal.ln_e", "the logarithms of e-values")?;
    within("goodput", mean(&proof.goodput))
}

fn cooling_off(cooling: &CoolingOff) -> Checked {
    cooling.estimate.as_ref().map_or(Ok(()), |it| within("estimate", estimate(it)))
}

fn estimate(estimate: &Estimate) -> Checked {
    ensure(estimate.effect.abs() <= EFFECT_MAX, "effect", "an effect on log goodput")?;
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

/// A mean of effects.
pub(crate) fn mean(mean: &Mean) -> Checked {
    ensure(mean.count <= VALUES_MAX, "count", "at most 2^53")?;
    ensure(mean.count > 0 || *mean == Mean::default(), "count", "above 0 where there is a mean")?;
    ensure(mean.mean.abs() <= EFFECT_MAX, "mean", "an effect of at most 10000 either way")?;
    let squares_max = 4.0 * EFFECT_MAX * EFFECT_MAX * mean.count as f64;
    ensure(
        (0.0..=squares_max).contains(&mean.squares),
        "squares",
        "at least 0, and what so many values can have",
    )
}

fn is_ln_goodput(ln: f64) -> bool {
    (0.0..=LN_GOODPUT_MAX).contains(&ln)
}
