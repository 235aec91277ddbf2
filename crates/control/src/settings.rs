//! Decision settings for operators, with their bounds, and fixed limits.

use std::fmt;

use serde::{Deserialize, Serialize};
use thalweg_bundle::{HOSTS_MAX, PERIOD_S_MAX, RULES_MAX, Share, is_host};
use thalweg_record::Prefix;

use crate::rollout::Canary;
use crate::switchback::PAIRS_MAX;
use crate::tenant::Tenant;

/// Maximum number of windows in a prefix's history, which has one bit of a `u128` per window.
pub const HISTORY_WINDOWS_MAX: u32 = 128;
/// Maximum number of prefixes per tenant and PoP, in a window and in the state. Beyond the limit,
/// the prefixes with the lowest addresses are kept.
pub const PREFIXES_MAX: usize = 200_000;
/// Maximum number of excluded networks.
pub const LEFT_ALONE_MAX: usize = 10_000;

/// Measure by which prefixes are ranked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Kernel delivery rate samples, excluding application-limited samples.
    DeliveryRate,
    /// Goodput of responses of at least [`Settings::goodput_bytes_min`] bytes.
    Goodput,
}

/// Settings of a decision. `docs/reference/settings.md` documents them for operators, and
/// [`Settings::check`] enforces their bounds.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Window length, in seconds.
    pub window_s: u64,
    /// Time after the end of a window during which it still accepts records, in seconds: two agent
    /// periods plus transit.
    pub late_s: u64,
    /// Measure by which prefixes are ranked.
    pub measure: Measure,
    /// Minimum content size of responses that measure goodput and to which rules apply, in bytes.
    pub goodput_bytes_min: u64,
    /// Host names, without ports, whose connections are not used as evidence.
    pub hosts_left_alone: Vec<String>,
    /// Whether each host outside [`Settings::tenants`] is its own tenant.
    pub by_tenant: bool,
    /// Tenants, which are decided separately. They cannot change settings shared by a PoP, such as
    /// the window length and the rollout.
    pub tenants: Vec<Tenant>,

    /// Minimum number of measured connections for a prefix to be observed in a window.
    pub connections_min: u32,
    /// Share of observed prefixes in the bottom group.
    pub bottom_share: f64,
    /// History length, in windows.
    pub history_windows: u32,
    /// Minimum number of observed windows in the history before any decision on a prefix.
    pub observed_windows_min: u32,
    /// Duty cycle at or above which a prefix enters.
    pub duty_enter: f64,
    /// Duty cycle at or below which a prefix without proof leaves.
    pub duty_leave: f64,
    /// Flap rate at or below which a prefix enters.
    pub flap_max: f64,
    /// Minimum RTT, in microseconds. If the median of the minimum RTTs of a prefix's connections is
    /// lower, the prefix is tried only for exploration.
    pub min_rtt_us_min: u64,
    /// Networks that are never steered, such as offices and monitors.
    pub left_alone: Vec<Prefix>,

    /// Congestion control to try, by its kernel name.
    pub congestion_control: String,
    /// Maximum number of prefixes steered at once in a PoP.
    pub steered_max: usize,
    /// Maximum number of prefixes admitted per round.
    pub entering_max: usize,
    /// Maximum number of rules added or withdrawn per round, not counting safety withdrawals.
    pub changes_max: usize,
    /// Maximum number of exploratory trials within [`Settings::steered_max`]. These are trials of
    /// prefixes neither slow nor ever proved to be helped.
    pub explored_max: usize,
    /// Maximum number of exploratory trials started per round.
    pub exploring_max: usize,

    /// Held-out share of clients in a prefix on trial. Zero disables proof: duty cycles alone
    /// decide, even for prefixes admitted for exploration.
    pub holdout_trial: Share,
    /// Held-out share in prefixes proved to be helped.
    pub holdout: Share,
    /// Probability, for each prefix and trial, of declaring by chance that it is promising.
    pub false_promise_share: f64,
    /// Length of a switchback's blocks, in windows. The first window of each block is excluded.
    pub switchback_block_windows: u32,
    /// Number of windows after which a promising prefix that is not proved to be helped as a whole
    /// is withdrawn.
    pub switchback_windows_max: u32,
    /// Maximum expected share of false discoveries among prefixes declared helped.
    pub false_discovery_share: f64,
    /// Probability, for each prefix and trial, of declaring harm by chance.
    pub false_harm_share: f64,
    /// Minimum number of outcomes in each arm before evidence counts: outcomes of clients in a
    /// trial, and of connections on canaries.
    pub evidence_connections_min: u32,
    /// Minimum worthwhile effect, as a change in log goodput.
    pub effect_min: f64,
    /// Number of windows after which a prefix that is not promising is withdrawn, subject to
    /// [`Settings::pooled_keep`].
    pub trial_windows_max: u32,
    /// Minimum probability that a prefix's shrunken effect exceeds [`Settings::effect_min`] for the
    /// prefix to stay steered without proof.
    pub pooled_keep: f64,
    /// Maximum number of windows after its trial for which a prefix stays steered without proof.
    pub likely_windows_max: u32,
    /// Number of windows after which a proved prefix goes back on trial, which also limits the
    /// duration of undetected harm.
    pub proof_windows_max: u32,
    /// Maximum rise in a prefix's retransmitted share of bytes. The prefix is withdrawn once a
    /// larger rise is shown.
    pub retransmitted_rise_max: f64,
    /// Maximum rise in the retransmitted share across all prefixes on trial. If the rise is larger,
    /// prefixes that may have caused it are withdrawn and admission pauses.
    pub guardrail_rise_max: f64,
    /// Number of windows for which the guardrail pauses admission.
    pub guardrail_pause_windows: u32,
    /// Number of decided windows for which a withdrawn prefix may not re-enter. Each further
    /// failure doubles this number.
    pub cool_off_windows: u32,
    /// Settings for the distribution of bundles to the edges.
    pub canary: Canary,
}

impl Default for Settings {
    fn default() -> Self {
        let share = |millionths| Share::from_millionths(millionths).expect("a valid share");
        Self {
            window_s: 300,
            late_s: 60,
            measure: Measure::DeliveryRate,
            goodput_bytes_min: 100_000,
            hosts_left_alone: Vec::new(),
            by_tenant: false,
            tenants: Vec::new(),
            connections_min: 3,
            bottom_share: 0.2,
            history_windows: 72,
            observed_windows_min: 12,
            duty_enter: 0.6,
            duty_leave: 0.3,
            flap_max: 0.25,
            min_rtt_us_min: 10_000,
            left_alone: Vec::new(),
            congestion_control: "bbr".to_owned(),
            steered_max: 500,
            entering_max: 20,
            changes_max: 50,
            explored_max: 100,
            exploring_max: 5,
            holdout_trial: share(500_000),
            holdout: share(100_000),
            false_promise_share: 0.05,
            switchback_block_windows: 3,
            switchback_windows_max: 288,
            false_discovery_share: 0.05,
            false_harm_share: 0.05,
            evidence_connections_min: 30,
            effect_min: 0.05,
            trial_windows_max: 72,
            pooled_keep: 0.9,
            likely_windows_max: 288,
            proof_windows_max: 576,
            retransmitted_rise_max: 0.05,
            guardrail_rise_max: 0.03,
            guardrail_pause_windows: 12,
            cool_off_windows: 288,
            canary: Canary::default(),
        }
    }
}

/// A setting outside its bounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Name of the setting.
    pub setting: &'static str,
    /// Requirement, phrased to follow "must be".
    pub expected: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} must be {}", self.setting, self.expected)
    }
}

impl Settings {
    /// Returns whether prefixes have a holdout, so that help can be proved.
    pub fn has_proof(&self) -> bool {
        self.holdout_trial > Share::default()
    }

    /// Returns all settings outside their bounds.
    pub fn check(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut ensure = |holds: bool, setting: &'static str, expected: String| {
            if !holds {
                faults.push(Fault { setting, expected });
            }
        };
        let to = |from: &dyn fmt::Display, to: &dyn fmt::Display| format!("from {from} to {to}");
        ensure((1..=86_400).contains(&self.window_s), "window_s", to(&1, &86_400));
        ensure(self.late_s <= 86_400, "late_s", to(&0, &86_400));
        ensure(
            (1..=HISTORY_WINDOWS_MAX).contains(&self.history_windows),
            "history_windows",
            to(&1, &HISTORY_WINDOWS_MAX),
        );
        ensure(
            (1..=self.history_windows).contains(&self.observed_windows_min),
            "observed_windows_min",
            "from 1 to history_windows".into(),
        );
        ensure(self.connections_min > 0, "connections_min", "at least 1".into());
        ensure(is_share(self.bottom_share) && self.bottom_share > 0.0, "bottom_share", to(&"above 0", &1));
        ensure(is_share(self.duty_enter), "duty_enter", to(&0, &1));
        ensure(
            is_share(self.duty_leave) && self.duty_leave <= self.duty_enter,
            "duty_leave",
            to(&0, &"duty_enter"),
        );
        ensure(is_share(self.flap_max), "flap_max", to(&0, &1));
        ensure(
            self.hosts_left_alone.len() <= HOSTS_MAX
                && self.hosts_left_alone.iter().all(|host| is_host(&host.to_ascii_lowercase())),
            "hosts_left_alone",
            format!("at most {HOSTS_MAX} host names without a port or a trailing dot"),
        );
        ensure(
            self.left_alone.len() <= LEFT_ALONE_MAX,
            "left_alone",
            format!("at most {LEFT_ALONE_MAX} networks"),
        );
        ensure(
            (1..=thalweg_bundle::CONGESTION_CONTROL_BYTES_MAX).contains(&self.congestion_control.len())
                && self
                    .congestion_control
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte)),
            "congestion_control",
            "the name of a congestion control, such as bbr".into(),
        );
        ensure(
            self.goodput_bytes_min <= thalweg_bundle::SIZE_BYTES_MAX,
            "goodput_bytes_min",
            format!("at most {}", thalweg_bundle::SIZE_BYTES_MAX),
        );
        ensure(self.steered_max <= RULES_MAX, "steered_max", format!("at most {RULES_MAX}"));
        ensure(self.explored_max <= self.steered_max, "explored_max", "at most steered_max".into());
        let held = [("holdout_trial", self.holdout_trial), ("holdout", self.holdout)];
        for (setting, share) in held {
            ensure(
                !self.has_proof() || (10_000..=900_000).contains(&share.millionths()),
                setting,
                to(&0.01, &0.9),
            );
        }
        let pairs = self.switchback_windows_max / self.switchback_block_windows.max(1) / 2;
        let block_s = u64::from(self.switchback_block_windows).saturating_mul(self.window_s);
        ensure(
            self.switchback_block_windows >= 2 && block_s <= PERIOD_S_MAX.into(),
            "switchback_block_windows",
            format!("at least 2, and at most {PERIOD_S_MAX} s"),
        );
        ensure(
            (1..=PAIRS_MAX as u32).contains(&pairs),
            "switchback_windows_max",
            format!("1 to {PAIRS_MAX} pairs of blocks"),
        );
        for (setting, share) in [
            ("false_promise_share", self.false_promise_share),
            ("false_discovery_share", self.false_discovery_share),
            ("false_harm_share", self.false_harm_share),
        ] {
            ensure(share > 0.0 && share < 1.0, setting, "above 0 and below 1".into());
        }
        ensure(
            self.evidence_connections_min >= 2,
            "evidence_connections_min",
            "at least 2, because a variance needs two values".into(),
        );
        for (setting, value) in [
            ("effect_min", self.effect_min),
            ("retransmitted_rise_max", self.retransmitted_rise_max),
            ("guardrail_rise_max", self.guardrail_rise_max),
        ] {
            ensure(is_share(value), setting, to(&0, &1));
        }
        ensure(is_share(self.pooled_keep), "pooled_keep", to(&0, &1));
        ensure(self.trial_windows_max > 0, "trial_windows_max", "at least 1".into());
        ensure(self.proof_windows_max > 0, "proof_windows_max", "at least 1".into());
        ensure(self.cool_off_windows > 0, "cool_off_windows", "at least 1".into());
        faults.extend(self.canary.check());
        faults.extend(self.check_hosts_of_tenants().into_iter().map(|(_, fault)| fault));
        self.tenants.iter().for_each(|tenant| faults.extend(self.check_tenant(tenant)));
        faults
    }
}

fn is_share(number: f64) -> bool {
    (0.0..=1.0).contains(&number)
}

/// Returns the names in lower case, sorted and without duplicates.
pub(crate) fn normalized_hosts(hosts: &[String]) -> Vec<String> {
    let mut hosts: Vec<_> = hosts.iter().map(|host| host.to_ascii_lowercase()).collect();
    hosts.sort_unstable();
    hosts.dedup();
    hosts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_within_bounds() {
        assert_eq!(Settings::default().check(), []);
        let alone = Settings { holdout_trial: Share::default(), ..Settings::default() };
        assert_eq!(alone.check(), []);
        assert!(!alone.has_proof());
    }

    #[test]
    fn settings_out_of_bounds_are_reported() {
        let settings = Settings {
            history_windows: 129,
            duty_leave: 0.7,
            flap_max: f64::NAN,
            congestion_control: "no such".into(),
            holdout: Share::ALL,
            ..Settings::default()
        };
        let faults: Vec<_> = settings.check().iter().map(ToString::to_string).collect();
        expect_test::expect![[r#"
            [
                "history_windows must be from 1 to 128",
                "duty_leave must be from 0 to duty_enter",
                "flap_max must be from 0 to 1",
                "congestion_control must be the name of a congestion control, such as bbr",
                "holdout must be from 0.01 to 0.9",
            ]
        "#]]
        .assert_debug_eq(&faults);
    }
}
