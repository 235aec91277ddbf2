//! The index, as seen by the disk tier.

use std::sync::Arc;

use super::content::DiskCopy;
use crate::entry::{Head, Key};
use crate::purge::Position;
use crate::stored::{Content, Stored};

/// The index of stored responses. The tier has only a weak reference to the index, which owns the
/// tier.
pub(crate) trait Index: Send + Sync {
    /// Returns the key for this text, with the hash used by this index.
    fn key(&self, text: &Arc<str>) -> Key;

    /// Returns whether the index has the content of `stored`, under any head.
    fn holds(&self, stored: &Stored) -> bool;

    /// Attaches a copy to the content of `stored`. Returns the response that now has this content;
    /// `None` if it has left the index.
    fn attach(&self, stored: &Stored, copy: &Arc<DiskCopy>) -> Option<Arc<Stored>>;

    /// Returns the stored response backed by this copy.
    fn stored_of(&self, copy: &DiskCopy) -> Option<Arc<Stored>>;

    /// Adds a response found on disk at startup. Returns false if the index has a newer response,
    /// or the response was purged.
    fn restore(&self, head: Arc<Head>, position: Position, copy: &Arc<DiskCopy>) -> bool;

    /// Reports that the startup scan is complete.
    fn finish_scan(&self);

    /// Copies small content, just read from disk, back to memory if there is room.
    fn promote(&self, copy: &DiskCopy, content: &Arc<Content>, bytes: &[u8]);

    /// Removes the response of an evicted copy, unless its content is in memory.
    fn left_disk(&self, copy: &Arc<DiskCopy>);

    /// If the content of an unreadable copy is not in memory, fails the content and removes the
    /// response.
    fn lost(&self, copy: &Arc<DiskCopy>, content: &Arc<Content>);

    /// Returns the numbers of the bans in force.
    fn numbers_of_bans(&self) -> Vec<u64>;

    /// Returns whether keys and fields exceed their memory budget.
    fn is_full(&self) -> bool;
}
