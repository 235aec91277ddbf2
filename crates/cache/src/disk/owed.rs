//! What could not be carried out on the disk of what purges took away: it is tried again with each walk, and the journal
//! goes on telling of it until then.

use std::sync::Arc;

use super::files::Name;
use super::{Copy, Tier};
use crate::sync::lock;

/// Files and heads that are kept in mind; with more the journal is kept until the next start.
const OWED_MAX: usize = 1024;

/// Files that are still there, and copies whose head is not the newest.
#[derive(Debug, Default)]
pub(super) struct Owed {
    files: Vec<Name>,
    heads: Vec<Arc<Copy>>,
    /// Something that only the next start can see to.
    for_good: bool,
}

impl Owed {
    fn is_full(&mut self) -> bool {
        self.for_good |= self.files.len() + self.heads.len() >= OWED_MAX;
        self.for_good
    }

    fn is_empty(&self) -> bool {
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
        if !owed.files.contains(&name) && !owed.is_full() {
            owed.files.push(name);
        }
    }

    /// A newer head could not be written.
    pub(super) fn owe_head(&self, copy: &Arc<Copy>) {
        let mut owed = lock(&self.owed);
        if !owed.heads.iter().any(|other| Arc::ptr_eq(other, copy)) && !owed.is_full() {
            owed.heads.push(copy.clone());
        }
    }

    /// Tries it all once more; whether nothing is left.
    pub(super) fn settle_owed(self: &Arc<Self>) -> bool {
        let Owed { files, heads, .. } = {
            let mut owed = lock(&self.owed);
            let for_good = owed.for_good;
            std::mem::replace(&mut *owed, Owed { for_good, ..Owed::default() })
        };
        files.into_iter().for_each(|name| self.remove(name));
        for copy in heads {
            let Some(stored) = self.cache.upgrade().and_then(|cache| cache.stored_of(&copy)) else {
                // It has left the index since, and its file is about to go: at once, as the journal may.
                self.remove(copy.name());
                continue;
            };
            copy.note_head(&stored.head, stored.position());
            copy.write_head(|head, position| self.write_head(&copy, head, position));
        }
        lock(&self.owed).is_empty()
    }
}
