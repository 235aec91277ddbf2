//! Ranges (RFC 9110 §14).

use expect_test::{Expect, expect};
use proptest::prelude::*;
use thalweg_http::range::{
    Answer, ByteRange, ContentRange, RANGES_MAX, Selected, content_range, parse, parse_content_range,
    resolve, resolve_arriving, select, unsatisfied_range,
};

use crate::cases;

fn check(value: &str, expect: Expect) {
    expect.assert_eq(&match parse(value.as_bytes()) {
        Some(set) => format!("{:?}", set.as_slice()),
        None => "ignored".into(),
    });
}

#[test]
fn rfc9110_14_1_2_byte_ranges_are_parsed() {
    check("bytes=0-499", expect!["[FromTo(0, 499)]"]);
    check("Bytes=5-", expect!["[From(5)]"]);
    check("bytes=-5", expect!["[Suffix(5)]"]);
    check("bytes=0-0, -1,,5-", expect!["[FromTo(0, 0), Suffix(1), From(5)]"]);
    check("bytes=0-99999999999999999999", expect!["[FromTo(0, 18446744073709551615)]"]);
}

#[test]
fn rfc9110_14_2_invalid_range_field_is_ignored() {
    for value in [
        "",
        "bytes",
        "bytes=",
        "bytes=,",
        "bytes=-",
        "bytes=1",
        "bytes=2-1",
        "bytes=a-b",
        "bytes=+1-2",
        "bytes=1-2-3",
        "bytes=1 -2",
        "bytes =1-2",
        "items=0-1",
        "bytes=0-1,x",
    ] {
        check(value, expect!["ignored"]);
    }
    let many = |ranges| format!("bytes={}", vec!["0-0"; ranges].join(","));
    assert!(parse(many(RANGES_MAX).as_bytes()).is_some());
    check(&many(RANGES_MAX + 1), expect!["ignored"]);
}

#[test]
fn several_ranges_are_not_single() {
    assert_eq!(parse(b"bytes=1-").unwrap().single(), Some(ByteRange::From(1)));
    assert_eq!(parse(b"bytes=1-,2-").unwrap().single(), None);
}

#[test]
fn rfc9110_14_1_2_unsatisfiable_ranges_resolve_to_none() {
    assert_eq!(resolve(ByteRange::FromTo(2, 99), 5), Some(2..5));
    assert_eq!(resolve(ByteRange::Suffix(99), 5), Some(0..5));
    assert_eq!(resolve(ByteRange::FromTo(0, u64::MAX), u64::MAX), Some(0..u64::MAX));
    assert_eq!(resolve(ByteRange::From(5), 5), None);
    assert_eq!(resolve(ByteRange::Suffix(0), 5), None);
    assert_eq!(resolve(ByteRange::Suffix(1), 0), None);
}

#[test]
fn rfc9110_14_4_content_range_is_written_and_parsed() {
    assert_eq!(content_range(&(0..5), Some(10)), "bytes 0-4/10");
    assert_eq!(content_range(&(5..6), None), "bytes 5-5/*");
    assert_eq!(unsatisfied_range(10), "bytes */10");
    for value in [
        "",
        "bytes",
        "bytes */*",
        "bytes 0-4",
        "bytes 4-0/10",
        "bytes 0-9/5",
        "bytes 0-4/x",
        "items 0-4/10",
        "bytes=0-4/10",
        "bytes 0-18446744073709551615/*",
        "bytes 0 - 4/10",
    ] {
        assert_eq!(parse_content_range(value.as_bytes()), None, "{value}");
    }
}

fn some_range() -> impl Strategy<Value = ByteRange> {
    prop_oneof![
        (0..12u64, 0..12u64).prop_map(|(a, b)| ByteRange::FromTo(a.min(b), a.max(b))),
        (0..12u64).prop_map(ByteRange::From),
        (0..12u64).prop_map(ByteRange::Suffix),
    ]
}

/// Lists the offsets selected by a range, directly from the definition in RFC 9110 §14.1.2.
fn selected(range: ByteRange, length: u64) -> Vec<u64> {
    (0..length)
        .filter(|offset| match range {
            ByteRange::FromTo(first, last) => first <= *offset && *offset <= last,
            ByteRange::From(first) => first <= *offset,
            ByteRange::Suffix(suffix) => length - *offset <= suffix,
        })
        .collect()
}

proptest! {
    #![proptest_config(cases(512))]

    #[test]
    fn resolve_agrees_with_the_definition(range in some_range(), length in 0..12u64) {
        let resolved: Vec<u64> = resolve(range, length).into_iter().flatten().collect();
        prop_assert_eq!(resolved, selected(range, length));
    }

    #[test]
    fn answer_for_arriving_content_agrees_with_the_final_one(
        range in some_range(), length in 0..12u64, arrived in 0..12u64, known in any::<bool>(),
    ) {
        prop_assume!(arrived <= length);
        let at_end = resolve(range, length).map_or(Answer::Unsatisfiable, Answer::Range);
        let answer = resolve_arriving(range, arrived, known.then_some(length));
        prop_assert!(answer == at_end || (answer == Answer::Undecided && !known));
        if let (ByteRange::FromTo(_, last), false) = (range, known) {
            prop_assert_eq!(answer == Answer::Undecided, last >= arrived);
        }
    }

    #[test]
    fn written_content_range_parses_back(start in 0..u64::MAX - 1, bytes in 1..u64::MAX, known in any::<bool>()) {
        let range = start..start.saturating_add(bytes);
        let length = known.then_some(range.end);
        let parsed = parse_content_range(content_range(&range, length).as_bytes());
        prop_assert_eq!(parsed, Some(ContentRange { range: Some(range), length }));
        let unsatisfied = ContentRange { range: None, length: Some(start) };
        prop_assert_eq!(parse_content_range(unsatisfied_range(start).as_bytes()), Some(unsatisfied));
    }
}

#[test]
fn rfc9110_15_3_7_2_nearly_adjacent_ranges_are_merged() {
    let check = |requested: &str, expect: Expect| {
        expect.assert_eq(&format!("{:?}", select(&parse(requested.as_bytes()).unwrap(), 1000)));
    };
    check("bytes=0-9,200-209", expect!["Several([0..10, 200..210])"]);
    check("bytes=200-209,0-9", expect!["Several([200..210, 0..10])"]);
    check("bytes=0-9,5-20", expect!["One(0..21)"]);
    check("bytes=0-9,90-99", expect!["One(0..100)"]);
    check("bytes=0-9,91-99", expect!["Several([0..10, 91..100])"]);
    check("bytes=0-9,300-309,10-299", expect!["One(0..310)"]);
    check("bytes=0-9,2000-", expect!["One(0..10)"]);
    check("bytes=1000-,2000-", expect!["Unsatisfiable"]);
    check("bytes=0-,-1,-500", expect!["One(0..1000)"]);
}

proptest! {
    #[test]
    fn selection_covers_each_requested_byte_once(
        requested in prop::collection::vec((0..3000u64, 0..3000u64), 1..RANGES_MAX),
        length in 0..3000u64,
    ) {
        let text: Vec<_> = requested.iter().map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))).collect();
        let set = parse(format!("bytes={}", text.join(",")).as_bytes()).unwrap();
        let selected = match select(&set, length) {
            Selected::Unsatisfiable => vec![],
            Selected::One(range) => vec![range],
            Selected::Several(ranges) => ranges,
        };
        for at in 0..length {
            let is_requested = requested.iter().any(|(a, b)| (*a.min(b)..=*a.max(b)).contains(&at));
            let times = selected.iter().filter(|range| range.contains(&at)).count();
            prop_assert!(times <= 1 && (!is_requested || times == 1), "{at}: {times}");
        }
        prop_assert!(selected.iter().all(|range| !range.is_empty() && range.end <= length));
    }
}
