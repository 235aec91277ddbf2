//! The index: what is stored under which key, who is fetching what, and what goes when room is needed.
//!
//! - A key has any number of variants (`Vary`) and, but for who will not wait, at most one fetch whose head is still
//!   awaited: those who come meanwhile wait for that head, no longer.
//! - From its head on, a stored fill is found like any stored response; whether it is complete is the
//!   `FillBuffer`'s matter.
//! - A fill that fails leaves the index *before* its readers hear of it: the next request starts afresh. What has
//!   failed is never put back.
//! - A key whose response turned out not to be shareable is passed for a moment, or for as long as a policy says
//!   (hit-for-pass), or each request for it fetches for itself (hit-for-miss): nobody waits for a head that will not
//!   help them.
//! - What goes when room is needed is [`eviction`](crate::eviction)'s to say; never one still filling.
//! - What was purged is absent for every look-up; its memory is freed by a walk (`sweep`).
//!
//! Lock order: a shard, then the queue or the list of purges; none is held while the other's owner is called back.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};

use thalweg_http::Fields;
use thalweg_http::cache_control::RequestCacheControl;
use thalweg_http::cache_status::Forward;
use thalweg_http::validators::has_validator;

use crate::arena::{Arena, SLAB_BYTES};
use crate::disk::{Disk, Tier};
use crate::eviction::{Frequency, Policy};
use crate::fill::{FillBuffer, Progress, Reader};
use crate::freshness::{Freshness, Reuse};
use crate::purge::{Purges, Standing};
use crate::storage::{Selection, made_s};
use crate::sync::lock;

mod changes;
mod filling;
mod on_disk;
mod room;
mod shard;
mod sweep;

pub use filling::Fill;
pub(crate) use shard::Key;
use shard::{Marked, PENDING_MAX, Pending, Shard, Slot};
pub use shard::{PASS_MARK_MS, VARIANTS_MAX};

/// Parts of the index with a lock of their own: so many that a walk, which holds one at a time, holds up nobody.
const SHARDS: usize = 1024;
/// Content of one response may take this part of the memory at most.
const CONTENT_SHARE_MAX: u64 = 4;
/// Keys, fields and the rest of the index may take this part of the memory's size, beside it.
const INDEX_SHARE_MAX: usize = 8;
/// With a disk tier, this part of its size more.
const INDEX_SHARE_OF_DISK: u64 = 1024;
/// What a stored response takes in the index beside its texts, roughly.
const STORED_BYTES: usize = 512;
/// Content bytes that may wait for the reader of a passed response.
pub const PASS_WINDOW_BYTES: usize = 256 * 1024;
const _: () = assert!(PASS_WINDOW_BYTES < SLAB_BYTES);

/// A response's head as the cache keeps it, and what it implies.
#[derive(Debug, Clone)]
pub struct Head {
    /// Status code.
    pub status: u16,
    /// The reason phrase, if it is not that of the status.
    pub reason: Option<Arc<str>>,
    /// End-to-end fields, without `Content-Length` and `Age`.
    pub fields: Fields,
    /// Fields for the client that caused the fetch, and no other.
    pub withheld: Fields,
    /// Fields for this cache, and no client: `Surrogate-Key`.
    pub surrogate: Fields,
    /// Content bytes, where the head says how many.
    pub length: Option<u64>,
    /// How long it may be reused.
    pub freshness: Freshness,
    /// Which requests select it.
    pub selection: Selection,
    /// Unless it may be shared: why not.
    pub private: Option<Private>,
    /// Its content is kept in slices, each under a key of its own.
    pub sliced: bool,
    /// Unless a backend sent it: why a policy has made it. The disk tier keeps such a response, but not this of it.
    pub made: Option<Made>,
}

impl Head {
    /// One that may be shared, of unknown length, as a backend sent it.
    pub fn new(status: u16, fields: Fields, freshness: Freshness) -> Self {
        Self {
            status,
            reason: None,
            fields,
            withheld: Fields::new(),
            surrogate: Fields::new(),
            length: None,
            freshness,
            selection: Selection::default(),
            private: None,
            sliced: false,
            made: None,
        }
    }

    /// Whether it is there because the fetch failed.
    pub fn is_error(&self) -> bool {
        self.made == Some(Made::Failed)
    }
}

/// Why a policy has made a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Made {
    /// The fetch had failed.
    Failed,
    /// The policy has chosen to.
    Chosen,
}

/// Why a response is for one client alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Private {
    /// In a word, for `Cache-Status`.
    pub reason: &'static str,
    /// What is expected of the next response under its key.
    pub lasting: Lasting,
}

/// What is expected of the next response under the key of one that was for one client alone, by requests that select
/// the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lasting {
    /// Nothing.
    No,
    /// It is so too: requests, of whatever variant, are passed for [`PASS_MARK_MS`], but served what is stored.
    Moment,
    /// A policy says so: requests are passed (hit-for-pass). Nothing that they select stays stored.
    Pass {
        /// Unix milliseconds.
        until_ms: u64,
    },
    /// Each request fetches for itself, and what may be shared is stored (hit-for-miss). Nothing that they select stays
    /// stored.
    Miss {
        /// Unix milliseconds.
        until_ms: u64,
    },
}

impl Lasting {
    /// Whether a policy has said it.
    pub fn is_of_policy(self) -> bool {
        matches!(self, Self::Pass { .. } | Self::Miss { .. })
    }
}

/// Content of a response with its head.
pub type Content = FillBuffer<Arc<Head>>;

/// A stored response. Its content may still be arriving.
#[derive(Debug)]
pub struct Stored {
    /// The head, as of its last validation.
    pub head: Arc<Head>,
    /// The content; its own head is that of the fill.
    pub content: Arc<Content>,
    key: Key,
    frequency: Frequency,
    standing: Standing,
    /// How often a policy has found it.
    hits: AtomicU64,
}

/// What a look-up comes to.
#[derive(Debug)]
pub enum Lookup {
    /// Fresh, and complete.
    Hit(Arc<Stored>),
    /// Fresh, and still arriving.
    Joined(Arc<Stored>),
    /// Stale, but good enough while it is refreshed; the caller does that if nobody is about it yet.
    Refresh(Arc<Stored>, Option<Fill>),
    /// Somebody is fetching; the head is awaited. With the number of the newest purge before: see
    /// [`Cache::has_purged`].
    Wait(Reader<Arc<Head>>, u64),
    /// Nothing that fits: the caller fetches, and reads what it fetches.
    Miss(Fill, Reader<Arc<Head>>),
    /// The same, though somebody else may be fetching: the last response was for one client alone.
    HitMiss(Fill, Reader<Arc<Head>>),
    /// Stored but not fresh: the caller asks the backend whether it is still good, if the response has a validator, or
    /// for another.
    Stale(Fill, Reader<Arc<Head>>, Arc<Stored>),
    /// Known not to be shareable: everybody goes their own way.
    Pass,
    /// Nothing that fits, and the client wants nothing else (`only-if-cached`).
    Nothing,
}

/// The cache of one edge.
#[derive(Debug)]
pub struct Cache {
    arena: Arc<Arena>,
    pub(crate) disk: Option<Arc<Tier>>,
    hasher: RandomState,
    shards: Box<[Mutex<Shard>]>,
    /// Every stored response, in the order of eviction.
    queue: Mutex<Policy<Weak<Stored>>>,
    stored: AtomicUsize,
    index_bytes: Arc<AtomicUsize>,
    index_bytes_max: usize,
    content_bytes_max: u64,
    purges: Purges,
    sweeper: sweep::Sweeper,
}

impl Cache {
    /// A cache of `memory_bytes` of content.
    ///
    /// # Errors
    /// When the system refuses the memory.
    pub fn new(memory_bytes: u64) -> io::Result<Arc<Self>> {
        Self::with_disk(memory_bytes, None)
    }

    /// A cache of `memory_bytes` of content, and of what `disk` takes; see [`Cache::start_disk`].
    ///
    /// # Errors
    /// When the system refuses the memory.
    pub fn with_disk(memory_bytes: u64, disk: Option<Disk>) -> io::Result<Arc<Self>> {
        let arena = Arena::new(memory_bytes)?;
        let memory_bytes = arena.slabs_max() * SLAB_BYTES;
        let disk_bytes = disk.as_ref().map_or(0, Disk::bytes_max);
        let index_bytes_of_disk = usize::try_from(disk_bytes / INDEX_SHARE_OF_DISK).unwrap_or(usize::MAX);
        let mut disk = disk;
        let journal = disk.as_mut().map(Disk::take_journal);
        let cache = Arc::new_cyclic(|cache| Self {
            arena,
            disk: disk.map(|disk| Tier::new(disk, memory_bytes as u64, cache.clone())),
            hasher: RandomState::new(),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            queue: Mutex::default(),
            stored: AtomicUsize::new(0),
            index_bytes: Arc::default(),
            index_bytes_max: (memory_bytes / INDEX_SHARE_MAX).saturating_add(index_bytes_of_disk),
            content_bytes_max: memory_bytes as u64 / CONTENT_SHARE_MAX,
            purges: Purges::default(),
            sweeper: sweep::Sweeper::default(),
        });
        if let Some(journal) = journal {
            cache.purges.await_disk();
            cache.replay(journal);
        }
        Ok(cache)
    }

    /// The most content that is stored of one response, in bytes; more is passed.
    pub fn content_bytes_max(&self) -> u64 {
        self.content_bytes_max
    }

    /// Stored responses.
    pub fn stored(&self) -> usize {
        self.stored.load(Relaxed)
    }

    /// Bytes of keys, fields and the rest of the index.
    pub fn index_bytes(&self) -> usize {
        self.index_bytes.load(Relaxed)
    }

    /// The memory that content lies in.
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// Looks under `key` for what answers a request with `fields` that asks for `asked`; if there is nothing, the caller
    /// becomes the one to fetch it.
    pub fn look_up(
        self: &Arc<Self>,
        key: &str,
        fields: &Fields,
        asked: &RequestCacheControl,
        now_ms: u64,
    ) -> Lookup {
        let digest = self.digest(key);
        let mut shard = lock(self.shard(digest));
        // Seen before anything is selected: what a fetch begun now will ask about was not purged until then.
        let number = self.purges.number();
        let marked = shard.marked(digest, fields, now_ms);
        // What a policy has said of the last response is newer than what is stored.
        let is_hidden = matches!(marked, Some(Marked::Pass | Marked::Miss));
        let slot = shard.slots.find_mut(digest, |slot| slot.key.is(digest, key));
        let selected = slot.as_ref().filter(|_| !is_hidden);
        let selected = selected.and_then(|slot| slot.select(fields, &self.purges, now_ms)).cloned();
        let forward = match &selected {
            Some(stored) if stored.freshness().is_fresh(now_ms) => Forward::Request,
            Some(_) => Forward::Stale,
            None if slot.as_ref().is_some_and(|slot| slot.has_any(&self.purges)) => Forward::VaryMiss,
            None => Forward::UriMiss,
        };
        let pending = slot.and_then(|slot| slot.pending.iter().find(|pending| pending.is_shared).cloned());
        match selected.as_ref().map(|stored| stored.freshness().reuse(asked, now_ms)) {
            Some(Reuse::Now) => {
                drop(shard);
                let stored = selected.expect("what is good for now was selected");
                return match stored.found() {
                    Progress::Complete(_) => {
                        self.offer_again(&stored);
                        Lookup::Hit(stored)
                    }
                    _ => Lookup::Joined(stored),
                };
            }
            Some(Reuse::NowAndRefresh) => {
                let stored = selected.expect("what is good for now was selected");
                stored.found();
                let is_alone = pending.is_none() && marked.is_none();
                let begin = || self.begin(&mut shard, (digest, key), number, forward, true);
                let fill = is_alone.then(begin).flatten();
                let fill = fill.map(|(fill, _)| fill);
                return Lookup::Refresh(stored, fill);
            }
            Some(Reuse::AfterValidation) | None if asked.only_if_cached => return Lookup::Nothing,
            Some(Reuse::AfterValidation) | None => {}
        }
        match (marked, pending) {
            (Some(Marked::Pass | Marked::Moment), _) => return Lookup::Pass,
            (None, Some(pending)) => return Lookup::Wait(pending.content.reader(0), pending.number),
            (Some(Marked::Miss), _) | (None, None) => {}
        }
        let begun = self.begin(&mut shard, (digest, key), number, forward, marked.is_none());
        drop(shard);
        let Some((fill, reader)) = begun else { return Lookup::Pass };
        if marked.is_some() {
            return Lookup::HitMiss(fill, reader);
        }
        match selected.filter(|stored| stored.is_complete()) {
            Some(stored) => Lookup::Stale(fill, reader, stored),
            None => Lookup::Miss(fill, reader),
        }
    }

    /// A fetch of what may be stored already, beside those that are under way: [`Lookup::Miss`]. Where these are too many,
    /// [`Lookup::Pass`].
    pub fn begin_anew(self: &Arc<Self>, key: &str) -> Lookup {
        let digest = self.digest(key);
        let mut shard = lock(self.shard(digest));
        let number = self.purges.number();
        let begun = self.begin(&mut shard, (digest, key), number, Forward::Request, true);
        begun.map_or(Lookup::Pass, |(fill, reader)| Lookup::Miss(fill, reader))
    }

    /// A fetch that others who ask for `key` wait for if it is shared, unless those that are under way are too many.
    fn begin(
        self: &Arc<Self>,
        shard: &mut Shard,
        (digest, key): (u64, &str),
        number: u64,
        forward: Forward,
        is_shared: bool,
    ) -> Option<(Fill, Reader<Arc<Head>>)> {
        let slot = shard.slot_or_new(digest, key);
        if slot.pending.len() >= PENDING_MAX {
            return None;
        }
        let (content, writer, reader) = FillBuffer::new();
        let number = self.purges.number_of_fetch(key, number);
        slot.pending.push(Pending { content: content.clone(), number, is_shared });
        Some((Fill::pending(self.clone(), (slot.key.clone(), number), content, writer, forward), reader))
    }

    /// A fetch for one client alone, which the index does not know of.
    pub fn pass(self: &Arc<Self>) -> (Fill, Reader<Arc<Head>>) {
        let (content, writer, reader) = FillBuffer::new();
        (Fill::alone(self.clone(), content, writer), reader)
    }

    /// What is stored for `request`, fresh or not: for one who knows it was validated just now.
    pub fn peek(&self, key: &str, request: &Fields, now_ms: u64) -> Option<Arc<Stored>> {
        let digest = self.digest(key);
        let shard = lock(self.shard(digest));
        shard
            .slots
            .find(digest, |slot| slot.key.is(digest, key))?
            .select(request, &self.purges, now_ms)
            .cloned()
    }

    /// Whether the response with this very head is stored under `key`, and was not purged.
    pub fn is_stored(&self, key: &str, head: &Arc<Head>) -> bool {
        let digest = self.digest(key);
        let shard = lock(self.shard(digest));
        let Some(slot) = shard.slots.find(digest, |slot| slot.key.is(digest, key)) else { return false };
        slot.variants.iter().any(|stored| Arc::ptr_eq(&stored.head, head) && stored.is_spared(&self.purges))
    }

    fn digest(&self, key: &str) -> u64 {
        self.hasher.hash_one(key)
    }

    fn shard(&self, digest: u64) -> &Mutex<Shard> {
        // The table itself uses the low and the top bits.
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

impl Stored {
    /// How long it may be reused: what its head says, cut short where it was purged softly.
    pub fn freshness(&self) -> Freshness {
        let freshness = self.head.freshness;
        self.standing.stale_ms().map_or(freshness, |since_ms| freshness.stale_from(since_ms))
    }

    /// The number of the newest purge before its fetch began.
    pub fn number(&self) -> u64 {
        self.standing.number()
    }

    fn is_spared(&self, purges: &Purges) -> bool {
        purges.spares(&self.key.text, &self.head, &self.standing)
    }

    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    /// The same content under another head.
    fn with_head(&self, head: Head, standing: Standing) -> Arc<Self> {
        let (content, key, frequency) = (self.content.clone(), self.key.clone(), Frequency::default());
        let hits = AtomicU64::new(self.hits.load(Relaxed));
        Arc::new(Self { head: Arc::new(head), content, key, standing, frequency, hits })
    }

    fn made_s(&self) -> u64 {
        made_s(&self.head.fields)
    }

    /// Counts a hit, and says how many there have been.
    pub fn count_hit(&self) -> u64 {
        self.hits.fetch_add(1, Relaxed) + 1
    }

    fn found(&self) -> Progress {
        self.frequency.used();
        if self.head.sliced
            && let Some(copy) = self.content.copy()
        {
            copy.used();
        }
        self.content.progress()
    }

    /// Whether all of it is there: what is still arriving could fail after it was found to be good.
    pub fn is_complete(&self) -> bool {
        matches!(self.content.progress(), Progress::Complete(_))
    }

    /// Whether the backend can be asked about it. Not about an error, which is to be over: its validator may be that of
    /// what it stands for.
    pub fn has_validator(&self) -> bool {
        self.head.status < 400 && has_validator(&self.head.fields)
    }

    /// Bytes that it takes beside its content.
    pub(crate) fn index_bytes(&self) -> usize {
        STORED_BYTES
            + self.key.text.len()
            + self.head.reason.as_deref().map_or(0, str::len)
            + self.head.fields.text_len()
            + self.head.withheld.text_len()
            + self.head.surrogate.text_len()
            + self.head.selection.bytes()
    }
}

#[cfg(test)]
mod tests;
