//! The disk tier: stored responses in files, which survive a restart and are sent with `sendfile`.
//!
//! - [`record`]: encoding of a file's header, which describes the response in it.
//! - [`journal`]: encoding of the purge journal, which lists purges that may not have been applied
//!   to all files; [`journaling`] writes it.
//! - [`files`]: creates, reads and removes files.
//! - [`content`]: content on disk, as served to readers. No byte is sent before its block is
//!   verified, or while sending it would make a worker wait for the disk.
//! - [`tier`]: threads, budget and eviction; [`write`] and [`scan`] contain the threads' work, and
//!   [`cleanup`] retries failed work.
//!
//! A response is written once it is complete, unless it is too short-lived to be worthwhile. Until
//! then, the response is in memory only. When a written response is evicted from memory, its
//! content is demoted to disk and the response stays in the index. Small content is promoted back
//! to memory on its next use; larger content is sent from the page cache.
//!
//! **Invariant:** only the tier's threads wait for the disk and then wake readers; workers never
//! wait, with one exception described in [`content`].
//! **Invariant:** a response that cannot be read as written leaves the index before its readers are
//! notified.
//! **Invariant:** the cache works even if the disk fails: a response that cannot be written stays
//! in memory only.
//!
//! Lock order: the tier's eviction lock → an index shard → a `FillBuffer` → a disk copy → the
//! tier's queues.

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
