//! The settings on which a state is based, and the parts of the state that a changed setting
//! discards.
//!
//! - `congestion_control` discards rules, evidence and failures, because these are about another
//!   algorithm. All steered prefixes are withdrawn and may re-enter as usual. Cool-offs lengthened
//!   by failures are shortened to the base length.
//! - Settings that define the outcome (`goodput_bytes_min`, `hosts_left_alone` and the
//!   tenants' hosts) or the arms (`holdout_trial`, `holdout`, `switchback_block_windows`) discard
//!   evidence. Trials restart, and promising and proved prefixes go back on trial.
//! - `measure` discards histories.
//! - `window_s` discards histories and evidence, because clients are drawn anew in each window.
//!
//! Any other setting applies to the existing state from the next round.

use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use crate::settings::{Measure, Settings, normalized_hosts};

/// Version of the definition of an outcome. Version 1 was content bytes divided by the time until
/// the kernel took the last byte; version 2 was acknowledged bytes per second of busy time. Version
/// 3 is the same as version 2, but for each client in a redraw period instead of each connection.
const OUTCOME_VERSION: u32 = 3;

/// The settings on which a state is based.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Basis {
    window_s: u64,
    measure: Measure,
    congestion_control: String,
    goodput_bytes_min: u64,
    /// Digest of hosts left alone and tenants' hosts: see [`digest_of`].
    hosts_left_alone_digest: u64,
    holdout_trial_millionths: u32,
    holdout_millionths: u32,
    /// Absent in states of format 1.
    #[serde(default)]
    switchback_block_windows: u32,
    /// [`OUTCOME_VERSION`]; 0 in states of version 1.
    #[serde(default)]
    outcome: u32,
    /// A setting of version 1.
    #[serde(default, skip_serializing)]
    counts_relayed: Option<bool>,
}

/// Differences between two bases, and what they discard.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// Names of the changed settings.
    pub(crate) settings: Vec<&'static str>,
    pub(crate) discards_histories: bool,
    pub(crate) discards_evidence: bool,
    pub(crate) discards_rules: bool,
}

impl Basis {
    pub(crate) fn of(settings: &Settings) -> Self {
        Self {
            window_s: settings.window_s,
            measure: settings.measure,
            congestion_control: settings.congestion_control.clone(),
            goodput_bytes_min: settings.goodput_bytes_min,
            hosts_left_alone_digest: digest_of(settings),
            holdout_trial_millionths: settings.holdout_trial.millionths(),
            holdout_millionths: settings.holdout.millionths(),
            switchback_block_windows: settings.switchback_block_windows,
            outcome: OUTCOME_VERSION,
            counts_relayed: None,
        }
    }

    /// Returns the settings changed since `before`, and what they discard.
    pub(crate) fn changes_since(&self, before: &Self) -> Changes {
        let (histories, evidence, rules) = ((true, false, false), (false, true, false), (false, true, true));
        let both = (true, true, false);
        let mut changes = Changes::default();
        for (is_changed, setting, (discards_histories, discards_evidence, discards_rules)) in [
            (self.window_s != before.window_s, "window_s", both),
            (self.measure != before.measure, "measure", histories),
            (self.congestion_control != before.congestion_control, "congestion_control", rules),
            (self.goodput_bytes_min != before.goodput_bytes_min, "goodput_bytes_min", evidence),
            (self.hosts_left_alone_digest != before.hosts_left_alone_digest, "hosts", evidence),
            (self.holdout_trial_millionths != before.holdout_trial_millionths, "holdout_trial", evidence),
            (self.outcome != before.outcome, "outcome", evidence),
            (self.holdout_millionths != before.holdout_millionths, "holdout", evidence),
            (
                self.switchback_block_windows != before.switchback_block_windows,
                "switchback_block_windows",
                evidence,
            ),
        ] {
            if is_changed {
                changes.settings.push(setting);
                changes.discards_histories |= discards_histories;
                changes.discards_evidence |= discards_evidence;
                changes.discards_rules |= discards_rules;
            }
        }
        changes
    }

    /// Converts window `number` to the window length of `now`: returns the newest window of that
    /// length that had started when window `number` ended.
    pub(crate) fn renumber(&self, number: u64, now: &Self) -> u64 {
        if self.window_s == now.window_s {
            return number;
        }
        let over_unix_s = number.saturating_add(1).saturating_mul(self.window_s);
        over_unix_s.div_ceil(now.window_s.max(1)).saturating_sub(1)
    }
}

/// Hashes the hosts that affect the evidence: hosts left alone and the hosts of all tenants. The
/// digest depends neither on the case of names nor on which tenant a host belongs to.
fn digest_of(settings: &Settings) -> u64 {
    let of_tenants: Vec<_> = settings.tenants.iter().flat_map(|tenant| tenant.hosts().to_vec()).collect();
    let mut text = normalized_hosts(&settings.hosts_left_alone).join("\n");
    if !of_tenants.is_empty() {
        text = [text, normalized_hosts(&of_tenants).join("\n")].join("\n\n");
    }
    XxHash3_64::oneshot(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tenant::Tenant;

    #[test]
    fn host_digest_ignores_order_case_and_duplicates() {
        let names = |hosts: &[&str]| hosts.iter().map(ToString::to_string).collect::<Vec<_>>();
        let of = |hosts: &[&str]| Settings { hosts_left_alone: names(hosts), ..Settings::default() };
        let digest = |hosts: &[&str]| digest_of(&of(hosts));
        assert_eq!(digest(&["a.example", "b.example"]), digest(&["B.example", "a.example", "A.example"]));
        assert_ne!(digest(&["a.example", "b.example"]), digest(&["a.example"]));
        let of_tenants = |tenants: &[&[&str]]| {
            let tenants = tenants.iter().map(|hosts| Tenant::new(names(hosts), Settings::default()));
            digest_of(&Settings { tenants: tenants.collect(), ..of(&["a.example"]) })
        };
        let one = of_tenants(&[&["b.example"]]);
        assert!(![digest(&["a.example", "b.example"]), digest(&["a.example"])].contains(&one));
        // A different digest would discard the evidence of every stored state.
        assert_eq!([digest(&[]), digest(&["a.example"])], [0x2d06_8005_38d3_94c2, 0x9ec4_28c4_6505_6f88]);
        // Moving a host between tenants does not affect hosts without a tenant.
        let two = of_tenants(&[&["b.example", "d.example"], &["c.example"]]);
        assert_eq!(two, of_tenants(&[&["c.example", "d.example"], &["b.example"]]));
        assert_ne!(two, one);
    }
}
