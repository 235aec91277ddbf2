//! Congestion control compared: one real edge, real requests over emulated paths, a matrix of path × size × algorithm.
//!
//! - [`plan`]: what is to be measured, in which order; pure.
//! - [`statistics`]: what many samples of one cell say; pure.
//! - [`client`]: one sample: a fresh connection, one response, and what the kernel says of it at its end.
//! - [`run`]: the edge, the lanes and the samples.
//! - [`measured`]: what came of it; pure.
//!
//! **Invariant:** the algorithm that a sample is counted for was read back from the server's socket.
//! **Invariant:** a sample that fails is counted and told; it ends nothing.
//! **Invariant:** nothing of one sample is known to the next: each has a connection of its own, and the kernel keeps no metrics.

pub mod client;
pub mod measured;
pub mod plan;
pub mod run;
pub mod statistics;

pub use measured::Report;
pub use plan::{Ask, Cell, Plan};
pub use run::run;

use std::time::Duration;

/// What one response was like.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// From the first SYN until the last byte of the content.
    pub total: Duration,
    /// Until the connection stood.
    pub connect: Duration,
    /// From the request to the first byte of the response.
    pub ttfb: Duration,
    /// TCP segments that the server sent again, as its kernel says.
    pub retransmits: u64,
    /// Content bytes that had come after each [`SLICE`] from the first SYN.
    pub progress: Vec<u64>,
}

/// How finely the progress of a response is noted.
pub const SLICE: Duration = Duration::from_millis(50);
