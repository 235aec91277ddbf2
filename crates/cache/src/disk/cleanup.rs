//! Retries of failed purge work on disk, after each sweep. Until a retry succeeds, the journal
//! keeps the purges.

use std::sync::Arc;

use super::content::DiskCopy;
use super::files::Name;
use super::tier::Tier;
use crate::purge::Position;
use crate::sync::lock;

/// Maximum number of file removals queued for a retry. If another one fails, the journal is kept
/// until the next start.
const FILES_MAX: usize = 1024;
/// Maximum number of head writes queued for a retry. Further ones are left to the next sweep.
const HEADS_MAX: usize = 1024;

/// Files still to be removed, and copies whose newest head has not been written.
#[derive(Debug, Default)]
pub(super) struct Cleanup {
    files: Vec<Name>,
    heads: Vec<Arc<DiskCopy>>,
    /// Number of heads left to sweeps so far.
    heads_left: u64,
    /// Whether only a restart can complete the cleanup.
    until_restart: bool,
}

impl Cleanup {
    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty() && self.heads.is_empty() && !self.until_restart
    }
}

impl Tier {
    /// Keeps the journal until the next start, because the contents of the disk are unknown.
    pub(super) fn keep_journal(&self) {
        lock(&self.cleanup).until_restart = true;
    }

    /// Queues the removal of a file for a retry.
    pub(super) fn retry_removal(&self, name: Name) {
        let mut cleanup = lock(&self.cleanup);
        if cleanup.files.contains(&name) {
            return;
        }
        if cleanup.files.len() < FILES_MAX {
            cleanup.files.push(name);
        } else {
            cleanup.until_restart = true;
        }
    }

    /// Queues the write of a copy's newer head, which records a soft purge, for a retry.
    pub(super) fn retry_head(&self, copy: &Arc<DiskCopy>) {
        let mut cleanup = lock(&self.cleanup);
        if cleanup.heads.iter().any(|other| Arc::ptr_eq(other, copy)) {
            return;
        }
        if cleanup.heads.len() < HEADS_MAX {
            cleanup.heads.push(copy.clone());
            return;
        }
        drop(cleanup);
        self.leave_to_sweep(copy);
    }

    pub(super) fn leave_to_sweep(&self, copy: &DiskCopy) {
        // Reset the position before counting the head, so that any sweep that starts after the
        // count queues the head again.
        copy.set_position(Position::default());
        lock(&self.cleanup).heads_left += 1;
    }

    /// Returns the number of heads left to sweeps so far.
    pub(crate) fn heads_left(&self) -> u64 {
        lock(&self.cleanup).heads_left
    }

    /// Retries all queued work. Returns true if no work remains and no further head was left to a
    /// sweep since `heads_left` was read.
    pub(super) fn retry_cleanup(self: &Arc<Self>, heads_left: u64) -> bool {
        let (files, heads) = {
            let mut cleanup = lock(&self.cleanup);
            (std::mem::take(&mut cleanup.files), std::mem::take(&mut cleanup.heads))
        };
        files.into_iter().for_each(|name| self.remove(name));
        for copy in heads {
            if copy.is_gone() {
                self.remove(copy.name());
                continue;
            }
            let Some(stored) = self.index.upgrade().and_then(|index| index.stored_of(&copy)) else {
                // The copy has since left the index, and the removal of its file is queued. Remove
                // the file now, because the journal may be shortened before the queued removal
                // runs.
                self.remove(copy.name());
                continue;
            };
            copy.note_head(&stored.head, stored.position());
            copy.write_head(|head, position| self.write_head(&copy, head, position));
        }
        let cleanup = lock(&self.cleanup);
        cleanup.is_empty() && cleanup.heads_left == heads_left
    }
}
