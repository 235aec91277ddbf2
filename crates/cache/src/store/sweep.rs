//! Purge operations of the index, and the sweep that frees purged responses.
//!
//! A URL purge is complete when the call returns. A tag purge or a ban is in force when the call
//! returns, and complete after a full sweep. A request-dependent ban is complete once every older
//! response has been looked up.
//!
//! A sweep locks one shard at a time, and tests and frees responses with no shard locked, because a
//! ban may be slow to evaluate.

use std::sync::{Arc, Mutex};

use super::Cache;
use super::shard::Shard;
use crate::ban::Compile;
use crate::disk::journal::{Entry, Ticket};
use crate::entry::Head;
use crate::purge::{Ban, Purge, PurgeScope, TooManyPurges};
use crate::stored::Stored;
use crate::sync::lock;

impl Cache {
    /// Purges `what`. A hard purge removes responses; a soft purge makes them stale from `soft_ms`
    /// (Unix milliseconds). A ban is always hard. Look-ups that start after this call returns see
    /// the effect. Returns the number of responses purged by URL; for a tag or a ban, the number is
    /// unknown.
    ///
    /// # Errors
    ///
    /// Returns an error if too many purges are in force.
    pub fn purge(&self, what: PurgeScope, soft_ms: Option<u64>) -> Result<Option<usize>, TooManyPurges> {
        let (count, ticket) = self.take_away(what, soft_ms)?;
        if let (Some(tier), Some(ticket)) = (&self.disk, ticket) {
            tier.await_journal(ticket);
        }
        Ok(count)
    }

    /// Like `purge`, but does not wait for the disk tier's journal, which is written in the
    /// background. If the process exits before that, purged responses on disk reappear after a
    /// restart.
    ///
    /// # Errors
    ///
    /// Returns an error if too many purges are in force.
    pub fn purge_without_waiting(
        &self,
        what: PurgeScope,
        soft_ms: Option<u64>,
    ) -> Result<Option<usize>, TooManyPurges> {
        self.take_away(what, soft_ms).map(|(count, _)| count)
    }

    /// Purges all responses stored under `key`, as after a request with an unsafe method (RFC 9111
    /// §4.4). Does not wait for the journal.
    pub fn invalidate(&self, key: &str) {
        self.purge_without_waiting(PurgeScope::Url(key.into()), None)
            .expect("a URL purge never fails for lack of room");
    }

    /// Puts a purge into force and queues it for the disk tier's journal, if any.
    fn take_away(
        &self,
        what: PurgeScope,
        soft_ms: Option<u64>,
    ) -> Result<(Option<usize>, Option<Ticket>), TooManyPurges> {
        let (purge, count) = match what {
            PurgeScope::Url(key) => {
                self.purge_url(key, soft_ms).map(|(purge, count)| (purge, Some(count)))?
            }
            what => (self.purges.enter(what, soft_ms)?, None),
        };
        let is_listed = purge.number <= self.purges.latest();
        let ticket = self.disk.as_ref().map(|tier| tier.journal(purge));
        if is_listed || self.disk.as_ref().is_some_and(|tier| tier.is_journal_long()) {
            self.sweeper.wake();
        }
        Ok((count, ticket))
    }

    /// Removes every variant under a key, or makes it stale. Also removes the key's pending fetches
    /// from the index: requests already waiting for them came before the purge, and later requests
    /// must not find them.
    fn purge_url(&self, key: Box<str>, soft_ms: Option<u64>) -> Result<(Purge, usize), TooManyPurges> {
        let digest = self.digest(&key);
        let mut shard = lock(self.shard(digest));
        // Numbered with the shard locked, so that no fetch can start between numbering and removal.
        let purge = self.purges.enter(PurgeScope::Url(key), soft_ms)?;
        let PurgeScope::Url(key) = &purge.what else { unreachable!("the scope was set above") };
        shard.unmark(digest, None);
        let Some(slot) = shard.slots.find_mut(digest, |slot| slot.key.is(digest, key)) else {
            return Ok((purge, 0));
        };
        slot.pending.clear();
        let (count, removed) = match soft_ms {
            Some(soft_ms) => {
                slot.variants.iter().for_each(|stored| stored.purge_state.soften(soft_ms));
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

    /// Returns whether the response behind a [`Lookup::Wait`](super::Lookup::Wait) was, or may have
    /// been, purged since its fetch started, hard or soft. The waiting request must then repeat its
    /// look-up.
    pub fn has_purged(&self, key: &str, head: &Head, number: u64) -> bool {
        self.purges.has_purged(key, head, number)
    }

    /// Returns the bans in force, oldest first.
    pub fn bans(&self) -> Vec<Arc<Ban>> {
        self.purges.bans()
    }

    /// Returns the number of purges not yet tested against every response: tags, bans, and URLs
    /// with derived keys.
    pub fn purges_in_force(&self) -> usize {
        self.purges.listed()
    }

    /// Replays the purges from an earlier process. Call this before any look-up. Responses found on
    /// disk with a lower number are tested against these purges until the scan is complete and a
    /// sweep has finished.
    pub(crate) fn replay(&self, mut journal: Vec<Entry>, compile: Compile) {
        journal.sort_by_key(Entry::number);
        for entry in journal {
            match entry {
                Entry::Purge(Purge { number, what: PurgeScope::Ban(ban), soft_ms }) => {
                    match compile(&ban.text) {
                        Some(predicate) => {
                            let what = PurgeScope::Ban(Arc::new(Ban::new(&ban.text, predicate, ban.made_ms)));
                            self.purges.replay(&Purge { number, what, soft_ms });
                        }
                        // A ban that does not compile may have removed anything.
                        None => self.purges.replay_unlisted(number),
                    }
                }
                Entry::Purge(purge) => self.purges.replay(&purge),
                Entry::Unlisted(number) | Entry::Unknown(number, _) => self.purges.replay_unlisted(number),
                Entry::Sequence(number) => self.purges.advance_to(number),
            }
        }
    }

    /// Sweeps whenever needed until [`end_sweeps`](Self::end_sweeps); run this on a separate
    /// thread.
    pub fn run_sweeps(&self) {
        while self.sweeper.wait() {
            self.sweep();
            self.sweeper.pause();
        }
    }

    /// Stops [`run_sweeps`](Self::run_sweeps), even in the middle of a sweep.
    pub fn end_sweeps(&self) {
        self.sweeper.end();
    }

    /// Sweeps once: frees all purged responses, and drops the purges against which every response
    /// has been tested.
    pub fn sweep(&self) {
        let is_scan_complete = self.purges.is_scan_complete();
        let mut tested = self.purges.number();
        let (latest, mut looked_up) = (self.purges.latest(), tested);
        let heads_left = self.disk.as_ref().map_or(0, |tier| tier.heads_left());
        for shard in &self.shards {
            // The result is stored in each response. Responses that arrive in the meantime are
            // tested on arrival.
            for stored in untested(shard, latest) {
                if self.sweeper.should_stop() {
                    return;
                }
                stored.is_spared(&self.purges, None);
            }
            let mut gone: Vec<Arc<Stored>> = Vec::new();
            lock(shard).slots.retain(|slot| {
                let is_gone = |stored: &mut Arc<Stored>| {
                    // A response that received a new head in the meantime may have to be tested
                    // again.
                    stored.purge_state.is_gone()
                        || !stored.purge_state.is_tested(latest) && !stored.is_spared(&self.purges, None)
                };
                gone.extend(slot.variants.extract_if(.., is_gone));
                for stored in &slot.variants {
                    stored.tell_disk();
                    looked_up = looked_up.min(stored.purge_state.tested());
                }
                // The fetch's response counts as older than the purges that arrived since the fetch
                // started.
                tested = slot.pending.iter().fold(tested, |tested, pending| tested.min(pending.number));
                !slot.variants.is_empty() || !slot.pending.is_empty()
            });
            self.uncount(&gone);
        }
        if is_scan_complete {
            self.purges.forget(tested, looked_up);
            self.disk.iter().for_each(|tier| tier.shorten_journal(tested, heads_left));
        }
    }
}

/// Returns the responses in a shard not yet tested against all purges up to `latest`. These are
/// few, because there are many shards.
fn untested(shard: &Mutex<Shard>, latest: u64) -> Vec<Arc<Stored>> {
    let shard = lock(shard);
    let stored = shard.slots.iter().flat_map(|slot| &slot.variants);
    stored.filter(|stored| !stored.purge_state.is_tested(latest)).cloned().collect()
}
