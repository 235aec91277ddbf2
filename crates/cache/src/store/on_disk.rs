//! The index and the disk tier: what goes to disk, what comes back, and what leaves the index because of it.

use std::sync::Arc;

use super::{Cache, Content, Head, Key, Slot, Stored, VARIANTS_MAX};
use crate::disk::content::RAISED_BYTES_MAX;
use crate::disk::{Copy, Stats};
use crate::eviction::Frequency;
use crate::fill::{Backing, FillBuffer, Progress};
use crate::purge::{Position, Standing};
use crate::sync::lock;

impl Cache {
    /// Starts the threads of the disk tier, if there is one, and waits until all that lies there is known, no longer
    /// than `longest`.
    ///
    /// # Errors
    /// When a thread cannot be had.
    pub fn start_disk(&self, longest: std::time::Duration) -> std::io::Result<()> {
        if let Some(tier) = &self.disk {
            tier.start()?;
            tier.wait_scanned(longest);
        }
        Ok(())
    }

    /// Ends the disk tier: what waits is written, within a second, and the directory is free for another process.
    pub fn stop_disk(&self) {
        if let Some(tier) = &self.disk {
            tier.stop();
        }
    }

    /// What the disk tier tells of itself, if there is one.
    pub fn disk_stats(&self) -> Option<Stats> {
        self.disk.as_ref().map(|tier| tier.stats())
    }

    pub(crate) fn key(&self, text: &Arc<str>) -> Key {
        use std::hash::BuildHasher;
        Key { digest: self.hasher.hash_one(&**text), text: text.clone() }
    }

    /// Offers a response to the disk that is complete, or whose head is new.
    pub(super) fn offer(&self, stored: &Arc<Stored>) {
        let (Some(tier), Some(length)) = (&self.disk, stored.own_bytes()) else { return };
        if stored.content.has_trailer() {
            // Files have no place for it.
            return;
        }
        match stored.content.copy() {
            Some(copy) => copy.update_head(&stored.head, stored.standing.position()),
            None => tier.offer(stored, length),
        }
    }

    /// Offers a response again that is found, if the disk's queue has caught up and had no room for this one.
    pub(super) fn offer_again(&self, stored: &Arc<Stored>) {
        if let Some(tier) = self.disk.as_ref().filter(|tier| tier.catches_up())
            && stored.content.was_refused()
            && let Some(length) = stored.own_bytes()
        {
            tier.offer_again(stored, length);
        }
    }

    /// Whether the index has it, by content.
    pub(crate) fn holds(&self, stored: &Stored) -> bool {
        let mut shard = lock(self.shard(stored.key.digest));
        shard.slot(&stored.key).is_some_and(|slot| slot.find(&stored.content).is_some())
    }

    /// The disk has a copy of it now. Gives it as the index has it; `None` if it has left.
    pub(crate) fn attach(&self, stored: &Stored, copy: &Arc<Copy>) -> Option<Arc<Stored>> {
        let mut shard = lock(self.shard(stored.key.digest));
        let stored = shard.slot(&stored.key)?.find(&stored.content)?.clone();
        stored.content.set_backing(Backing::Copy(copy.clone()));
        Some(stored)
    }

    /// What the index has that a copy is of.
    pub(crate) fn stored_of(&self, copy: &Copy) -> Option<Arc<Stored>> {
        let (key, content) = (copy.key(), copy.content()?);
        lock(self.shard(key.digest)).slot(key)?.find(&content).cloned()
    }

    /// Puts what was found on disk into the index. False if that has something newer, or it was purged.
    pub(crate) fn restore(&self, head: Arc<Head>, position: Position, copy: &Arc<Copy>) -> bool {
        let elsewhere = head.length.filter(|_| head.sliced);
        let content = FillBuffer::on_disk(head.clone(), copy.clone(), elsewhere);
        copy.bind(&content);
        let key = copy.key().clone();
        let (standing, frequency) = (Standing::at(position), Frequency::default());
        let stored = Arc::new(Stored { head, content, key, standing, frequency, hits: Default::default() });
        let mut shard = lock(self.shard(stored.key.digest));
        // With the shard held: no purge of its URL comes between the test and its entry.
        if !self.purges.spares_found(&stored.key.text, &stored.head, &stored.standing) {
            return false;
        }
        let slot = shard.slot_or_new(stored.key.digest, &stored.key.text);
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

    /// Whether content of `length` bytes comes back to memory with its next use.
    pub(crate) fn raises(&self, length: u64) -> bool {
        length < RAISED_BYTES_MAX
    }

    /// Brings small content, read from the disk, back to memory, if there is room.
    pub(crate) fn raise(&self, copy: &Copy, content: &Arc<Content>, bytes: &[u8]) {
        self.make_room(bytes.len() as u64);
        if let Some(stored) = self.stored_of(copy)
            && content.raise(&self.arena, bytes).is_ok()
        {
            content.reside();
            self.enqueue(&stored, &[]);
        }
    }

    /// The disk does not have it any more, as it needed the room: nor has the index, unless memory does.
    pub(crate) fn left_disk(&self, copy: &Arc<Copy>) {
        if let Some(content) = copy.content() {
            self.forget_copy(copy, &content);
        }
    }

    /// A copy cannot be read: without it the content is lost, unless memory has it.
    pub(crate) fn lost(&self, copy: &Arc<Copy>, content: &Arc<Content>) {
        self.forget_copy(copy, content);
        content.lose();
        // It may have been put back between the two, under a new head.
        self.remove_content(copy.key(), content);
    }

    fn forget_copy(&self, copy: &Arc<Copy>, content: &Arc<Content>) {
        if content.copy().is_some_and(|known| Arc::ptr_eq(&known, copy)) {
            content.set_backing(Backing::None);
        }
        // Between the two it may have been settled: then it is gone from both.
        if content.is_on_disk() {
            self.remove_content(copy.key(), content);
        }
    }
}

impl Stored {
    /// Where it stands in the sequence of purges.
    pub(crate) fn position(&self) -> Position {
        self.standing.position()
    }

    /// Bytes of its content, without what is in slices, once it is complete.
    pub(crate) fn own_bytes(&self) -> Option<u64> {
        match self.content.progress() {
            Progress::Complete(length) => Some(if self.head.sliced { 0 } else { length }),
            _ => None,
        }
    }

    /// Has its file removed, if the disk has a copy.
    pub(super) fn discard_copy(&self) {
        self.content.copy().iter().for_each(|copy| copy.discard());
    }

    /// Has the disk know, if it has a copy, that it was purged softly.
    pub(super) fn tell_disk(&self) {
        if self.standing.stale_ms().is_some()
            && let Some(copy) = self.content.copy()
        {
            copy.update_position(&self.head, self.standing.position());
        }
    }
}

impl Slot {
    fn find(&self, content: &Arc<Content>) -> Option<&Arc<Stored>> {
        self.variants.iter().find(|stored| Arc::ptr_eq(&stored.content, content))
    }
}
