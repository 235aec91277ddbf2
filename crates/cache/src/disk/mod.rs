//! The disk tier: stored responses in files that `sendfile` sends from and that survive a restart.
//!
//! - [`record`]: encoding of a file's header, which describes the response in it.
//! - [`journal`]: encoding of purges that may not have been applied to all files; [`journaling`]
//!   writes it.
//! - [`files`]: creates, reads and removes files.
//! - [`content`]: content on disk, as served to readers. No byte is sent before its block was
//!   verified, or if sending it would make a worker wait for the disk.
//! - [`tier`]: threads, budget and eviction; [`write`] and [`scan`] are the threads' work, and
//!   [`cleanup`] retries failed work.
//!
//! A response is written once it is complete, unless it is too short-lived to be worthwhile. Until
//! then, and while its write is queued, only memory has it. When memory evicts it, its content is
//! demoted to the disk and its place in the index is unchanged. Small content is promoted back to
//! memory on its next use; larger content is sent from the page cache.
//!
//! **Invariant:** only the tier's threads wait for the disk, then wake readers; workers never wait.
//! **Invariant:** a response that cannot be read as written leaves the index before its readers are
//! notified. **Invariant:** the cache works without the disk: a response that cannot be written
//! stays in memory only.
//!
//! Lock order: the eviction lock → a shard of the index → a `FillBuffer` → a copy → the tier's
//! queues.

mod cleanup;
pub(crate) mod content;
mod files;
mod index;
mod jobs;
pub mod journal;
mod journaling;
mod opened;
mod queue;
pub mod record;
mod residency;
mod scan;
mod tier;
mod write;

#[cfg(test)]
mod tests;

pub(crate) use content::DiskCopy;
pub(crate) use index::Index;
pub use opened::Disk;
pub(crate) use queue::STEPS_MAX;
pub use tier::Stats;
pub(crate) use tier::Tier;
