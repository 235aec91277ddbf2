//! The cache's own eviction policy and the policies with which it is compared. Objects are
//! identified by number.

use thalweg_cache::eviction;

/// A cache of limited size.
pub(crate) trait Policy {
    /// Requests `object` and returns whether it is a hit. Inserts the object on a miss.
    fn request(&mut self, object: u32, bytes: u64) -> bool;
}

/// The policy under test.
pub(crate) struct S3Fifo {
    policy: eviction::Policy<u32>,
    frequencies: Vec<Option<eviction::Frequency>>,
    bytes_max: u64,
}

impl S3Fifo {
    pub(crate) fn new(bytes_max: u64, objects: usize) -> Self {
        let frequencies = (0..objects).map(|_| None).collect();
        Self { policy: eviction::Policy::default(), frequencies, bytes_max }
    }
}

impl Policy for S3Fifo {
    fn request(&mut self, object: u32, bytes: u64) -> bool {
        if let Some(frequency) = &self.frequencies[object as usize] {
            frequency.used();
            return true;
        }
        while self.policy.bytes() + bytes > self.bytes_max {
            let Some(mut candidate) = self.policy.pop_candidate() else { return false };
            let frequency = &mut self.frequencies[candidate.item as usize];
            if candidate.stays(frequency.as_ref().expect("every queued object is stored")) {
                self.policy.readmit(candidate);
            } else {
                *frequency = None;
                self.policy.evicted(candidate);
            }
        }
        let frequency = self.frequencies[object as usize].insert(eviction::Frequency::default());
        // Spread the number over all bits, because a sharded hash table also uses the upper bits.
        let digest = u64::from(object).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.policy.insert(object, digest, bytes, frequency);
        false
    }
}

/// A ring of objects in order of insertion, each with a flag. The head entry separates the newest
/// object from the oldest.
struct Ring {
    links: Vec<Link>,
    head: u32,
    bytes: u64,
    bytes_max: u64,
}

#[derive(Clone, Default)]
struct Link {
    newer: u32,
    older: u32,
    bytes: u64,
    is_held: bool,
    is_marked: bool,
}

impl Ring {
    fn new(bytes_max: u64, objects: usize) -> Self {
        let head = u32::try_from(objects).expect("object numbers fit in a u32");
        let mut links = vec![Link::default(); objects + 1];
        links[objects] = Link { newer: head, older: head, ..Link::default() };
        Self { links, head, bytes: 0, bytes_max }
    }

    fn at(&mut self, object: u32) -> &mut Link {
        &mut self.links[object as usize]
    }

    fn is_short_of(&self, bytes: u64) -> bool {
        self.bytes + bytes > self.bytes_max && self.bytes > 0
    }

    fn oldest(&mut self) -> u32 {
        let head = self.head;
        self.at(head).newer
    }

    /// Inserts `object` as the newest one.
    fn push(&mut self, object: u32, bytes: u64) {
        let head = self.head;
        let newest = self.at(head).older;
        *self.at(object) = Link { newer: head, older: newest, bytes, is_held: true, is_marked: false };
        self.at(newest).newer = object;
        self.at(head).older = object;
        self.bytes += bytes;
    }

    fn remove(&mut self, object: u32) {
        let Link { newer, older, bytes, .. } = *self.at(object);
        self.at(newer).older = older;
        self.at(older).newer = newer;
        self.at(object).is_held = false;
        self.bytes -= bytes;
    }
}

/// Evicts the least recently used object.
pub(crate) struct Lru(Ring);

impl Lru {
    pub(crate) fn new(bytes_max: u64, objects: usize) -> Self {
        Self(Ring::new(bytes_max, objects))
    }
}

impl Policy for Lru {
    fn request(&mut self, object: u32, bytes: u64) -> bool {
        let ring = &mut self.0;
        let is_hit = ring.at(object).is_held;
        if is_hit {
            ring.remove(object);
        }
        while ring.is_short_of(bytes) {
            let oldest = ring.oldest();
            ring.remove(oldest);
        }
        ring.push(object, bytes);
        is_hit
    }
}

/// CLOCK (second chance): evicts the oldest object that has not been used. Each used object that it
/// passes over becomes the newest.
pub(crate) struct Clock(Ring);

impl Clock {
    pub(crate) fn new(bytes_max: u64, objects: usize) -> Self {
        Self(Ring::new(bytes_max, objects))
    }
}

impl Policy for Clock {
    fn request(&mut self, object: u32, bytes: u64) -> bool {
        let ring = &mut self.0;
        if ring.at(object).is_held {
            ring.at(object).is_marked = true;
            return true;
        }
        while ring.is_short_of(bytes) {
            let oldest = ring.oldest();
            let Link { bytes, is_marked, .. } = *ring.at(oldest);
            ring.remove(oldest);
            if is_marked {
                ring.push(oldest, bytes);
            }
        }
        ring.push(object, bytes);
        false
    }
}

/// SIEVE: a hand moves from the oldest object to the newest and evicts unused objects; used objects
/// stay in place (Zhang et al., "SIEVE is simpler than LRU", NSDI 2024).
pub(crate) struct Sieve {
    ring: Ring,
    hand: u32,
}

impl Sieve {
    pub(crate) fn new(bytes_max: u64, objects: usize) -> Self {
        let ring = Ring::new(bytes_max, objects);
        Self { hand: ring.head, ring }
    }
}

impl Policy for Sieve {
    fn request(&mut self, object: u32, bytes: u64) -> bool {
        if self.ring.at(object).is_held {
            self.ring.at(object).is_marked = true;
            return true;
        }
        while self.ring.is_short_of(bytes) {
            let at = if self.hand == self.ring.head { self.ring.oldest() } else { self.hand };
            self.hand = self.ring.at(at).newer;
            if !std::mem::take(&mut self.ring.at(at).is_marked) {
                self.ring.remove(at);
            }
        }
        self.ring.push(object, bytes);
        false
    }
}
