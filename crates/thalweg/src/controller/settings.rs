//! From the settings of `[controller]` to those of a decision.

use thalweg_control::{Canary, Settings};

use crate::config::{Controller, Count, Set};

impl Controller {
    /// How it decides.
    pub(crate) fn settings(&self) -> Settings {
        let hosts = self.hosts_left_alone.iter().flat_map(|hosts| &hosts.value);
        let networks = self.left_alone.iter().flat_map(|networks| &networks.value);
        Settings {
            window_s: self.window.value.duration.as_secs(),
            late_s: self.late.value.duration.as_secs(),
            measure: self.measure.value.0,
            goodput_bytes_min: self.goodput_min.value.bytes,
            counts_relayed: self.counts_relayed.value.0,
            hosts_left_alone: hosts.map(|host| host.0.clone()).collect(),
            by_tenant: false, // a rule of a bundle is about all hosts
            connections_min: narrow(&self.connections_min),
            bottom_share: self.bottom_share.value.0.number(),
            history_windows: narrow(&self.history_windows),
            observed_windows_min: narrow(&self.observed_windows_min),
            duty_enter: self.duty_enter.value.0.number(),
            duty_leave: self.duty_leave.value.0.number(),
            flap_max: self.flap_max.value.0.number(),
            min_rtt_us_min: u64::try_from(self.min_rtt_min.value.duration.as_micros())
                .expect("bounded by its declaration"),
            left_alone: networks.map(|network| network.0).collect(),
            congestion_control: self.congestion_control.value.0.clone(),
            steered_max: self.steered_max.value.0,
            entering_max: self.entering_max.value.0,
            changes_max: self.changes_max.value.0,
            explored_max: self.explored_max.value.0,
            exploring_max: self.exploring_max.value.0,
            holdout_trial: self.holdout_trial.value.0,
            holdout: self.holdout.value.0,
            false_discovery_share: self.false_discovery_share.value.0.number(),
            false_harm_share: self.false_harm_share.value.0.number(),
            evidence_connections_min: narrow(&self.evidence_connections_min),
            effect_min: self.effect_min.value.0.number(),
            trial_windows_max: narrow(&self.trial_windows_max),
            pooled_keep: self.pooled_keep.value.0.number(),
            proof_windows_max: narrow(&self.proof_windows_max),
            retransmitted_rise_max: self.retransmitted_rise_max.value.0.number(),
            guardrail_rise_max: self.guardrail_rise_max.value.0.number(),
            guardrail_pause_windows: narrow(&self.guardrail_pause_windows),
            cool_off_windows: narrow(&self.cool_off_windows),
            canary: Canary {
                share: self.canary_share.value.0.number(),
                windows: narrow(&self.canary_windows),
                windows_max: narrow(&self.canary_windows_max),
                acknowledge_s_max: self.acknowledge_max.value.duration.as_secs(),
                failed_rise_max: self.canary_failed_rise_max.value.0.number(),
                retransmitted_rise_max: self.canary_retransmitted_rise_max.value.0.number(),
                goodput_drop_max: self.canary_goodput_drop_max.value.0.number(),
            },
        }
    }
}

fn narrow(count: &Set<Count>) -> u32 {
    u32::try_from(count.value.0).expect("bounded by its declaration")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Config;

    #[test]
    fn the_defaults_are_those_of_the_decision() {
        let config = Config::from_text(Path::new("thalweg.toml"), "[controller]").unwrap();
        assert_eq!(config.controller.unwrap().settings(), Settings::default());
    }

    #[test]
    fn what_does_not_fit_together_is_told() {
        let text = "[controller]\nduty_leave = 0.9\nwindow = \"1500ms\"";
        let faults = Config::from_text(Path::new("thalweg.toml"), text).unwrap_err().to_string();
        for told in ["not whole seconds", "duty_leave has to be from 0 to duty_enter"] {
            assert!(faults.contains(told), "{faults}");
        }
    }
}
