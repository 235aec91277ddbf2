//! A shard of the index: slots by key, what is stored and fetched in each, and the keys that are passed.

use std::collections::HashMap;
use std::sync::Arc;

use hashbrown::HashTable;
use thalweg_http::Fields;

use super::{Content, Stored, sweep};
use crate::purge::Purges;

/// Variants kept under one key; the oldest goes.
pub const VARIANTS_MAX: usize = 32;
/// How long a key is passed after a response under it was not shareable.
pub const PASS_MARK_MS: u64 = 5_000;
/// Keys that are marked so in each shard; beyond, the marks are forgotten.
const PASS_MARKS_MAX: usize = 64;

/// A key with its hash.
#[derive(Debug, Clone)]
pub(crate) struct Key {
    pub(super) digest: u64,
    pub(super) text: Arc<str>,
}

#[derive(Debug, Default)]
pub(super) struct Shard {
    pub(super) slots: HashTable<Slot>,
    /// Until when which keys, by their hash, are passed.
    passed: HashMap<u64, u64>,
}

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) key: Key,
    pub(super) variants: Vec<Arc<Stored>>,
    pub(super) pending: Option<Pending>,
}

/// A fetch whose head is awaited.
#[derive(Debug, Clone)]
pub(super) struct Pending {
    pub(super) content: Arc<Content>,
    /// Of the newest purge before it began.
    pub(super) number: u64,
}

impl Slot {
    /// Ends the wait for the head of `content`; false if it was not waited for here, or no longer.
    pub(super) fn take_pending(
        &mut self,
        content: &Arc<Content>,
        sweeper: &sweep::Sweeper,
        purges: &Purges,
    ) -> bool {
        let taken = self.pending.take_if(|pending| Arc::ptr_eq(&pending.content, content));
        if taken.as_ref().is_some_and(|pending| pending.number < purges.latest()) {
            // What was purged meanwhile had to be kept in mind for it.
            sweeper.wake();
        }
        taken.is_some()
    }

    pub(super) fn has_any(&self, purges: &Purges) -> bool {
        self.variants.iter().any(|stored| stored.is_spared(purges))
    }

    pub(super) fn select(&self, request: &Fields, purges: &Purges) -> Option<&Arc<Stored>> {
        let matches =
            |stored: &&Arc<Stored>| stored.head.selection.matches(request) && stored.is_spared(purges);
        let mut matching = self.variants.iter().rev().filter(matches);
        let latest = matching.next()?;
        // Nearly always the only one.
        Some(
            matching.fold(latest, |best, stored| if stored.made_s() > best.made_s() { stored } else { best }),
        )
    }
}

impl Shard {
    pub(super) fn slot(&mut self, key: &Key) -> Option<&mut Slot> {
        self.slots.find_mut(key.digest, |slot| slot.key.is(key.digest, &key.text))
    }

    pub(super) fn slot_or_new(&mut self, digest: u64, text: &str) -> &mut Slot {
        let entry = self.slots.entry(digest, |slot| slot.key.is(digest, text), |slot| slot.key.digest);
        let new = || Slot { key: Key { digest, text: text.into() }, variants: Vec::new(), pending: None };
        entry.or_insert_with(new).into_mut()
    }

    /// Removes the slot of a key that nothing is stored or fetched under.
    pub(super) fn tidy(&mut self, key: &Key) {
        let found = self.slots.find_entry(key.digest, |slot| slot.key.is(key.digest, &key.text));
        if let Ok(entry) = found
            && entry.get().variants.is_empty()
            && entry.get().pending.is_none()
        {
            entry.remove();
        }
    }

    pub(super) fn is_passed(&self, digest: u64, now_ms: u64) -> bool {
        !self.passed.is_empty() && self.passed.get(&digest).is_some_and(|until| *until > now_ms)
    }

    pub(super) fn mark_passed(&mut self, digest: u64, now_ms: u64) {
        if self.passed.len() >= PASS_MARKS_MAX {
            self.passed.retain(|_, until| *until > now_ms);
        }
        if self.passed.len() >= PASS_MARKS_MAX {
            self.passed.clear();
        }
        self.passed.insert(digest, now_ms + PASS_MARK_MS);
    }
}

impl Key {
    pub(super) fn is(&self, digest: u64, text: &str) -> bool {
        self.digest == digest && *self.text == *text
    }

    pub(crate) fn text(&self) -> &Arc<str> {
        &self.text
    }
}
