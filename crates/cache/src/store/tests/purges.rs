//! Purges: what they take away at once, what of it comes back, and that its memory does not stay.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::ban::Expression;
use crate::disk::journal::Entry;
use crate::purge::{Ban, Purge, What};

/// A test that waits longer than this has failed.
const PATIENCE: Duration = Duration::from_secs(20);

/// A head with tags, fresh for a minute and then good enough for another while it is refreshed.
fn tagged(tags: &str) -> Head {
    let surrogate = [("Surrogate-Key", tags)].into_iter().collect();
    let mut head = Head { surrogate, ..head(60, Some(1)) };
    head.freshness.while_revalidate_ms = 60_000;
    head
}

fn store_tagged(cache: &Arc<Cache>, key: &str, tags: &str) {
    let (mut fill, _reader) = miss(cache, key);
    fill_with(&mut fill, tagged(tags));
    fill.complete();
}

fn fill_with(fill: &mut Fill, head: Head) {
    fill.begin(head, 0);
    fill.append(Bytes::from_static(b"x"), 0).unwrap();
}

pub(super) fn tag(name: &str) -> What {
    What::Tag(name.as_bytes().into())
}

pub(super) fn url(key: &str) -> What {
    What::Url(key.into())
}

pub(super) fn ban(text: &str) -> What {
    What::Ban(Arc::new(Ban { expression: Expression::parse(text).unwrap(), made_ms: 0 }))
}

fn is_hit(cache: &Arc<Cache>, key: &str) -> bool {
    matches!(look_up(cache, key, 0), Lookup::Hit(_))
}

#[test]
fn a_hard_purge_of_a_tag_takes_away_all_that_have_it() {
    let cache = Cache::new(8 * SLAB).unwrap();
    store_tagged(&cache, "a", "x y");
    store_tagged(&cache, "b", "y z");
    store_tagged(&cache, "c", "z");
    assert_eq!(cache.purge(tag("y"), None), Ok(None));
    assert!(matches!(look_up(&cache, "a", 0), Lookup::Miss(..)));
    assert!(matches!(look_up(&cache, "b", 0), Lookup::Miss(..)));
    assert!(is_hit(&cache, "c"));
    store_tagged(&cache, "a", "x y");
    assert!(is_hit(&cache, "a"), "what is fetched after it is none of its business");
    cache.sweep();
    assert_eq!((cache.stored(), cache.purges_in_force()), (2, 0));
    assert!(is_hit(&cache, "a") && is_hit(&cache, "c"));
}

#[test]
fn a_soft_purge_makes_stale_and_validation_makes_fresh_again() {
    let cache = Cache::new(8 * SLAB).unwrap();
    store_tagged(&cache, "a", "x");
    store_tagged(&cache, "b", "");
    cache.purge(tag("x"), Some(10_000)).unwrap();
    assert_eq!(cache.purge(url("b"), Some(10_000)), Ok(Some(1)));
    for key in ["a", "b"] {
        let Lookup::Refresh(stored, Some(fill)) = look_up(&cache, key, 69_999) else {
            panic!("{key}: not stale")
        };
        assert_eq!(stored.freshness().lifetime_ms, 10_000);
        drop(fill);
        let Lookup::Stale(fill, _reader, stored) = look_up(&cache, key, 70_000) else {
            panic!("{key}: stale for too long")
        };
        let head = Head { freshness: Freshness { born_ms: 70_000, ..tagged("x").freshness }, ..tagged("x") };
        fill.validated(&stored, head, drop);
        assert!(matches!(look_up(&cache, key, 70_000), Lookup::Hit(_)), "{key}: not fresh again");
    }
}

#[test]
fn a_response_under_way_is_older_than_the_purge_that_meets_it() {
    let cache = Cache::new(8 * SLAB).unwrap();
    let (mut fill, _reader) = miss(&cache, "a");
    cache.purge(tag("x"), None).unwrap();
    cache.sweep();
    assert_eq!(cache.purges_in_force(), 1, "what is awaited may have that tag");
    let Lookup::Wait(_, number) = look_up(&cache, "a", 0) else { panic!("not awaited") };
    assert!(cache.has_purged("a", &tagged("x"), number) && !cache.has_purged("a", &tagged("y"), number));
    fill_with(&mut fill, tagged("x"));
    assert_eq!(cache.stored(), 0);
    assert!(matches!(look_up(&cache, "a", 0), Lookup::Miss(..)));
    drop(fill);
    cache.sweep();
    assert_eq!(cache.purges_in_force(), 0);
    assert!(cache.has_purged("a", &tagged("x"), number), "who waited may come late");
}

#[test]
fn a_validation_under_way_brings_nothing_back() {
    for what in [tag("x"), url("a"), ban("obj.status == 200")] {
        let cache = Cache::new(8 * SLAB).unwrap();
        store_tagged(&cache, "a", "x");
        let Lookup::Stale(fill, _reader, stored) = look_up(&cache, "a", 500_000) else { panic!("not stale") };
        cache.purge(what.clone(), None).unwrap();
        let mut told = false;
        fill.validated(&stored, tagged("y"), |_| told = true);
        assert!(told, "who asked before gets it");
        assert!(matches!(look_up(&cache, "a", 0), Lookup::Miss(..)), "{what:?}");
    }
}

#[test]
fn a_purge_of_a_url_takes_its_variants_and_lets_go_of_its_fetch() {
    let cache = Cache::new(8 * SLAB).unwrap();
    let vary: Fields = [("Vary", "Accept")].into_iter().collect();
    let requests = ["a", "b"].map(|accept| [("Accept", accept)].into_iter().collect::<Fields>());
    let look_up_for = |request: &Fields| cache.look_up("k", request, &RequestCacheControl::default(), 0);
    for request in &requests {
        let Lookup::Miss(mut fill, _reader) = look_up_for(request) else { panic!("stored before") };
        fill_with(&mut fill, Head { selection: Selection::of(request, &vary), ..tagged("") });
        fill.complete();
    }
    let (mut fill, reader) = miss(&cache, "k");
    let Lookup::Wait(waiting, _) = look_up(&cache, "k", 0) else { panic!("not awaited") };
    assert_eq!(cache.purge(url("k"), None), Ok(Some(2)));
    assert_eq!((cache.stored(), cache.index_bytes()), (0, 0));
    let (mut next, _reader) = miss(&cache, "k");
    fill_with(&mut fill, tagged(""));
    fill.complete();
    assert_eq!((reader.progress(), waiting.progress()), (Progress::Complete(1), Progress::Complete(1)));
    assert!(matches!(look_up(&cache, "k", 0), Lookup::Wait(..)), "it is not found");
    fill_with(&mut next, tagged(""));
    next.complete();
    assert!(is_hit(&cache, "k"));
    cache.invalidate("k");
    assert!(matches!(look_up(&cache, "k", 0), Lookup::Miss(..)));
    assert_eq!(cache.purges_in_force(), 0, "nothing is to be tested for it");
}

#[test]
fn what_is_derived_from_a_url_is_purged_and_banned_with_it() {
    let cache = Cache::new(8 * SLAB).unwrap();
    let keys = ["h/a", "h/a 0", "h/a 1", "h/ab 0"];
    let hits = |cache: &Arc<Cache>| keys.map(|key| is_hit(cache, key));
    keys.iter().for_each(|key| store_tagged(&cache, key, ""));
    cache.purge(url("h/a"), None).unwrap();
    assert_eq!(hits(&cache), [false, false, false, true]);
    cache.sweep();
    assert_eq!((cache.stored(), cache.purges_in_force()), (1, 0));
    keys[..3].iter().for_each(|key| store_tagged(&cache, key, ""));
    assert_eq!(hits(&cache), [true; 4]);
    cache.purge(ban("req.http.host == h && req.url == /a"), None).unwrap();
    assert_eq!(hits(&cache), [false, false, false, true]);
}

#[test]
fn a_ban_takes_away_what_it_holds_for_and_is_forgotten_then() {
    let cache = Cache::new(8 * SLAB).unwrap();
    store_tagged(&cache, "h/live/a", "x");
    store_tagged(&cache, "h/vod/a", "x");
    cache.purge(ban("req.url ~ ^/live/ && obj.http.surrogate-key == x"), None).unwrap();
    assert_eq!(cache.bans().len(), 1);
    assert!(!is_hit(&cache, "h/live/a") && is_hit(&cache, "h/vod/a"));
    store_tagged(&cache, "h/live/a", "x");
    assert!(is_hit(&cache, "h/live/a"));
    cache.sweep();
    assert_eq!((cache.bans().len(), cache.stored()), (0, 2));
}

#[test]
fn purges_hold_in_another_life() {
    let purge = |(number, what)| Entry::Purge(Purge { number, what, soft_ms: None });
    let told = [(2, url("h/b")), (1, tag("x")), (3, ban("obj.status == 404"))].map(purge);
    let next = Cache::new(8 * SLAB).unwrap();
    next.replay(told.into());
    store_tagged(&next, "h/d", "x");
    let Lookup::Hit(stored) = look_up(&next, "h/d", 0) else { panic!("not stored") };
    assert_eq!(stored.number(), 3);
    for (key, tags, number, expected) in [
        ("h/a", "x", 0, true),
        ("h/a", "x", 1, false),
        ("h/b", "", 1, true),
        ("h/b 7", "", 1, true),
        ("h/b", "", 2, false),
        ("h/c", "", 0, false),
    ] {
        assert_eq!(next.has_purged(key, &tagged(tags), number), expected, "{key} {number}");
    }
    assert!(next.has_purged("h/c", &Head { status: 404, ..tagged("") }, 2));
}

/// The figure: a tag of 100,000 responses is purged in milliseconds, and nobody waits.
#[test]
fn a_tag_of_100_000_responses_is_purged_at_once_and_its_memory_is_free_soon() {
    const COUNT: usize = 100_000;
    const PURGE_MAX: Duration = Duration::from_millis(50);
    let cache = Cache::new(1 << 30).unwrap();
    let free = cache.arena().free_slabs();
    let before = cache.index_bytes();
    for number in 0..COUNT {
        store_tagged(&cache, &format!("media.example/{number}"), "all");
    }
    store_tagged(&cache, "media.example/other", "other");
    assert_eq!(cache.stored(), COUNT + 1);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let (mut count, mut longest) = (0, Duration::ZERO);
            while !done.load(Relaxed) || count == 0 {
                let begun = Instant::now();
                assert!(is_hit(&cache, "media.example/other"));
                longest = longest.max(begun.elapsed());
                count += 1;
            }
            (count, longest)
        });
        let begun = Instant::now();
        cache.purge(tag("all"), None).unwrap();
        let purged = begun.elapsed();
        for number in 0..COUNT {
            let key = format!("media.example/{number}");
            if number % 1000 == 0 {
                assert!(matches!(look_up(&cache, &key, 0), Lookup::Miss(..)), "{key}");
            }
        }
        let begun = Instant::now();
        cache.sweep();
        let swept = begun.elapsed();
        done.store(true, Relaxed);
        let (count, longest) = looking.join().unwrap();
        println!("purged in {purged:?}, swept in {swept:?}, {count} look-ups meanwhile, longest {longest:?}");
        assert!(purged < PURGE_MAX, "{purged:?}");
    });
    assert_eq!((cache.stored(), cache.purges_in_force()), (1, 0));
    assert!(cache.index_bytes() - before < 2 * STORED_BYTES);
    assert!(free - cache.arena().free_slabs() <= 1, "the one that is left holds a slab");
}

#[test]
fn the_walk_is_woken_by_a_purge_and_by_what_came_in_meanwhile() {
    let cache = Cache::new(8 * SLAB).unwrap();
    store_tagged(&cache, "a", "x");
    let walking = {
        let cache = cache.clone();
        std::thread::spawn(move || cache.run_sweeps())
    };
    let (fill, _reader) = miss(&cache, "b");
    cache.purge(tag("x"), None).unwrap();
    // The walk tells nobody when it is done.
    let until = |reached: &dyn Fn() -> bool| {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !reached() {
            assert!(Instant::now() < deadline, "the walk does not come");
            std::thread::yield_now();
        }
    };
    until(&|| cache.stored() == 0);
    assert_eq!(cache.purges_in_force(), 1);
    drop(fill);
    until(&|| cache.purges_in_force() == 0);
    cache.end_sweeps();
    walking.join().unwrap();
}

#[test]
fn a_response_is_tested_with_nobody_held_up() {
    let cache = Cache::new(8 * SLAB).unwrap();
    store_tagged(&cache, "h/tested", "x");
    let of_its_shard = |key: &str| {
        let [a, b] = ["h/tested", key].map(|key| std::ptr::from_ref(cache.shard(cache.digest(key))));
        std::ptr::eq(a, b)
    };
    let beside = (0..).map(|number| format!("h/{number}")).find(|key| of_its_shard(key)).unwrap();
    store_tagged(&cache, &beside, "x");
    cache.purge(ban("obj.status == 404"), None).unwrap();
    assert!(is_hit(&cache, "h/tested"));
    let digest = cache.digest(&beside);
    let untested =
        lock(cache.shard(digest)).slots.find(digest, |slot| *slot.key.text == *beside).unwrap().variants[0]
            .clone();
    thread::scope(|scope| {
        // No test goes on while this is held.
        let list = cache.purges.hold();
        let walk = scope.spawn(|| cache.sweep());
        let begun = Instant::now();
        while Arc::strong_count(&untested) == 2 {
            assert!(begun.elapsed() < PATIENCE, "the walk holds its shard in the test");
            thread::yield_now();
        }
        let (told, tells) = mpsc::channel();
        scope.spawn({
            let cache = &cache;
            move || told.send(is_hit(cache, "h/tested")).unwrap()
        });
        let is_hit = tells.recv_timeout(PATIENCE);
        drop(list);
        assert_eq!(is_hit, Ok(true));
        walk.join().unwrap();
    });
    assert_eq!((cache.stored(), cache.purges_in_force()), (2, 0));
}
