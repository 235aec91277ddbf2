//! HTTP cache: storage, freshness, eviction, purging, and delivery to many readers during a fetch.
//!
//! - [`fill`]: the [`FillBuffer`], append-only content with one writer and any number of readers.
//! - [`arena`]: content memory, a memfd divided into slabs from which `sendfile` sends without
//!   copying.
//! - [`rules`], [`freshness`] and [`storage`]: RFC 9111 as pure functions of settings, fields and
//!   `now`.
//! - [`entry`]: keys and heads of responses, on which the other modules build; [`stored`]: a stored
//!   response.
//! - [`store`]: the sharded index, with look-up, request collapsing and variants.
//! - [`eviction`]: chooses the stored response to evict when memory runs short.
//! - [`purge`] and [`ban`]: removal by URL, tag or expression.
//! - [`disk`]: the second tier, files that survive a restart.
//!
//! Lock order: an index shard → the purge list → a [`FillBuffer`] → the arena's slabs. No lock is
//! held across I/O, and wakers are called with no lock held.

pub mod arena;
pub mod ban;
#[cfg(not(loom))]
pub mod disk;
#[cfg(not(loom))]
pub mod entry;
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
#[cfg(not(loom))]
pub mod stored;
mod sync;
pub mod tags;
mod waiters;
mod window;

pub use arena::{Arena, SLAB_BYTES};
pub use ban::{Compile, Predicate, Subject};
#[cfg(not(loom))]
pub use disk::Disk;
#[cfg(not(loom))]
pub use entry::{Head, PassMark, SynthReason, Unshareable};
pub use fill::{Failure, FillBuffer, Piece, Reader, Writer};
#[cfg(not(loom))]
pub use purge::{Ban, Position, Purge, PurgeScope, TooManyPurges};
#[cfg(not(loom))]
pub use store::{Cache, Fill, Lookup};
#[cfg(not(loom))]
pub use stored::Stored;
