//! Part selection tests.

use expect_test::{Expect, expect};
use thalweg_cache::freshness::Freshness;
use thalweg_http::Fields;

use super::*;

fn fields(lines: &[(&str, &str)]) -> Fields {
    let mut fields = Fields::new();
    for (name, value) in lines {
        fields.push(name, value);
    }
    fields
}

fn head(length: Option<u64>) -> Head {
    let fields = fields(&[
        ("ETag", "\"v1\""),
        ("Date", "Thu, 01 Jan 2026 00:00:10 GMT"),
        ("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT"),
        ("Cache-Control", "max-age=60"),
        ("Content-Type", "video/mp4"),
        ("Access-Control-Allow-Origin", "*"),
    ]);
    let freshness = Freshness { lifetime_ms: 60_000, ..Freshness::default() };
    Head { length, ..Head::new(200, fields, freshness) }
}

fn check(request: &[(&str, &str)], length: Option<u64>, progress: Progress, expect: Expect) {
    let request = RequestHead { method: Method::Get, fields: fields(request), ..RequestHead::default() };
    expect.assert_eq(&format!("{:?}", part(&request, Method::Get, &head(length), progress)));
}

#[test]
fn rfc9110_14_range_of_known_length_is_resolved_immediately() {
    let filling = Progress::Filling(10);
    check(&[("Range", "bytes=5-9")], Some(100), filling, expect!["Range(5..10)"]);
    check(&[("Range", "bytes=90-200")], Some(100), filling, expect!["Range(90..100)"]);
    check(&[("Range", "bytes=-5")], Some(100), filling, expect!["Range(95..100)"]);
    check(&[("Range", "bytes=100-")], Some(100), filling, expect!["Unsatisfiable(100)"]);
    check(&[("Range", "bytes=0-1")], None, Progress::Complete(2), expect!["Range(0..2)"]);
}

#[test]
fn rfc9110_14_range_of_unknown_length_waits_for_enough_content() {
    let filling = Progress::Filling(10);
    check(&[("Range", "bytes=5-9")], None, filling, expect!["Range(5..10)"]);
    check(&[("Range", "bytes=5-10")], None, filling, expect!["After(10)"]);
    check(&[("Range", "bytes=5-")], None, filling, expect!["After(18446744073709551615)"]);
    check(&[("Range", "bytes=-5")], None, filling, expect!["After(18446744073709551615)"]);
    // A player may request a whole live segment with this range, and must not wait for the
    // segment's end.
    check(&[("Range", "bytes=0-")], None, filling, expect!["Whole"]);
}

#[test]
fn rfc9110_14_multiple_ranges_become_multipart_once_length_is_known() {
    let several = ("Range", "bytes=500-501,5-6,2000-");
    check(&[several], None, Progress::Complete(1000), expect!["Ranges([500..502, 5..7])"]);
    check(&[several], Some(1000), Progress::Filling(10), expect!["Ranges([500..502, 5..7])"]);
    check(&[several], None, Progress::Filling(600), expect!["After(18446744073709551615)"]);
    check(&[several], None, Progress::Complete(502), expect!["Ranges([500..502, 5..7])"]);
    check(&[several], None, Progress::Complete(100), expect!["Range(5..7)"]);
    check(&[several], None, Progress::Complete(5), expect!["Unsatisfiable(5)"]);
}

#[test]
fn rfc9110_14_2_invalid_range_is_ignored() {
    let complete = Progress::Complete(100);
    check(&[("Range", "lines=0-1")], None, complete, expect!["Whole"]);
    check(&[("Range", "bytes=5-1")], None, complete, expect!["Whole"]);
}

#[test]
fn rfc9111_4_3_2_date_substitutes_for_last_modified() {
    let requested = |name: &str, since: &str| {
        let request =
            RequestHead { method: Method::Get, fields: fields(&[(name, since)]), ..RequestHead::default() };
        let mut head = head(None);
        head.fields.remove("last-modified");
        part(&request, Method::Get, &head, Progress::Complete(100))
    };
    assert_eq!(requested("If-Modified-Since", "Thu, 01 Jan 2026 00:00:10 GMT"), Part::NotModified);
    assert_eq!(requested("If-Modified-Since", "Thu, 01 Jan 2026 00:00:09 GMT"), Part::Whole);
    // Without Last-Modified, there is no date to compare with.
    assert_eq!(requested("If-Unmodified-Since", "Thu, 01 Jan 2026 00:00:09 GMT"), Part::Whole);
}

#[test]
fn rfc9110_13_2_2_conditions_precede_ranges() {
    let complete = Progress::Complete(100);
    let range = ("Range", "bytes=0-1");
    check(&[range, ("If-None-Match", "\"v1\"")], None, complete, expect!["NotModified"]);
    check(&[range, ("If-Match", "\"v2\"")], None, complete, expect!["PreconditionFailed"]);
    check(&[range, ("If-Range", "\"v1\"")], None, complete, expect!["Range(0..2)"]);
    check(&[range, ("If-Range", "\"v2\"")], None, complete, expect!["Whole"]);
    check(&[range, ("If-Range", "W/\"v1\"")], None, complete, expect!["Whole"]);
    check(&[range, ("If-Range", "Thu, 01 Jan 2026 00:00:00 GMT")], None, complete, expect!["Range(0..2)"]);
}
