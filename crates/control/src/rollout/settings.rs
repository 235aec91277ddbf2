//! What an operator may set of the way of a bundle to the edges, each with its bounds.

use std::fmt;

use crate::settings::{Fault, HISTORY_WINDOWS_MAX};

/// How a bundle gets to the edges. `docs/control.md` has them for people, by the names that [`Canary::check`] tells.
#[derive(Debug, Clone, PartialEq)]
pub struct Canary {
    /// The share of edges that get a bundle before all others, one at least.
    pub share: f64,
    /// Windows for which these are watched, whole ones after they have acknowledged.
    pub windows: u32,
    /// Windows after which all get it though too few connections told.
    pub windows_max: u32,
    /// For how long an acknowledgement is waited for, and how long ago an edge may have been heard to be asked for one, seconds.
    pub acknowledge_s_max: u64,
    /// The rise of the share of responses that fail from which on a bundle is rolled back.
    pub failed_rise_max: f64,
    /// Likewise of the share of bytes that is sent again.
    pub retransmitted_rise_max: f64,
    /// Likewise the drop of log goodput.
    pub goodput_drop_max: f64,
}

impl Default for Canary {
    fn default() -> Self {
        Self {
            share: 0.1,
            windows: 1,
            windows_max: 3,
            acknowledge_s_max: 120,
            failed_rise_max: 0.02,
            retransmitted_rise_max: 0.02,
            goodput_drop_max: 0.2,
        }
    }
}

impl Canary {
    /// Every setting that is outside its bounds.
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
    fn what_is_outside_is_told() {
        let canary = Canary {
            share: 0.0,
            windows: 4,
            windows_max: 129,
            acknowledge_s_max: 0,
            failed_rise_max: f64::NAN,
            retransmitted_rise_max: 1.1,
            goodput_drop_max: 0.0,
        };
        let told: Vec<_> = canary.check().iter().map(ToString::to_string).collect();
        expect_test::expect![[r#"
            canary_share has to be from above 0 to 1
            canary_windows_max has to be from 1 to 128
            acknowledge_s_max has to be from 1 to 86400
            canary_failed_rise_max has to be from above 0 to 1
            canary_retransmitted_rise_max has to be from above 0 to 1
            canary_goodput_drop_max has to be from above 0 to 1"#]]
        .assert_eq(&told.join("\n"));
        assert_eq!(Canary { windows: 4, ..Canary::default() }.check().len(), 1);
    }
}
