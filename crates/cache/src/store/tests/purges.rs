//! Purge tests: responses removed at once, responses that must not reappear, and freed memory.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::ban::tests::compile;
use crate::disk::journal::Entry;
use crate::purge::{Purge, PurgeScope};
use crate::stored::STORED_BYTES;

/// Time limit for each wait in a test.
const PATIENCE: Duration = Duration::from_secs(20);

/// Creates a head with tags, fresh for a minute and servable during revalidation for another.
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

pub(super) fn tag(name: &str) -> PurgeScope {
    PurgeScope::Tag(name.as_bytes().into())
}

pub(super) fn url(key: &str) -> PurgeScope {
    PurgeScope::Url(key.into())
}

pub(super) fn ban(text: &str) -> PurgeScope {
    PurgeScope::Ban(Arc::new(crate::ban::tests::ban(text, 0)))
}

fn is_hit(cache: &Arc<Cache>, key: &str) -> bool {
    matches!(look_up(cache, key, 0), Lookup::Hit(_))
}

#[test]
fn hard_tag_purge_removes_all_tagged_responses() {
    let cache = Cache::new(8 * SLAB).unwrap();
    store_tagged(&cache, "a", "x y");
    store_tagged(&cache, "b", "y z");
    store_tagged(&cache, "c", "z");
    assert_eq!(cache.purge(tag("y"), None), Ok(None));
    assert!(matches!(look_up(&cache, "a", 0), Lookup::Miss(..)));
    assert!(matches!(look_up(&cache, "b", 0), Lookup::Miss(..)));
    assert!(is_hit(&cache, "c"));
    store_tagged(&cache, "a", "x y");
    assert!(is_hit(&cache, "a"), "a later fetch is not affected");
    cache.sweep();
    assert_eq!((cache.stored(), cache.purges_in_force()), (2, 0));
    assert!(is_hit(&cache, "a") && is_hit(&cache, "c"));
}

#[test]
fn soft_purge_makes_stale_and_validation_makes_fresh_again() {
    let cache = Cache::new(8 * SLAB).unwrap();
    store_tagged(&cache, "a", "x");
    store_tagged(&cache, "b", "");
    cache.purge(tag("x"), Some(10_000)).unwrap();
    assert_eq!(cache.purge(url("b"), Some(10_000)), Ok(Some(1)));
    for key in ["a", "b"] {
        let Lookup::Refresh(stored, Some(fill)) = look_up(&cache, key, 69_999) else {
            panic!("{key}: must be stale")
        };
        assert_eq!(stored.freshness().lifetime_ms, 10_000);
        drop(fill);
        let Lookup::Stale(fill, _reader, stored) = look_up(&cache, key, 70_000) else {
            panic!("{key}: stale for too long")
        };
        let head = Head { freshness: Freshness { born_ms: 70_000, ..tagged("x").freshness }, ..tagged("x") };
        fill.validated(&stored, head, drop);
        assert!(matches!(look_up(&cache, key, 70_000), Lookup::Hit(_)), "{key}: must be fresh again");
    }
}

#[test]
fn response_in_flight_is_older_than_a_purge_during_its_fetch() {
    let cache = Cache::new(8 * SLAB).unwrap();
    let (mut fill, _reader) = miss(&cache, "a");
    cache.purge(tag("x"), None).unwrap();
    cache.sweep();
    assert_eq!(cache.purges_in_force(), 1, "the awaited response may have that tag");
    let Lookup::Wait(_, number) = look_up(&cache, "a", 0) else { panic!("must be awaited") };
    assert!(cache.has_purged("a", &tagged("x"), number) && !cache.has_purged("a", &tagged("y"), number));
    fill_with(&mut fill, tagged("x"));
    assert_eq!(cache.stored(), 0);
    assert!(matches!(look_up(&cache, "a", 0), Lookup::Miss(..)));
    drop(fill);
    cache.sweep();
    assert_eq!(cache.purges_in_force(), 0);
    assert!(cache.has_purged("a", &tagged("x"), number), "a late waiter must still see the purge");
}

#[test]
fn pending_validation_restores_no_purged_response() {
    for what in [tag("x"), url("a"), ban("obj.status == 200")] {
        let cache = Cache::new(8 * SLAB).unwrap();
        store_tagged(&cache, "a", "x");
        let Lookup::Stale(fill, _reader, stored) = look_up(&cache, "a", 500_000) else { panic!("not stale") };
        cache.purge(what.clone(), None).unwrap();
        let mut notified = false;
        fill.validated(&stored, tagged("y"), |_| notified = true);
        assert!(notified, "the client that asked earlier must be notified");
        assert!(matches!(look_up(&cache, "a", 0), Lookup::Miss(..)), "{what:?}");
    }
}

#[test]
fn soft_purges_and_bans_spare_later_fetches() {
    let purges = [(tag("x"), Some(10_000)), (url("h/a"), Some(10_000)), (ban("obj.status == 200"), None)];
    for (what, soft_ms) in purges {
        let cache = Cache::new(8 * SLAB).unwrap();
        // URL purges are listed once any derived key has been seen.
        store_tagged(&cache, "h/a 0", "x");
        cache.purge(what.clone(), soft_ms).unwrap();
        let is_fresh = |key| matches!(look_up(&cache, key, 20_000), Lookup::Hit(_));
        assert!(!is_fresh("h/a 0"), "{what:?}");
        for key in ["h/a", "h/a 1"] {
            store_tagged(&cache, key, "x");
            // Another purge causes the response to be tested against all listed purges.
            cache.purge(tag("other"), None).unwrap();
            assert!(is_fresh(key), "{what:?}: {key}");
        }
        cache.sweep();
        assert!(is_fresh("h/a") && is_fresh("h/a 1"), "{what:?}");
    }
}

#[test]
fn only_validation_after_a_soft_purge_makes_fresh_again() {
    for what in [tag("x"), url("a")] {
        let cache = Cache::new(8 * SLAB).unwrap();
        store_tagged(&cache, "a", "x");
        let Lookup::Stale(fill, _reader, stored) = look_up(&cache, "a", 500_000) else { panic!("not stale") };
        cache.purge(what.clone(), Some(10_000)).unwrap();
        fill.validated(&stored, tagged("x"), drop);
        let is_stale = || matches!(look_up(&cache, "a", 20_000), Lookup::Refresh(..));
        assert!(is_stale(), "{what:?}: validated before the purge");
        // A HEAD response updates the fields but validates nothing.
        let stored = cache.peek("a", &Fields::new(), 0).unwrap();
        cache.update(&stored, tagged("x"));
        assert!(is_stale(), "{what:?}: not validated at all");
    }
}

#[test]
fn url_purge_removes_variants_and_detaches_the_fetch() {
    let cache = Cache::new(8 * SLAB).unwrap();
    let vary: Fields = [("Vary", "Accept")].into_iter().collect();
    let requests = ["a", "b"].map(|accept| [("Accept", accept)].into_iter().collect::<Fields>());
    let look_up_for = |request: &Fields| cache.look_up("k", request, &RequestCacheControl::default(), 0);
    for request in &requests {
        let Lookup::Miss(mut fill, _reader) = look_up_for(request) else { panic!("must be a miss") };
        fill_with(&mut fill, Head { selection: Selection::of(request, &vary), ..tagged("") });
        fill.complete();
    }
    let (mut fill, reader) = miss(&cache, "k");
    let Lookup::Wait(waiting, _) = look_up(&cache, "k", 0) else { panic!("must be awaited") };
    assert_eq!(cache.purge(url("k"), None), Ok(Some(2)));
    assert_eq!((cache.stored(), cache.index_bytes()), (0, 0));
    let (mut next, _reader) = miss(&cache, "k");
    fill_with(&mut fill, tagged(""));
    fill.complete();
    assert_eq!((reader.progress(), waiting.progress()), (Progress::Complete(1), Progress::Complete(1)));
    assert!(matches!(look_up(&cache, "k", 0), Lookup::Wait(..)), "the detached fetch is not found");
    fill_with(&mut next, tagged(""));
    next.complete();
    assert!(is_hit(&cache, "k"));
    cache.invalidate("k");
    assert!(matches!(look_up(&cache, "k", 0), Lookup::Miss(..)));
    assert_eq!(cache.purges_in_force(), 0, "a detached fetch needs no purge test");
}

#[test]
fn derived_keys_are_purged_and_banned_with_their_url() {
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
fn ban_removes_matching_responses_and_is_then_forgotten() {
    let cache = Cache::new(8 * SLAB).unwrap();
    store_tagged(&cache, "h/live/a", "x");
    store_tagged(&cache, "h/vod/a", "x");
    cache.purge(ban("req.url == /live/a && obj.http.surrogate-key == x"), None).unwrap();
    assert_eq!(cache.bans().len(), 1);
    assert!(!is_hit(&cache, "h/live/a") && is_hit(&cache, "h/vod/a"));
    store_tagged(&cache, "h/live/a", "x");
    assert!(is_hit(&cache, "h/live/a"));
    cache.sweep();
    assert_eq!((cache.bans().len(), cache.stored()), (0, 2));
}

#[test]
fn request_dependent_ban_is_decided_by_the_first_look_up() {
    let cache = Cache::new(8 * SLAB).unwrap();
    for key in ["h/a", "h/b", "h/c", "h/c 0"] {
        store_tagged(&cache, key, "");
    }
    cache.purge(ban("req.http.x == 1 && obj.status == 200"), None).unwrap();
    let is_found = |key: &str, x: &str| {
        let request: Fields = [("X", x)].into_iter().collect();
        matches!(cache.look_up(key, &request, &RequestCacheControl::default(), 0), Lookup::Hit(_))
    };
    // A sweep cannot decide the ban, and does not drop it.
    cache.sweep();
    assert_eq!((cache.stored(), cache.bans().len()), (4, 1));
    assert!(!is_found("h/a", "1") && is_found("h/b", "2"));
    assert!(is_found("h/b", "1"), "an earlier look-up spared the response");
    assert!(is_found("h/c 0", "1"), "a derived key has no request of its own");
    let Lookup::Hit(stored) = look_up(&cache, "h/b", 0) else { panic!("must be stored") };
    assert!(!cache.has_purged("h/b", &stored.head, 1) && cache.has_purged("h/b", &stored.head, 0));
    cache.sweep();
    assert_eq!((cache.stored(), cache.bans().len()), (3, 1), "h/c was not looked up");
    cache.purge(url("h/c"), None).unwrap();
    cache.sweep();
    assert_eq!((cache.stored(), cache.bans().len()), (1, 0));
}

#[test]
fn uncompilable_replayed_ban_removes_anything_older() {
    let banned = PurgeScope::Ban(Arc::new(crate::Ban::read("obj.size", 0)));
    let next = Cache::new(8 * SLAB).unwrap();
    next.replay(vec![Entry::Purge(Purge { number: 3, what: banned, soft_ms: None })], compile);
    assert!(next.bans().is_empty());
    assert!(next.has_purged("h/a 0", &tagged(""), 2) && !next.has_purged("h/a 0", &tagged(""), 3));
}

#[test]
fn purges_hold_after_a_replay() {
    let purge = |(number, what)| Entry::Purge(Purge { number, what, soft_ms: None });
    let journal = [(2, url("h/b")), (1, tag("x")), (3, ban("obj.status == 404"))].map(purge);
    let next = Cache::new(8 * SLAB).unwrap();
    next.replay(journal.into(), compile);
    store_tagged(&next, "h/d", "x");
    let Lookup::Hit(stored) = look_up(&next, "h/d", 0) else { panic!("must be stored") };
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

/// A tag on 100,000 responses must be purged in milliseconds without blocking other requests.
#[test]
fn tag_of_100_000_responses_is_purged_at_once_and_memory_is_freed_soon() {
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
                let started = Instant::now();
                assert!(is_hit(&cache, "media.example/other"));
                longest = longest.max(started.elapsed());
                count += 1;
            }
            (count, longest)
        });
        let started = Instant::now();
        cache.purge(tag("all"), None).unwrap();
        let purged = started.elapsed();
        for number in 0..COUNT {
            let key = format!("media.example/{number}");
            if number % 1000 == 0 {
                assert!(matches!(look_up(&cache, &key, 0), Lookup::Miss(..)), "{key}");
            }
        }
        let started = Instant::now();
        cache.sweep();
        let swept = started.elapsed();
        done.store(true, Relaxed);
        let (count, longest) = looking.join().unwrap();
        println!("purged in {purged:?}, swept in {swept:?}, {count} look-ups meanwhile, longest {longest:?}");
        assert!(purged < PURGE_MAX, "{purged:?}");
    });
    assert_eq!((cache.stored(), cache.purges_in_force()), (1, 0));
    assert!(cache.index_bytes() - before < 2 * STORED_BYTES);
    assert!(free - cache.arena().free_slabs() <= 1, "only the remaining response holds a slab");
}

#[test]
fn sweep_is_woken_by_a_purge_and_by_pending_fetches() {
    let cache = Cache::new(8 * SLAB).unwrap();
    store_tagged(&cache, "a", "x");
    let sweeping = {
        let cache = cache.clone();
        std::thread::spawn(move || cache.run_sweeps())
    };
    let (fill, _reader) = miss(&cache, "b");
    cache.purge(tag("x"), None).unwrap();
    // There is no event for the end of a sweep.
    let until = |reached: &dyn Fn() -> bool| {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !reached() {
            assert!(Instant::now() < deadline, "the sweep did not run");
            std::thread::yield_now();
        }
    };
    until(&|| cache.stored() == 0);
    assert_eq!(cache.purges_in_force(), 1);
    drop(fill);
    until(&|| cache.purges_in_force() == 0);
    cache.end_sweeps();
    sweeping.join().unwrap();
}

#[test]
fn testing_a_response_blocks_no_other_request() {
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
        // While `list` is held, no response can be tested against purges.
        let list = cache.purges.hold();
        let sweep = scope.spawn(|| cache.sweep());
        let started = Instant::now();
        while Arc::strong_count(&untested) == 2 {
            assert!(started.elapsed() < PATIENCE, "the sweep holds its shard during a test");
            thread::yield_now();
        }
        let (sender, receiver) = mpsc::channel();
        scope.spawn({
            let cache = &cache;
            move || sender.send(is_hit(cache, "h/tested")).unwrap()
        });
        let is_hit = receiver.recv_timeout(PATIENCE);
        drop(list);
        assert_eq!(is_hit, Ok(true));
        sweep.join().unwrap();
    });
    assert_eq!((cache.stored(), cache.purges_in_force()), (2, 0));
}
