//! Switchback: a trial that alternates over time between steering a whole prefix and not steering
//! it.
//!
//! Arms inside a prefix share its bottleneck. If steered connections gain only what held-out
//! connections lose, a trial within the prefix shows a gain although the prefix gains nothing
//! (Spang et al., IMC 2021). A promising prefix is therefore steered as a whole in one block of
//! windows and not at all in another. Blocks come in pairs; the bundle's coin decides the order
//! ([`is_block_held_out`]), and edges switch by their clocks. For each pair, the difference of the
//! two blocks' mean log goodputs is one value. If steering has no effect on the prefix as a whole,
//! only the order is random, so each difference is as likely as its negative: see `signs.rs`.
//! Varying load, heavy tails and returning clients cannot bias the test.
//!
//! The first window of each block is excluded, because connections of the previous block still
//! share the bottleneck. So is any window in which more than [`LEFTOVER_SHARE_MAX`] of the
//! connections are still in the other arm: a prefix whose connections outlive a block is never
//! proved. Outcomes measured in a different block than the one in which their connections were
//! decided are excluded too. A block counts only if the prefix was steered or held out as a whole:
//! at most [`MIXED_SHARE_MAX`] of the outcomes of connections decided in the block may be under
//! another rule or in the other arm. A pair counts if both blocks count and have enough outcomes.
//! Without an effect, none of this depends on the coin. [`Voided`] counts the pairs that do not
//! count, by cause.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use thalweg_bundle::is_block_held_out;
use thalweg_record::Prefix;

use crate::arms::ArmGoodputs;
use crate::sequential::{Interval, Mean};
use crate::signs;
use crate::window::{Outcome, Sample};

/// Maximum number of pairs in a switchback.
pub const PAIRS_MAX: usize = 1_000;
/// Maximum share of a window's connections that are not in the block's arm. These connections still
/// share the bottleneck, so a gain at their expense would look like a gain of the whole prefix.
const LEFTOVER_SHARE_MAX: f64 = 0.05;
/// Maximum share of a block's outcomes not decided by the switchback, for example because an edge
/// does not have its rule.
const MIXED_SHARE_MAX: f64 = 0.02;
/// Scale of retransmitted shares relative to log goodputs: a share of 0.05 counts like 0.5.
const RETRANSMITTED_SCALE: f64 = 10.0;

/// A trial that steers a whole prefix in some blocks and holds it out in others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Switchback {
    /// Number among all switchbacks: see [`Trials`](crate::Trials).
    pub number: u64,
    /// Length of a block, in windows.
    pub block_windows: u32,
    /// Number of windows since the switchback started.
    pub windows: u32,
    /// Pair of the newest window.
    open: Option<Pair>,
    /// Number of the newest closed pair under the rule's salt, whose coin must not be used again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    closed: Option<u64>,
    /// Goodputs of both arms, including pairs that do not count.
    pub arms: ArmGoodputs,
    /// Numbers of closed pairs that do not count.
    #[serde(default)]
    pub voided: Voided,
    /// Differences of the pairs that count.
    pub(crate) pairs: Vec<Difference>,
}

/// A pair of blocks in progress.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pair {
    number: u64,
    steered: Block,
    held_out: Block,
}

/// Outcomes in one block.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Block {
    ln_goodput: Mean,
    retransmitted: Mean,
    /// Number of outcomes not decided by the switchback.
    mixed: u64,
    /// Number of outcomes in windows with too many connections of the other arm.
    #[serde(default)]
    leftover: u64,
}

/// Numbers of pairs that do not count, by cause. A pair with several causes is counted under the
/// first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Voided {
    /// Another rule decided some of the clients, for example because an edge did not have the
    /// bundle.
    pub mixed: u32,
    /// Too few outcomes, because too many connections of the other arm were left over.
    pub leftover: u32,
    /// Too few outcomes.
    pub few: u32,
}

/// Why a pair does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Cause {
    Mixed,
    Leftover,
    Few,
}

/// Numbers of pairs closed in a round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClosedPairs {
    /// Number of pairs that count.
    pub counted: u32,
    /// Numbers of pairs that do not count, by cause.
    pub voided: Voided,
}

impl Voided {
    /// Returns the number of pairs that do not count.
    pub fn total(&self) -> u32 {
        self.mixed.saturating_add(self.leftover).saturating_add(self.few)
    }

    fn count_mut(&mut self, cause: Cause) -> &mut u32 {
        match cause {
            Cause::Mixed => &mut self.mixed,
            Cause::Leftover => &mut self.leftover,
            Cause::Few => &mut self.few,
        }
    }
}

impl ClosedPairs {
    /// Adds the pairs closed in another round.
    #[cfg(test)]
    pub(crate) fn merge(&mut self, Self { counted, voided }: Self) {
        self.counted += counted;
        self.voided.mixed += voided.mixed;
        self.voided.leftover += voided.leftover;
        self.voided.few += voided.few;
    }

    fn add(&mut self, cause: Option<Cause>) {
        let count = cause.map_or(&mut self.counted, |cause| self.voided.count_mut(cause));
        *count = count.saturating_add(1);
    }
}

impl Block {
    /// Returns why a pair with this block does not count, or `None` if it does.
    fn void_cause(&self, outcomes_min: u32) -> Option<Cause> {
        let (own, outcomes_min) = (self.ln_goodput.count, u64::from(outcomes_min.max(1)));
        if self.mixed as f64 > MIXED_SHARE_MAX * own.saturating_add(self.mixed) as f64 {
            Some(Cause::Mixed)
        } else if own >= outcomes_min {
            None
        } else if own.saturating_add(self.leftover) >= outcomes_min {
            Some(Cause::Leftover)
        } else {
            Some(Cause::Few)
        }
    }
}

/// Prefix and salt of a switchback's rule.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RuleSalt<'a> {
    pub(crate) prefix: Prefix,
    pub(crate) salt: &'a str,
}

/// Mean outcomes of a pair's steered block minus those of its held-out block.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Difference {
    #[serde(with = "crate::exact")]
    pub(crate) ln_goodput: f64,
    /// Difference of the retransmitted shares; `None` if a block has none.
    #[serde(with = "crate::exact::option")]
    pub(crate) retransmitted: Option<f64>,
}

/// The effect on a prefix as a whole.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WholeEffect {
    /// Mean difference of log goodput.
    pub mean: f64,
    /// Interval of the effect. `None` with too few pairs.
    pub interval: Option<Interval>,
    /// Number of pairs of blocks.
    pub pairs: usize,
}

impl Switchback {
    /// Creates a switchback without pairs.
    pub(crate) fn new(number: u64, block_windows: u32) -> Self {
        let arms = ArmGoodputs::default();
        Self {
            number,
            block_windows: block_windows.max(1),
            windows: 0,
            open: None,
            closed: None,
            arms,
            voided: Voided::default(),
            pairs: Vec::new(),
        }
    }

    /// Returns whether the prefix is held out in this window. `salt` is that of the prefix's rule.
    pub(crate) fn is_held_out(&self, prefix: Prefix, salt: &str, window: u64) -> bool {
        is_block_held_out(prefix, salt, self.block(window))
    }

    fn block(&self, window: u64) -> u64 {
        window / u64::from(self.block_windows)
    }

    /// Adds a window's outcomes. Outcomes under bundles outside `bundles` were not decided by the
    /// switchback. A pair with fewer than `outcomes_min` outcomes in a block does not count. Adds
    /// the pairs that this window closes to `closed`.
    pub(crate) fn add(
        &mut self,
        RuleSalt { prefix, salt }: RuleSalt<'_>,
        window: u64,
        bundles: RangeInclusive<u64>,
        sample: &Sample,
        outcomes_min: u32,
        closed: &mut ClosedPairs,
    ) {
        let number = self.block(window) / 2;
        if self.closed.is_some_and(|closed| number <= closed) {
            return;
        }
        if self.open.as_ref().is_some_and(|pair| pair.number != number) {
            self.close_pair(outcomes_min, closed);
        }
        let (block, is_held_out) = (self.block(window), self.is_held_out(prefix, salt, window));
        let is_first_window = window.is_multiple_of(self.block_windows.into());
        let has_leftovers = has_leftovers(sample, is_held_out);
        let is_last_window = (window + 1).is_multiple_of(2 * u64::from(self.block_windows));
        let block_windows = u64::from(self.block_windows);
        let decided_here = |outcome: &&Outcome| outcome.period / block_windows == block;
        let pair = self.open.get_or_insert_with(|| Pair { number, ..Pair::default() });
        let into = if is_held_out { &mut pair.held_out } else { &mut pair.steered };
        for outcome in sample.outcomes.iter().filter(decided_here) {
            if !bundles.contains(&outcome.bundle) || outcome.is_steered == is_held_out {
                into.mixed = into.mixed.saturating_add(1);
            } else if is_first_window {
                continue;
            } else if has_leftovers {
                into.leftover = into.leftover.saturating_add(1);
            } else {
                self.arms.add(outcome);
                into.ln_goodput.add(outcome.ln_goodput);
                outcome.retransmitted_share.into_iter().for_each(|share| into.retransmitted.add(share));
            }
        }
        if is_last_window {
            self.close_pair(outcomes_min, closed);
        }
    }

    /// Continues under a new salt, whose coins are independent of the earlier coins, so pair
    /// numbers that were already closed may be used again.
    pub(crate) fn redraw(&mut self) {
        (self.open, self.closed) = (None, None);
    }

    fn close_pair(&mut self, outcomes_min: u32, closed: &mut ClosedPairs) {
        let Some(Pair { number, steered, held_out }) = self.open.take() else { return };
        self.closed = Some(number);
        let causes = [&steered, &held_out].map(|block| block.void_cause(outcomes_min));
        let cause = causes.into_iter().flatten().min();
        closed.add(cause);
        if let Some(cause) = cause {
            let count = self.voided.count_mut(cause);
            *count = count.saturating_add(1);
            return;
        }
        if self.pairs.len() == PAIRS_MAX {
            return;
        }
        let has_both = steered.retransmitted.count.min(held_out.retransmitted.count) > 0;
        self.pairs.push(Difference {
            ln_goodput: steered.ln_goodput.mean - held_out.ln_goodput.mean,
            retransmitted: has_both.then_some(steered.retransmitted.mean - held_out.retransmitted.mean),
        });
    }

    /// Returns the number of pairs that count.
    pub fn pairs(&self) -> usize {
        self.pairs.len()
    }

    fn differences(&self) -> Vec<f64> {
        self.pairs.iter().map(|it| it.ln_goodput).collect()
    }

    /// Returns the log e-value against "steering does not help the prefix as a whole".
    pub fn ln_e_helped(&self) -> f64 {
        signs::ln_e_above(&self.differences(), 0.0)
    }

    /// Returns the log e-value against "steering does not harm the prefix as a whole".
    pub fn ln_e_harmed(&self) -> f64 {
        signs::ln_e_below(&self.differences(), 0.0)
    }

    /// Returns the log e-value against "the effect on the prefix as a whole is at least `bound`".
    pub(crate) fn ln_e_below(&self, bound: f64) -> f64 {
        signs::ln_e_below(&self.differences(), bound)
    }

    /// Returns the log e-value against "the retransmitted share rises by at most `bound`".
    pub(crate) fn ln_e_retransmitted_above(&self, bound: f64) -> f64 {
        let rises = self.pairs.iter().filter_map(|it| it.retransmitted);
        let scaled: Vec<_> = rises.map(|rise| rise * RETRANSMITTED_SCALE).collect();
        signs::ln_e_above(&scaled, bound * RETRANSMITTED_SCALE)
    }

    /// Returns the effect on the prefix as a whole, with its interval at error level `alpha`.
    /// `None` before the first pair.
    pub fn effect(&self, alpha: f64) -> Option<WholeEffect> {
        let differences = self.differences();
        let mean = differences.iter().sum::<f64>() / differences.len() as f64;
        let interval = signs::interval(&differences, alpha);
        (!differences.is_empty()).then_some(WholeEffect { mean, interval, pairs: differences.len() })
    }

    /// Returns the means of the pair in progress, for validation.
    pub(crate) fn open_means(&self) -> impl Iterator<Item = &Mean> {
        let blocks = self.open.iter().flat_map(|pair| [&pair.steered, &pair.held_out]);
        blocks.flat_map(|block| [&block.ln_goodput, &block.retransmitted])
    }
}

/// Returns whether too many connections are left over from a block of the other arm.
fn has_leftovers(sample: &Sample, is_held_out: bool) -> bool {
    let [steered, held_out] = [&sample.steered, &sample.held_out].map(|arm| f64::from(arm.connections));
    let leftover = if is_held_out { steered } else { held_out };
    leftover > LEFTOVER_SHARE_MAX * (steered + held_out)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const SALT: &str = "s";
    const BLOCK: u32 = 3;

    fn prefix() -> Prefix {
        Prefix::of_client(Ipv4Addr::new(203, 0, 113, 0).into())
    }

    /// Adds a window with four outcomes decided in it, each modified by `change`.
    fn add(switchback: &mut Switchback, window: u64, effect: f64, change: impl Fn(&mut Outcome)) {
        let is_steered = !switchback.is_held_out(prefix(), SALT, window);
        let outcome = Outcome {
            bundle: 5,
            period: window,
            is_steered,
            ln_goodput: 13.0 + if is_steered { effect } else { 0.0 },
            retransmitted_share: Some(if is_steered { 0.03 } else { 0.01 }),
        };
        let mut outcomes = vec![outcome; 4];
        change(&mut outcomes[3]);
        add_sample(switchback, window, Sample { outcomes, ..Sample::default() });
    }

    fn add_sample(switchback: &mut Switchback, window: u64, sample: Sample) {
        let (rule, closed) = (RuleSalt { prefix: prefix(), salt: SALT }, &mut ClosedPairs::default());
        switchback.add(rule, window, 5..=7, &sample, 3, closed);
    }

    /// Connections that outlive their block compete with those of the current block, regardless of
    /// the coin.
    #[test]
    fn windows_with_connections_of_the_other_arm_are_left_out() {
        for (leftover, pairs) in [(0, 1), (5, 1), (6, 0)] {
            let mut it = Switchback::new(1, BLOCK);
            for window in 0..6 {
                let is_steered = !it.is_held_out(prefix(), SALT, window);
                let (own, other) = (100 - leftover, leftover);
                let mut sample = Sample::default();
                sample.steered.connections = if is_steered { own } else { other };
                sample.held_out.connections = if is_steered { other } else { own };
                let (period, ln_goodput) = (window, 13.0);
                let outcome =
                    Outcome { bundle: 5, period, is_steered, ln_goodput, retransmitted_share: None };
                sample.outcomes = vec![outcome; 4];
                add_sample(&mut it, window, sample);
            }
            assert_eq!(it.pairs.len(), pairs, "{leftover} of 100");
            assert_eq!(it.voided, Voided { leftover: 1 - pairs as u32, ..Voided::default() });
        }
    }

    #[test]
    fn each_pair_of_blocks_is_one_difference() {
        let mut it = Switchback::new(1, BLOCK);
        for window in 0..6 * 8 {
            add(&mut it, window, 0.3, |_| {});
            assert_eq!(it.pairs.len() as u64, (window + 1) / 6, "complete after its last window");
        }
        let effect = it.effect(0.05).unwrap();
        let interval = effect.interval.unwrap();
        assert!((effect.mean - 0.3).abs() < 1e-9 && effect.pairs == 8, "{effect:?}");
        assert!(interval.low > 0.0 && interval.low < 0.3 && interval.high > 0.3, "{interval:?}");
        assert!(it.ln_e_helped() > 3.0 && it.ln_e_harmed() < 0.0);
        assert!(it.ln_e_retransmitted_above(0.0) > 2.0 && it.ln_e_retransmitted_above(0.05) < 0.0);
    }

    #[test]
    fn carry_over_is_left_out() {
        let mut it = Switchback::new(1, BLOCK);
        for window in 0..12 {
            add(&mut it, window, 0.3, |outcome| {
                // The first window of a block, and a connection decided in an earlier block.
                if window % 3 == 0 {
                    outcome.ln_goodput = 40.0;
                } else {
                    (outcome.period, outcome.ln_goodput) = (outcome.period.saturating_sub(3), 40.0);
                    (outcome.bundle, outcome.is_steered) = (1, !outcome.is_steered);
                }
            });
        }
        assert!((it.effect(0.05).unwrap().mean - 0.3).abs() < 1e-9, "{:?}", it.pairs);
    }

    #[test]
    fn mixed_and_thin_blocks_do_not_count() {
        let pairs = |change: &dyn Fn(u64, &mut Outcome)| {
            let mut it = Switchback::new(1, BLOCK);
            (0..6).for_each(|window| add(&mut it, window, 0.3, |outcome| change(window, outcome)));
            let mixed = 1 - it.pairs.len() as u32;
            assert_eq!(it.voided, Voided { mixed, ..Voided::default() });
            it.pairs.len()
        };
        assert_eq!(pairs(&|_, _| {}), 1);
        // One outcome in one window of the pair was under another bundle, or in the other arm.
        for at in 0..6 {
            assert_eq!(pairs(&|window, outcome| outcome.bundle += u64::from(window == at) * 3), 0);
            assert_eq!(pairs(&|window, outcome| outcome.is_steered ^= window == at), 0);
        }
        let mut it = Switchback::new(1, BLOCK);
        // The first block's outcomes are missing.
        (3..6).for_each(|window| add(&mut it, window, 0.3, |_| {}));
        (12..16).for_each(|window| add(&mut it, window, 0.3, |_| {}));
        // A pair that was never finished is closed by the next one.
        (30..36).for_each(|window| add(&mut it, window, 0.3, |_| {}));
        assert_eq!((it.pairs.len(), it.voided), (1, Voided { few: 2, ..Voided::default() }));
        // The clock was set back.
        (30..36).for_each(|window| add(&mut it, window, 0.3, |_| {}));
        assert_eq!((it.pairs.len(), it.voided.total()), (1, 2));
    }
}
