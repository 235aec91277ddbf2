//! The cache: what is stored, for how long, and how it is handed to many readers while it arrives.
//!
//! - [`fill`]: the [`FillBuffer`], one writer and any number of readers of content that only grows.
//! - [`arena`]: the memory it lies in, a memfd cut into slabs, from which `sendfile` sends without copying.
//! - [`rules`], [`freshness`] and [`storage`]: RFC 9111 as pure functions of settings, fields and `now`.
//! - [`store`]: the sharded index: look-up, collapse, variants.
//! - [`eviction`]: which of what is stored goes when room is needed.
//! - [`purge`] and [`ban`]: what is no longer to be served, by URL, tag or expression.
//! - [`disk`]: the second tier: files that outlive the process.
//! - [`counters`]: counters that outlive the process. Not of the cache: they stand here for their `unsafe`.
//!
//! Lock order: a shard of the index → the list of purges → a [`FillBuffer`] → the arena's slabs. No lock is held across I/O,
//! and wakers are called with none held.

pub mod arena;
pub mod ban;
#[cfg(not(loom))]
pub mod counters;
#[cfg(not(loom))]
pub mod disk;
pub mod eviction;
pub mod fill;
pub mod freshness;
mod memory;
#[cfg(not(loom))]
pub mod purge;
pub mod rules;
pub mod storage;
#[cfg(not(loom))]
pub mod store;
mod sync;
pub mod tags;
mod waiters;
mod window;

pub use arena::{Arena, SLAB_BYTES};
pub use ban::{Expression, ExpressionError};
#[cfg(not(loom))]
pub use disk::Disk;
pub use fill::{Failure, FillBuffer, Piece, Reader, Writer};
#[cfg(not(loom))]
pub use purge::{Ban, Position, Purge, TooMany, What};
#[cfg(not(loom))]
pub use store::{Cache, Fill, Head, Lasting, Lookup, Made, Private, Stored};
