//! The index: stored responses by key, fetches in progress, and eviction.
//!
//! - A key may have several variants (`Vary`), each with at most one shared fetch whose head is
//!   awaited. Requests for the same variant wait only until that head arrives. Requests that must
//!   not wait start their own fetches.
//! - Variants are distinguished by the fields in the latest stored response's `Vary`. Until a first
//!   response is stored, all requests for the key wait for one head. After that, variants are
//!   fetched in parallel.
//! - Once its head has arrived, a stored fill is found like any stored response. Only the
//!   `FillBuffer` knows whether it is complete.
//! - A failing fill is removed from the index *before* its readers are notified, so the next
//!   request starts a new fetch. A failed fill is never reinserted.
//! - If a response turns out not to be shareable, later requests for its key are passed for a few
//!   seconds. A policy may instead have them passed for longer (hit-for-pass), or have each of them
//!   fetch separately (hit-for-miss). No request waits for a head that it could not use.
//! - [`eviction`](crate::eviction) chooses what to evict; a response that is still filling is never
//!   evicted.
//! - Every look-up treats purged responses as absent; a sweep (`sweep`) frees their memory.
//!
//! Lock order: a shard, then the eviction queue or the purge list. The queue and the list are never
//! locked at the same time.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};

use thalweg_http::Fields;
use thalweg_http::cache_control::RequestCacheControl;
use thalweg_http::cache_status::Forward;

use crate::arena::{Arena, SLAB_BYTES};
use crate::disk::{Disk, Index, Tier};
use crate::entry::{Head, PassMark};
use crate::eviction::Policy;
use crate::fill::{FillBuffer, Progress, Reader};
use crate::freshness::Reuse;
use crate::purge::Purges;
use crate::stored::Stored;
use crate::sync::lock;
use shard::{PENDING_MAX, Pending, Shard};
use sweeper::Sweeper;

mod changes;
mod filling;
mod on_disk;
mod room;
mod shard;
mod sweep;
mod sweeper;

pub use filling::Fill;
pub use shard::{PASS_MARK_MS, VARIANTS_MAX};

/// Number of independently locked shards of the index. A sweep locks one shard at a time; with this
/// many shards, it does not noticeably delay requests.
const SHARDS: usize = 1024;
/// Maximum size of one response's content, as a fraction (1/n) of the content memory.
const CONTENT_SHARE_MAX: u64 = 4;
/// Maximum size of keys, fields and the rest of the index, as a fraction (1/n) of the content
/// memory, which does not include them.
const INDEX_SHARE_MAX: usize = 8;
/// With a disk tier, the index may use additional memory: this fraction (1/n) of the tier's size.
const INDEX_SHARE_OF_DISK: u64 = 1024;
/// Maximum amount of a passed response's content buffered for its reader, in bytes.
pub const PASS_WINDOW_BYTES: usize = 256 * 1024;
const _: () = assert!(PASS_WINDOW_BYTES < SLAB_BYTES);

/// The result of a look-up.
#[derive(Debug)]
pub enum Lookup {
    /// The stored response is fresh and complete.
    Hit(Arc<Stored>),
    /// The stored response is fresh, and its content is still arriving.
    Joined(Arc<Stored>),
    /// The stored response is stale, but may be served while it is revalidated in the background.
    /// If there is a fill, the caller must revalidate the response. There is none if, for example,
    /// another revalidation is in flight.
    Refresh(Arc<Stored>, Option<Fill>),
    /// A fetch is in progress and its head is awaited. The number is that of the newest purge
    /// before the fetch started; see [`Cache::has_purged`].
    Wait(Reader<Arc<Head>>, u64),
    /// Nothing suitable is stored: the caller fetches the response, and reads from its own fetch.
    Miss(Fill, Reader<Arc<Head>>),
    /// Like `Miss`, but other fetches may be in progress, because the last response was for one
    /// client only.
    HitMiss(Fill, Reader<Arc<Head>>),
    /// The stored response is not fresh: the caller validates it with the backend if it has a
    /// validator, and otherwise fetches a new one.
    Stale(Fill, Reader<Arc<Head>>, Arc<Stored>),
    /// The response is known not to be shareable: each request fetches separately.
    Pass,
    /// Nothing suitable is stored, and the client accepts only a stored response
    /// (`only-if-cached`).
    Nothing,
}

/// The cache of one edge.
#[derive(Debug)]
pub struct Cache {
    arena: Arc<Arena>,
    pub(crate) disk: Option<Arc<Tier>>,
    hasher: RandomState,
    shards: Box<[Mutex<Shard>]>,
    /// Stored responses, in eviction order.
    queue: Mutex<Policy<Weak<Stored>>>,
    stored: AtomicUsize,
    index_bytes: Arc<AtomicUsize>,
    index_bytes_max: usize,
    content_bytes_max: u64,
    purges: Purges,
    sweeper: Sweeper,
}

impl Cache {
    /// Creates a cache with `memory_bytes` of memory for content.
    ///
    /// # Errors
    ///
    /// Returns an error if the memory cannot be allocated.
    pub fn new(memory_bytes: u64) -> io::Result<Arc<Self>> {
        Self::with_disk(memory_bytes, None)
    }

    /// Creates a cache with `memory_bytes` of memory for content and `disk` as its second tier; see
    /// [`Cache::start_disk`].
    ///
    /// # Errors
    ///
    /// Returns an error if the memory cannot be allocated.
    pub fn with_disk(memory_bytes: u64, disk: Option<Disk>) -> io::Result<Arc<Self>> {
        let arena = Arena::new(memory_bytes)?;
        let memory_bytes = arena.slabs_max() * SLAB_BYTES;
        let disk_bytes = disk.as_ref().map_or(0, Disk::bytes_max);
        let index_bytes_of_disk = usize::try_from(disk_bytes / INDEX_SHARE_OF_DISK).unwrap_or(usize::MAX);
        let mut disk = disk;
        let journal = disk.as_mut().map(|disk| (disk.take_journal(), disk.compile));
        let cache = Arc::new_cyclic(|cache: &Weak<Self>| Self {
            arena,
            disk: disk.map(|disk| {
                let index: Weak<dyn Index> = cache.clone();
                Tier::new(disk, memory_bytes as u64, index)
            }),
            hasher: RandomState::new(),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            queue: Mutex::default(),
            stored: AtomicUsize::new(0),
            index_bytes: Arc::default(),
            index_bytes_max: (memory_bytes / INDEX_SHARE_MAX).saturating_add(index_bytes_of_disk),
            content_bytes_max: memory_bytes as u64 / CONTENT_SHARE_MAX,
            purges: Purges::default(),
            sweeper: Sweeper::default(),
        });
        if let Some((journal, compile)) = journal {
            cache.purges.start_scan();
            cache.replay(journal, compile);
        }
        Ok(cache)
    }

    /// Returns the maximum content size of a stored response, in bytes; larger responses are
    /// passed.
    pub fn content_bytes_max(&self) -> u64 {
        self.content_bytes_max
    }

    /// Returns the number of stored responses.
    pub fn stored(&self) -> usize {
        self.stored.load(Relaxed)
    }

    /// Returns the size of keys, fields and the rest of the index, in bytes.
    pub fn index_bytes(&self) -> usize {
        self.index_bytes.load(Relaxed)
    }

    /// Returns the content memory.
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// Looks up a response under `key` for a request with `fields` and the cache directives
    /// `asked`. If nothing suitable is stored, the caller becomes responsible for fetching the
    /// response.
    pub fn look_up(
        self: &Arc<Self>,
        key: &str,
        fields: &Fields,
        asked: &RequestCacheControl,
        now_ms: u64,
    ) -> Lookup {
        let digest = self.digest(key);
        let mut shard = lock(self.shard(digest));
        // Read the number before selecting a response. A fetch that validates the selected response
        // assumes that no purge up to this number has removed it.
        let number = self.purges.number();
        let marked = shard.marked(digest, fields, now_ms);
        // A policy verdict on the last response is newer than the stored responses, so it hides
        // them.
        let is_hidden = marked.is_some_and(PassMark::is_of_policy);
        let slot = shard.slots.find_mut(digest, |slot| slot.key.is(digest, key));
        let selected = slot.as_ref().filter(|_| !is_hidden);
        let selected = selected.and_then(|slot| slot.select(fields, &self.purges, now_ms)).cloned();
        let forward = match &selected {
            Some(stored) if stored.freshness().is_fresh(now_ms) => Forward::Request,
            Some(_) => Forward::Stale,
            None if slot.as_ref().is_some_and(|slot| slot.has_any(&self.purges)) => Forward::VaryMiss,
            None => Forward::UriMiss,
        };
        let pending = slot.and_then(|slot| slot.awaited(fields).cloned());
        match selected.as_ref().map(|stored| stored.freshness().reuse(asked, now_ms)) {
            Some(Reuse::Now) => {
                drop(shard);
                let stored = selected.expect("a reusable response was selected");
                return match stored.note_use() {
                    Progress::Complete(_) => {
                        self.offer_again(&stored);
                        Lookup::Hit(stored)
                    }
                    _ => Lookup::Joined(stored),
                };
            }
            Some(Reuse::NowAndRefresh) => {
                let stored = selected.expect("a reusable response was selected");
                stored.note_use();
                let is_alone = pending.is_none() && marked.is_none();
                let begin = || self.begin(&mut shard, (digest, key), fields, (number, forward, true));
                let fill = is_alone.then(begin).flatten();
                let fill = fill.map(|(fill, _)| fill);
                return Lookup::Refresh(stored, fill);
            }
            Some(Reuse::AfterValidation) | None if asked.only_if_cached => return Lookup::Nothing,
            Some(Reuse::AfterValidation) | None => {}
        }
        match (marked, pending) {
            (Some(PassMark::Pass { .. } | PassMark::Moment), _) => return Lookup::Pass,
            (None, Some(pending)) => return Lookup::Wait(pending.content.reader(0), pending.number),
            (Some(PassMark::Miss { .. } | PassMark::No), _) | (None, None) => {}
        }
        let started = self.begin(&mut shard, (digest, key), fields, (number, forward, marked.is_none()));
        drop(shard);
        let Some((fill, reader)) = started else { return Lookup::Pass };
        if marked.is_some() {
            return Lookup::HitMiss(fill, reader);
        }
        match selected.filter(|stored| stored.is_complete()) {
            Some(stored) => Lookup::Stale(fill, reader, stored),
            None => Lookup::Miss(fill, reader),
        }
    }

    /// Starts a fetch for a request with `fields`, even if a response is stored or another fetch is
    /// in progress. Returns [`Lookup::Miss`], or [`Lookup::Pass`] if too many fetches are in
    /// progress.
    pub fn start_fetch(self: &Arc<Self>, key: &str, fields: &Fields) -> Lookup {
        let digest = self.digest(key);
        let mut shard = lock(self.shard(digest));
        let number = self.purges.number();
        let started = self.begin(&mut shard, (digest, key), fields, (number, Forward::Request, true));
        started.map_or(Lookup::Pass, |(fill, reader)| Lookup::Miss(fill, reader))
    }

    /// Starts a fetch. If it is shared, other requests for the same variant of `key` wait for it.
    /// Returns `None` if too many fetches are in progress.
    fn begin(
        self: &Arc<Self>,
        shard: &mut Shard,
        (digest, key): (u64, &str),
        fields: &Fields,
        (number, forward, is_shared): (u64, Forward, bool),
    ) -> Option<(Fill, Reader<Arc<Head>>)> {
        let slot = shard.slot_or_new(digest, key);
        if slot.pending.len() >= PENDING_MAX {
            return None;
        }
        let (content, writer, reader) = FillBuffer::new();
        let number = self.purges.number_of_fetch(key, number);
        let selection = slot.selection_for(fields);
        slot.pending.push(Pending { content: content.clone(), number, is_shared, selection });
        Some((Fill::pending(self.clone(), (slot.key.clone(), number), content, writer, forward), reader))
    }

    /// Starts a fetch for one client only. The fetch is not added to the index.
    pub fn pass(self: &Arc<Self>) -> (Fill, Reader<Arc<Head>>) {
        let (content, writer, reader) = FillBuffer::new();
        (Fill::alone(self.clone(), content, writer), reader)
    }

    /// Returns the response stored for `request`, whether fresh or not. Intended for callers that
    /// know it was just validated.
    pub fn peek(&self, key: &str, request: &Fields, now_ms: u64) -> Option<Arc<Stored>> {
        let digest = self.digest(key);
        let shard = lock(self.shard(digest));
        shard
            .slots
            .find(digest, |slot| slot.key.is(digest, key))?
            .select(request, &self.purges, now_ms)
            .cloned()
    }

    /// Returns whether the response with exactly this head is stored under `key` and not purged.
    pub fn is_stored(&self, key: &str, head: &Arc<Head>) -> bool {
        let digest = self.digest(key);
        let shard = lock(self.shard(digest));
        let Some(slot) = shard.slots.find(digest, |slot| slot.key.is(digest, key)) else { return false };
        slot.variants
            .iter()
            .any(|stored| Arc::ptr_eq(&stored.head, head) && stored.is_spared(&self.purges, None))
    }

    fn digest(&self, key: &str) -> u64 {
        self.hasher.hash_one(key)
    }

    fn shard(&self, digest: u64) -> &Mutex<Shard> {
        // The shard's hash table uses the low and the top bits.
        &self.shards[(digest >> 32) as usize % SHARDS]
    }

    pub(crate) fn is_index_full(&self) -> bool {
        self.index_bytes.load(Relaxed) > self.index_bytes_max
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        if let Some(disk) = &self.disk {
            disk.close();
        }
    }
}

#[cfg(test)]
mod tests;
