//! How an edge did in a span of time, whatever steered its connections: what a bundle is watched by that few edges have.
//!
//! The unit is the connection, as in all proof: responses of one fail, or are slow, together.

use serde::{Deserialize, Serialize};

use crate::sequential::Mean;

/// Edges of a PoP.
pub const EDGES_MAX: usize = 1_000;

/// How an edge did.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figures {
    /// Responses.
    pub responses: u64,
    /// The share of responses that failed: cut short, or a status from 500 on. One value of each connection.
    pub failed: Mean,
    /// The share of bytes that was sent again, likewise.
    pub retransmitted: Mean,
    /// Log goodput in bytes per second, likewise: the mean of its responses that tell of it.
    pub ln_goodput: Mean,
}

impl Figures {
    /// Adds another's: of another edge, or of another time.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.responses = self.responses.saturating_add(other.responses);
        self.failed.merge(&other.failed);
        self.retransmitted.merge(&other.retransmitted);
        self.ln_goodput.merge(&other.ln_goodput);
    }

    /// Goes on by a window: what was before counts half, and responses are those of one window.
    pub(crate) fn go_on(&self, window: &Self) -> Self {
        let mut next = Self {
            responses: 0,
            failed: self.failed.halved(),
            retransmitted: self.retransmitted.halved(),
            ln_goodput: self.ln_goodput.halved(),
        };
        next.merge(window);
        next.responses = self.responses / 2 + window.responses / 2;
        next
    }
}
