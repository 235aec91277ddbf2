//! What an operator may set of the decision, each with its bounds, and the limits that are not settings.

use std::fmt;

use serde::{Deserialize, Serialize};
use thalweg_bundle::{HOSTS_MAX, RULES_MAX, Share, is_host};
use thalweg_record::Prefix;

use crate::rollout::Canary;
use crate::tenant::Tenant;

/// Windows of history that a prefix can have: a bit of a `u128` each.
pub const HISTORY_WINDOWS_MAX: u32 = 128;
/// Prefixes of one tenant of a PoP, in a window and in the state; of more, those that come first in the order of addresses.
pub const PREFIXES_MAX: usize = 200_000;
/// Networks that are left alone.
pub const LEFT_ALONE_MAX: usize = 10_000;

/// By what prefixes are ranked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// The kernel's delivery rate samples, without those that the application limited.
    DeliveryRate,
    /// The goodput of responses of [`Settings::goodput_bytes_min`] and more.
    Goodput,
}

/// The settings of a decision. `docs/control.md` has them for people; [`Settings::check`] their bounds.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Seconds of a window.
    pub window_s: u64,
    /// Seconds after its end for which a window takes records: two periods of the agent, and the way here.
    pub late_s: u64,
    /// By what prefixes are ranked.
    pub measure: Measure,
    /// The least response, in bytes of content, that tells of goodput, and from which on a rule is due.
    pub goodput_bytes_min: u64,
    /// Whether responses that the backend was still sending count as well: their goodput is also that of the backend.
    pub counts_relayed: bool,
    /// Hosts (names without ports) whose connections decide nothing.
    pub hosts_left_alone: Vec<String>,
    /// Whether each host that is none of [`Settings::tenants`] is a tenant by itself.
    pub by_tenant: bool,
    /// Hosts that are decided for by themselves. What all share, such as the length of windows and how bundles get to edges, is not theirs.
    pub tenants: Vec<Tenant>,

    /// Connections that tell of the measure and make a prefix observed in a window.
    pub connections_min: u32,
    /// The share of observed prefixes that is the bottom group.
    pub bottom_share: f64,
    /// Windows of history.
    pub history_windows: u32,
    /// Observed windows in the history without which nothing is said of a prefix.
    pub observed_windows_min: u32,
    /// A prefix enters with at least this duty cycle,
    pub duty_enter: f64,
    /// and leaves, where nothing is proved of it, with at most this one.
    pub duty_leave: f64,
    /// It enters with at most this flap rate.
    pub flap_max: f64,
    /// Prefixes whose median of smallest round trips is below this are left alone, microseconds.
    pub min_rtt_us_min: u64,
    /// Networks that are left alone, such as back offices and monitors.
    pub left_alone: Vec<Prefix>,

    /// The congestion control that is tried, as the kernel names it.
    pub congestion_control: String,
    /// Prefixes that are steered at once, in one PoP.
    pub steered_max: usize,
    /// Prefixes that may enter in a round.
    pub entering_max: usize,
    /// Rules that a round may add or take back; what leaves for safety comes on top.
    pub changes_max: usize,
    /// Of [`Settings::steered_max`], how many may be on trial, to find out, that were not slow and never shown to be helped yet.
    pub explored_max: usize,
    /// Of those, how many may enter in a round.
    pub exploring_max: usize,

    /// The share of connections held out in a prefix on trial. Zero: no proof, the rule of duty cycles alone, also for
    /// what has entered by another.
    pub holdout_trial: Share,
    /// The share held out where it is shown that steering helps.
    pub holdout: Share,
    /// The share of false ones among prefixes that are told to be helped, at most and on average.
    pub false_discovery_share: f64,
    /// For each prefix and each trial, the chance to be told harmed while it is not.
    pub false_harm_share: f64,
    /// Connections of each arm before which nothing is said.
    pub evidence_connections_min: u32,
    /// The least effect worth having, as a change of log goodput.
    pub effect_min: f64,
    /// Windows after which a prefix leaves that was not shown to be helped,
    pub trial_windows_max: u32,
    /// unless its shrunken effect is above [`Settings::effect_min`] with this probability.
    pub pooled_keep: f64,
    /// Windows after which a prefix that was shown to be helped is on trial again: what harm nothing has shown ends with it.
    pub proof_windows_max: u32,
    /// The rise of the retransmitted share of bytes that is shown to be exceeded, in one prefix: it leaves.
    pub retransmitted_rise_max: f64,
    /// The same over all prefixes on trial: all of these leave, and none enters for a while.
    pub guardrail_rise_max: f64,
    /// How long none enters after that, in windows.
    pub guardrail_pause_windows: u32,
    /// How long a prefix that has left may not enter again, in windows that are decided; twice as long each time that it failed again.
    pub cool_off_windows: u32,
    /// How bundles get to the edges.
    pub canary: Canary,
}

impl Default for Settings {
    fn default() -> Self {
        let share = |millionths| Share::from_millionths(millionths).expect("it is a share");
        Self {
            window_s: 300,
            late_s: 60,
            measure: Measure::DeliveryRate,
            goodput_bytes_min: 100_000,
            counts_relayed: false,
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
            false_discovery_share: 0.05,
            false_harm_share: 0.05,
            evidence_connections_min: 30,
            effect_min: 0.05,
            trial_windows_max: 72,
            pooled_keep: 0.9,
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
    /// The setting.
    pub setting: &'static str,
    /// What it has to be.
    pub expected: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} has to be {}", self.setting, self.expected)
    }
}

impl Settings {
    /// Whether prefixes have a holdout, and so a proof.
    pub fn has_proof(&self) -> bool {
        self.holdout_trial > Share::default()
    }

    /// Every setting that is outside its bounds.
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
            format!("at most {HOSTS_MAX} names of hosts, without a port and a dot at the end"),
        );
        ensure(self.left_alone.len() <= LEFT_ALONE_MAX, "left_alone", format!("at most {LEFT_ALONE_MAX}"));
        ensure(
            (1..=thalweg_bundle::CONGESTION_CONTROL_BYTES_MAX).contains(&self.congestion_control.len())
                && self
                    .congestion_control
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte)),
            "congestion_control",
            "the name of one, such as bbr".into(),
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
        for (setting, share) in [
            ("false_discovery_share", self.false_discovery_share),
            ("false_harm_share", self.false_harm_share),
        ] {
            ensure(share > 0.0 && share < 1.0, setting, "above 0 and below 1".into());
        }
        ensure(
            self.evidence_connections_min >= 2,
            "evidence_connections_min",
            "at least 2: a variance takes two".into(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_within_bounds() {
        assert_eq!(Settings::default().check(), []);
        let alone = Settings { holdout_trial: Share::default(), ..Settings::default() };
        assert_eq!(alone.check(), []);
        assert!(!alone.has_proof());
    }

    #[test]
    fn what_is_outside_is_told() {
        let settings = Settings {
            history_windows: 129,
            duty_leave: 0.7,
            flap_max: f64::NAN,
            congestion_control: "no such".into(),
            holdout: Share::ALL,
            ..Settings::default()
        };
        let told: Vec<_> = settings.check().iter().map(ToString::to_string).collect();
        expect_test::expect![[r#"
            [
                "history_windows has to be from 1 to 128",
                "duty_leave has to be from 0 to duty_enter",
                "flap_max has to be from 0 to 1",
                "congestion_control has to be the name of one, such as bbr",
                "holdout has to be from 0.01 to 0.9",
            ]
        "#]]
        .assert_debug_eq(&told);
    }
}
