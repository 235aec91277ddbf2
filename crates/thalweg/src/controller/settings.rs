//! Conversion of `[controller]` and `[[tenant]]` sections into decision settings.

use thalweg_bundle::Share;
use thalweg_control::{Canary, Settings};
use thalweg_units::Span;

use crate::config::{Controller, Set, Tenant};

impl Controller {
    /// Converts to decision settings, for these tenants and for all other hosts.
    pub(crate) fn settings(&self, tenants: &[Tenant]) -> Settings {
        let all = self.settings_of_all();
        let tenants = tenants.iter().map(|tenant| tenant.tenant(&all)).collect();
        Settings { tenants, ..all }
    }

    fn settings_of_all(&self) -> Settings {
        let hosts = self.hosts_left_alone.iter().flat_map(|hosts| &hosts.value);
        let networks = self.left_alone.iter().flat_map(|networks| &networks.value);
        Settings {
            window_s: self.window.value.duration.as_secs(),
            late_s: self.late.value.duration.as_secs(),
            measure: self.measure.value,
            goodput_bytes_min: self.goodput_min.value.bytes,
            hosts_left_alone: hosts.map(|host| host.0.clone()).collect(),
            by_tenant: self.by_tenant.value,
            tenants: Vec::new(),
            connections_min: narrow(&self.connections_min),
            bottom_share: self.bottom_share.value.number(),
            history_windows: narrow(&self.history_windows),
            observed_windows_min: narrow(&self.observed_windows_min),
            duty_enter: self.duty_enter.value.number(),
            duty_leave: self.duty_leave.value.number(),
            flap_max: self.flap_max.value.number(),
            min_rtt_us_min: micros(&self.min_rtt_min),
            left_alone: networks.copied().collect(),
            congestion_control: self.congestion_control.value.to_string(),
            steered_max: self.steered_max.value,
            entering_max: self.entering_max.value,
            changes_max: self.changes_max.value,
            explored_max: self.explored_max.value,
            exploring_max: self.exploring_max.value,
            holdout_trial: self.holdout_trial.value,
            holdout: self.holdout.value,
            false_promise_share: self.false_promise_share.value.number(),
            switchback_block_windows: narrow(&self.switchback_block_windows),
            switchback_windows_max: narrow(&self.switchback_windows_max),
            false_discovery_share: self.false_discovery_share.value.number(),
            false_harm_share: self.false_harm_share.value.number(),
            evidence_connections_min: narrow(&self.evidence_connections_min),
            effect_min: self.effect_min.value.number(),
            trial_windows_max: narrow(&self.trial_windows_max),
            pooled_keep: self.pooled_keep.value.number(),
            likely_windows_max: narrow(&self.likely_windows_max),
            proof_windows_max: narrow(&self.proof_windows_max),
            retransmitted_rise_max: self.retransmitted_rise_max.value.number(),
            guardrail_rise_max: self.guardrail_rise_max.value.number(),
            guardrail_pause_windows: narrow(&self.guardrail_pause_windows),
            cool_off_windows: narrow(&self.cool_off_windows),
            canary: Canary {
                share: self.canary_share.value.number(),
                windows: narrow(&self.canary_windows),
                windows_max: narrow(&self.canary_windows_max),
                acknowledge_s_max: self.acknowledge_max.value.duration.as_secs(),
                quorum: self.canary_quorum.value.number(),
                failed_rise_max: self.canary_failed_rise_max.value.number(),
                retransmitted_rise_max: self.canary_retransmitted_rise_max.value.number(),
                goodput_drop_max: self.canary_goodput_drop_max.value.number(),
            },
        }
    }
}

impl Tenant {
    /// Converts the tenant's settings, taking unset ones from `all`.
    pub(crate) fn tenant(&self, all: &Settings) -> thalweg_control::Tenant {
        let part = |own: &Option<Set<Share>>, all: f64| own.as_ref().map_or(all, |it| it.value.number());
        let share = |own: &Option<Set<Share>>, all| own.as_ref().map_or(all, |it| it.value);
        let count = |own: &Option<Set<usize>>, all| own.as_ref().map_or(all, |it| it.value);
        let short = |own: &Option<Set<usize>>, all| own.as_ref().map_or(all, narrow);
        let steered_max = count(&self.steered_max, all.steered_max);
        let settings = Settings {
            measure: self.measure.as_ref().map_or(all.measure, |it| it.value),
            goodput_bytes_min: self.goodput_min.as_ref().map_or(all.goodput_bytes_min, |it| it.value.bytes),
            connections_min: short(&self.connections_min, all.connections_min),
            bottom_share: part(&self.bottom_share, all.bottom_share),
            duty_enter: part(&self.duty_enter, all.duty_enter),
            duty_leave: part(&self.duty_leave, all.duty_leave),
            flap_max: part(&self.flap_max, all.flap_max),
            min_rtt_us_min: self.min_rtt_min.as_ref().map_or(all.min_rtt_us_min, micros),
            left_alone: self
                .left_alone
                .as_ref()
                .map_or_else(|| all.left_alone.clone(), |own| own.value.clone()),
            congestion_control: self
                .congestion_control
                .as_ref()
                .map_or_else(|| all.congestion_control.clone(), |it| it.value.to_string()),
            steered_max,
            entering_max: count(&self.entering_max, all.entering_max),
            // A tenant cannot explore more networks than it may steer.
            explored_max: count(&self.explored_max, all.explored_max.min(steered_max)),
            exploring_max: count(&self.exploring_max, all.exploring_max),
            holdout_trial: share(&self.holdout_trial, all.holdout_trial),
            holdout: share(&self.holdout, all.holdout),
            evidence_connections_min: short(&self.evidence_connections_min, all.evidence_connections_min),
            effect_min: part(&self.effect_min, all.effect_min),
            trial_windows_max: short(&self.trial_windows_max, all.trial_windows_max),
            retransmitted_rise_max: part(&self.retransmitted_rise_max, all.retransmitted_rise_max),
            guardrail_rise_max: part(&self.guardrail_rise_max, all.guardrail_rise_max),
            cool_off_windows: short(&self.cool_off_windows, all.cool_off_windows),
            tenants: Vec::new(),
            ..all.clone()
        };
        thalweg_control::Tenant::new(self.hosts.value.iter().map(|host| host.0.clone()), settings)
    }
}

fn micros(span: &Set<Span>) -> u64 {
    u64::try_from(span.value.duration.as_micros()).expect("the declared bounds fit in a u64")
}

fn narrow(count: &Set<usize>) -> u32 {
    u32::try_from(count.value).expect("the declared bounds fit in a u32")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Config;

    #[test]
    fn defaults_match_the_decision_defaults() {
        let config = Config::from_text(Path::new("thalweg.toml"), "[controller]").unwrap();
        assert_eq!(config.controller.unwrap().settings(&[]), Settings::default());
    }

    #[test]
    fn tenant_inherits_the_settings_it_does_not_set() {
        let text = "[controller]\nduty_enter = 0.7\nby_tenant = \"on\"\n[[tenant]]\nhosts = [\"A.example\", \"b.example\"]\n\
                    duty_leave = 0.1\ncongestion_control = \"reno\"";
        let config = Config::from_text(Path::new("thalweg.toml"), text).unwrap();
        let settings = config.controller.unwrap().settings(&config.tenants);
        assert_eq!(settings.check(), []);
        assert!(settings.by_tenant);
        let own = settings.of("a.example");
        assert_eq!((own.duty_enter, own.duty_leave, own.congestion_control.as_str()), (0.7, 0.1, "reno"));
        assert_eq!(settings.of("c.example").congestion_control, "bbr");
        let few = Config::from_text(Path::new("thalweg.toml"), &format!("{text}\nsteered_max = 50")).unwrap();
        let few = few.controller.unwrap().settings(&few.tenants);
        assert_eq!((few.of("a.example").explored_max, few.explored_max), (50, 100));
    }

    #[test]
    fn tenant_faults_have_the_tenants_place() {
        let text = "[controller]\nhosts_left_alone = [\"c.example\"]\n[[tenant]]\nhosts = [\"a.example\"]\nduty_leave = 0.9\n\
                    [[tenant]]\nhosts = [\"a.example\", \"c.example\"]\n[[tenant]]\nduty = 1";
        let faults = Config::from_text(Path::new("thalweg.toml"), text).unwrap_err().to_string();
        assert!(faults.contains("thalweg.toml:9:1: unknown key"), "{faults}");
        let faults = Config::from_text(Path::new("thalweg.toml"), text.rsplit_once("[[").unwrap().0);
        expect_test::expect![[r#"
            thalweg.toml:3:1: duty_leave must be from 0 to duty_enter
            thalweg.toml:6:1: hosts must be unique names, neither in another tenant nor left alone, unlike a.example
            thalweg.toml:6:1: hosts must be unique names, neither in another tenant nor left alone, unlike c.example"#]].assert_eq(&faults.unwrap_err().to_string());
        let alone = Config::from_text(
            Path::new("thalweg.toml"),
            "[edge]\nbackends = [\"http://a\"]\n[[tenant]]\nhosts = [\"a.example\"]",
        );
        let faults = alone.unwrap_err().to_string();
        assert!(faults.contains("write [controller]"), "{faults}");
    }

    #[test]
    fn inconsistent_settings_are_reported() {
        let text = "[controller]\nduty_leave = 0.9\nwindow = \"1500ms\"";
        let faults = Config::from_text(Path::new("thalweg.toml"), text).unwrap_err().to_string();
        for fault in ["must be whole seconds", "duty_leave must be from 0 to duty_enter"] {
            assert!(faults.contains(fault), "{faults}");
        }
    }
}
