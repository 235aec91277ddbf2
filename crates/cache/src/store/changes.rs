//! Index changes: inserting and removing responses and fetches, and updating heads.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::Cache;
use super::shard::VARIANTS_MAX;
use crate::entry::{Head, Key, PassMark};
use crate::fill::Progress;
use crate::storage::Selection;
use crate::stored::{Content, Stored};
use crate::sync::lock;

impl Cache {
    /// Inserts `stored`, fetched into `fill`, replacing `old` or the variant with the same
    /// selection. Returns false without inserting the response if its fetch has left the index, or
    /// if the response has failed or been purged in the meantime.
    pub(super) fn admit(&self, stored: &Arc<Stored>, fill: &Arc<Content>, old: Option<&Arc<Stored>>) -> bool {
        let mut removed = Vec::new();
        let mut shard = lock(self.shard(stored.key().digest));
        let Some(slot) = shard.slot(stored.key()) else { return false };
        if !slot.take_pending(fill, &self.sweeper, &self.purges) {
            return false;
        }
        // The validated response may have become unreadable on disk in the meantime.
        let has_failed = matches!(stored.content.progress(), Progress::Failed(_));
        let is_purged = || {
            !stored.is_spared(&self.purges, None) || old.is_some_and(|old| !old.is_spared(&self.purges, None))
        };
        if has_failed || is_purged() {
            shard.tidy(stored.key());
            return false;
        }
        let replaced = |variant: &mut Arc<Stored>| {
            old.is_some_and(|old| Arc::ptr_eq(old, variant))
                || variant.head.selection == stored.head.selection
        };
        removed.extend(slot.variants.extract_if(.., replaced));
        if slot.variants.len() >= VARIANTS_MAX {
            removed.push(slot.variants.remove(0));
        }
        slot.variants.push(stored.clone());
        shard.unmark(stored.key().digest, Some(&stored.head.selection));
        // A replaced response's content may still be in use, under the new head.
        let is_gone = |other: &&Arc<Stored>| !Arc::ptr_eq(&other.content, &stored.content);
        removed.iter().filter(is_gone).for_each(|other| other.discard_copy());
        drop(shard);
        self.count(stored);
        self.enqueue(stored, &removed);
        self.uncount_index(&removed);
        true
    }

    /// Replaces the head of `stored`, if it is still in the index. If the new head may not be
    /// shared, removes the response instead.
    pub fn update(&self, stored: &Arc<Stored>, head: Head) {
        if head.why_private().is_some() {
            return self.remove_stored(stored);
        }
        let mut shard = lock(self.shard(stored.key().digest));
        let slot = shard.slot(stored.key());
        let variant =
            slot.and_then(|slot| slot.variants.iter_mut().find(|variant| Arc::ptr_eq(variant, stored)));
        // A purged response must stay purged, even if its new head would pass the tests.
        let Some(variant) = variant.filter(|variant| variant.is_spared(&self.purges, None)) else { return };
        let updated = variant.with_head(head, variant.purge_state.again());
        let old = std::mem::replace(variant, updated.clone());
        drop(shard);
        let old = [old];
        self.count(&updated);
        self.enqueue(&updated, &old);
        self.uncount_index(&old);
        self.offer(&updated);
    }

    pub(super) fn count(&self, stored: &Stored) {
        self.stored.fetch_add(1, Relaxed);
        self.index_bytes.fetch_add(stored.index_bytes(), Relaxed);
    }

    /// Subtracts removed responses from the index's totals, and queues the removal of their disk
    /// copies. Call this with the shard locked: a sweep that no longer finds the responses assumes
    /// that the removal of their files is queued.
    pub(super) fn uncount(&self, gone: &[Arc<Stored>]) {
        self.uncount_index(gone);
        gone.iter().for_each(|stored| stored.discard_copy());
    }

    pub(super) fn uncount_index(&self, removed: &[Arc<Stored>]) {
        self.stored.fetch_sub(removed.len(), Relaxed);
        self.index_bytes.fetch_sub(removed.iter().map(|stored| stored.index_bytes()).sum(), Relaxed);
    }

    pub(crate) fn remove_stored(&self, stored: &Stored) {
        self.remove_content(stored.key(), &stored.content);
    }

    /// Removes the response with this content; its head may have been updated in the meantime.
    pub(super) fn remove_content(&self, key: &Key, content: &Arc<Content>) {
        let mut shard = lock(self.shard(key.digest));
        let Some(slot) = shard.slot(key) else { return };
        let gone = |variant: &mut Arc<Stored>| Arc::ptr_eq(&variant.content, content);
        let removed: Vec<_> = slot.variants.extract_if(.., gone).collect();
        shard.tidy(key);
        self.uncount(&removed);
        drop(shard);
    }

    /// Removes the sliced responses stored under `key` and passes the key for a few seconds,
    /// because the backend does not serve slices.
    pub fn forget_sliced(&self, key: &str, now_ms: u64) {
        self.forget_where(key, |stored| stored.head.sliced);
        let digest = self.digest(key);
        lock(self.shard(digest)).mark(digest, PassMark::Moment, &Selection::default(), now_ms);
    }

    /// Removes the responses stored under `key` with the entity tag `etag`, because the backend's
    /// response has changed.
    pub fn forget(&self, key: &str, etag: &[u8]) {
        self.forget_where(key, |stored| stored.head.fields.get("etag") == Some(etag));
    }

    fn forget_where(&self, key: &str, is_gone: impl Fn(&Stored) -> bool) {
        let digest = self.digest(key);
        let mut shard = lock(self.shard(digest));
        let Some(slot) = shard.slots.find_mut(digest, |slot| slot.key.is(digest, key)) else { return };
        let key = slot.key.clone();
        let removed: Vec<_> = slot.variants.extract_if(.., |stored| is_gone(stored)).collect();
        shard.tidy(&key);
        self.uncount(&removed);
        drop(shard);
    }

    /// Removes a pending fetch from the index.
    pub(super) fn remove_pending(&self, key: &Key, content: &Arc<Content>) {
        let mut shard = lock(self.shard(key.digest));
        if let Some(slot) = shard.slot(key) {
            slot.take_pending(content, &self.sweeper, &self.purges);
        }
        shard.tidy(key);
    }

    /// Removes a pending fetch whose response is for one client only, and marks the key accordingly
    /// from `now_ms`. A policy verdict also removes the stored responses to which it applies, but
    /// has no effect if the fetch was purged in the meantime.
    pub(super) fn keep_mark(
        &self,
        key: &Key,
        content: &Arc<Content>,
        (mark, selection): (PassMark, &Selection),
        now_ms: u64,
    ) {
        let mut shard = lock(self.shard(key.digest));
        let mut removed = Vec::new();
        let mut is_awaited = false;
        if let Some(slot) = shard.slot(key) {
            is_awaited = slot.take_pending(content, &self.sweeper, &self.purges);
            if is_awaited && mark.is_of_policy() {
                removed.extend(slot.variants.extract_if(.., |stored| stored.head.selection == *selection));
            }
        }
        if is_awaited || !mark.is_of_policy() {
            shard.mark(key.digest, mark, selection, now_ms);
        }
        shard.tidy(key);
        self.uncount(&removed);
        drop(shard);
    }
}
