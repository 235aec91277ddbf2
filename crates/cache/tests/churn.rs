//! A long churn of small content through a small memory: compaction keeps live content together, so
//! that most of the memory in use is live.
//!
//! Half of the incoming objects are requested only once; those requested again are scattered among
//! them. Without compaction of sparse slabs, a few hundred survivors would eventually pin all
//! slabs, and only 3 % of the memory in use would be live.
#![cfg(not(loom))]

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use thalweg_cache::arena::{Compaction, SLAB_BYTES};
use thalweg_cache::fill::FillBuffer;
use thalweg_cache::freshness::Freshness;
use thalweg_cache::rules::Rules;
use thalweg_cache::{Cache, Head, Lookup, Piece, PurgeScope};
use thalweg_http::Fields;
use thalweg_http::cache_control::{CacheControl, RequestCacheControl};

const SLABS: usize = 32;
const REQUESTS: u64 = 200_000;
const LENGTH_MAX: usize = 16_000;
/// Number of objects that are requested repeatedly. The probability of a request for object `n` is
/// proportional to `1 / n`.
const CATALOGUE: f64 = 40_000.0;
/// Number of pieces held by slow clients.
const HELD: usize = 4;

/// Hashes `seed` with SplitMix64.
fn mixed(seed: u64) -> u64 {
    let mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn object(request: u64) -> u64 {
    let random = mixed(request);
    if random.is_multiple_of(2) {
        return u64::from(u32::MAX) + request;
    }
    CATALOGUE.powf((random >> 11) as f64 / (1u64 << 53) as f64) as u64
}

/// Returns the content of an object: part of `pattern`.
fn content(object: u64, pattern: &Bytes) -> Bytes {
    let at = mixed(object) as usize;
    pattern.slice(at % LENGTH_MAX..at % LENGTH_MAX + 100 + (at >> 32) % (LENGTH_MAX - 100))
}

fn head() -> Head {
    let mut fields = Fields::new();
    fields.push("Cache-Control", "max-age=1000");
    let directives = CacheControl::from_fields(&fields);
    let freshness = Freshness::of(200, &fields, &directives, true, &Rules::default(), (0, 0));
    Head::new(200, fields, freshness)
}

/// Returns the fraction of the memory in use that is live.
fn live_fraction(cache: &Cache) -> f64 {
    let used = cache.arena().slabs_max() - cache.arena().free_slabs();
    cache.arena().live_bytes() as f64 / (used * SLAB_BYTES) as f64
}

#[test]
fn memory_stays_in_use_in_a_long_churn() {
    let cache: Arc<Cache> = Cache::new((SLABS * SLAB_BYTES) as u64).unwrap();
    let pattern: Bytes = (0..2 * LENGTH_MAX as u64).map(|at| mixed(at) as u8).collect();
    let (head, nothing) = (head(), Fields::new());
    let mut held: VecDeque<(Piece, Bytes)> = VecDeque::new();
    let mut hits = 0;
    for request in 0..REQUESTS {
        let object = object(request);
        let content = content(object, &pattern);
        match cache.look_up(&object.to_string(), &nothing, &RequestCacheControl::default(), 0) {
            Lookup::Hit(stored) => {
                hits += 1;
                let Some(Ok(Some(piece))) = stored.content.reader(0).try_next(usize::MAX) else {
                    panic!("{object} is not readable")
                };
                assert_eq!(piece.as_slice().unwrap(), content, "{object}");
                held.push_back((piece, content));
            }
            Lookup::Miss(mut fill, _reader) => {
                fill.begin(Head { length: Some(content.len() as u64), ..head.clone() }, 0);
                fill.append(content, 0).unwrap();
                fill.complete();
            }
            other => panic!("{other:?}"),
        }
        if held.len() > HELD
            && let Some((piece, content)) = held.pop_front()
        {
            assert_eq!(piece.as_slice().unwrap(), content, "a held piece changed");
        }
        if request >= REQUESTS / 4 && request.is_multiple_of(1000) {
            let live_fraction = live_fraction(&cache);
            assert!(live_fraction > 0.7, "{:.0} % live after {request} requests", live_fraction * 100.0);
        }
    }
    assert!(hits > REQUESTS / 3, "{hits} hits");
}

/// Creates a cache of `slabs` slabs that has stored `count` objects of `length` bytes and then kept
/// every `kept`th.
fn sparse(slabs: usize, length: usize, count: usize, kept: usize) -> Arc<Cache> {
    let cache: Arc<Cache> = Cache::new((slabs * SLAB_BYTES) as u64).expect("memfd_create is supported");
    for object in 0..count {
        let looked_up =
            cache.look_up(&object.to_string(), &Fields::new(), &RequestCacheControl::default(), 0);
        let Lookup::Miss(mut fill, _reader) = looked_up else { panic!("{object} is already stored") };
        fill.begin(Head { length: Some(length as u64), ..head() }, 0);
        fill.append(Bytes::from(vec![object as u8; length]), 0).expect("there is room");
        fill.complete();
    }
    assert_eq!(cache.stored(), count);
    for object in (0..count).filter(|object| object % kept > 0) {
        cache.purge(PurgeScope::Url(object.to_string().into()), None).expect("a URL purge always has room");
    }
    cache
}

#[test]
fn nothing_is_evicted_while_a_slab_is_emptied_gradually() {
    // A slab holds about a thousand objects of 2000 bytes, so all 6400 objects fill six slabs and
    // open another.
    let cache = sparse(16, 2000, 6400, 2);
    // One slab is left free, fewer than the number to keep free.
    let (_held, mut writer) = FillBuffer::stored(cache.arena(), ());
    while cache.arena().free_slabs() > 1 {
        writer.append(Bytes::from(vec![0; SLAB_BYTES / 2])).unwrap();
    }
    let stored = cache.stored();
    let is_short = || {
        cache.make_room(0);
        cache.arena().free_slabs() == 1
    };
    let calls = (0..20).take_while(|_| is_short()).count();
    assert_eq!((cache.stored(), cache.arena().free_slabs()), (stored, 2), "after {calls} calls");
    assert!(calls > 0, "the slab was emptied in one call");
}

#[test]
fn slab_of_very_many_objects_is_emptied_gradually() {
    const LENGTH: usize = 300;
    // The objects fill a slab and open another.
    let count = SLAB_BYTES / 320 + 1000;
    let cache = sparse(SLABS, LENGTH, count, 3);
    let before = live_fraction(&cache);
    let calls = (0..20).take_while(|_| cache.arena().compact() != Compaction::Nothing).count();
    // About two thousand objects are left in the first slab, besides stale resident references.
    // Each call moves at most 512 objects.
    assert!((2..10).contains(&calls), "{calls} calls");
    assert!(live_fraction(&cache) > 1.9 * before, "{:.2} live, {before:.2} before", live_fraction(&cache));
    for object in (0..count).step_by(3) {
        let stored = cache.peek(&object.to_string(), &Fields::new(), 0).unwrap();
        let piece = stored.content.reader(0).try_next(usize::MAX).unwrap().unwrap().unwrap();
        assert_eq!(piece.as_slice().unwrap(), vec![object as u8; LENGTH]);
    }
}
