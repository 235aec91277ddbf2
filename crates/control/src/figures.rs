//! An edge's figures over a time span, regardless of how its connections were steered. Canaries are
//! judged by these figures.
//!
//! Each connection contributes one value, as in all evidence, because responses on one connection
//! tend to fail or slow down together.

use serde::{Deserialize, Serialize};

use crate::sequential::Mean;

/// Maximum number of edges in a PoP.
pub const EDGES_MAX: usize = 1_000;

/// An edge's figures.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EdgeFigures {
    /// Number of responses.
    pub responses: u64,
    /// Share of failed responses (cut short, or status 500 and above), one value per connection.
    pub failed: Mean,
    /// Share of retransmitted bytes, one value per connection.
    pub retransmitted: Mean,
    /// Log goodput in bytes per second, one value per connection: the mean over its measurable
    /// responses.
    pub ln_goodput: Mean,
}

impl EdgeFigures {
    /// Merges the figures of another edge or time span.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.responses = self.responses.saturating_add(other.responses);
        self.failed.merge(&other.failed);
        self.retransmitted.merge(&other.retransmitted);
        self.ln_goodput.merge(&other.ln_goodput);
    }

    /// Returns these figures at half their weight, merged with a window's figures. `responses`
    /// becomes a moving average per window.
    pub(crate) fn decayed_with(&self, window: &Self) -> Self {
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
