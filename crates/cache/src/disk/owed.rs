//! What could not be carried out on the disk of what purges took away: it is tried again with each walk, and the journal
//! goes on telling of it until then.

use std::sync::Arc;

use super::files::Name;
use super::{Copy, Tier};
use crate::purge::Position;
use crate::sync::lock;

/// Files that are kept in mind; with more the journal is kept until the next start.
const FILES_MAX: usize = 1024;
/// Heads that are kept in mind; more are left to the next walk.
const HEADS_MAX: usize = 1024;

/// Files that are still there, and copies whose head is not the newest.
#[derive(Debug, Default)]
pub(super) struct Owed {
    files: Vec<Name>,
    heads: Vec<Arc<Copy>>,
    /// Heads so far that were left to the next walk.
    heads_left: u64,
    /// Something that only the next start can see to.
    for_good: bool,
}

impl Owed {
    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty() && self.heads.is_empty() && !self.for_good
    }
}

impl Tier {
    /// What lies there is not known: the journal is kept until the next start.
    pub(super) fn keep_journal(&self) {
        lock(&self.owed).for_good = true;
    }

    /// A file could not be removed.
    pub(super) fn owe_removal(&self, name: Name) {
        let mut owed = lock(&self.owed);
        if owed.files.contains(&name) {
            return;
        }
        if owed.files.len() < FILES_MAX {
            owed.files.push(name);
        } else {
            owed.for_good = true;
        }
    }

    /// A newer head, which tells of a soft purge, could not be written.
    pub(super) fn owe_head(&self, copy: &Arc<Copy>) {
        let mut owed = lock(&self.owed);
        if owed.heads.iter().any(|other| Arc::ptr_eq(other, copy)) {
            return;
        }
        if owed.heads.len() < HEADS_MAX {
            owed.heads.push(copy.clone());
            return;
        }
        drop(owed);
        self.leave_to_walk(copy);
    }

    pub(super) fn leave_to_walk(&self, copy: &Copy) {
        // Before it is counted: a walk that begins after that asks for the head once more.
        copy.set_position(Position::default());
        lock(&self.owed).heads_left += 1;
    }

    /// Heads so far that are left to the walk that begins now, or was before.
    pub(crate) fn heads_left(&self) -> u64 {
        lock(&self.owed).heads_left
    }

    /// Tries it all once more; whether nothing is left, where `heads_left` had been left to walks when the last one began.
    pub(super) fn settle_owed(self: &Arc<Self>, heads_left: u64) -> bool {
        let (files, heads) = {
            let mut owed = lock(&self.owed);
            (std::mem::take(&mut owed.files), std::mem::take(&mut owed.heads))
        };
        files.into_iter().for_each(|name| self.remove(name));
        for copy in heads {
            if copy.is_gone() {
                self.remove(copy.name());
                continue;
            }
            let Some(stored) = self.cache.upgrade().and_then(|cache| cache.stored_of(&copy)) else {
                // It has left the index since, and its file is about to go: at once, as the journal may.
                self.remove(copy.name());
                continue;
            };
            copy.note_head(&stored.head, stored.position());
            copy.write_head(|head, position| self.write_head(&copy, head, position));
        }
        let owed = lock(&self.owed);
        owed.is_empty() && owed.heads_left == heads_left
    }
}
