//! Windows: what a PoP's records say of each prefix in one span of time.
//!
//! **Invariant:** prefixes are in order, each once, and at most [`PREFIXES_MAX`](crate::PREFIXES_MAX).

use std::collections::BTreeMap;
use std::sync::Arc;

use thalweg_record::{Prefix, Sketch};

use crate::figures::Figures;
use crate::sequential::Mean;

/// What a rule has done with a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arm {
    /// Nothing, or something else has decided.
    Other,
    /// It set the congestion control.
    Steered,
    /// It held the connection out, which went on with the default.
    HeldOut,
}

/// What the connections of one arm had.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ArmSample {
    /// Connections.
    pub connections: u32,
    /// Delivery rates in bytes per second, one value of each connection that has any: the median of its samples, without those
    /// that the application limited.
    pub delivery_rate: Sketch,
    /// Goodputs in bytes per second, likewise: the median of its responses that tell of it.
    pub goodput: Sketch,
    /// Bytes sent, those sent again included.
    pub sent_bytes: u64,
    /// Of those, sent again.
    pub retrans_bytes: u64,
}

impl ArmSample {
    /// The share of bytes that was sent again; absent if none was sent.
    pub fn retransmitted_share(&self) -> Option<f64> {
        (self.sent_bytes > 0).then(|| self.retrans_bytes as f64 / self.sent_bytes as f64)
    }
}

/// What a connection has shown that a rule was about, told once in its life: the unit of all proof.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The bundle whose rule it was.
    pub bundle: u64,
    /// Whether it was steered; else it was held out.
    pub is_steered: bool,
    /// The mean of its responses' log goodput in bytes per second.
    pub ln_goodput: f64,
    /// The share of its bytes that was sent again, where a sample of its socket tells.
    pub retransmitted_share: Option<f64>,
}

/// What a window has of a prefix.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sample {
    /// Connections that no rule was about.
    pub other: ArmSample,
    /// Connections that a rule steered.
    pub steered: ArmSample,
    /// Connections that a rule held out.
    pub held_out: ArmSample,
    /// Smallest round trips of connections, microseconds.
    pub min_rtt_us: Sketch,
    /// Log goodput of connections that no rule steered, one value each.
    pub ln_goodput: Mean,
    /// The connections that a rule was about.
    pub outcomes: Vec<Outcome>,
}

impl Sample {
    /// What there is of an arm.
    pub fn arm_mut(&mut self, arm: Arm) -> &mut ArmSample {
        match arm {
            Arm::Other => &mut self.other,
            Arm::Steered => &mut self.steered,
            Arm::HeldOut => &mut self.held_out,
        }
    }

    /// Connections of all arms.
    pub fn connections(&self) -> u32 {
        self.other
            .connections
            .saturating_add(self.steered.connections)
            .saturating_add(self.held_out.connections)
    }
}

/// One window of a PoP, or of a tenant there.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Window {
    /// Its start in seconds since the Unix epoch, divided by its length: windows are numbered by the clock.
    pub number: u64,
    /// Records that it is made of.
    pub records: u64,
    /// Records that the agents say were lost.
    pub lost: u64,
    /// What there is of each prefix, in order.
    pub prefixes: Vec<(Prefix, Sample)>,
    /// How each edge of the PoP did, by the name of its machine; of all tenants together.
    pub edges: Arc<BTreeMap<String, Figures>>,
}

impl Window {
    /// What there is of `prefix`.
    pub fn sample(&self, prefix: Prefix) -> Option<&Sample> {
        let at = self.prefixes.binary_search_by_key(&prefix, |(prefix, _)| *prefix).ok()?;
        self.prefixes.get(at).map(|(_, sample)| sample)
    }
}

/// How many windows `number` is after `last`; nothing if it was decided already, or is from before.
///
/// A number that is more than `history` behind is taken for that of a clock that was set right, and follows: else a clock that
/// was a year ahead once would end all decisions for that year.
pub(crate) fn follows(last: Option<u64>, number: u64, history: u32) -> Option<u64> {
    match last {
        None => Some(1),
        Some(last) if number > last => Some(number - last),
        Some(last) if last - number > u64::from(history) => Some(1),
        Some(_) => None,
    }
}
