//! The `FillBuffer`: one writer, any number of readers, append-only content.
//!
//! ```text
//! Awaiting head → Filling(head) → Complete
//!        └──────────────┴──────→ Failed(reason)
//! ```
//!
//! A reader asks for the bytes at its offset and gets those that have arrived, or is woken **by the
//! append itself**. A hit on complete content, a client that joins midway and a range that has not
//! arrived yet are all the same reader at different offsets.
//!
//! Invariants:
//! - Published bytes never change: all readers get the same bytes at an offset.
//! - Dropping a writer without completing it fails the fill. A failed fill never ends cleanly: its
//!   readers get the content that had arrived, then the failure.
//! - The content of a *stored* fill is kept whole in the arena, and no reader delays the writer.
//!   The content of a *passed* fill is a bounded window for the reader that started it, and the
//!   writer waits for room.
//! - Complete stored content may move to the disk and back while readers continue at their offsets.
//!   It fails only if the disk can no longer read it.

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
