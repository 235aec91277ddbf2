//! Purges, and the walk over all that is stored that frees what they took away.
//!
//! A purge of a URL is done when it returns. That of a tag, and a ban, are in force when they return, and done when a
//! walk has come round. A walk holds one shard at a time, and tests and frees what it found there with none held: a ban
//! may take its time over each response.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Cache, Head, Shard, Stored};
use crate::disk::journal::{Entry, Ticket};
use crate::purge::{Ban, Purge, TooMany, What};
use crate::sync::lock;

/// Between two walks: what purges may cost of a core is bounded, however many come.
const PAUSE: Duration = Duration::from_secs(1);

/// Wakes the thread that walks.
#[derive(Debug, Default)]
pub(super) struct Sweeper {
    asked: Mutex<Asked>,
    changed: Condvar,
}

#[derive(Debug, Default, Clone, Copy)]
struct Asked {
    to_walk: bool,
    to_end: bool,
}

impl Sweeper {
    pub(super) fn wake(&self) {
        lock(&self.asked).to_walk = true;
        self.changed.notify_all();
    }

    fn end(&self) {
        lock(&self.asked).to_end = true;
        self.changed.notify_all();
    }

    fn is_to_end(&self) -> bool {
        lock(&self.asked).to_end
    }

    /// Waits until there is something to walk for; false if that is over.
    fn wait(&self) -> bool {
        let idle = |asked: &mut Asked| !asked.to_walk && !asked.to_end;
        let mut asked =
            self.changed.wait_while(lock(&self.asked), idle).unwrap_or_else(PoisonError::into_inner);
        asked.to_walk = false;
        !asked.to_end
    }

    fn pause(&self) {
        let asked: MutexGuard<'_, Asked> = lock(&self.asked);
        // Poisoned or not, woken or not: who waits next looks again.
        drop(self.changed.wait_timeout_while(asked, PAUSE, |asked| !asked.to_end));
    }
}

impl Cache {
    /// Takes away `what`: hard, or made stale from `soft_ms` on (unix milliseconds); a ban is always hard. Whoever looks
    /// for anything after this has returned finds it so. Says how many responses there were, where that is known at
    /// once: for a URL.
    ///
    /// # Errors
    /// When too many purges are in force.
    pub fn purge(&self, what: What, soft_ms: Option<u64>) -> Result<Option<usize>, TooMany> {
        let (count, ticket) = self.take_away(what, soft_ms)?;
        if let (Some(tier), Some(ticket)) = (&self.disk, ticket) {
            tier.await_journal(ticket);
        }
        Ok(count)
    }

    /// The same without waiting for the journal of the disk tier, which is written behind: for who may not wait. If the
    /// process ends before it is written, what lies on disk comes back.
    ///
    /// # Errors
    /// When too many purges are in force.
    pub fn purge_unwritten(&self, what: What, soft_ms: Option<u64>) -> Result<Option<usize>, TooMany> {
        self.take_away(what, soft_ms).map(|(count, _)| count)
    }

    /// Takes away all that is stored under `key`, as after a request with an unsafe method (RFC 9111 §4.4). Does not wait
    /// for the journal.
    pub fn invalidate(&self, key: &str) {
        self.purge_unwritten(What::Url(key.into()), None).expect("there is always room for a url");
    }

    /// Puts a purge in force, and has it written to the journal of the disk tier, if there is one.
    fn take_away(
        &self,
        what: What,
        soft_ms: Option<u64>,
    ) -> Result<(Option<usize>, Option<Ticket>), TooMany> {
        let (purge, count) = match what {
            What::Url(key) => self.purge_url(key, soft_ms).map(|(purge, count)| (purge, Some(count)))?,
            what => (self.purges.enter(what, soft_ms)?, None),
        };
        let is_written_down = purge.number <= self.purges.latest();
        let ticket = self.disk.as_ref().map(|tier| tier.journal(purge));
        if is_written_down || self.disk.as_ref().is_some_and(|tier| tier.is_journal_long()) {
            self.sweeper.wake();
        }
        Ok((count, ticket))
    }

    /// Takes away every variant under a key, and the place of the fetch whose head is awaited there: who waits for it
    /// asked before, and nobody else is to find it.
    fn purge_url(&self, key: Box<str>, soft_ms: Option<u64>) -> Result<(Purge, usize), TooMany> {
        let digest = self.digest(&key);
        let mut shard = lock(self.shard(digest));
        // With the shard held: no fetch begins between the number and the removal.
        let purge = self.purges.enter(What::Url(key), soft_ms)?;
        let What::Url(key) = &purge.what else { unreachable!("as it was made") };
        shard.unmark(digest, None);
        let Some(slot) = shard.slots.find_mut(digest, |slot| slot.key.is(digest, key)) else {
            return Ok((purge, 0));
        };
        slot.pending.clear();
        let (count, removed) = match soft_ms {
            Some(soft_ms) => {
                slot.variants.iter().for_each(|stored| stored.standing.soften(soft_ms));
                (slot.variants.len(), Vec::new())
            }
            None => {
                let removed = std::mem::take(&mut slot.variants);
                (removed.len(), removed)
            }
        };
        let key = slot.key.clone();
        shard.tidy(&key);
        self.uncount(&removed);
        drop(shard);
        Ok((purge, count))
    }

    /// Whether a response to the fetch that [`Lookup::Wait`](super::Lookup::Wait) told of was purged, hard or soft,
    /// since it began, or may have been: then who waited has to look again.
    pub fn has_purged(&self, key: &str, head: &Head, number: u64) -> bool {
        self.purges.has_purged(key, head, number)
    }

    /// Bans in force, the oldest first.
    pub fn bans(&self) -> Vec<Arc<Ban>> {
        self.purges.bans()
    }

    /// Tags, bans, and URLs that others are derived from, that not everything was tested against yet.
    pub fn purges_in_force(&self) -> usize {
        self.purges.written_down()
    }

    /// Puts the purges of an earlier life in force again, before anything is looked up. What is found on disk with a
    /// lower number is tested against them, until all was found and a walk has come round.
    pub(crate) fn replay(&self, mut journal: Vec<Entry>) {
        journal.sort_by_key(Entry::number);
        for entry in journal {
            match entry {
                Entry::Purge(purge) => self.purges.replay(&purge),
                Entry::Unlisted(number) | Entry::Unknown(number, _) => self.purges.replay_unlisted(number),
                Entry::Sequence(number) => self.purges.go_on_after(number),
            }
        }
    }

    /// All that lies on disk is in the index.
    pub(crate) fn found_disk(&self) {
        self.purges.found_disk();
        self.sweeper.wake();
    }

    /// Walks whenever there is reason to, until [`end_sweeps`](Self::end_sweeps): to be run on a thread of its own.
    pub fn run_sweeps(&self) {
        while self.sweeper.wait() {
            self.sweep();
            self.sweeper.pause();
        }
    }

    /// Ends [`run_sweeps`](Self::run_sweeps), also in the middle of a walk.
    pub fn end_sweeps(&self) {
        self.sweeper.end();
    }

    /// One walk: frees all that was purged, and forgets the purges that everything has been tested against.
    pub fn sweep(&self) {
        let knows_all = self.purges.knows_all();
        let mut tested = self.purges.number();
        let latest = self.purges.latest();
        let heads_left = self.disk.as_ref().map_or(0, |tier| tier.heads_left());
        for shard in &self.shards {
            // The outcome is noted in each. What comes meanwhile is tested as it comes.
            for stored in untested(shard, latest) {
                if self.sweeper.is_to_end() {
                    return;
                }
                stored.is_spared(&self.purges);
            }
            let mut gone: Vec<Arc<Stored>> = Vec::new();
            lock(shard).slots.retain(|slot| {
                let is_gone = |stored: &mut Arc<Stored>| {
                    // Under a head that came meanwhile it may have to be tested anew.
                    stored.standing.is_gone()
                        || !stored.standing.is_tested(latest) && !stored.is_spared(&self.purges)
                };
                gone.extend(slot.variants.extract_if(.., is_gone));
                slot.variants.iter().for_each(|stored| stored.tell_disk());
                // Its response is older than the purges that came since it began.
                tested = slot.pending.iter().fold(tested, |tested, pending| tested.min(pending.number));
                !slot.variants.is_empty() || !slot.pending.is_empty()
            });
            self.uncount(&gone);
        }
        if knows_all {
            self.purges.forget(tested);
            self.disk.iter().for_each(|tier| tier.shorten_journal(tested, heads_left));
        }
    }
}

/// What of a shard was not tested yet against all purges up to the number `latest`. The index has so many shards that
/// this is few.
fn untested(shard: &Mutex<Shard>, latest: u64) -> Vec<Arc<Stored>> {
    let shard = lock(shard);
    let stored = shard.slots.iter().flat_map(|slot| &slot.variants);
    stored.filter(|stored| !stored.standing.is_tested(latest)).cloned().collect()
}
