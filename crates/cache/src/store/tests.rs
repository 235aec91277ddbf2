//! The index: the cases that once went wrong, and which variant is chosen.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use proptest::prelude::*;
use thalweg_http::Fields;
use thalweg_http::cache_control::{CacheControl, RequestCacheControl};

use super::*;
use crate::fill::Failure;
use crate::purge::What;
use crate::rules::Rules;

mod model;
mod purges;

const SLAB: u64 = SLAB_BYTES as u64;

fn look_up(cache: &Arc<Cache>, key: &str, now_ms: u64) -> Lookup {
    cache.look_up(key, &Fields::new(), &RequestCacheControl::default(), now_ms)
}

/// A head that is fresh for `max_age` seconds from time 0.
fn head(max_age: u32, length: Option<u64>) -> Head {
    let mut fields = Fields::new();
    fields.push("ETag", "\"a\"");
    fields.push("Cache-Control", format!("max-age={max_age}"));
    let directives = CacheControl::from_fields(&fields);
    let freshness = Freshness::of(200, &fields, &directives, true, &Rules::default(), (0, 0));
    Head { length, ..Head::new(200, fields, freshness) }
}

fn private(lasting: Lasting) -> Head {
    Head { private: Some(Private { reason: "private", lasting }), ..head(0, None) }
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
fn rfc5861_3_one_refreshes_what_all_get_stale() {
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
fn rfc9111_4_4_what_is_invalidated_is_gone_also_what_is_being_fetched() {
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
    assert_eq!(reader.try_next(9).unwrap().unwrap().unwrap().len(), 1, "who caused the fetch has it");
    assert!(matches!(look_up(&cache, "c", 0), Lookup::Wait(..)), "the later fetch is the one awaited");
    assert_eq!(cache.stored(), 1);
}

#[test]
fn a_reason_phrase_counts_among_the_index() {
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
fn rfc9111_4_4_a_validation_under_way_does_not_bring_back_what_was_invalidated() {
    let cache = Cache::new(8 * SLAB).unwrap();
    store(&cache, "a", 1, 1);
    let Lookup::Stale(fill, _reader, stale) = look_up(&cache, "a", 2_000) else { panic!("not stale") };
    cache.invalidate("a");
    let mut told = None;
    fill.validated(&stale, head(60, Some(1)), |stored| told = Some(stored));
    assert!(told.is_some());
    assert_eq!((cache.stored(), cache.index_bytes()), (0, 0));
    assert!(matches!(look_up(&cache, "a", 2_000), Lookup::Miss(..)));
}

#[test]
fn rfc9110_6_5_a_trailer_counts_for_as_long_as_anybody_has_it() {
    let cache = Cache::new(8 * SLAB).unwrap();
    let (mut fill, reader) = miss(&cache, "a");
    fill.begin(head(60, None), 0);
    let before = cache.index_bytes();
    let trailer: Fields = [("X-Sum", "1")].into_iter().collect();
    fill.set_trailer(trailer.clone());
    assert!(reader.trailer().is_none(), "not before the end");
    fill.complete();
    assert_eq!(reader.trailer().unwrap().fields(), &trailer);
    assert_eq!(cache.index_bytes(), before + trailer.text_len());
    cache.invalidate("a");
    assert_eq!(cache.index_bytes(), trailer.text_len());
    drop(reader);
    assert_eq!(cache.index_bytes(), 0);
}

#[test]
fn a_fill_that_is_given_up_is_found_by_nobody_and_goes_on_for_who_was_faster() {
    let cache = Cache::new(8 * SLAB).unwrap();
    let (mut fill, reader) = miss(&cache, "a");
    fill.begin(head(60, Some(4)), 0);
    let deserted = |fill: &Fill| {
        let mut context = Context::from_waker(Waker::noop());
        pin!(fill.deserted()).poll(&mut context).is_ready()
    };
    assert!(!deserted(&fill) && fill.has_readers());
    let Lookup::Joined(found) = look_up(&cache, "a", 0) else { panic!("not found") };
    drop(reader);
    assert!(deserted(&fill));
    assert!(!fill.give_up(), "one has found it and is about to read");
    let reader = found.content.reader(0);
    drop(found);
    assert!(!fill.give_up(), "one reads");
    assert!(matches!(look_up(&cache, "a", 0), Lookup::Miss(..)));
    drop(reader);
    assert!(fill.give_up());
    assert_eq!((cache.stored(), cache.index_bytes()), (0, 0));
}

#[test]
fn rfc9111_5_2_1_7_who_wants_only_what_is_stored_starts_nothing() {
    let cache = Cache::new(8 * SLAB).unwrap();
    let asked = RequestCacheControl { only_if_cached: true, ..RequestCacheControl::default() };
    assert!(matches!(cache.look_up("a", &Fields::new(), &asked, 0), Lookup::Nothing));
    store(&cache, "a", 1, 1);
    assert!(matches!(cache.look_up("a", &Fields::new(), &asked, 0), Lookup::Hit(_)));
    assert!(matches!(cache.look_up("a", &Fields::new(), &asked, 5000), Lookup::Nothing));
}

#[test]
fn what_failed_is_not_offered_for_validation_nor_put_back() {
    let cache = Cache::new(8 * SLAB).unwrap();
    let (mut first, _reader) = miss(&cache, "a");
    first.begin(head(1, Some(1000)), 0);
    first.append(Bytes::from_static(b"some"), 0).unwrap();
    // Stale while it still fills: the next one fetches for itself instead of asking about it.
    let Lookup::Miss(second, _reader) = look_up(&cache, "a", 5000) else { panic!("offered") };
    first.fail(Failure::Backend("reset".into()));
    drop(second);
    assert!(matches!(look_up(&cache, "a", 0), Lookup::Miss(..)));
    assert_eq!((cache.stored(), cache.index_bytes()), (0, 0));
}

#[test]
fn a_validation_that_takes_back_the_leave_to_share_answers_one_client_alone() {
    let cache = Cache::new(8 * SLAB).unwrap();
    store(&cache, "a", 0, 10);
    let Lookup::Stale(fill, _reader, stored) = look_up(&cache, "a", 0) else { panic!("not stale") };
    let mut told = None;
    fill.validated(&stored, private(Lasting::Moment), |stored| told = Some(stored));
    assert!(told.unwrap().head.private.is_some());
    assert!(cache.peek("a", &Fields::new(), 0).is_none());
    assert_eq!(cache.stored(), 0);
}

#[test]
fn a_validation_is_told_to_its_client_whatever_is_evicted() {
    let cache = Cache::new(2 * SLAB).unwrap();
    store(&cache, "a", 0, 10);
    let Lookup::Stale(fill, _reader, stored) = look_up(&cache, "a", 0) else { panic!("not stale") };
    let mut told = None;
    fill.validated(&stored, head(60, Some(10)), |stored| told = Some(stored));
    assert!(told.unwrap().head.freshness.is_fresh(0));
}

#[test]
fn a_fill_is_found_while_memory_is_short() {
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
fn a_pass_over_cold_content_leaves_what_is_used_and_what_replaced_it() {
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
fn without_room_a_response_is_passed_not_begun_and_broken() {
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
fn content_that_grows_too_large_is_passed_the_next_time() {
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
fn what_a_policy_says_of_the_next_response_holds_as_long_as_it_says_and_takes_the_place_of_what_is_stored() {
    let cache = Cache::new(8 * SLAB).unwrap();
    let until_ms = 3_600_000;
    for (key, lasting) in [("pass", Lasting::Pass { until_ms }), ("miss", Lasting::Miss { until_ms })] {
        store(&cache, key, 60, 1);
        let Lookup::Miss(mut fill, _reader) = cache.begin_anew(key) else { panic!("{key}: not begun") };
        assert!(matches!(look_up(&cache, key, 0), Lookup::Hit(_)), "{key}: it is there meanwhile");
        fill.begin(private(lasting), 0);
        let is_marked = |found: Lookup| match lasting {
            Lasting::Pass { .. } => matches!(found, Lookup::Pass),
            _ => matches!(found, Lookup::HitMiss(..)),
        };
        assert_eq!(cache.stored(), 0);
        assert!(is_marked(look_up(&cache, key, 0)) && is_marked(look_up(&cache, key, until_ms - 1)));
        assert!(matches!(look_up(&cache, key, until_ms), Lookup::Miss(..)));
        cache.invalidate(key);
        assert!(matches!(look_up(&cache, key, 0), Lookup::Miss(..)), "{key}: it was purged");
    }
}

/// For requests whose `x` is `value`, or, without one, for all.
fn of(value: Option<&str>, head: Head) -> Head {
    let vary: Fields = value.map(|_| ("Vary", "x")).into_iter().collect();
    let request: Fields = value.map(|value| ("x", value)).into_iter().collect();
    Head { selection: Selection::of(&request, &vary), ..head }
}

fn look_up_of(cache: &Arc<Cache>, value: &str, now_ms: u64) -> Lookup {
    let fields = [("x", value)].into_iter().collect();
    cache.look_up("a", &fields, &RequestCacheControl::default(), now_ms)
}

/// Has a fetch for requests whose `x` is `value` bring `head`, of no content.
fn bring(cache: &Arc<Cache>, value: &str, head: Head) {
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

#[test]
fn what_is_fresh_is_found_behind_a_later_one_that_is_not() {
    let cache = Cache::new(8 * SLAB).unwrap();
    bring(&cache, "1", of(Some("1"), head(3600, None)));
    // An error without Vary, for all requests.
    bring(&cache, "2", of(None, head(1, None)));
    assert!(
        matches!(look_up_of(&cache, "1", 2_000), Lookup::Hit(stored) if stored.freshness().is_fresh(2_000))
    );
}

#[test]
fn a_mark_hides_what_it_is_about_until_something_better_comes() {
    let cache = Cache::new(8 * SLAB).unwrap();
    let until_ms = 120_000;
    bring(&cache, "1", of(Some("1"), head(3600, None)));
    // A 500 without Vary is about all requests.
    bring(&cache, "2", of(None, private(Lasting::Miss { until_ms })));
    for value in ["1", "2"] {
        assert!(matches!(look_up_of(&cache, value, 0), Lookup::HitMiss(..)), "{value}");
    }
    bring(&cache, "1", of(Some("1"), head(60, None)));
    assert!(matches!(look_up_of(&cache, "1", 0), Lookup::Hit(_)));
    assert!(matches!(look_up_of(&cache, "2", 0), Lookup::Miss(..)));
}

#[test]
fn nobody_waits_for_what_is_for_another_alone() {
    let cache = Cache::new(8 * SLAB).unwrap();
    bring(&cache, "1", of(Some("1"), private(Lasting::Miss { until_ms: 120_000 })));
    let Lookup::HitMiss(alone, _reader) = look_up_of(&cache, "1", 0) else { panic!("it is marked") };
    let Lookup::Miss(shared, _reader) = look_up_of(&cache, "2", 0) else { panic!("it waits") };
    assert!(matches!(look_up_of(&cache, "2", 0), Lookup::Wait(..)));
    drop((alone, shared));
}

#[test]
fn marks_take_bounded_memory() {
    let cache = Cache::new(8 * SLAB).unwrap();
    let long = "x".repeat(10_000);
    bring(&cache, &long, of(Some(&long), private(Lasting::Pass { until_ms: 120_000 })));
    assert!(matches!(look_up_of(&cache, &long, 0), Lookup::Miss(..)));
}

#[test]
fn fetches_of_a_key_that_wait_for_nobody_are_each_found_and_have_a_limit() {
    let cache = Cache::new(8 * SLAB).unwrap();
    let begun: Vec<_> = std::iter::from_fn(|| match cache.begin_anew("a") {
        Lookup::Miss(fill, reader) => Some((fill, reader)),
        _ => None,
    })
    .collect();
    assert_eq!(begun.len(), PENDING_MAX);
    for (length, (mut fill, _reader)) in (1..4).zip(begun) {
        fill.begin(head(60, Some(length)), 0);
        fill.append(Bytes::from(vec![7; length as usize]), 0).unwrap();
        fill.complete();
        let Lookup::Hit(stored) = look_up(&cache, "a", 0) else { panic!("not found") };
        assert_eq!((stored.head.length, cache.stored()), (Some(length), 1));
    }
}

#[test]
fn what_is_not_shareable_is_passed_for_a_moment() {
    let cache = Cache::new(4 * SLAB).unwrap();
    let (mut fill, _reader) = miss(&cache, "a");
    let Lookup::Wait(..) = look_up(&cache, "a", 0) else { panic!("not collapsed") };
    fill.begin(private(Lasting::Moment), 0);
    assert!(matches!(look_up(&cache, "a", 0), Lookup::Pass));
    let (mut fill, _reader) = miss(&cache, "b");
    fill.begin(private(Lasting::No), 0);
    assert!(matches!(look_up(&cache, "b", 0), Lookup::Miss(..)));
}

#[test]
fn long_keys_and_fields_are_bounded_too() {
    let cache = Cache::new(8 * SLAB).unwrap();
    for number in 0..5000 {
        store(&cache, &format!("{number}{}", "k".repeat(8000)), 60, 0);
    }
    assert!(cache.index_bytes() <= 8 * SLAB_BYTES / INDEX_SHARE_MAX + 10_000);
    assert!(cache.stored() > 100);
}

/// One that was stored: what it varies by, the request that it answered, and its `Date`.
type Variant = (&'static str, Fields, u64);

fn a_request() -> impl Strategy<Value = Fields> {
    let value = || prop::sample::select(vec!["", "x", "y"]);
    (value(), value())
        .prop_map(|(a, b)| [("A", a), ("B", b)].into_iter().filter(|(_, v)| !v.is_empty()).collect())
}

fn a_variant() -> impl Strategy<Value = Variant> {
    (prop::sample::select(vec!["", "A", "B", "A, b"]), a_request(), 0..4u64)
}

/// Whether two requests agree in what a response varies by: the rule, without normalisation.
fn agree(vary: &str, one: &Fields, other: &Fields) -> bool {
    let names = ["A", "B"].into_iter().filter(|name| vary.to_uppercase().contains(name));
    names.into_iter().all(|name| one.get(name) == other.get(name))
}

proptest! {
    #[test]
    fn rfc9111_4_1_of_the_variants_that_match_the_most_recent_is_chosen(
        variants in prop::collection::vec(a_variant(), 1..12),
        request in a_request(),
    ) {
        let cache = Cache::new(8 * SLAB).unwrap();
        // What is stored, with the number of its entity tag: one takes the place of another that the same requests
        // select.
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
        // Of two made at once, the one that came last: `max_by_key` gives the last of equals.
        let matching = model.iter().filter(|(_, (vary, asked, _))| agree(vary, asked, &request));
        let expected = matching.max_by_key(|(_, (_, _, date_s))| *date_s).map(|(number, _)| format!("\"{number}\""));
        let chosen = cache.peek("a", &request, 0).map(|stored| stored.head.fields.get_str("etag").unwrap().to_owned());
        prop_assert_eq!(&chosen, &expected);
        let hit = matches!(cache.look_up("a", &request, &RequestCacheControl::default(), 0), Lookup::Hit(_));
        prop_assert_eq!(hit, expected.is_some());
    }
}
