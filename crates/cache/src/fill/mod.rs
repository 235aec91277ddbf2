//! The `FillBuffer`: append-only content with one writer and any number of readers.
//!
//! ```text
//! Awaiting head → Filling(head) → Complete
//!        └──────────────┴──────→ Failed(reason)
//! ```
//!
//! A reader requests the bytes at its offset and receives those that have arrived, or is woken **by
//! the append itself**. A hit on complete content, a client that joins midway, and a request for a
//! range yet to arrive all use the same kind of reader, at different offsets.
//!
//! Invariants:
//! - Published bytes never change: all readers receive the same bytes at an offset.
//! - Dropping the writer before completion fails the fill. A failed fill never ends cleanly: its
//!   readers receive the content that had arrived, then the failure.
//! - A *stored* fill keeps all content in the arena, and no reader delays the writer. A *passed*
//!   fill keeps only a bounded window of content for the reader that started it, and the writer
//!   waits for room in the window.
//! - Complete stored content may move to the disk and back while readers continue at their offsets.
//!   It fails only if it can no longer be read from disk.

pub(crate) mod buffer;
pub(crate) mod failure;
mod moving;
#[cfg(not(loom))]
mod on_disk;
mod piece;
mod reader;
mod trailer;
mod writer;

#[cfg(not(loom))]
pub(crate) use buffer::Backing;
pub use buffer::{FillBuffer, Progress};
pub use failure::Failure;
#[cfg(not(loom))]
pub(crate) use on_disk::Demotion;
pub use piece::Piece;
pub use reader::Reader;
pub use trailer::Trailer;
pub use writer::{Destination, GROWTH_BYTES, Room, Writer};
