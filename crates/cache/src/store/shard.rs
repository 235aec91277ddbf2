//! One shard of the index: slots by key, the stored responses and fetches in each, and marked keys.

use std::collections::HashMap;
use std::sync::Arc;

use hashbrown::HashTable;
use thalweg_http::Fields;

use super::sweeper::Sweeper;
use crate::entry::{Key, PassMark};
use crate::purge::Purges;
use crate::storage::Selection;
use crate::stored::{Content, Stored};

/// Maximum number of variants stored under one key. A further variant replaces the oldest.
pub const VARIANTS_MAX: usize = 32;
/// How long a key is passed after one of its responses was not shareable.
pub const PASS_MARK_MS: u64 = 5_000;
/// Maximum number of marked keys per shard. A further mark replaces the one that expires first.
const MARKS_MAX: usize = 64;
/// Maximum total length, in bytes, of names and values in one mark's selection. A mark with a
/// longer selection is not kept.
const MARK_BYTES_MAX: usize = 256;
/// Maximum number of fetches of one key whose heads are awaited. Above this, requests are passed.
pub(super) const PENDING_MAX: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Shard {
    pub(super) slots: HashTable<Slot>,
    /// Expectations about the next response under a key, by the key's hash.
    marks: HashMap<u64, Mark>,
}

/// A mark on a key whose last response was for one client only.
#[derive(Debug)]
struct Mark {
    until_ms: u64,
    mark: PassMark,
    /// Requests to which the mark applies.
    selection: Selection,
}

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) key: Key,
    pub(super) variants: Vec<Arc<Stored>>,
    /// One fetch per variant, plus one for each request that did not wait.
    pub(super) pending: Vec<Pending>,
}

/// A fetch whose head is awaited.
#[derive(Debug, Clone)]
pub(super) struct Pending {
    pub(super) content: Arc<Content>,
    /// Number of the newest purge before the fetch started.
    pub(super) number: u64,
    /// Whether other requests may wait for the fetch; false if its response is expected to be for
    /// one client only.
    pub(super) is_shared: bool,
    /// Requests that are expected to be able to reuse the response.
    pub(super) selection: Selection,
}

impl Slot {
    /// Removes the pending fetch into `content`. Returns false if no such fetch is pending here.
    pub(super) fn take_pending(
        &mut self,
        content: &Arc<Content>,
        sweeper: &Sweeper,
        purges: &Purges,
    ) -> bool {
        let is_it = |pending: &Pending| Arc::ptr_eq(&pending.content, content);
        let Some(at) = self.pending.iter().position(is_it) else { return false };
        if self.pending.remove(at).number < purges.latest() {
            // Purges that arrived during the fetch had to be kept until the fetch ended, and may
            // now be dropped.
            sweeper.wake();
        }
        if self.pending.is_empty() {
            // Free the allocation, because the slot lives as long as its stored responses.
            self.pending = Vec::new();
        }
        true
    }

    /// Returns the fetch for which a request with `fields` must wait.
    pub(super) fn awaited(&self, fields: &Fields) -> Option<&Pending> {
        self.pending.iter().find(|pending| pending.is_shared && pending.selection.matches(fields))
    }

    /// Predicts the selection for a request with `fields`, using the latest response's `Vary`.
    pub(super) fn selection_for(&self, fields: &Fields) -> Selection {
        self.variants.last().map(|latest| latest.head.selection.for_request(fields)).unwrap_or_default()
    }

    pub(super) fn has_any(&self, purges: &Purges) -> bool {
        self.variants.iter().any(|stored| stored.is_spared(purges, None))
    }

    /// Returns the most recent matching response, preferring fresh to stale ones.
    pub(super) fn select(&self, request: &Fields, purges: &Purges, now_ms: u64) -> Option<&Arc<Stored>> {
        let matches = |stored: &&Arc<Stored>| {
            stored.head.selection.matches(request) && stored.is_spared(purges, Some(request))
        };
        let mut matching = self.variants.iter().rev().filter(matches);
        let latest = matching.next()?;
        // `latest` is nearly always the only match.
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

    /// Removes a key's slot if it has neither stored responses nor pending fetches.
    pub(super) fn tidy(&mut self, key: &Key) {
        let found = self.slots.find_entry(key.digest, |slot| slot.key.is(key.digest, &key.text));
        if let Ok(entry) = found
            && entry.get().variants.is_empty()
            && entry.get().pending.is_empty()
        {
            entry.remove();
        }
    }

    /// Returns the expectation for the response to a request with `fields`, if the key is marked.
    pub(super) fn marked(&self, digest: u64, fields: &Fields, now_ms: u64) -> Option<PassMark> {
        if self.marks.is_empty() {
            return None;
        }
        let mark = self.marks.get(&digest)?;
        (mark.until_ms > now_ms && mark.selection.matches(fields)).then_some(mark.mark)
    }

    /// Marks a key, for requests that match `selection`, because of a response received at
    /// `now_ms`.
    pub(super) fn mark(&mut self, digest: u64, mark: PassMark, selection: &Selection, now_ms: u64) {
        let (until_ms, selection) = match mark {
            PassMark::No => return,
            PassMark::Moment => (now_ms + PASS_MARK_MS, Selection::default()),
            PassMark::Pass { until_ms } | PassMark::Miss { until_ms } => (until_ms, selection.clone()),
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
        self.marks.insert(digest, Mark { until_ms, mark, selection });
    }

    /// Removes a key's mark if it applies to `selection` or to all requests. With `None`, always
    /// removes it.
    pub(super) fn unmark(&mut self, digest: u64, selection: Option<&Selection>) {
        let is_about = |mark: &Mark| {
            selection.is_none_or(|of| mark.selection == *of || mark.selection == Selection::default())
        };
        if self.marks.get(&digest).is_some_and(is_about) {
            self.marks.remove(&digest);
        }
    }
}
