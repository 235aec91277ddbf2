//! A shard of the index: slots by key, what is stored and fetched in each, and the keys that are passed.

use std::collections::HashMap;
use std::sync::Arc;

use hashbrown::HashTable;
use thalweg_http::Fields;

use super::{Content, Lasting, Stored, sweep};
use crate::purge::Purges;
use crate::storage::Selection;

/// Variants kept under one key; the oldest goes.
pub const VARIANTS_MAX: usize = 32;
/// How long a key is passed after a response under it was not shareable.
pub const PASS_MARK_MS: u64 = 5_000;
/// Keys that are marked in each shard; beyond, the marks that end first are forgotten.
const MARKS_MAX: usize = 64;
/// Names and values that one mark keeps of what it is about; longer ones are not worth the room.
const MARK_BYTES_MAX: usize = 256;
/// Fetches of one key whose heads are awaited; beyond, requests are passed.
pub(super) const PENDING_MAX: usize = 256;

/// A key with its hash.
#[derive(Debug, Clone)]
pub(crate) struct Key {
    pub(super) digest: u64,
    pub(super) text: Arc<str>,
}

#[derive(Debug, Default)]
pub(super) struct Shard {
    pub(super) slots: HashTable<Slot>,
    /// What is known of the next responses under which keys, by their hash.
    marks: HashMap<u64, Mark>,
}

/// That the response under a key was for one client alone.
#[derive(Debug)]
struct Mark {
    until_ms: u64,
    marked: Marked,
    /// Which requests it is about.
    selection: Selection,
}

/// What becomes of requests for a key whose last response was for one client alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Marked {
    /// Those that nothing stored answers are passed.
    Moment,
    /// They are passed, whatever is stored.
    Pass,
    /// Each fetches for itself, whatever is stored, and what may be shared is stored.
    Miss,
}

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) key: Key,
    pub(super) variants: Vec<Arc<Stored>>,
    /// Several only where somebody did not wait for the first.
    pub(super) pending: Vec<Pending>,
}

/// A fetch whose head is awaited.
#[derive(Debug, Clone)]
pub(super) struct Pending {
    pub(super) content: Arc<Content>,
    /// Of the newest purge before it began.
    pub(super) number: u64,
    /// Others wait for it: it is not known that it is for one client alone.
    pub(super) is_shared: bool,
}

impl Slot {
    /// Ends the wait for the head of `content`; false if it was not waited for here, or no longer.
    pub(super) fn take_pending(
        &mut self,
        content: &Arc<Content>,
        sweeper: &sweep::Sweeper,
        purges: &Purges,
    ) -> bool {
        let is_it = |pending: &Pending| Arc::ptr_eq(&pending.content, content);
        let Some(at) = self.pending.iter().position(is_it) else { return false };
        if self.pending.remove(at).number < purges.latest() {
            // What was purged meanwhile had to be kept in mind for it.
            sweeper.wake();
        }
        if self.pending.is_empty() {
            // Its memory: a slot lasts as long as what is stored.
            self.pending = Vec::new();
        }
        true
    }

    pub(super) fn has_any(&self, purges: &Purges) -> bool {
        self.variants.iter().any(|stored| stored.is_spared(purges))
    }

    /// Of what matches the most recent, and what is fresh before what is stale.
    pub(super) fn select(&self, request: &Fields, purges: &Purges, now_ms: u64) -> Option<&Arc<Stored>> {
        let matches =
            |stored: &&Arc<Stored>| stored.head.selection.matches(request) && stored.is_spared(purges);
        let mut matching = self.variants.iter().rev().filter(matches);
        let latest = matching.next()?;
        // Nearly always the only one.
        let rank = |stored: &Stored| (stored.freshness().is_fresh(now_ms), stored.made_s());
        Some(matching.fold(latest, |best, stored| if rank(stored) > rank(best) { stored } else { best }))
    }
}

impl Shard {
    pub(super) fn slot(&mut self, key: &Key) -> Option<&mut Slot> {
        self.slots.find_mut(key.digest, |slot| slot.key.is(key.digest, &key.text))
    }

    pub(super) fn slot_or_new(&mut self, digest: u64, text: &str) -> &mut Slot {
        let entry = self.slots.entry(digest, |slot| slot.key.is(digest, text), |slot| slot.key.digest);
        let new =
            || Slot { key: Key { digest, text: text.into() }, variants: Vec::new(), pending: Vec::new() };
        entry.or_insert_with(new).into_mut()
    }

    /// Removes the slot of a key that nothing is stored or fetched under.
    pub(super) fn tidy(&mut self, key: &Key) {
        let found = self.slots.find_entry(key.digest, |slot| slot.key.is(key.digest, &key.text));
        if let Ok(entry) = found
            && entry.get().variants.is_empty()
            && entry.get().pending.is_empty()
        {
            entry.remove();
        }
    }

    /// What becomes of a request with `fields` for a key that is marked.
    pub(super) fn marked(&self, digest: u64, fields: &Fields, now_ms: u64) -> Option<Marked> {
        if self.marks.is_empty() {
            return None;
        }
        let mark = self.marks.get(&digest)?;
        (mark.until_ms > now_ms && mark.selection.matches(fields)).then_some(mark.marked)
    }

    /// Marks a key by a response that requests of `selection` got at `now_ms`.
    pub(super) fn mark(&mut self, digest: u64, lasting: Lasting, selection: &Selection, now_ms: u64) {
        let (marked, until_ms, selection) = match lasting {
            Lasting::No => return,
            Lasting::Moment => (Marked::Moment, now_ms + PASS_MARK_MS, Selection::default()),
            Lasting::Pass { until_ms } => (Marked::Pass, until_ms, selection.clone()),
            Lasting::Miss { until_ms } => (Marked::Miss, until_ms, selection.clone()),
        };
        if selection.bytes() > MARK_BYTES_MAX {
            return;
        }
        if self.marks.len() >= MARKS_MAX && !self.marks.contains_key(&digest) {
            self.marks.retain(|_, mark| mark.until_ms > now_ms);
        }
        if self.marks.len() >= MARKS_MAX
            && !self.marks.contains_key(&digest)
            && let Some(first) = self.marks.iter().min_by_key(|(_, mark)| mark.until_ms).map(|(key, _)| *key)
        {
            self.marks.remove(&first);
        }
        self.marks.insert(digest, Mark { until_ms, marked, selection });
    }

    /// Takes back what is known of a key: of requests of `selection`, also where it is about all, or whatever it is about.
    pub(super) fn unmark(&mut self, digest: u64, selection: Option<&Selection>) {
        let is_about = |mark: &Mark| {
            selection.is_none_or(|of| mark.selection == *of || mark.selection == Selection::default())
        };
        if self.marks.get(&digest).is_some_and(is_about) {
            self.marks.remove(&digest);
        }
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
