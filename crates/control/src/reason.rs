//! Reasons: why a prefix is steered, is not, or has left.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a prefix is steered, is not, or has left: one word, and all that there are. Why one has left is never its [`Entry::reason`], but
/// [`CoolingOff::left`].
///
/// [`Entry::reason`]: crate::Entry::reason
/// [`CoolingOff::left`]: crate::CoolingOff::left
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Not steered: too few windows in which it could be ranked.
    #[default]
    TooFew,
    /// Not steered: its duty cycle is too low.
    NotSlow,
    /// Not steered: it enters and leaves the bottom group too often.
    Flapping,
    /// Not steered: its round trips are short.
    LowRtt,
    /// Not steered: its network is to be left alone.
    LeftAlone,
    /// Not steered: as many are steered as may be.
    Full,
    /// Not steered: as many have entered or changed in this round as may.
    RoundFull,
    /// Not steered: the guardrail has stopped the rounds for a while.
    Paused,
    /// Not steered: it has left, and may not come back yet.
    CoolingOff,
    /// Steered, on trial: slow.
    Slow,
    /// Steered, on trial: tried to find out, though it is not slow.
    Explored,
    /// Steered, on trial again: it was shown to be helped, under other settings or long ago.
    Renewed,
    /// Steered: not shown by itself, but likely, after what all prefixes show.
    Likely,
    /// Steered: shown to be helped.
    Helped,
    /// Has left: it was no longer slow.
    NoLongerSlow,
    /// Has left: not shown to be helped, or by less than is worth it.
    NotHelped,
    /// Has left: shown to be harmed.
    Harmed,
    /// Has left: more was sent again than may be.
    Retransmits,
    /// Has left: its arms cannot be compared.
    Skewed,
    /// Has left: the guardrail over all prefixes on trial.
    Guardrail,
    /// Has left: no connection came from it any more.
    Gone,
    /// Has left: another congestion control is tried now.
    Changed,
    /// Has left: fewer may be steered than were.
    OverLimit,
    /// Has left: the bundle that brought it was rolled back.
    RolledBack,
}

impl Reason {
    /// The word, as in the kept form.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TooFew => "too_few",
            Self::NotSlow => "not_slow",
            Self::Flapping => "flapping",
            Self::LowRtt => "low_rtt",
            Self::LeftAlone => "left_alone",
            Self::Full => "full",
            Self::RoundFull => "round_full",
            Self::Paused => "paused",
            Self::CoolingOff => "cooling_off",
            Self::Slow => "slow",
            Self::Explored => "explored",
            Self::Renewed => "renewed",
            Self::Likely => "likely",
            Self::Helped => "helped",
            Self::NoLongerSlow => "no_longer_slow",
            Self::NotHelped => "not_helped",
            Self::Harmed => "harmed",
            Self::Retransmits => "retransmits",
            Self::Skewed => "skewed",
            Self::Guardrail => "guardrail",
            Self::Gone => "gone",
            Self::Changed => "changed",
            Self::OverLimit => "over_limit",
            Self::RolledBack => "rolled_back",
        }
    }

    /// Whether a prefix that leaves for it has failed: its cool-off doubles.
    pub(crate) fn is_failure(self) -> bool {
        matches!(self, Self::NotHelped | Self::Harmed | Self::Retransmits | Self::RolledBack)
    }

    /// Whether a prefix leaves for it at once, however many have left in this round.
    pub(crate) fn is_safety(self) -> bool {
        matches!(
            self,
            Self::Harmed
                | Self::Retransmits
                | Self::Skewed
                | Self::Guardrail
                | Self::LeftAlone
                | Self::Changed
                | Self::OverLimit
                | Self::RolledBack
        )
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
