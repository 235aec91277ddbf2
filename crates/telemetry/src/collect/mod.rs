//! Collecting: records from the kernel and from edges, gathered into what the spool takes at once.
//!
//! **Invariant:** an edge never waits for the agent: a response that finds the queue full is counted as lost. The kernel's dumps
//! do wait.

mod intake;
mod saved;
mod sockets;
mod tracker;

pub use intake::{Batcher, Intake, intake};
pub use saved::Saved;
pub use sockets::{Collector, CollectorFigures, Place, SocketsConfig, Stop};
