//! One connection's measurements in a window, and their contribution to its prefix and edge when
//! the window closes.

use std::net::IpAddr;

use thalweg_record::{Decider, Prefix, ResponseRecord};

use super::samples::Samples;
use crate::figures::EdgeFigures;
use crate::sequential::Mean;
use crate::settings::Settings;
use crate::window::{Arm, Sample};

/// Measurements of one connection.
#[derive(Debug)]
pub(super) struct Connection {
    key: u64,
    /// The client's address.
    pub(super) address: IpAddr,
    /// Number of records.
    pub(super) records: u32,
    /// Edge index in the window, or `None` if the window had no room for the edge.
    pub(super) edge: Option<usize>,
    /// Number of clients of its edge for which the connection's client stands; 0 without a
    /// response.
    pub(super) sample_one_in: u32,
    /// Number of responses, including failed ones.
    pub(super) responses: u32,
    pub(super) failed: u32,
    /// Tenant of the connection's first response, by index in the window.
    pub(super) tenant: Option<usize>,
    /// Whether any response was for a host in `hosts_left_alone`.
    pub(super) is_left_alone: bool,
    pub(super) rule: Option<Rule>,
    pub(super) ln_goodput: Mean,
    goodputs: Samples,
    delivery_rates: Samples,
    pub(super) min_rtt_us: u32,
    pub(super) sent_bytes: u64,
    pub(super) retrans_bytes: u64,
}

/// A window can contain millions of connections, so their size is limited.
const _: () = assert!(size_of::<Connection>() <= 224);

/// A rule's effect on a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rule {
    /// [`Arm::Other`], which is not compared, if the rule did not decide.
    pub(super) arm: Arm,
    pub(super) bundle: u64,
    /// Redraw period in which the rule decided. `None` if the rule draws each client once.
    pub(super) period: Option<u64>,
}

impl Connection {
    /// Creates a connection without records. `key` identifies it within its PoP.
    pub(super) fn new(key: u64, address: IpAddr, edge: Option<usize>) -> Self {
        Self {
            key,
            address,
            records: 0,
            edge,
            sample_one_in: 0,
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

    /// Adds a delivery rate sample from the connection's socket.
    pub(super) fn add_delivery_rate(&mut self, rate_bytes_per_s: u64) {
        self.delivery_rates.add(self.key, rate_bytes_per_s);
    }

    /// Adds the goodput of a response that measures the path.
    pub(super) fn add_goodput(&mut self, goodput_bytes_per_s: u64) {
        self.ln_goodput.add((goodput_bytes_per_s as f64).ln());
        self.goodputs.add(self.key, goodput_bytes_per_s);
    }

    /// Returns the connection's client network.
    pub(super) fn prefix(&self) -> Prefix {
        Prefix::of_client(self.address)
    }

    /// Adds the connection to its prefix's sample, apart from outcomes. Sums count it `weight`
    /// times.
    pub(super) fn add_to(self, sample: &mut Sample, weight: u32) {
        let arm = self.rule.map_or(Arm::Other, |rule| rule.arm);
        let into = sample.arm_mut(arm);
        into.connections = into.connections.saturating_add(weight);
        let weighted = |bytes: u64| bytes.saturating_mul(weight.into());
        into.sent_bytes = into.sent_bytes.saturating_add(weighted(self.sent_bytes));
        into.retrans_bytes = into.retrans_bytes.saturating_add(weighted(self.retrans_bytes));
        self.delivery_rates.median().into_iter().for_each(|rate| into.delivery_rate.add(rate));
        self.goodputs.median().into_iter().for_each(|goodput| into.goodput.add(goodput));
        sample.min_rtt_us.add(self.min_rtt_us.into());
        if self.ln_goodput.count > 0 && arm != Arm::Steered {
            sample.ln_goodput.add(self.ln_goodput.mean);
        }
    }

    /// Adds the connection to its edge's figures. Sums count it `weight` times. The edge's own
    /// sampling has no weight here: an edge is judged by the number of responses it recorded.
    pub(super) fn add_to_edge(&self, edge: &mut EdgeFigures, weight: u32) {
        let responses = u64::from(self.responses).saturating_mul(weight.into());
        edge.responses = edge.responses.saturating_add(responses);
        if self.responses > 0 {
            edge.failed.add(f64::from(self.failed) / f64::from(self.responses));
        }
        self.retransmitted_share().into_iter().for_each(|share| edge.retransmitted.add(share));
        if self.ln_goodput.count > 0 {
            edge.ln_goodput.add(self.ln_goodput.mean);
        }
    }

    /// Returns the retransmitted share of bytes, or `None` if the socket was not sampled.
    fn retransmitted_share(&self) -> Option<f64> {
        (self.sent_bytes > 0).then(|| (self.retrans_bytes as f64 / self.sent_bytes as f64).min(1.0))
    }
}

/// Returns a rule's effect on the response's connection, or `None` if no rule applied.
pub(super) fn rule_of(response: &ResponseRecord) -> Option<Rule> {
    let steered = response.steered.as_ref().filter(|steered| steered.rule.is_some())?;
    let decider = response.tcp.as_ref().and_then(|tcp| tcp.decider);
    let arm = match (steered.is_holdout, decider) {
        // Counted as intended: an edge whose kernel refuses the algorithm would otherwise appear in
        // the held-out arm alone, and bias the comparison by how fast it is.
        (false, Some(Decider::Default)) if steered.refused.is_some() && steered.experiment.is_none() => {
            Arm::Steered
        }
        (false, Some(Decider::Rule)) => Arm::Steered,
        (true, Some(Decider::Default)) => Arm::HeldOut,
        _ => Arm::Other,
    };
    Some(Rule { arm, bundle: steered.bundle, period: steered.draw_period })
}

/// Returns whether a response failed: either side cut it short, or its status is 500 or above.
pub(super) fn has_failed(response: &ResponseRecord) -> bool {
    response.cut.is_some() || response.status >= 500
}

/// Returns a response's goodput in bytes per second if it measures the path: enough bytes were
/// acknowledged. A response that waited for content or was cut counts as well, because only time
/// with unacknowledged bytes counts.
pub(super) fn measured_goodput(settings: &Settings, response: &ResponseRecord) -> Option<u64> {
    let delivery = response.delivery.as_ref()?;
    let goodput = delivery.goodput_with_window_limit_bytes_per_s()?;
    (delivery.acked_bytes >= settings.goodput_bytes_min && goodput > 0).then_some(goodput)
}
