//! What goes when room is needed: S3-FIFO (Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023),
//! counted in bytes.
//!
//! - What comes for the first time stands in the *small* queue, a tenth of the bytes. Only what is used there goes on
//!   to the *main* queue, so a pass over cold content drives out its like and nothing else.
//! - What left the small queue unused is remembered by its hash alone, in the *ghost*. If it comes again soon, it goes
//!   to the main queue at once: its first stay was too short to tell.
//! - The main queue is second chance, with uses counted up to [`USES_MAX`].
//!
//! The policy holds handles and knows nothing of what they stand for. It is asked in two halves, so that no lock of the
//! caller's is held while an item is looked at or let go:
//!
//! ```text
//! next() → the caller looks:  gone          → drop the candidate
//!                             may not go    → defer(candidate)
//!                             stays(uses)   → keep(candidate)
//!                             else          → evicted(candidate)
//! ```
//!
//! **Invariant:** a call looks at one item: its cost does not grow with what is held.
//! **Invariant:** the bytes of a queue are those of the items in it; a candidate is in none.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};

/// The small queue's share of the bytes is one part in so many.
const SMALL_SHARE: u64 = 10;
/// Uses that are counted; more make no difference.
pub const USES_MAX: u8 = 3;
/// Uses in the small queue that take an item to the main queue.
const USES_TO_STAY: u8 = 1;
/// Hashes that are remembered however few items are held; above, one for each of them.
pub const GHOSTS_MIN: usize = 1024;

/// How often an item was used of late. It lies in the item itself, so that a hit takes no lock.
#[derive(Debug, Default)]
pub struct Frequency {
    uses: AtomicU8,
    /// It has its place in the main queue.
    is_proven: AtomicBool,
}

impl Frequency {
    /// Of what takes the place of `old`: as often used, and once more, for that is why it came.
    pub fn of_successor(old: &Frequency) -> Self {
        let new = Self { uses: old.uses.load(Relaxed).into(), is_proven: old.is_proven.load(Relaxed).into() };
        new.used();
        new
    }

    /// Counts a use. Two at once may count as one.
    pub fn used(&self) {
        let uses = self.uses.load(Relaxed);
        // A shared line that is written on every hit would travel between the cores.
        if uses < USES_MAX {
            self.uses.store(uses + 1, Relaxed);
        }
    }
}

/// The queues of one store. `T` is a handle to an item.
#[derive(Debug)]
pub struct Policy<T> {
    small: Queue<T>,
    main: Queue<T>,
    ghost: Ghost,
    /// The queue whose turn it is out of order: the other one's front may not go now.
    turn: Option<Place>,
}

/// An item that may have to go, out of its queue until it is put back.
#[derive(Debug)]
#[must_use]
pub struct Candidate<T> {
    /// The handle.
    pub item: T,
    /// What the item takes up. The caller brings it up to date where it has changed.
    pub bytes: u64,
    digest: u64,
    place: Place,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Small,
    Main,
}

impl<T> Candidate<T> {
    /// Whether it was used enough to stay; uses one up.
    pub fn stays(&mut self, frequency: &Frequency) -> bool {
        let uses = frequency.uses.load(Relaxed);
        match self.place {
            Place::Small if uses >= USES_TO_STAY => {
                frequency.uses.store(0, Relaxed);
                frequency.is_proven.store(true, Relaxed);
                self.place = Place::Main;
                true
            }
            Place::Main if uses > 0 => {
                frequency.uses.store(uses - 1, Relaxed);
                true
            }
            Place::Small | Place::Main => false,
        }
    }
}

impl<T> Default for Policy<T> {
    fn default() -> Self {
        Self { small: Queue::default(), main: Queue::default(), ghost: Ghost::default(), turn: None }
    }
}

impl<T> Policy<T> {
    /// Takes in an item of `bytes`, whose key has the hash `digest`.
    pub fn insert(&mut self, item: T, digest: u64, bytes: u64, frequency: &Frequency) {
        let is_proven = self.ghost.take(digest) || frequency.is_proven.load(Relaxed);
        frequency.is_proven.store(is_proven, Relaxed);
        let place = if is_proven { Place::Main } else { Place::Small };
        self.keep(Candidate { item, bytes, digest, place });
    }

    /// The next that has to go, unless it stays.
    pub fn next(&mut self) -> Option<Candidate<T>> {
        let small_is_over = self.small.bytes.saturating_mul(SMALL_SHARE) >= self.bytes();
        let first = self.turn.take().unwrap_or(if small_is_over { Place::Small } else { Place::Main });
        match first {
            Place::Small => self.small.pop().or_else(|| self.main.pop()),
            Place::Main => self.main.pop().or_else(|| self.small.pop()),
        }
    }

    /// Puts back one that stays.
    pub fn keep(&mut self, candidate: Candidate<T>) {
        match candidate.place {
            Place::Small => self.small.push(candidate),
            Place::Main => self.main.push(candidate),
        }
    }

    /// Puts back one that may not go now. The other queue has the next turn: one full of such items holds up nothing.
    pub fn defer(&mut self, candidate: Candidate<T>) {
        self.turn = Some(match candidate.place {
            Place::Small => Place::Main,
            Place::Main => Place::Small,
        });
        self.keep(candidate);
    }

    /// Lets go of one that was evicted.
    pub fn evicted(&mut self, candidate: Candidate<T>) {
        if candidate.place == Place::Small {
            self.ghost.add(candidate.digest, self.len().max(GHOSTS_MIN));
        }
    }

    /// Drops the items of which `wanted` is false.
    pub fn retain(&mut self, mut wanted: impl FnMut(&T) -> bool) {
        self.small.retain(&mut wanted);
        self.main.retain(&mut wanted);
    }

    /// Items in the queues.
    pub fn len(&self) -> usize {
        self.small.items.len() + self.main.items.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What they take up.
    pub fn bytes(&self) -> u64 {
        self.small.bytes + self.main.bytes
    }
}

#[derive(Debug)]
struct Queue<T> {
    items: VecDeque<Candidate<T>>,
    bytes: u64,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { items: VecDeque::new(), bytes: 0 }
    }
}

impl<T> Queue<T> {
    fn push(&mut self, candidate: Candidate<T>) {
        self.bytes += candidate.bytes;
        self.items.push_back(candidate);
    }

    fn pop(&mut self) -> Option<Candidate<T>> {
        let candidate = self.items.pop_front()?;
        self.bytes -= candidate.bytes;
        Some(candidate)
    }

    fn retain(&mut self, wanted: &mut impl FnMut(&T) -> bool) {
        self.items.retain(|candidate| wanted(&candidate.item));
        self.bytes = self.items.iter().map(|candidate| candidate.bytes).sum();
    }
}

/// Hashes of what left the small queue, the oldest first.
#[derive(Debug, Default)]
struct Ghost {
    order: VecDeque<(u64, u64)>,
    /// The latest number of each hash in `order`.
    latest: HashMap<u64, u64, BuildHasherDefault<Digest>>,
    added: u64,
}

impl Ghost {
    fn add(&mut self, digest: u64, len_max: usize) {
        self.added += 1;
        self.order.push_back((digest, self.added));
        self.latest.insert(digest, self.added);
        // Two at most for the one that came: a cache that shrank gets there in time.
        for _ in 0..2 {
            if self.order.len() <= len_max {
                return;
            }
            if let Some((digest, number)) = self.order.pop_front()
                && self.latest.get(&digest) == Some(&number)
            {
                self.latest.remove(&digest);
            }
        }
    }

    /// Whether `digest` is remembered; it is forgotten then.
    fn take(&mut self, digest: u64) -> bool {
        self.latest.remove(&digest).is_some()
    }
}

/// Hashes are hashes already.
#[derive(Debug, Default)]
struct Digest(u64);

impl Hasher for Digest {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("the keys are u64");
    }

    fn write_u64(&mut self, digest: u64) {
        self.0 = digest;
    }
}
