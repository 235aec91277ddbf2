//! What enters the index and leaves it: responses, their heads brought up to date, and the places of fetches.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::{Cache, Content, Head, Key, Lasting, Stored, VARIANTS_MAX};
use crate::fill::Progress;
use crate::storage::Selection;
use crate::sync::lock;

impl Cache {
    /// Puts `stored`, which was fetched into `fill`, into the index in place of `old`, or of the variant that the same
    /// requests select; unless it was purged on its way, and with it the place of its fetch.
    pub(super) fn admit(&self, stored: &Arc<Stored>, fill: &Arc<Content>, old: Option<&Arc<Stored>>) -> bool {
        let mut removed = Vec::new();
        let mut shard = lock(self.shard(stored.key.digest));
        let Some(slot) = shard.slot(&stored.key) else { return false };
        if !slot.take_pending(fill, &self.sweeper, &self.purges) {
            return false;
        }
        // What was validated may have been lost with the disk meanwhile.
        let has_failed = matches!(stored.content.progress(), Progress::Failed(_));
        let is_purged =
            || !stored.is_spared(&self.purges) || old.is_some_and(|old| !old.is_spared(&self.purges));
        if has_failed || is_purged() {
            shard.tidy(&stored.key);
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
        shard.unmark(stored.key.digest, Some(&stored.head.selection));
        // Its content may go on under a new head.
        let is_gone = |other: &&Arc<Stored>| !Arc::ptr_eq(&other.content, &stored.content);
        removed.iter().filter(is_gone).for_each(|other| other.discard_copy());
        drop(shard);
        self.count(stored);
        self.enqueue(stored, &removed);
        self.uncount_index(&removed);
        true
    }

    /// Puts `head` in place of the head of `stored`, if that is still there; one that may not be shared takes it away.
    pub fn update(&self, stored: &Arc<Stored>, head: Head) {
        if head.private.is_some() {
            return self.remove_stored(stored);
        }
        let mut shard = lock(self.shard(stored.key.digest));
        let slot = shard.slot(&stored.key);
        let variant =
            slot.and_then(|slot| slot.variants.iter_mut().find(|variant| Arc::ptr_eq(variant, stored)));
        // The new head must not be tested in place of one that was purged.
        let Some(variant) = variant.filter(|variant| variant.is_spared(&self.purges)) else { return };
        let updated = variant.with_head(head, variant.standing.again());
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

    /// Of what has left the index for good: the disk need not keep it either. To be called with the shard held: a walk that
    /// does not find it there any more finds the removal of its files asked for.
    pub(super) fn uncount(&self, gone: &[Arc<Stored>]) {
        self.uncount_index(gone);
        gone.iter().for_each(|stored| stored.discard_copy());
    }

    pub(super) fn uncount_index(&self, removed: &[Arc<Stored>]) {
        self.stored.fetch_sub(removed.len(), Relaxed);
        self.index_bytes.fetch_sub(removed.iter().map(|stored| stored.index_bytes()).sum(), Relaxed);
    }

    pub(crate) fn remove_stored(&self, stored: &Stored) {
        self.remove_content(&stored.key, &stored.content);
    }

    /// Removes what has this content: its head may have been brought up to date meanwhile.
    pub(super) fn remove_content(&self, key: &Key, content: &Arc<Content>) {
        let mut shard = lock(self.shard(key.digest));
        let Some(slot) = shard.slot(key) else { return };
        let gone = |variant: &mut Arc<Stored>| Arc::ptr_eq(&variant.content, content);
        let removed: Vec<_> = slot.variants.extract_if(.., gone).collect();
        shard.tidy(key);
        self.uncount(&removed);
        drop(shard);
    }

    /// Removes what is stored under `key` in slices, and passes it for the next seconds: the backend does not give them.
    pub fn forget_sliced(&self, key: &str, now_ms: u64) {
        self.forget_where(key, |stored| stored.head.sliced);
        let digest = self.digest(key);
        lock(self.shard(digest)).mark(digest, Lasting::Moment, &Selection::default(), now_ms);
    }

    /// Removes what is stored under `key` with the entity tag `etag`: the backend has something else now.
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

    /// Takes a pending fetch out of the index.
    pub(super) fn remove_pending(&self, key: &Key, content: &Arc<Content>) {
        let mut shard = lock(self.shard(key.digest));
        if let Some(slot) = shard.slot(key) {
            slot.take_pending(content, &self.sweeper, &self.purges);
        }
        shard.tidy(key);
    }

    /// The same, because its response is for one client alone; what is known by that of the next one is kept in mind from
    /// `now_ms` on. What a policy says of it takes the place of what is stored, unless it was purged on its way.
    pub(super) fn keep_mark(
        &self,
        key: &Key,
        content: &Arc<Content>,
        (lasting, selection): (Lasting, &Selection),
        now_ms: u64,
    ) {
        let mut shard = lock(self.shard(key.digest));
        let mut removed = Vec::new();
        let mut is_awaited = false;
        if let Some(slot) = shard.slot(key) {
            is_awaited = slot.take_pending(content, &self.sweeper, &self.purges);
            if is_awaited && lasting.is_of_policy() {
                removed.extend(slot.variants.extract_if(.., |stored| stored.head.selection == *selection));
            }
        }
        if is_awaited || !lasting.is_of_policy() {
            shard.mark(key.digest, lasting, selection, now_ms);
        }
        shard.tidy(key);
        self.uncount(&removed);
        drop(shard);
    }
}
