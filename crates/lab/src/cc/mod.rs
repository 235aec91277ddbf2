//! Comparison of congestion control algorithms: one real edge, real requests over emulated paths,
//! and a matrix of path × size × algorithm.
//!
//! - [`plan`]: the matrix and the measuring order.
//! - [`statistics`]: statistics of one cell, and comparisons of two cells.
//! - [`client`]: takes one sample over a fresh connection and reads the kernel's counters.
//! - [`run`]: starts the edge and takes the samples in parallel lanes.
//! - [`measured`]: the results.
//! - [`agreement`]: the edge's goodput beside the client's.
//! - [`estimate`]: how long a comparison takes.
//!
//! **Invariant:** each sample's algorithm is the one read back from the server's socket.
//! **Invariant:** a failed sample is counted and reported; it does not end the run.
//! **Invariant:** samples are independent: each uses its own connection, and the kernel caches no
//! TCP metrics.

pub mod agreement;
pub mod client;
mod estimate;
pub mod measured;
pub mod plan;
pub mod run;
pub mod statistics;

pub use measured::Report;
pub use plan::{Cell, Plan, Request};
pub use run::{Done, run};

use std::time::Duration;

/// The measurements of one response.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Time from the first SYN to the last byte of the content.
    pub total: Duration,
    /// Time until the connection was established.
    pub connect: Duration,
    /// Time from the request to the first byte of the response.
    pub ttfb: Duration,
    /// Number of TCP segments retransmitted by the server's kernel.
    pub retransmits: u64,
    /// Goodput measured by the edge, in bytes per second; `None` for responses that it does not
    /// measure.
    pub edge_bytes_per_s: Option<u64>,
    /// Content bytes received by the end of each [`SLICE`], counted from the first SYN.
    pub progress: Vec<u64>,
}

impl Sample {
    /// Returns the time from the request to the last byte of the content, by the client's clock.
    /// The server needs the same time from the first byte sent to the last byte acknowledged: both
    /// include one round trip.
    pub fn transfer(&self) -> Duration {
        self.total.saturating_sub(self.connect)
    }
}

/// Time resolution of [`Sample::progress`].
pub const SLICE: Duration = Duration::from_millis(50);
