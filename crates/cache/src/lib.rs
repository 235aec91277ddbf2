//! HTTP cache: storage, freshness, eviction, purging, and delivery to many readers during a fetch.
//!
//! - [`fill`]: the [`FillBuffer`]: one writer, any number of readers, append-only content.
//! - [`arena`]: the memory that holds content: a memfd divided into slabs, so `sendfile` sends
//!   without copying.
//! - [`rules`], [`freshness`] and [`storage`]: RFC 9111 as pure functions of settings, fields and
//!   `now`.
//! - [`entry`]: keys and heads, the base of fills, purges and the disk tier; [`stored`]: a stored
//!   response.
//! - [`store`]: the sharded index: look-up, collapsing, variants.
//! - [`eviction`]: which stored response to evict when memory runs short.
//! - [`purge`] and [`ban`]: removal by URL, tag or expression.
//! - [`disk`]: the second tier: files that survive a restart.
//!
//! Lock order: a shard of the index → the list of purges → a [`FillBuffer`] → the arena's slabs. No
//! lock is held across I/O, and wakers are called with no lock held.

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
