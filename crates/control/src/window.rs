//! Windows: aggregates of a PoP's records for each prefix over one time span.
//!
//! **Invariant:** prefixes are sorted and distinct. There are at most
//! [`PREFIXES_MAX`](crate::PREFIXES_MAX) of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use thalweg_record::{Prefix, Sketch};

use crate::figures::EdgeFigures;
use crate::sequential::Mean;

/// The arm of a connection under a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arm {
    /// No rule applied, or something other than the rule decided.
    Other,
    /// The rule set the congestion control.
    Steered,
    /// The rule held the connection out, so the connection kept the default.
    HeldOut,
}

/// Measurements over the connections of one arm.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ArmSample {
    /// Number of connections.
    pub connections: u32,
    /// Delivery rates in bytes per second, one value per connection: the median of the samples that
    /// were not application-limited.
    pub delivery_rate: Sketch,
    /// Goodputs in bytes per second, one value per connection: the median over its measurable
    /// responses.
    pub goodput: Sketch,
    /// Number of bytes sent, including retransmissions.
    pub sent_bytes: u64,
    /// Bytes retransmitted.
    pub retrans_bytes: u64,
}

impl ArmSample {
    /// Returns the retransmitted share of bytes, or `None` if no bytes were sent.
    pub fn retransmitted_share(&self) -> Option<f64> {
        (self.sent_bytes > 0).then(|| self.retrans_bytes as f64 / self.sent_bytes as f64)
    }
}

/// Outcome of one client under a rule, the unit of all evidence. Covers the client's connections
/// decided in one redraw period, which share one draw. Reported once per client and period.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Number of the bundle containing the rule; the lowest number if several bundles decided.
    pub bundle: u64,
    /// Redraw period in which the connections were decided. Periods are numbered like windows.
    pub period: u64,
    /// Whether the client was steered; otherwise it was held out.
    pub is_steered: bool,
    /// Mean log goodput of the responses of all connections, in bytes per second.
    pub ln_goodput: f64,
    /// Retransmitted share of the connections' bytes, if a socket was sampled.
    pub retransmitted_share: Option<f64>,
}

/// Measurements of one prefix in a window.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sample {
    /// Connections in neither arm: see [`Arm::Other`].
    pub other: ArmSample,
    /// Steered connections.
    pub steered: ArmSample,
    /// Held-out connections.
    pub held_out: ArmSample,
    /// Minimum RTTs of connections, in microseconds.
    pub min_rtt_us: Sketch,
    /// Log goodput of connections that were not steered, one value per connection.
    pub ln_goodput: Mean,
    /// Outcomes of clients under a rule.
    pub outcomes: Vec<Outcome>,
}

impl Sample {
    /// Returns an arm's measurements.
    pub fn arm_mut(&mut self, arm: Arm) -> &mut ArmSample {
        match arm {
            Arm::Other => &mut self.other,
            Arm::Steered => &mut self.steered,
            Arm::HeldOut => &mut self.held_out,
        }
    }

    /// Returns the number of connections across all arms.
    pub fn connections(&self) -> u32 {
        self.other
            .connections
            .saturating_add(self.steered.connections)
            .saturating_add(self.held_out.connections)
    }
}

/// A window of a PoP, or of one tenant in it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Window {
    /// Start of the window in Unix seconds, divided by the window length.
    pub number: u64,
    /// Number of records in the window, across all tenants.
    pub records: u64,
    /// Number of connections for which each measured one stands: more than 1 if clients were
    /// sampled because the window was full. Sums are weighted accordingly, and by the sampling
    /// ratios of the edges; 0 counts as 1.
    pub weight: u32,
    /// Number of records lost in the window, as reported by agents, across all tenants.
    pub lost: u64,
    /// Sample of each prefix, sorted by prefix.
    pub prefixes: Vec<(Prefix, Sample)>,
    /// Figures of each edge of the PoP, by host name, across all tenants.
    pub edges: Arc<BTreeMap<String, EdgeFigures>>,
}

impl Window {
    /// Returns the sample of `prefix`.
    pub fn sample(&self, prefix: Prefix) -> Option<&Sample> {
        let at = self.prefixes.binary_search_by_key(&prefix, |(prefix, _)| *prefix).ok()?;
        self.prefixes.get(at).map(|(_, sample)| sample)
    }
}

/// Returns the number of windows from `last` to `number`, or `None` if window `number` was already
/// decided or is older.
///
/// A window more than `history` windows behind is accepted as the next one, because the clock must
/// have been ahead and then corrected. Otherwise, a clock that had once been a year ahead would
/// stop decisions for a year.
pub(crate) fn follows(last: Option<u64>, number: u64, history: u32) -> Option<u64> {
    match last {
        None => Some(1),
        Some(last) if number > last => Some(number - last),
        Some(last) if last - number > u64::from(history) => Some(1),
        Some(_) => None,
    }
}
