//! What is known of one prefix: its windows, and where it is between not steered, steered and left.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thalweg_record::Prefix;

use crate::detector::Detector;
use crate::evidence::Evidence;
use crate::history::History;
use crate::pool::Estimate;
use crate::reason::Reason;
use crate::sequential::Mean;
use crate::settings::Settings;

/// Rounds for which a failed trial is remembered once its cool-off has passed: a week of five minutes.
const FAILURES_KEPT_ROUNDS: u32 = 2016;
/// Doublings of the cool-off.
const DOUBLINGS_MAX: u8 = 4;

/// What a trial had shown when it was enough, and ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proof {
    /// The logarithm of the e-value.
    #[serde(with = "crate::exact")]
    pub ln_e: f64,
    /// The effect on log goodput.
    pub goodput: Mean,
    /// Rounds since.
    pub rounds: u32,
    /// Whether it has turned since.
    pub reversal: Detector,
}

/// A prefix that is steered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Steered {
    /// The number of its trial: see [`Trials`](crate::Trials).
    pub trial: u64,
    /// What tells its tosses apart from those of other trials.
    pub salt: u64,
    /// Whether it has entered though it was not slow.
    pub is_explored: bool,
    /// Whether it was shown to be helped before this trial.
    pub is_renewed: bool,
    /// By what it was shown to be helped; absent on trial.
    pub proof: Option<Proof>,
    /// The share of its connections that is held out, in millionths.
    pub holdout_millionths: u32,
    /// The bundle from which on it is so; connections of rules before do not count.
    pub from_bundle: u64,
    /// Windows of this trial, or since its evidence was begun anew.
    pub windows: u32,
    /// Windows since a connection came.
    pub quiet_windows: u32,
    /// Trials before this one that failed one after the other.
    pub failures: u8,
    /// What was shown.
    pub evidence: Evidence,
}

/// A prefix that has left.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoolingOff {
    /// Why.
    pub left: Reason,
    /// Rounds since, and
    pub rounds: u32,
    /// before it may enter again.
    pub rounds_min: u32,
    /// Trials that failed one after the other.
    pub failures: u8,
    /// What the trial had shown,
    pub estimate: Option<Estimate>,
    /// and rounds since: of one that was shown to be helped since then, not since it has left.
    pub estimate_rounds: u32,
}

/// Where a prefix is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub enum Phase {
    /// Not steered.
    #[default]
    Idle,
    /// Steered.
    Steered(Box<Steered>),
    /// Not steered any more.
    CoolingOff(Box<CoolingOff>),
}

impl Phase {
    fn is_idle(&self) -> bool {
        *self == Self::Idle
    }
}

/// What is known of a prefix.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The network of clients.
    #[serde(serialize_with = "write_prefix", deserialize_with = "read_prefix")]
    pub prefix: Prefix,
    /// Its windows.
    pub history: History,
    /// Connections in a window, smoothed.
    pub connections: f32,
    /// Log goodput of connections that are not steered, smoothed; absent until there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ln_goodput: Option<f32>,
    /// The median of its connections' smallest round trips, of the newest window that tells; absent before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_rtt_us: Option<u32>,
    /// Why it is steered or is not.
    pub reason: Reason,
    /// Where it is.
    #[serde(default, skip_serializing_if = "Phase::is_idle")]
    pub phase: Phase,
}

impl Steered {
    /// The share of its connections that is held out.
    pub(crate) fn holdout(&self) -> f64 {
        f64::from(self.holdout_millionths) / 1e6
    }

    /// What its trial has shown, if it is enough to tell: of one that is over what it had shown by then.
    pub(crate) fn estimate(&self, settings: &Settings) -> Option<Estimate> {
        match &self.proof {
            Some(proof) => Estimate::of(&proof.goodput),
            None if self.evidence.is_enough(settings.evidence_connections_min) => {
                Estimate::of(&self.evidence.goodput)
            }
            None => None,
        }
    }

    /// Whether it is on trial to find out, as the first of its kind: those that were shown to be helped make room for others.
    pub(crate) fn is_exploring(&self) -> bool {
        self.is_explored && !self.is_renewed && self.proof.is_none()
    }
}

impl Entry {
    /// Of a prefix that is new.
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

    /// What there is of it as a steered one.
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

    /// Whether it has left and may not enter yet.
    pub fn is_cooling_off(&self) -> bool {
        matches!(&self.phase, Phase::CoolingOff(cooling) if cooling.rounds < cooling.rounds_min)
    }

    /// Goes on by a round, so many windows after the one before. Only histories have gaps: a cool-off that a clock's jump could
    /// end would be none.
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

    /// Whether nothing is left to remember of it.
    pub(crate) fn is_forgotten(&self) -> bool {
        let failed = matches!(&self.phase, Phase::CoolingOff(cooling) if cooling.failures > 0);
        self.history.is_empty() && self.steered().is_none() && !self.is_cooling_off() && !failed
    }

    /// Trials that failed one after the other.
    pub(crate) fn failures(&self) -> u8 {
        match &self.phase {
            Phase::CoolingOff(cooling) => cooling.failures,
            Phase::Steered(steered) => steered.failures,
            Phase::Idle => 0,
        }
    }

    /// Forgets the trials that failed, and by how much longer its cool-off is for them: they were of another congestion control.
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

    /// Leaves. What is shown of it stays known, if it is enough to tell and its arms could be compared.
    pub(crate) fn leave(&mut self, reason: Reason, settings: &Settings) {
        let failures = self.failures().saturating_add(u8::from(reason.is_failure()));
        let doublings = failures.saturating_sub(1).min(DOUBLINGS_MAX);
        self.phase = Phase::CoolingOff(Box::new(CoolingOff {
            left: reason,
            rounds: 0,
            // What has left for no fault of its own may come back in the next round.
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
