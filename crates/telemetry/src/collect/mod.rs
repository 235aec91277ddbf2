//! Collection: gathers records from the kernel and from edges into batches for the spool.
//!
//! **Invariant:** an edge never waits for the agent: if the queue is full, its response is counted
//! as lost. Socket dumps do wait.

mod intake;
pub(crate) mod saved;
mod sockets;
mod tracker;

pub use intake::{Batcher, Intake, intake};
pub use saved::Saved;
pub use sockets::{Collector, CollectorFigures, Place, SocketsConfig, Stop};
