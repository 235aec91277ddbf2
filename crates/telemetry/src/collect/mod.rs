//! Collection: gathers records from the kernel and from edges into batches for the spool.
//!
//! **Invariant:** an edge never waits for the agent. If the queue is full, the edge's response
//! record is counted as lost. Only socket dumps wait for the queue.

mod counters;
mod intake;
mod join;
mod kernel;
mod rates;
pub(crate) mod saved;
mod sockets;
mod tracker;

pub use crate::clock::Moment;
pub use intake::{Batcher, Intake, intake};
pub use saved::Saved;
pub use sockets::{Collector, CollectorFigures, Namespace, SocketsConfig, Stop};
pub use tracker::Tracker;
