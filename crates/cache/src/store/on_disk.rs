//! Index side of the disk tier: offers responses for writing, restores them from disk, and removes
//! those that the disk has lost.

use std::sync::Arc;

use super::Cache;
use super::shard::{Slot, VARIANTS_MAX};
use crate::disk::{DiskCopy, Index, Stats};
use crate::entry::{Head, Key};
use crate::fill::{Backing, FillBuffer};
use crate::purge::{Position, PurgeState};
use crate::stored::{Content, Stored};
use crate::sync::lock;

impl Cache {
    /// Starts the disk tier, if configured, and waits at most `longest` for its startup scan.
    ///
    /// # Errors
    ///
    /// Returns an error if a thread cannot be started.
    pub fn start_disk(&self, longest: std::time::Duration) -> std::io::Result<()> {
        if let Some(tier) = &self.disk {
            tier.start()?;
            tier.wait_scanned(longest);
        }
        Ok(())
    }

    /// Stops the disk tier within about a second, and releases its directory for another process.
    /// Queued writes not finished by then are dropped.
    pub fn stop_disk(&self) {
        if let Some(tier) = &self.disk {
            tier.stop();
        }
    }

    /// Returns the disk tier's statistics; `None` without a disk tier.
    pub fn disk_stats(&self) -> Option<Stats> {
        self.disk.as_ref().map(|tier| tier.stats())
    }

    /// Offers the disk tier a response that is complete or has a new head.
    pub(super) fn offer(&self, stored: &Arc<Stored>) {
        let (Some(tier), Some(length)) = (&self.disk, stored.own_bytes()) else { return };
        if stored.content.has_trailer() {
            // The file format cannot store trailers.
            return;
        }
        match stored.content.copy() {
            Some(copy) => copy.update_head(&stored.head, stored.purge_state.position()),
            None => tier.offer(stored, length),
        }
    }

    /// Offers a response found in memory to the disk tier again, if the tier's write queue was full
    /// before and has since caught up.
    pub(super) fn offer_again(&self, stored: &Arc<Stored>) {
        if let Some(tier) = self.disk.as_ref().filter(|tier| tier.catches_up())
            && stored.content.was_refused()
            && let Some(length) = stored.own_bytes()
        {
            tier.offer_again(stored, length);
        }
    }

    fn forget_copy(&self, copy: &Arc<DiskCopy>, content: &Arc<Content>) {
        if content.copy().is_some_and(|known| Arc::ptr_eq(&known, copy)) {
            content.set_backing(Backing::None);
        }
        // If the content was demoted in the meantime, neither tier has it now.
        if content.is_on_disk() {
            self.remove_content(copy.key(), content);
        }
    }
}

impl Index for Cache {
    fn numbers_of_bans(&self) -> Vec<u64> {
        self.purges.numbers_of_bans()
    }

    fn key(&self, text: &Arc<str>) -> Key {
        use std::hash::BuildHasher;
        Key { digest: self.hasher.hash_one(&**text), text: text.clone() }
    }

    fn holds(&self, stored: &Stored) -> bool {
        let mut shard = lock(self.shard(stored.key().digest));
        shard.slot(stored.key()).is_some_and(|slot| slot.find(&stored.content).is_some())
    }

    fn attach(&self, stored: &Stored, copy: &Arc<DiskCopy>) -> Option<Arc<Stored>> {
        let mut shard = lock(self.shard(stored.key().digest));
        let stored = shard.slot(stored.key())?.find(&stored.content)?.clone();
        stored.content.set_backing(Backing::Copy(copy.clone()));
        Some(stored)
    }

    fn stored_of(&self, copy: &DiskCopy) -> Option<Arc<Stored>> {
        let (key, content) = (copy.key(), copy.content()?);
        lock(self.shard(key.digest)).slot(key)?.find(&content).cloned()
    }

    fn restore(&self, head: Arc<Head>, position: Position, copy: &Arc<DiskCopy>) -> bool {
        let elsewhere = head.length.filter(|_| head.sliced);
        let content = FillBuffer::on_disk(head.clone(), copy.clone(), elsewhere);
        copy.bind(&content);
        let key = copy.key().clone();
        let stored = Stored::new(key, head, content, PurgeState::at(position));
        let mut shard = lock(self.shard(stored.key().digest));
        // Test with the shard locked, so that no URL purge can come between the test and the
        // insertion.
        if !self.purges.spares_restored(&stored.key().text, &stored.head, &stored.purge_state) {
            return false;
        }
        let slot = shard.slot_or_new(stored.key().digest, &stored.key().text);
        let same = slot.variants.iter().position(|other| other.head.selection == stored.head.selection);
        let older = match same.map(|at| slot.variants[at].content.copy()) {
            Some(Some(other)) if other.number() < copy.number() => same,
            Some(_) => return false,
            None if slot.variants.len() >= VARIANTS_MAX => return false,
            None => None,
        };
        let removed: Vec<_> = older.map(|at| slot.variants.remove(at)).into_iter().collect();
        slot.variants.push(stored.clone());
        self.count(&stored);
        self.uncount(&removed);
        drop(shard);
        true
    }

    fn promote(&self, copy: &DiskCopy, content: &Arc<Content>, bytes: &[u8]) {
        self.make_room(bytes.len() as u64);
        if let Some(stored) = self.stored_of(copy)
            && content.promote(&self.arena, bytes).is_ok()
        {
            content.allow_moves();
            self.enqueue(&stored, &[]);
        }
    }

    fn left_disk(&self, copy: &Arc<DiskCopy>) {
        if let Some(content) = copy.content() {
            self.forget_copy(copy, &content);
        }
    }

    fn lost(&self, copy: &Arc<DiskCopy>, content: &Arc<Content>) {
        self.forget_copy(copy, content);
        content.lose();
        // The content may have been reinserted under a new head in the meantime.
        self.remove_content(copy.key(), content);
    }

    fn finish_scan(&self) {
        self.purges.finish_scan();
        self.sweeper.wake();
    }

    fn is_full(&self) -> bool {
        self.is_index_full()
    }
}

impl Slot {
    fn find(&self, content: &Arc<Content>) -> Option<&Arc<Stored>> {
        self.variants.iter().find(|stored| Arc::ptr_eq(&stored.content, content))
    }
}
