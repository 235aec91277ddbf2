//! The index: what is stored under which key, who is fetching what, and what goes when room is needed.
//!
//! - A key has any number of variants (`Vary`) and at most one fetch whose head is still awaited: those who come
//!   meanwhile wait for that head, no longer.
//! - From its head on, a stored fill is found like any stored response; whether it is complete is the
//!   `FillBuffer`'s matter.
//! - A fill that fails leaves the index *before* its readers hear of it: the next request starts afresh.
//! - Eviction is second chance (CLOCK) over stored responses, in the order they came.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};

use bytes::Bytes;
use hashbrown::HashTable;
use thalweg_http::{Fields, RequestHead};

use crate::arena::{Arena, NoRoom, SLAB_BYTES};
use crate::fill::{Failure, FillBuffer, Keep, Progress, Reader, Writer};
use crate::freshness::Freshness;
use crate::storage::Selection;
use crate::sync::lock;

/// Parts of the index with a lock of their own.
const SHARDS: usize = 64;
/// Slabs that are kept free for fills to grow into.
const FREE_SLABS_MIN: usize = 2;
/// Content of one response may take this part of the memory at most.
const MEMORY_SHARE_MAX: u64 = 4;
/// One stored response to this many bytes of memory at most: their heads and index live beside the arena.
const BYTES_PER_STORED_MIN: u64 = 1024;
/// Variants kept under one key; the oldest goes.
pub const VARIANTS_MAX: usize = 32;
/// Content bytes that may wait for the reader of a passed response.
pub const PASS_WINDOW_BYTES: usize = 256 * 1024;

const _: () = assert!(PASS_WINDOW_BYTES < SLAB_BYTES);

/// A response's head as the cache keeps it, and what it implies.
#[derive(Debug, Clone)]
pub struct Head {
    /// Status code.
    pub status: u16,
    /// End-to-end fields, without `Content-Length` and `Age`.
    pub fields: Fields,
    /// Content bytes, where the head says how many.
    pub length: Option<u64>,
    /// How long it may be reused.
    pub freshness: Freshness,
    /// Which requests select it.
    pub selection: Selection,
    /// Unless it may be shared: why not.
    pub private: Option<&'static str>,
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
    key: Box<str>,
    digest: u64,
    hit: AtomicBool,
}

/// What a look-up comes to.
#[derive(Debug)]
pub enum Lookup {
    /// Fresh, and complete.
    Hit(Arc<Stored>),
    /// Fresh, and still arriving.
    Joined(Arc<Stored>),
    /// Somebody is fetching; the head is awaited.
    Wait(Reader<Arc<Head>>),
    /// Nothing that fits: the caller fetches, and reads what it fetches.
    Miss(Fill, Reader<Arc<Head>>),
    /// Stored but not fresh: the caller asks the backend whether it is still good.
    Stale(Fill, Reader<Arc<Head>>, Arc<Stored>),
}

/// The cache of one edge.
#[derive(Debug)]
pub struct Cache {
    arena: Arc<Arena>,
    hasher: RandomState,
    shards: Box<[Mutex<HashTable<Slot>>]>,
    queue: Mutex<VecDeque<Weak<Stored>>>,
    stored: AtomicUsize,
    stored_max: usize,
    content_bytes_max: u64,
}

#[derive(Debug)]
struct Slot {
    digest: u64,
    key: Box<str>,
    variants: Vec<Arc<Stored>>,
    pending: Option<Arc<Content>>,
}

impl Slot {
    fn select(&self, request: &Fields) -> Option<&Arc<Stored>> {
        // The latest first (RFC 9111 §4.1: the most recent of those that match).
        self.variants.iter().rev().find(|stored| stored.head.selection.matches(request))
    }
}

impl Cache {
    /// A cache of `memory_bytes` of content.
    ///
    /// # Errors
    /// When the system refuses the memory.
    pub fn new(memory_bytes: u64) -> io::Result<Arc<Self>> {
        let arena = Arena::new(memory_bytes)?;
        let memory_bytes = (arena.slabs_max() * SLAB_BYTES) as u64;
        Ok(Arc::new(Self {
            arena,
            hasher: RandomState::new(),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            queue: Mutex::default(),
            stored: AtomicUsize::new(0),
            stored_max: usize::try_from(memory_bytes / BYTES_PER_STORED_MIN).unwrap_or(usize::MAX),
            content_bytes_max: memory_bytes / MEMORY_SHARE_MAX,
        }))
    }

    /// The most content that is stored of one response, in bytes; more is passed.
    pub fn content_bytes_max(&self) -> u64 {
        self.content_bytes_max
    }

    /// Stored responses.
    pub fn stored(&self) -> usize {
        self.stored.load(Relaxed)
    }

    /// The memory that content lies in.
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// Looks for what answers `request` under `key`; if there is nothing, the caller becomes the one to fetch it.
    pub fn look_up(self: &Arc<Self>, key: &str, request: &RequestHead, now_ms: u64) -> Lookup {
        let digest = self.hasher.hash_one(key);
        let mut shard = lock(self.shard(digest));
        let slot = shard
            .entry(digest, |slot| slot.digest == digest && *slot.key == *key, |slot| slot.digest)
            .or_insert_with(|| Slot { digest, key: key.into(), variants: Vec::new(), pending: None })
            .into_mut();
        let selected = slot.select(&request.fields);
        if let Some(stored) = selected.filter(|stored| stored.head.freshness.is_fresh(now_ms)) {
            let stored = stored.clone();
            drop(shard);
            return match stored.found() {
                Progress::Complete(_) => Lookup::Hit(stored),
                _ => Lookup::Joined(stored),
            };
        }
        if let Some(pending) = &slot.pending {
            return Lookup::Wait(pending.reader(0));
        }
        let stale = selected.filter(|stored| stored.can_be_validated()).cloned();
        let (content, writer, reader) = FillBuffer::new();
        slot.pending = Some(content.clone());
        drop(shard);
        let fill = Fill {
            cache: self.clone(),
            key: key.into(),
            digest,
            content,
            writer: Some(writer),
            stored: None,
        };
        match stale {
            Some(stored) => Lookup::Stale(fill, reader, stored),
            None => Lookup::Miss(fill, reader),
        }
    }

    /// A fetch for one client alone, which the index does not know of.
    pub fn pass(self: &Arc<Self>) -> (Fill, Reader<Arc<Head>>) {
        let (content, writer, reader) = FillBuffer::new();
        let fill = Fill {
            cache: self.clone(),
            key: "".into(),
            digest: 0,
            content,
            writer: Some(writer),
            stored: None,
        };
        (fill, reader)
    }

    /// What is stored for `request`, fresh or not: for one who knows it was validated just now.
    pub fn peek(&self, key: &str, request: &Fields) -> Option<Arc<Stored>> {
        let digest = self.hasher.hash_one(key);
        let shard = lock(self.shard(digest));
        let slot = shard.find(digest, |slot| slot.digest == digest && *slot.key == *key)?;
        slot.select(request).cloned()
    }

    fn shard(&self, digest: u64) -> &Mutex<HashTable<Slot>> {
        // The table itself uses the low and the top bits.
        &self.shards[(digest >> 32) as usize % SHARDS]
    }

    /// Puts `stored` into the index in place of `old` or of the variant that the same requests select.
    fn admit(&self, stored: &Arc<Stored>, old: Option<&Arc<Stored>>) {
        let mut removed = Vec::new();
        let mut shard = lock(self.shard(stored.digest));
        let slot = shard
            .entry(
                stored.digest,
                |slot| slot.digest == stored.digest && slot.key == stored.key,
                |slot| slot.digest,
            )
            .or_insert_with(|| Slot {
                digest: stored.digest,
                key: stored.key.clone(),
                variants: Vec::new(),
                pending: None,
            })
            .into_mut();
        slot.pending = None;
        let replaced = |variant: &mut Arc<Stored>| {
            old.is_some_and(|old| Arc::ptr_eq(old, variant))
                || variant.head.selection == stored.head.selection
        };
        removed.extend(slot.variants.extract_if(.., replaced));
        if slot.variants.len() >= VARIANTS_MAX {
            removed.push(slot.variants.remove(0));
        }
        slot.variants.push(stored.clone());
        drop(shard);
        self.stored.fetch_add(1, Relaxed);
        self.stored.fetch_sub(removed.len(), Relaxed);
        self.enqueue(stored);
        self.make_room();
    }

    fn enqueue(&self, stored: &Arc<Stored>) {
        let mut queue = lock(&self.queue);
        queue.push_back(Arc::downgrade(stored));
        // Replaced and failed responses leave their place behind; clear them before they outnumber the living.
        if queue.len() > 2 * self.stored.load(Relaxed) + 1024 {
            queue.retain(|stored| stored.strong_count() > 0);
        }
    }

    /// Removes what satisfies `gone` under a key, and the key with its last variant.
    fn remove(&self, digest: u64, key: &str, gone: impl Fn(&mut Slot) -> usize) {
        let mut shard = lock(self.shard(digest));
        let found = shard.find_entry(digest, |slot| slot.digest == digest && *slot.key == *key);
        let Ok(mut entry) = found else { return };
        let removed = gone(entry.get_mut());
        if entry.get().variants.is_empty() && entry.get().pending.is_none() {
            entry.remove();
        }
        drop(shard);
        self.stored.fetch_sub(removed, Relaxed);
    }

    fn remove_stored(&self, stored: &Arc<Stored>) {
        self.remove(stored.digest, &stored.key, |slot| {
            // By content: its head may have been brought up to date meanwhile.
            slot.variants.extract_if(.., |variant| Arc::ptr_eq(&variant.content, &stored.content)).count()
        });
    }

    fn remove_pending(&self, digest: u64, key: &str, content: &Arc<Content>) {
        self.remove(digest, key, |slot| {
            if slot.pending.as_ref().is_some_and(|pending| Arc::ptr_eq(pending, content)) {
                slot.pending = None;
            }
            0
        });
    }

    /// Evicts until there are free slabs to grow into, or enough went that readers alone still hold theirs.
    pub fn make_room(&self) {
        let mut evicted_bytes = 0;
        let mut turns = 2 * lock(&self.queue).len();
        while turns > 0 && self.is_short() && evicted_bytes < (FREE_SLABS_MIN * SLAB_BYTES) as u64 {
            turns -= 1;
            let Some(oldest) = lock(&self.queue).pop_front() else { return };
            let Some(stored) = oldest.upgrade() else { continue };
            let filling = matches!(stored.content.progress(), Progress::Filling(_));
            if stored.hit.swap(false, Relaxed) || filling {
                lock(&self.queue).push_back(oldest);
                continue;
            }
            if let Progress::Complete(bytes) = stored.content.progress() {
                evicted_bytes += bytes;
            }
            self.remove_stored(&stored);
        }
    }

    fn is_short(&self) -> bool {
        self.stored.load(Relaxed) > self.stored_max || self.arena.free_slabs() < FREE_SLABS_MIN
    }
}

impl Stored {
    fn found(&self) -> Progress {
        // A shared line that is written on every hit would travel between the cores.
        if !self.hit.load(Relaxed) {
            self.hit.store(true, Relaxed);
        }
        self.content.progress()
    }

    fn can_be_validated(&self) -> bool {
        let failed = matches!(self.content.progress(), Progress::Failed(_));
        !failed && (self.head.fields.contains("etag") || self.head.fields.contains("last-modified"))
    }
}

/// The right, and the duty, to fetch what was looked up. Dropped before it is complete, it has failed.
#[derive(Debug)]
pub struct Fill {
    cache: Arc<Cache>,
    key: Box<str>,
    digest: u64,
    content: Arc<Content>,
    writer: Option<Writer<Arc<Head>>>,
    stored: Option<Arc<Stored>>,
}

impl Fill {
    /// The head came and may be shared: from here on it is found.
    pub fn store(&mut self, head: Head) {
        let length = head.length;
        let head = Arc::new(head);
        // Found by others from here on; they wait for the head below for an instant at most.
        self.admit(head.clone(), None, self.content.clone());
        let keep = Keep::Store { arena: self.cache.arena.clone(), length };
        self.writer().set_head(head, keep);
    }

    /// The head came and is for this client alone.
    pub fn pass(&mut self, head: Head) {
        self.cache.remove_pending(self.digest, &self.key, &self.content);
        self.writer().set_head(Arc::new(head), Keep::Pass { window_bytes: PASS_WINDOW_BYTES });
    }

    /// The backend said that `stored` is still good; `head` is its head brought up to date (RFC 9111 §4.3.4).
    pub fn validated(mut self, stored: &Arc<Stored>, head: Head) {
        self.admit(Arc::new(head), Some(stored), stored.content.clone());
        // The content is that of before: it stays, whatever becomes of this fill.
        self.stored = None;
        self.end(|writer| writer.fail(Failure::Superseded));
    }

    fn admit(&mut self, head: Arc<Head>, old: Option<&Arc<Stored>>, content: Arc<Content>) {
        let stored = Arc::new(Stored {
            head,
            content,
            key: self.key.clone(),
            digest: self.digest,
            hit: AtomicBool::new(false),
        });
        self.cache.admit(&stored, old);
        self.stored = Some(stored);
    }

    /// Waits until more may be appended.
    ///
    /// # Errors
    /// When the content is passed and its client is gone.
    pub async fn room(&mut self) -> Result<(), Failure> {
        self.writer().room().await
    }

    /// Publishes content.
    ///
    /// # Errors
    /// When there is no room for it, or it exceeds what is stored of one response.
    pub fn append(&mut self, bytes: Bytes) -> Result<(), NoRoom> {
        if self.stored.is_some() {
            let Progress::Filling(so_far) = self.content.progress() else { return Err(NoRoom) };
            if so_far + bytes.len() as u64 > self.cache.content_bytes_max {
                return Err(NoRoom);
            }
            self.cache.make_room();
        }
        self.writer().append(bytes)
    }

    /// All content came.
    pub fn complete(mut self) {
        self.end(Writer::complete);
    }

    /// The fetch failed, before or after its head.
    pub fn fail(mut self, failure: Failure) {
        self.leave_index();
        self.end(|writer| writer.fail(failure));
    }

    fn end(&mut self, end: impl FnOnce(Writer<Arc<Head>>)) {
        if let Some(writer) = self.writer.take() {
            end(writer);
        }
    }

    fn leave_index(&mut self) {
        match self.stored.take() {
            Some(stored) => self.cache.remove_stored(&stored),
            None => self.cache.remove_pending(self.digest, &self.key, &self.content),
        }
    }

    fn writer(&mut self) -> &mut Writer<Arc<Head>> {
        self.writer.as_mut().expect("the writer goes with the end of the fill")
    }
}

impl Drop for Fill {
    fn drop(&mut self) {
        if self.writer.is_some() {
            self.leave_index();
        }
    }
}
