//! What has come of one connection in a window, and what it adds to its prefix once the window is over.

use thalweg_record::{CacheResult, Decider, Prefix, ResponseRecord};

use super::samples::Samples;
use crate::figures::Figures;
use crate::sequential::Mean;
use crate::settings::Settings;
use crate::window::{Arm, Outcome, Sample};

/// What has come of a connection.
#[derive(Debug)]
pub(super) struct Connection {
    key: u64,
    pub(super) prefix: Prefix,
    /// The edge's place among the window's, if there was one left.
    pub(super) edge: Option<usize>,
    /// Responses, and those of them that failed.
    pub(super) responses: u32,
    pub(super) failed: u32,
    /// The tenant of its first response, by its place among the window's.
    pub(super) tenant: Option<usize>,
    /// A response of it was a host's that is left alone.
    pub(super) is_left_alone: bool,
    pub(super) rule: Option<Rule>,
    pub(super) ln_goodput: Mean,
    goodputs: Samples,
    delivery_rates: Samples,
    pub(super) min_rtt_us: u32,
    pub(super) sent_bytes: u64,
    pub(super) retrans_bytes: u64,
}

/// There are millions of them.
const _: () = assert!(size_of::<Connection>() <= 200);

/// What a rule has done with a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rule {
    /// Nothing that can be compared, if something else decided or the kernel refused.
    pub(super) arm: Arm,
    pub(super) bundle: u64,
}

impl Connection {
    /// One that nothing has come of yet; `key` names it to its PoP.
    pub(super) fn new(key: u64, prefix: Prefix, edge: Option<usize>) -> Self {
        Self {
            key,
            prefix,
            edge,
            responses: 0,
            failed: 0,
            tenant: None,
            is_left_alone: false,
            rule: None,
            ln_goodput: Mean::default(),
            goodputs: Samples::default(),
            delivery_rates: Samples::default(),
            min_rtt_us: 0,
            sent_bytes: 0,
            retrans_bytes: 0,
        }
    }

    /// Adds a sample of its socket.
    pub(super) fn add_delivery_rate(&mut self, rate_bytes_per_s: u64) {
        self.delivery_rates.add(self.key, rate_bytes_per_s);
    }

    /// Adds a response that tells of goodput.
    pub(super) fn add_goodput(&mut self, goodput_bytes_per_s: u64) {
        self.ln_goodput.add((goodput_bytes_per_s as f64).ln());
        self.goodputs.add(self.key, goodput_bytes_per_s);
    }

    /// Adds itself to its prefix; whether it told its outcome.
    pub(super) fn add_to(self, sample: &mut Sample, is_new: bool) -> bool {
        let arm = self.rule.map_or(Arm::Other, |rule| rule.arm);
        let retransmitted_share = self.retransmitted_share();
        let into = sample.arm_mut(arm);
        into.connections = into.connections.saturating_add(1);
        into.sent_bytes = into.sent_bytes.saturating_add(self.sent_bytes);
        into.retrans_bytes = into.retrans_bytes.saturating_add(self.retrans_bytes);
        self.delivery_rates.median().into_iter().for_each(|rate| into.delivery_rate.add(rate));
        self.goodputs.median().into_iter().for_each(|goodput| into.goodput.add(goodput));
        sample.min_rtt_us.add(self.min_rtt_us.into());
        if self.ln_goodput.count == 0 {
            return false;
        }
        if arm != Arm::Steered {
            sample.ln_goodput.add(self.ln_goodput.mean);
        }
        let Some(rule) = self.rule.filter(|rule| rule.arm != Arm::Other && is_new) else { return false };
        sample.outcomes.push(Outcome {
            bundle: rule.bundle,
            is_steered: arm == Arm::Steered,
            ln_goodput: self.ln_goodput.mean,
            retransmitted_share,
        });
        true
    }

    /// Adds itself to its edge.
    pub(super) fn add_to_edge(&self, edge: &mut Figures) {
        edge.responses = edge.responses.saturating_add(self.responses.into());
        if self.responses > 0 {
            edge.failed.add(f64::from(self.failed) / f64::from(self.responses));
        }
        self.retransmitted_share().into_iter().for_each(|share| edge.retransmitted.add(share));
        if self.ln_goodput.count > 0 {
            edge.ln_goodput.add(self.ln_goodput.mean);
        }
    }

    /// The share of its bytes that was sent again, where a sample of its socket tells.
    fn retransmitted_share(&self) -> Option<f64> {
        (self.sent_bytes > 0).then(|| (self.retrans_bytes as f64 / self.sent_bytes as f64).min(1.0))
    }
}

/// What a rule has done with the connection of a response; nothing if none was due.
pub(super) fn rule_of(response: &ResponseRecord) -> Option<Rule> {
    let steered = response.steered.as_ref().filter(|steered| steered.rule.is_some())?;
    let decider = response.tcp.as_ref().and_then(|tcp| tcp.decider);
    let arm = match (steered.is_holdout, decider) {
        _ if steered.refused.is_some() => Arm::Other,
        (false, Some(Decider::Rule)) => Arm::Steered,
        (true, Some(Decider::Default)) => Arm::HeldOut,
        _ => Arm::Other,
    };
    Some(Rule { arm, bundle: steered.bundle })
}

/// Whether a response failed: it was cut short, whoever did it, or the status says so.
pub(super) fn has_failed(response: &ResponseRecord) -> bool {
    response.cut.is_some() || response.status >= 500
}

/// Whether the goodput of a response is that of the path: whole, large enough, and not waiting for a backend.
pub(super) fn tells_of_goodput(settings: &Settings, response: &ResponseRecord) -> bool {
    let is_stored = matches!(response.cache, CacheResult::Hit | CacheResult::Stale);
    response.cut.is_none()
        && response.bytes >= settings.goodput_bytes_min
        && (is_stored || settings.counts_relayed)
}
