//! The state of one prefix: its history, and its phase (idle, steered or cooling off).

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thalweg_record::Prefix;

use crate::arms::ArmGoodputs;
use crate::detector::Detector;
use crate::evidence::Evidence;
use crate::history::History;
use crate::pool::{Estimate, Pool};
use crate::reason::Reason;
use crate::sequential::Mean;
use crate::settings::Settings;
use crate::switchback::Switchback;

/// Number of rounds for which failed trials are remembered after the cool-off ends: a week of
/// 5-minute windows.
const FAILURES_KEPT_ROUNDS: u32 = 2016;
/// Maximum number of times a cool-off doubles.
const DOUBLINGS_MAX: u8 = 4;

/// A trial's evidence at the time when it made the prefix promising.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Promise {
    /// Logarithm of the e-value.
    #[serde(with = "crate::exact")]
    pub ln_e: f64,
    /// Effect on log goodput, compared with held-out clients of the same prefix.
    pub goodput: Mean,
    /// Goodputs of both arms.
    pub arms: ArmGoodputs,
}

/// A proof that steering helps a prefix as a whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proof {
    /// Logarithm of the e-value.
    #[serde(with = "crate::exact")]
    pub ln_e: f64,
    /// The switchback at the time when it was declared a discovery.
    pub switchback: Switchback,
    /// Number of rounds since the proof.
    pub rounds: u32,
    /// Detector of a change from help to harm since the proof.
    pub reversal: Detector,
}

/// A steered prefix.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Steered {
    /// Trial number: see [`Trials`](crate::Trials).
    pub trial: u64,
    /// Salt that makes the trial's holdout independent of other trials.
    pub salt: u64,
    /// Whether the prefix was admitted for exploration rather than for being slow.
    pub is_explored: bool,
    /// Whether the prefix was proved to be helped before this trial.
    pub is_renewed: bool,
    /// Evidence that made the prefix promising; `None` while the prefix is on trial.
    #[serde(default)]
    pub promise: Option<Promise>,
    /// Trial of the prefix as a whole, if one is in progress.
    #[serde(default)]
    pub switchback: Option<Switchback>,
    /// Proof that steering helps the prefix as a whole.
    pub proof: Option<Proof>,
    /// Held-out share of the prefix's clients, in millionths. In a switchback, one half.
    pub holdout_millionths: u32,
    /// First bundle with this rule. Connections under earlier bundles are not counted.
    pub from_bundle: u64,
    /// Number of windows since the trial or its current evidence started.
    pub windows: u32,
    /// Number of windows since the prefix last had a connection.
    pub quiet_windows: u32,
    /// Number of consecutive failed trials before the current one.
    pub failures: u8,
    /// Evidence collected so far.
    pub evidence: Evidence,
}

/// A withdrawn prefix that is cooling off.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoolingOff {
    /// Reason for the withdrawal.
    pub left: Reason,
    /// Number of rounds since the withdrawal.
    pub rounds: u32,
    /// Number of rounds before the prefix may re-enter.
    pub rounds_min: u32,
    /// Number of consecutive failed trials.
    pub failures: u8,
    /// Effect estimated by the trial, if any.
    pub estimate: Option<Estimate>,
    /// Age of the estimate, in rounds since the proof or, without a proof, since the withdrawal.
    pub estimate_rounds: u32,
}

/// Phase of a prefix.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub enum Phase {
    /// Not steered.
    #[default]
    Idle,
    /// Steered.
    Steered(Box<Steered>),
    /// Withdrawn.
    CoolingOff(Box<CoolingOff>),
}

impl Phase {
    fn is_idle(&self) -> bool {
        *self == Self::Idle
    }
}

/// The stored state of one prefix.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Client network.
    #[serde(serialize_with = "write_prefix", deserialize_with = "read_prefix")]
    pub prefix: Prefix,
    /// Observed windows and bottom-group membership.
    pub history: History,
    /// Smoothed number of connections per window.
    pub connections: f32,
    /// Smoothed log goodput of connections that are not steered. `None` before the first such
    /// connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ln_goodput: Option<f32>,
    /// Median of the connections' minimum RTTs in the newest window with a sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_rtt_us: Option<u32>,
    /// The reason why the prefix is or is not steered.
    pub reason: Reason,
    /// Whether the prefix is idle, steered or cooling off.
    #[serde(default, skip_serializing_if = "Phase::is_idle")]
    pub phase: Phase,
}

impl Steered {
    /// Returns the salt of the prefix's rule.
    pub(crate) fn rule_salt(&self) -> String {
        format!("{:x}", self.salt)
    }

    /// Returns the held-out share of the prefix's clients.
    pub(crate) fn holdout(&self) -> f64 {
        f64::from(self.holdout_millionths) / 1e6
    }

    /// Returns the trial's estimate within the prefix if the evidence suffices. Once the prefix is
    /// promising, returns the estimate at that time.
    pub(crate) fn estimate(&self, settings: &Settings) -> Option<Estimate> {
        match &self.promise {
            Some(promise) => Estimate::of(&promise.goodput),
            None if self.evidence.is_enough(settings.evidence_connections_min) => {
                Estimate::of(&self.evidence.goodput)
            }
            None => None,
        }
    }

    /// Returns the probability that the effect within the prefix is worthwhile, given all trials.
    /// `None` with too little evidence, or too few trials.
    pub fn probability_worthwhile(&self, settings: &Settings, pool: Option<Pool>) -> Option<f64> {
        let shrunken = pool?.shrink(self.estimate(settings)?);
        Some(shrunken.probability_above(settings.effect_min))
    }

    /// Returns the number of further windows for which a prefix that is likely to gain may stay
    /// steered without a proof. `None` while the trial lasts, and once the prefix is promising.
    pub fn likely_windows_left(&self, settings: &Settings) -> Option<u32> {
        let likely_windows = self.windows.checked_sub(settings.trial_windows_max)?;
        self.promise.is_none().then(|| settings.likely_windows_max.saturating_sub(likely_windows))
    }

    /// Returns whether the prefix was admitted for exploration and has never been proved to be
    /// helped. Only such prefixes count towards the exploration limit.
    pub(crate) fn is_exploring(&self) -> bool {
        self.is_explored && !self.is_renewed && self.proof.is_none()
    }
}

impl Entry {
    /// Creates an idle entry for a prefix seen for the first time.
    pub(crate) fn new(prefix: Prefix) -> Self {
        Self {
            prefix,
            history: History::default(),
            connections: 0.0,
            ln_goodput: None,
            min_rtt_us: None,
            reason: Reason::TooFew,
            phase: Phase::Idle,
        }
    }

    /// Returns the steered state if the prefix is steered.
    pub fn steered(&self) -> Option<&Steered> {
        match &self.phase {
            Phase::Steered(steered) => Some(steered),
            Phase::Idle | Phase::CoolingOff(_) => None,
        }
    }

    pub(crate) fn steered_mut(&mut self) -> Option<&mut Steered> {
        match &mut self.phase {
            Phase::Steered(steered) => Some(steered),
            Phase::Idle | Phase::CoolingOff(_) => None,
        }
    }

    /// Returns whether the prefix was withdrawn and may not re-enter yet.
    pub fn is_cooling_off(&self) -> bool {
        matches!(&self.phase, Phase::CoolingOff(cooling) if cooling.rounds < cooling.rounds_min)
    }

    /// Advances by one round. `windows` is the number of windows since the previous round.
    /// Cool-offs count rounds rather than windows, because otherwise a clock jump could end a
    /// cool-off early.
    pub(crate) fn advance(&mut self, windows: u64, history_windows: u32) {
        self.history.advance(windows, history_windows);
        if let Phase::CoolingOff(cooling) = &mut self.phase {
            cooling.rounds = cooling.rounds.saturating_add(1);
            cooling.estimate_rounds = cooling.estimate_rounds.saturating_add(1);
            if cooling.rounds >= cooling.rounds_min.saturating_add(FAILURES_KEPT_ROUNDS) {
                self.phase = Phase::Idle;
            }
        }
    }

    /// Returns whether the entry can be removed: it has no history and no failed trials, and is
    /// neither steered nor cooling off.
    pub(crate) fn is_forgotten(&self) -> bool {
        let failed = matches!(&self.phase, Phase::CoolingOff(cooling) if cooling.failures > 0);
        self.history.is_empty() && self.steered().is_none() && !self.is_cooling_off() && !failed
    }

    /// Returns the number of consecutive failed trials.
    pub(crate) fn failures(&self) -> u8 {
        match &self.phase {
            Phase::CoolingOff(cooling) => cooling.failures,
            Phase::Steered(steered) => steered.failures,
            Phase::Idle => 0,
        }
    }

    /// Clears failed trials and the extra cool-off they caused, because they concerned another
    /// congestion control.
    pub(crate) fn forget_failures(&mut self, cool_off_windows: u32) {
        match &mut self.phase {
            Phase::Idle => {}
            Phase::Steered(steered) => steered.failures = 0,
            Phase::CoolingOff(cooling) => {
                cooling.failures = 0;
                cooling.rounds_min = cooling.rounds_min.min(cool_off_windows);
            }
        }
    }

    /// Withdraws the prefix. Keeps its estimate if the evidence suffices and the arms were
    /// comparable.
    pub(crate) fn leave(&mut self, reason: Reason, settings: &Settings) {
        let failures = self.failures().saturating_add(u8::from(reason.is_failure()));
        let doublings = failures.saturating_sub(1).min(DOUBLINGS_MAX);
        self.phase = Phase::CoolingOff(Box::new(CoolingOff {
            left: reason,
            rounds: 0,
            // A prefix withdrawn by a settings change may re-enter in the next round.
            rounds_min: if reason == Reason::Changed {
                1
            } else {
                settings.cool_off_windows.saturating_mul(1 << doublings)
            },
            failures,
            estimate: self
                .steered()
                .filter(|_| !matches!(reason, Reason::Skewed | Reason::Changed))
                .and_then(|steered| steered.estimate(settings)),
            estimate_rounds: self.steered().and_then(|it| it.proof.as_ref()).map_or(0, |proof| proof.rounds),
        }));
        self.reason = reason;
    }
}

fn write_prefix<S: Serializer>(prefix: &Prefix, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(prefix)
}

fn read_prefix<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Prefix, D::Error> {
    let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
    text.parse().map_err(serde::de::Error::custom)
}
