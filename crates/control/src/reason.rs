//! Reasons for steering, not steering or withdrawing a prefix.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Declares the enum, with a serialized word and a human-readable description for each reason.
macro_rules! reasons {
    ($(#[$meta:meta])* $($reason:ident = $word:literal: $text:literal,)+) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Reason {
            $(#[doc = $text] #[serde(rename = $word)] $reason,)+
        }

        impl Reason {
            /// All reasons, in declaration order.
            #[cfg(test)]
            const ALL: &[Self] = &[$(Self::$reason),+];

            /// Returns the serialized word.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$reason => $word,)+
                }
            }

            /// Returns a human-readable description.
            pub(crate) fn text(self) -> &'static str {
                match self {
                    $(Self::$reason => $text,)+
                }
            }
        }
    };
}

reasons! {
    /// The reason for steering, not steering or withdrawing a prefix. Reasons for withdrawals
    /// appear only in [`CoolingOff::left`], never in [`Entry::reason`].
    ///
    /// [`Entry::reason`]: crate::Entry::reason
    /// [`CoolingOff::left`]: crate::CoolingOff::left
    TooFew = "too_few": "not steered, too few windows in which it was ranked",
    NotSlow = "not_slow": "not steered, its duty cycle is too low",
    Flapping = "flapping": "not steered, it enters and leaves the bottom group too often",
    LowRtt = "low_rtt": "not steered, its round-trip time is so short that it is tried only for exploration",
    LeftAlone = "left_alone": "not steered, its network is excluded by left_alone",
    Full = "full": "not steered, the limit on steered prefixes is reached",
    RoundFull = "round_full": "not steered yet, the limit on changes in this round is reached",
    Paused = "paused": "not steered yet, the guardrail has paused new trials",
    CoolingOff = "cooling_off": "not steered, it was withdrawn and is cooling off",
    Slow = "slow": "steered because it is slow, nothing shown yet",
    Explored = "explored": "steered to explore although it is not slow, nothing shown yet",
    Renewed = "renewed": "steered, on trial again after it was shown to be helped as a whole",
    Likely = "likely": "steered for now: a gain within the network is not shown by its own trial, but likely given all trials",
    Promising = "promising": "steered in every other block of time, shown to gain within the network but not yet as a whole",
    Helped = "helped": "steered, shown to be helped as a whole",
    NoLongerSlow = "no_longer_slow": "withdrawn, it is no longer slow",
    NotHelped = "not_helped": "withdrawn, not shown to be helped, or by too little to be worthwhile",
    NotProved = "not_proved": "withdrawn, a gain within the network was not shown for the network as a whole in time",
    Harmed = "harmed": "withdrawn, shown to be harmed",
    Retransmits = "retransmits": "withdrawn, its retransmitted share rose too much",
    Skewed = "skewed": "withdrawn, the held-out share differs from the rule's, so the arms cannot be compared",
    Guardrail = "guardrail": "withdrawn, the retransmitted share over all trials rose too much",
    Gone = "gone": "withdrawn, it no longer has connections",
    Changed = "changed": "withdrawn, the settings now try another congestion control or drop its tenant",
    OverLimit = "over_limit": "withdrawn, the limit on steered prefixes was lowered",
    RolledBack = "rolled_back": "withdrawn, the bundle that added it was rolled back",
}

impl Reason {
    /// Returns whether a withdrawal for this reason counts as a failure, which doubles the
    /// cool-off.
    pub(crate) fn is_failure(self) -> bool {
        matches!(
            self,
            Self::NotHelped | Self::NotProved | Self::Harmed | Self::Retransmits | Self::RolledBack
        )
    }

    /// Returns whether this reason withdraws a prefix at once, regardless of the limit on changes
    /// per round.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documentation_lists_every_reason() {
        let page = include_str!("../../../docs/reference/controller-http.md");
        let table = page.split("## Reasons").nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap();
        let rows: Vec<_> = table.lines().filter(|line| line.starts_with("| `")).collect();
        let declared: Vec<_> =
            Reason::ALL.iter().map(|reason| format!("| `{reason}` | {} |", reason.text())).collect();
        assert_eq!(rows, declared, "docs/reference/controller-http.md");
    }
}
