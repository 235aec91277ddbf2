//! Index tests: regression cases, and the choice of variant.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use proptest::prelude::*;
use thalweg_http::Fields;
use thalweg_http::cache_control::{CacheControl, RequestCacheControl};

use super::*;
use crate::entry::Unshareable;
use crate::fill::Failure;
use crate::freshness::Freshness;
use crate::purge::PurgeScope;
use crate::rules::Rules;
use crate::storage::Selection;

mod model;
mod purges;

const SLAB: u64 = SLAB_BYTES as u64;

fn look_up(cache: &Arc<Cache>, key: &str, now_ms: u64) -> Lookup {
    cache.look_up(key, &Fields::new(), &RequestCacheControl::default(), now_ms)
}

/// Creates a head that is fresh for `max_age` seconds from time 0.
fn head(max_age: u32, length: Option<u64>) -> Head {
    let mut fields = Fields::new();
    fields.push("ETag", "\"a\"");
    fields.push("Cache-Control", format!("max-age={max_age}"));
    let directives = CacheControl::from_fields(&fields);
    let freshness = Freshness::of(200, &fields, &directives, true, &Rules::default(), (0, 0));
    Head { length, ..Head::new(200, fields, freshness) }
}

fn private(mark: PassMark) -> Head {
    Head { private: Some(Unshareable { reason: "private", mark }), ..head(0, None) }
}

fn miss(cache: &Arc<Cache>, key: &str) -> (Fill, Reader<Arc<Head>>) {
    match look_up(cache, key, 0) {
        Lookup::Miss(fill, reader) => (fill, reader),
        other => panic!("{key}: {other:?}"),
    }
}

/// Stores a complete response.
fn store(cache: &Arc<Cache>, key: &str, max_age: u32, length: u64) {
    let (mut fill, _reader) = miss(cache, key);
    fill.begin(head(max_age, Some(length)), 0);
    fill.append(Bytes::from(vec![7; usize::try_from(length).unwrap()]), 0).unwrap();
    fill.complete();
}

#[test]
fn rfc5861_3_one_request_refreshes_while_all_are_served_stale() {
    let cache = Cache::new(8 * SLAB).unwrap();
    let (mut fill, _reader) = miss(&cache, "a");
    let mut head = head(10, Some(1));
    head.freshness.while_revalidate_ms = 5_000;
    fill.begin(head, 0);
    fill.append(Bytes::from_static(b"x"), 0).unwrap();
    fill.complete();
    let Lookup::Refresh(_, Some(fill)) = look_up(&cache, "a", 10_000) else { panic!("not stale") };
    assert!(matches!(look_up(&cache, "a", 14_999), Lookup::Refresh(_, None)));
    assert!(matches!(look_up(&cache, "a", 15_000), Lookup::Wait(..)));
    drop(fill);
    assert!(matches!(look_up(&cache, "a", 14_999), Lookup::Refresh(_, Some(_))));
    assert!(matches!(look_up(&cache, "a", 15_000), Lookup::Stale(..)));
}

#[test]
fn rfc9111_4_4_invalidation_removes_stored_and_pending_responses() {
    let cache = Cache::new(8 * SLAB).unwrap();
    store(&cache, "a", 60, 1);
    store(&cache, "b", 60, 1);
    let (mut awaited, mut reader) = miss(&cache, "c");
    for key in ["a", "c", "nothing"] {
        cache.invalidate(key);
    }
    let (fill, _reader) = miss(&cache, "a");
    drop(fill);
    assert!(matches!(look_up(&cache, "b", 0), Lookup::Hit(_)));
    let (_later, _) = miss(&cache, "c");
    awaited.begin(head(60, Some(1)), 0);
    awaited.append(Bytes::from_static(b"x"), 0).unwrap();
    awaited.complete();
    assert_eq!(reader.try_next(9).unwrap().unwrap().unwrap().len(), 1, "the fetching client still reads it");
    assert!(matches!(look_up(&cache, "c", 0), Lookup::Wait(..)), "the later fetch is the one awaited");
    assert_eq!(cache.stored(), 1);
}

#[test]
fn reason_phrase_counts_as_index_bytes() {
    let cache = Cache::new(8 * SLAB).unwrap();
    let bytes = |key: &str, reason: Option<&str>| {
        let before = cache.index_bytes();
        let (mut fill, _reader) = miss(&cache, key);
        fill.begin(Head { reason: reason.map(Into::into), ..head(60, Some(0)) }, 0);
        fill.complete();
        cache.index_bytes() - before
    };
    assert_eq!(bytes("a", Some("Quite Right")), bytes("b", None) + "Quite Right".len());
}

#[test]
fn rfc9111_4_4_pending_validation_does_not_restore_an_invalidated_response() {
    let cache = Cache::new(8 * SLAB).unwrap();
    store(&cache, "a", 1, 1);
    let Lookup::Stale(fill, _reader, stale) = look_up(&cache, "a", 2_000) else { panic!("not stale") };
    cache.invalidate("a");
    let mut notified = None;
    fill.validated(&stale, head(60, Some(1)), |stored| notified = Some(stored));
    assert!(notified.is_some());
    assert_eq!((cache.stored(), cache.index_bytes()), (0, 0));
    assert!(matches!(look_up(&cache, "a", 2_000), Lookup::Miss(..)));
}

#[test]
fn rfc9110_6_5_trailer_counts_while_it_is_held() {
    let cache = Cache::new(8 * SLAB).unwrap();
    let (mut fill, reader) = miss(&cache, "a");
    fill.begin(head(60, None), 0);
    let before = cache.index_bytes();
    let trailer: Fields = [("X-Sum", "1")].into_iter().collect();
    fill.set_trailer(trailer.clone());
    assert!(reader.trailer().is_none(), "the trailer is hidden until the end");
    fill.complete();
    assert_eq!(reader.trailer().unwrap().fields(), &trailer);
    assert_eq!(cache.index_bytes(), before + trailer.text_len());
    cache.invalidate("a");
    assert_eq!(cache.index_bytes(), trailer.text_len());
    drop(reader);
    assert_eq!(cache.index_bytes(), 0);
}

#[test]
fn given_up_fill_is_not_found_but_continues_for_readers_that_joined() {
    let cache = Cache::new(8 * SLAB).unwrap();
    let (mut fill, reader) = miss(&cache, "a");
    fill.begin(head(60, Some(4)), 0);
    let deserted = |fill: &Fill| {
        let mut context = Context::from_waker(Waker::noop());
        pin!(fill.deserted()).poll(&mut context).is_ready()
    };
    assert!(!deserted(&fill) && fill.has_readers());
    let Lookup::Joined(found) = look_up(&cache, "a", 0) else { panic!("must be found") };
    drop(reader);
    assert!(deserted(&fill));
    assert!(!fill.give_up(), "a request holds the response and is about to read it");
    let reader = found.content.reader(0);
    drop(found);
    assert!(!fill.give_up(), "the fill has a reader");
    assert!(matches!(look_up(&cache, "a", 0), Lookup::Miss(..)));
    drop(reader);
    assert!(fill.give_up());
    assert_eq!((cache.stored(), cache.index_bytes()), (0, 0));
}

#[test]
fn rfc9111_5_2_1_7_only_if_cached_starts_no_fetch() {
    let cache = Cache::new(8 * SLAB).unwrap();
    let asked = RequestCacheControl { only_if_cached: true, ..RequestCacheControl::default() };
    assert!(matches!(cache.look_up("a", &Fields::new(), &asked, 0), Lookup::Nothing));
    store(&cache, "a", 1, 1);
    assert!(matches!(cache.look_up("a", &Fields::new(), &asked, 0), Lookup::Hit(_)));
    assert!(matches!(cache.look_up("a", &Fields::new(), &asked, 5000), Lookup::Nothing));
}

#[test]
fn failed_fill_is_neither_validated_nor_put_back() {
    let cache = Cache::new(8 * SLAB).unwrap();
    let (mut first, _reader) = miss(&cache, "a");
    first.begin(head(1, Some(1000)), 0);
    first.append(Bytes::from_static(b"some"), 0).unwrap();
    // The response is stale while still filling: the next request fetches instead of validating it.
    let Lookup::Miss(second, _reader) = look_up(&cache, "a", 5000) else { panic!("must be a miss") };
    first.fail(Failure::Backend("reset".into()));
    drop(second);
    assert!(matches!(look_up(&cache, "a", 0), Lookup::Miss(..)));
    assert_eq!((cache.stored(), cache.index_bytes()), (0, 0));
}

#[test]
fn validation_that_forbids_sharing_serves_only_its_client() {
    let cache = Cache::new(8 * SLAB).unwrap();
    store(&cache, "a", 0, 10);
    let Lookup::Stale(fill, _reader, stored) = look_up(&cache, "a", 0) else { panic!("not stale") };
    let mut notified = None;
    fill.validated(&stored, private(PassMark::Moment), |stored| notified = Some(stored));
    assert!(notified.unwrap().head.private.is_some());
    assert!(cache.peek("a", &Fields::new(), 0).is_none());
    assert_eq!(cache.stored(), 0);
}

#[test]
fn validation_reaches_its_client_whatever_is_evicted() {
    let cache = Cache::new(2 * SLAB).unwrap();
    store(&cache, "a", 0, 10);
    let Lookup::Stale(fill, _reader, stored) = look_up(&cache, "a", 0) else { panic!("not stale") };
    let mut notified = None;
    fill.validated(&stored, head(60, Some(10)), |stored| notified = Some(stored));
    assert!(notified.unwrap().head.freshness.is_fresh(0));
}

#[test]
fn eviction_stops_at_the_target_while_readers_hold_the_memory() {
    let cache = Cache::new(16 * SLAB).unwrap();
    let held: Vec<_> = (0..12)
        .map(|key: u32| {
            let key = key.to_string();
            store(&cache, &key, 60, SLAB);
            let stored = cache.peek(&key, &Fields::new(), 0).unwrap();
            stored.content.reader(0).try_next(usize::MAX)
        })
        .collect();
    assert_eq!((cache.stored(), cache.arena().free_slabs()), (12, 4));
    // Room for four slabs of content and the two kept free requires six free slabs. Six responses
    // are evicted, but their readers still hold the slabs.
    cache.make_room(4 * SLAB);
    assert_eq!((cache.stored(), cache.arena().free_slabs()), (6, 4));
    drop(held);
    assert_eq!(cache.arena().free_slabs(), 10);
}

#[test]
fn fill_is_found_while_memory_is_short() {
    let cache = Cache::new(4 * SLAB).unwrap();
    for key in ["a", "b", "c"] {
        store(&cache, key, 60, SLAB);
    }
    let (mut fill, _reader) = miss(&cache, "live");
    fill.begin(head(60, None), 0);
    fill.append(Bytes::from_static(b"chunk"), 0).unwrap();
    assert!(matches!(look_up(&cache, "live", 0), Lookup::Joined(_)));
}

#[test]
fn scan_over_cold_content_keeps_used_responses_and_their_replacements() {
    let cache = Cache::new(8 * SLAB).unwrap();
    store(&cache, "segment", 60, 500_000);
    store(&cache, "playlist", 1, 1000);
    let hit = |key| matches!(look_up(&cache, key, 0), Lookup::Hit(_));
    assert!(hit("segment") && hit("playlist"));
    let Lookup::Stale(mut fill, ..) = look_up(&cache, "playlist", 2000) else { panic!("not stale") };
    fill.begin(head(60, Some(0)), 0);
    fill.complete();
    for cold in 0..300 {
        store(&cache, &format!("cold {cold}"), 60, 500_000);
    }
    assert!(hit("segment") && hit("playlist") && !hit("cold 0"));
}

#[test]
fn response_without_room_is_passed_from_the_start() {
    let cache = Cache::new(4 * SLAB).unwrap();
    let held: Vec<_> = ["a", "b", "c", "d"]
        .map(|key| {
            let (mut fill, _reader) = miss(&cache, key);
            fill.begin(head(60, Some(SLAB)), 0);
            fill
        })
        .into();
    let (mut fill, mut reader) = miss(&cache, "e");
    fill.begin(head(60, Some(SLAB)), 0);
    let Poll::Ready(Ok(head)) = pin!(reader.head()).poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("no head")
    };
    assert_eq!(head.private.unwrap().reason, "no-room");
    drop(held);
    assert_eq!(cache.stored(), 0);
}

#[test]
fn content_that_grows_too_large_is_passed_next_time() {
    let cache = Cache::new(8 * SLAB).unwrap();
    let (mut fill, _reader) = miss(&cache, "a");
    fill.begin(head(60, None), 1000);
    let piece = Bytes::from(vec![7; SLAB_BYTES]);
    fill.append(piece.clone(), 1000).unwrap();
    fill.append(piece.clone(), 1000).unwrap();
    fill.append(piece, 1000).unwrap_err();
    fill.fail(Failure::NoRoom);
    assert!(matches!(look_up(&cache, "a", 1000), Lookup::Pass));
    assert!(matches!(look_up(&cache, "a", 1000 + PASS_MARK_MS), Lookup::Miss(..)));
}

#[test]
fn policy_verdict_lasts_as_set_and_replaces_the_stored_response() {
    let cache = Cache::new(8 * SLAB).unwrap();
    let until_ms = 3_600_000;
    for (key, mark) in [("pass", PassMark::Pass { until_ms }), ("miss", PassMark::Miss { until_ms })] {
        store(&cache, key, 60, 1);
        let Lookup::Miss(mut fill, _reader) = cache.start_fetch(key, &Fields::new()) else {
            panic!("{key}: must start a fetch")
        };
        assert!(
            matches!(look_up(&cache, key, 0), Lookup::Hit(_)),
            "{key}: the old response is gone too early"
        );
        fill.begin(private(mark), 0);
        let is_marked = |found: Lookup| match mark {
            PassMark::Pass { .. } => matches!(found, Lookup::Pass),
            _ => matches!(found, Lookup::HitMiss(..)),
        };
        assert_eq!(cache.stored(), 0);
        assert!(is_marked(look_up(&cache, key, 0)) && is_marked(look_up(&cache, key, until_ms - 1)));
        assert!(matches!(look_up(&cache, key, until_ms), Lookup::Miss(..)));
        cache.invalidate(key);
        assert!(matches!(look_up(&cache, key, 0), Lookup::Miss(..)), "{key}: found although purged");
    }
}

/// Creates a head for requests whose `x` is `value`, or for all requests if `value` is `None`.
fn varying(value: Option<&str>, head: Head) -> Head {
    let vary: Fields = value.map(|_| ("Vary", "x")).into_iter().collect();
    let request: Fields = value.map(|value| ("x", value)).into_iter().collect();
    Head { selection: Selection::of(&request, &vary), ..head }
}

fn look_up_of(cache: &Arc<Cache>, value: &str, now_ms: u64) -> Lookup {
    let fields = [("x", value)].into_iter().collect();
    cache.look_up("a", &fields, &RequestCacheControl::default(), now_ms)
}

/// Responds to a request whose `x` is `value` with `head` and no content.
fn respond(cache: &Arc<Cache>, value: &str, head: Head) {
    let mut fill = match look_up_of(cache, value, 0) {
        Lookup::Miss(fill, _) | Lookup::HitMiss(fill, _) => fill,
        other => panic!("{value}: {other:?}"),
    };
    let is_shared = head.private.is_none();
    fill.begin(Head { length: Some(0), ..head }, 0);
    if is_shared {
        fill.complete();
    }
}

/// Returns the fetches started by requests for `a` whose `x` is each of `values` in turn; the other
/// requests wait.
fn fetches<'a>(cache: &Arc<Cache>, values: &[&'a str]) -> Vec<(&'a str, Fill)> {
    let fetch = |value: &&'a str| match look_up_of(cache, value, 0) {
        Lookup::Miss(fill, _) => Some((*value, fill)),
        Lookup::Stale(fill, ..) => Some((*value, fill)),
        Lookup::Wait(..) => None,
        other => panic!("{value}: {other:?}"),
    };
    values.iter().filter_map(fetch).collect()
}

fn values_of<'a>(fetches: &[(&'a str, Fill)]) -> Vec<&'a str> {
    fetches.iter().map(|(value, _)| *value).collect()
}

#[test]
fn variants_are_fetched_in_parallel_after_the_first_head() {
    let cache = Cache::new(8 * SLAB).unwrap();
    let asked = ["1", "2", "3", "2", "1", "3"];
    let mut first = fetches(&cache, &asked);
    assert_eq!(values_of(&first), ["1"], "the first fetch must be shared by all");
    let (_, mut fill) = first.remove(0);
    fill.begin(varying(Some("1"), head(0, Some(0))), 0);
    let mut others = fetches(&cache, &["2", "3", "2", "3"]);
    assert_eq!(values_of(&others), ["2", "3"], "one fetch per variant");
    fill.complete();
    // Now one response is stale and the others are still awaited.
    let again = fetches(&cache, &asked);
    assert_eq!(values_of(&again), ["1"]);
    let (_, mut second) = others.remove(0);
    second.begin(varying(Some("2"), head(60, Some(0))), 0);
    second.complete();
    assert!(matches!(look_up_of(&cache, "2", 0), Lookup::Hit(_)));
    assert!(matches!(look_up_of(&cache, "3", 0), Lookup::Wait(..)));
    // After a failed fetch, the next request for its variant fetches; requests for other variants
    // do not.
    drop(others);
    assert_eq!(values_of(&fetches(&cache, &["1", "3", "3"])), ["3"]);
}

#[test]
fn variants_are_validated_and_refreshed_in_parallel() {
    let cache = Cache::new(8 * SLAB).unwrap();
    for value in ["1", "2", "3"] {
        let mut head = varying(Some(value), head(1, None));
        head.freshness.while_revalidate_ms = 1000;
        respond(&cache, value, head);
    }
    let refreshes = |value| match look_up_of(&cache, value, 1500) {
        Lookup::Refresh(_, fill) => fill,
        other => panic!("{value}: {other:?}"),
    };
    let started: Vec<_> = ["1", "2", "1", "3"].map(refreshes).into();
    assert_eq!(started.iter().map(Option::is_some).collect::<Vec<_>>(), [true, true, false, true]);
    drop(started);
    let validates = |value| match look_up_of(&cache, value, 5000) {
        Lookup::Stale(fill, ..) => Some(fill),
        Lookup::Wait(..) => None,
        other => panic!("{value}: {other:?}"),
    };
    let started: Vec<_> = ["1", "2", "1", "3"].map(validates).into();
    assert_eq!(started.iter().map(Option::is_some).collect::<Vec<_>>(), [true, true, false, true]);
}

#[test]
fn response_that_no_longer_varies_is_awaited_by_all() {
    let cache = Cache::new(8 * SLAB).unwrap();
    respond(&cache, "1", varying(Some("1"), head(0, None)));
    assert_eq!(values_of(&fetches(&cache, &["1", "2", "2"])), ["1", "2"]);
    respond(&cache, "2", varying(None, head(0, None)));
    assert_eq!(values_of(&fetches(&cache, &["1", "2", "3"])), ["1"]);
}

#[test]
fn fresh_response_is_found_behind_a_later_stale_one() {
    let cache = Cache::new(8 * SLAB).unwrap();
    respond(&cache, "1", varying(Some("1"), head(3600, None)));
    // Store an error without Vary, which applies to all requests.
    respond(&cache, "2", varying(None, head(1, None)));
    assert!(
        matches!(look_up_of(&cache, "1", 2_000), Lookup::Hit(stored) if stored.freshness().is_fresh(2_000))
    );
}

#[test]
fn mark_hides_its_variant_until_a_shareable_response_arrives() {
    let cache = Cache::new(8 * SLAB).unwrap();
    let until_ms = 120_000;
    respond(&cache, "1", varying(Some("1"), head(3600, None)));
    // A 500 without Vary applies to all requests.
    respond(&cache, "2", varying(None, private(PassMark::Miss { until_ms })));
    for value in ["1", "2"] {
        assert!(matches!(look_up_of(&cache, value, 0), Lookup::HitMiss(..)), "{value}");
    }
    respond(&cache, "1", varying(Some("1"), head(60, None)));
    assert!(matches!(look_up_of(&cache, "1", 0), Lookup::Hit(_)));
    assert!(matches!(look_up_of(&cache, "2", 0), Lookup::Miss(..)));
}

#[test]
fn no_request_waits_for_an_unshareable_response() {
    let cache = Cache::new(8 * SLAB).unwrap();
    respond(&cache, "1", varying(Some("1"), private(PassMark::Miss { until_ms: 120_000 })));
    let Lookup::HitMiss(alone, _reader) = look_up_of(&cache, "1", 0) else { panic!("must be marked") };
    let Lookup::Miss(shared, _reader) = look_up_of(&cache, "2", 0) else { panic!("must not wait") };
    assert!(matches!(look_up_of(&cache, "2", 0), Lookup::Wait(..)));
    drop((alone, shared));
}

#[test]
fn vary_star_is_never_stored_even_if_marked_shareable() {
    let cache = Cache::new(8 * SLAB).unwrap();
    let vary: Fields = [("Vary", "A"), ("Vary", "B, *")].into_iter().collect();
    let unmatchable = |head: Head| Head { selection: Selection::of(&Fields::new(), &vary), ..head };
    let (mut fill, mut reader) = miss(&cache, "started");
    fill.begin(unmatchable(head(60, Some(0))), 0);
    let Poll::Ready(Ok(started)) = pin!(reader.head()).poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("no head")
    };
    assert_eq!(started.private.unwrap().reason, "vary");
    assert!(matches!(look_up(&cache, "started", 0), Lookup::Pass), "the next request waits");
    let (fill, _reader) = miss(&cache, "sliced");
    fill.complete_sliced(unmatchable(head(60, None)), 1 << 30);
    for key in ["validated", "updated"] {
        store(&cache, key, 0, 10);
    }
    let Lookup::Stale(fill, _reader, stored) = look_up(&cache, "validated", 0) else { panic!("not stale") };
    let mut notified = None;
    fill.validated(&stored, unmatchable(head(60, None)), |stored| notified = Some(stored));
    assert!(notified.unwrap().head.private.is_some());
    let stored = cache.peek("updated", &Fields::new(), 0).unwrap();
    cache.update(&stored, unmatchable(head(60, None)));
    assert_eq!(cache.stored(), 0);
}

#[test]
fn marks_take_bounded_memory() {
    let cache = Cache::new(8 * SLAB).unwrap();
    let long = "x".repeat(10_000);
    respond(&cache, &long, varying(Some(&long), private(PassMark::Pass { until_ms: 120_000 })));
    assert!(matches!(look_up_of(&cache, &long, 0), Lookup::Miss(..)));
}

#[test]
fn unshared_fetches_of_a_key_are_found_and_limited() {
    let cache = Cache::new(8 * SLAB).unwrap();
    let started: Vec<_> = std::iter::from_fn(|| match cache.start_fetch("a", &Fields::new()) {
        Lookup::Miss(fill, reader) => Some((fill, reader)),
        _ => None,
    })
    .collect();
    assert_eq!(started.len(), PENDING_MAX);
    for (length, (mut fill, _reader)) in (1..4).zip(started) {
        fill.begin(head(60, Some(length)), 0);
        fill.append(Bytes::from(vec![7; length as usize]), 0).unwrap();
        fill.complete();
        let Lookup::Hit(stored) = look_up(&cache, "a", 0) else { panic!("must be found") };
        assert_eq!((stored.head.length, cache.stored()), (Some(length), 1));
    }
}

#[test]
fn unshareable_response_is_passed_for_a_moment() {
    let cache = Cache::new(4 * SLAB).unwrap();
    let (mut fill, _reader) = miss(&cache, "a");
    let Lookup::Wait(..) = look_up(&cache, "a", 0) else { panic!("must be collapsed") };
    fill.begin(private(PassMark::Moment), 0);
    assert!(matches!(look_up(&cache, "a", 0), Lookup::Pass));
    let (mut fill, _reader) = miss(&cache, "b");
    fill.begin(private(PassMark::No), 0);
    assert!(matches!(look_up(&cache, "b", 0), Lookup::Miss(..)));
}

#[test]
fn long_keys_and_fields_are_bounded() {
    let cache = Cache::new(8 * SLAB).unwrap();
    for number in 0..5000 {
        store(&cache, &format!("{number}{}", "k".repeat(8000)), 60, 0);
    }
    assert!(cache.index_bytes() <= 8 * SLAB_BYTES / INDEX_SHARE_MAX + 10_000);
    assert!(cache.stored() > 100);
}

/// A stored response: its `Vary`, the request that caused its fetch, and its `Date`.
type Variant = (&'static str, Fields, u64);

fn a_request() -> impl Strategy<Value = Fields> {
    let value = || prop::sample::select(vec!["", "x", "y"]);
    (value(), value())
        .prop_map(|(a, b)| [("A", a), ("B", b)].into_iter().filter(|(_, v)| !v.is_empty()).collect())
}

fn a_variant() -> impl Strategy<Value = Variant> {
    (prop::sample::select(vec!["", "A", "B", "A, b"]), a_request(), 0..4u64)
}

/// Returns whether two requests agree in the fields named in `vary`, without normalisation.
fn agree(vary: &str, one: &Fields, other: &Fields) -> bool {
    let names = ["A", "B"].into_iter().filter(|name| vary.to_uppercase().contains(name));
    names.into_iter().all(|name| one.get(name) == other.get(name))
}

proptest! {
    #[test]
    fn rfc9111_4_1_most_recent_matching_variant_is_chosen(
        variants in prop::collection::vec(a_variant(), 1..12),
        request in a_request(),
    ) {
        let cache = Cache::new(8 * SLAB).unwrap();
        // The stored variants, numbered by entity tag. A variant replaces another with the same
        // selection.
        let mut model: Vec<(usize, &Variant)> = Vec::new();
        for (number, variant) in variants.iter().enumerate() {
            let (vary, asked, date_s) = variant;
            let no_cache = RequestCacheControl { no_cache: true, ..RequestCacheControl::default() };
            let mut fill = match cache.look_up("a", asked, &no_cache, 0) {
                Lookup::Miss(fill, _) | Lookup::Stale(fill, ..) => fill,
                other => return Err(TestCaseError::fail(format!("{other:?}"))),
            };
            let mut head = head(60, Some(0));
            head.fields.set("ETag", format!("\"{number}\""));
            head.fields.push("Date", thalweg_http::date::format(*date_s));
            head.fields.push("Vary", vary);
            head.selection = Selection::of(asked, &head.fields);
            fill.begin(head, 0);
            fill.complete();
            model.retain(|(_, (old, by, _))| !(old.eq_ignore_ascii_case(vary) && agree(vary, by, asked)));
            model.push((number, variant));
        }
        prop_assert_eq!(cache.stored(), model.len());
        // Of two variants with the same `Date`, the later one counts: `max_by_key` returns the last
        // of equal elements.
        let matching = model.iter().filter(|(_, (vary, asked, _))| agree(vary, asked, &request));
        let expected = matching.max_by_key(|(_, (_, _, date_s))| *date_s).map(|(number, _)| format!("\"{number}\""));
        let chosen = cache.peek("a", &request, 0).map(|stored| stored.head.fields.get_str("etag").unwrap().to_owned());
        prop_assert_eq!(&chosen, &expected);
        let hit = matches!(cache.look_up("a", &request, &RequestCacheControl::default(), 0), Lookup::Hit(_));
        prop_assert_eq!(hit, expected.is_some());
    }
}
