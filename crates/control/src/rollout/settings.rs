//! Rollout settings for operators, with their bounds.

use std::fmt;

use crate::settings::{Fault, HISTORY_WINDOWS_MAX};

/// Settings for the distribution of bundles to the edges. `docs/reference/settings.md` documents
/// them for operators.
#[derive(Debug, Clone, PartialEq)]
pub struct Canary {
    /// Share of edges that get a bundle first, rounded up to at least one edge.
    pub share: f64,
    /// Number of complete windows for which canaries are watched after they acknowledge.
    pub windows: u32,
    /// Number of windows after which a bundle is promoted even with too few connections.
    pub windows_max: u32,
    /// Maximum wait for an acknowledgement, in seconds. An edge whose last poll is longer ago
    /// cannot become a canary.
    pub acknowledge_s_max: u64,
    /// Share of the edges with a vote that must refuse a candidate, or not acknowledge it, for a
    /// rollback. At least two edges must, if that many have a vote.
    pub quorum: f64,
    /// Rise in the share of failed responses at which a bundle is rolled back.
    pub failed_rise_max: f64,
    /// Rise in the share of retransmitted bytes at which a bundle is rolled back.
    pub retransmitted_rise_max: f64,
    /// Drop in log goodput at which a bundle is rolled back.
    pub goodput_drop_max: f64,
}

impl Default for Canary {
    fn default() -> Self {
        Self {
            share: 0.1,
            windows: 1,
            windows_max: 3,
            acknowledge_s_max: 120,
            quorum: 0.25,
            failed_rise_max: 0.02,
            retransmitted_rise_max: 0.02,
            goodput_drop_max: 0.2,
        }
    }
}

impl Canary {
    /// Returns all settings outside their bounds.
    pub(crate) fn check(&self) -> Vec<Fault> {
        let to = |from: &dyn fmt::Display, to: &dyn fmt::Display| format!("from {from} to {to}");
        let is_share = |number: f64| number > 0.0 && number <= 1.0;
        let all = [
            (is_share(self.share), "canary_share", to(&"above 0", &1)),
            ((1..=self.windows_max).contains(&self.windows), "canary_windows", to(&1, &"canary_windows_max")),
            (
                (1..=HISTORY_WINDOWS_MAX).contains(&self.windows_max),
                "canary_windows_max",
                to(&1, &HISTORY_WINDOWS_MAX),
            ),
            ((1..=86_400).contains(&self.acknowledge_s_max), "acknowledge_s_max", to(&1, &86_400)),
            (is_share(self.quorum), "canary_quorum", to(&"above 0", &1)),
            (is_share(self.failed_rise_max), "canary_failed_rise_max", to(&"above 0", &1)),
            (is_share(self.retransmitted_rise_max), "canary_retransmitted_rise_max", to(&"above 0", &1)),
            (is_share(self.goodput_drop_max), "canary_goodput_drop_max", to(&"above 0", &1)),
        ];
        let faults = all.into_iter().filter(|(holds, ..)| !holds);
        faults.map(|(_, setting, expected)| Fault { setting, expected }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_out_of_bounds_are_reported() {
        let canary = Canary {
            share: 0.0,
            windows: 4,
            windows_max: 129,
            acknowledge_s_max: 0,
            quorum: 0.0,
            failed_rise_max: f64::NAN,
            retransmitted_rise_max: 1.1,
            goodput_drop_max: 0.0,
        };
        let faults: Vec<_> = canary.check().iter().map(ToString::to_string).collect();
        expect_test::expect![[r#"
            canary_share must be from above 0 to 1
            canary_windows_max must be from 1 to 128
            acknowledge_s_max must be from 1 to 86400
            canary_quorum must be from above 0 to 1
            canary_failed_rise_max must be from above 0 to 1
            canary_retransmitted_rise_max must be from above 0 to 1
            canary_goodput_drop_max must be from above 0 to 1"#]]
        .assert_eq(&faults.join("\n"));
        assert_eq!(Canary { windows: 4, ..Canary::default() }.check().len(), 1);
    }
}
