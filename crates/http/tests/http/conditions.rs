//! Conditional requests (RFC 9110 §13) and entity tags (§8.8.3).

use thalweg_http::validators::Outcome::{self, Failed, NotModified, Proceed};
use thalweg_http::validators::{EntityTag, Preconditions, entity_tags, range_applies};
use thalweg_http::{Fields, Method, date};

const MODIFIED_S: u64 = 784_111_777;
const MODIFIED: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const EARLIER: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
const LATER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

/// Evaluates `lines` against a response with entity tag `"a"` and [`MODIFIED`], for GET and for
/// PUT.
fn check(lines: &[(&str, &str)], get: Outcome, put: Outcome) {
    check_against(Some(b"\"a\""), Some(MODIFIED_S), lines, get, put);
}

fn check_against(
    etag: Option<&[u8]>,
    modified: Option<u64>,
    lines: &[(&str, &str)],
    get: Outcome,
    put: Outcome,
) {
    let fields: Fields = lines.iter().copied().collect();
    let conditions = Preconditions::from_fields(&fields);
    assert_eq!(conditions.is_empty(), lines.is_empty());
    assert_eq!(conditions.evaluate(etag, modified, Method::Get), get, "GET {lines:?}");
    assert_eq!(conditions.evaluate(etag, modified, Method::Head), get, "HEAD {lines:?}");
    assert_eq!(conditions.evaluate(etag, modified, Method::Put), put, "PUT {lines:?}");
    let joined = |name: &str| {
        let lines: Vec<&[u8]> = fields.get_all(name).collect();
        (!lines.is_empty()).then(|| lines.join(&b", "[..]))
    };
    let (matches, none_matches) = (joined("if-match"), joined("if-none-match"));
    let values = Preconditions::from_values(
        matches.as_deref(),
        none_matches.as_deref(),
        fields.get("if-modified-since"),
        fields.get("if-unmodified-since"),
    );
    assert_eq!(values.evaluate(etag, modified, Method::Get), get, "values {lines:?}");
}

#[test]
fn rfc9110_8_8_3_2_strong_and_weak_comparison_differ() {
    let tag = |text: &'static str| EntityTag::parse(text.as_bytes()).unwrap();
    for (a, b, strong, weak) in [
        ("W/\"1\"", "W/\"1\"", false, true),
        ("W/\"1\"", "W/\"2\"", false, false),
        ("W/\"1\"", "\"1\"", false, true),
        ("\"1\"", "\"1\"", true, true),
    ] {
        assert_eq!((tag(a).strong_eq(&tag(b)), tag(a).weak_eq(&tag(b))), (strong, weak), "{a} {b}");
        assert_eq!((tag(b).strong_eq(&tag(a)), tag(b).weak_eq(&tag(a))), (strong, weak), "{b} {a}");
    }
}

#[test]
fn rfc9110_8_8_3_only_valid_entity_tags_are_parsed() {
    for text in ["", "a", "\"", "\"a", "w/\"a\"", "\"a\"b", "W/ \"a\"", "\"a\" ", "*"] {
        assert_eq!(EntityTag::parse(text.as_bytes()), None, "{text}");
    }
    let tags =
        |text: &'static str| -> Vec<&[u8]> { entity_tags(text.as_bytes()).map(|tag| tag.opaque).collect() };
    assert_eq!(tags(r#""a", W/"b,c" ,,"d\",x, "e"f, """#), [&b"a"[..], b"b,c", b"d\\", b""]);
    assert_eq!(tags("x\"a\", \"b"), [&b""[..]; 0]);
}

#[test]
fn rfc9110_13_1_2_if_none_match_compares_weakly() {
    check(&[("If-None-Match", "\"a\"")], NotModified, Failed);
    check(&[("If-None-Match", "\"b\", W/\"a\"")], NotModified, Failed);
    check(&[("If-None-Match", "\"b\""), ("If-None-Match", "\"a\"")], NotModified, Failed);
    check(&[("If-None-Match", "*")], NotModified, Failed);
    check(&[("If-None-Match", "\"b\"")], Proceed, Proceed);
    check(&[("If-None-Match", "a")], Proceed, Proceed);
    check_against(None, None, &[("If-None-Match", "\"a\"")], Proceed, Proceed);
    check_against(None, None, &[("If-None-Match", "*")], NotModified, Failed);
}

#[test]
fn rfc9110_13_1_3_if_modified_since_applies_only_to_get_and_head() {
    check(&[("If-Modified-Since", MODIFIED)], NotModified, Proceed);
    check(&[("If-Modified-Since", LATER)], NotModified, Proceed);
    check(&[("If-Modified-Since", EARLIER)], Proceed, Proceed);
    check(&[("If-Modified-Since", "yesterday")], Proceed, Proceed);
    check_against(None, None, &[("If-Modified-Since", MODIFIED)], Proceed, Proceed);
}

#[test]
fn rfc9110_13_1_1_if_match_requires_a_strong_match() {
    check(&[("If-Match", "\"b\", \"a\"")], Proceed, Proceed);
    check(&[("If-Match", "*")], Proceed, Proceed);
    check(&[("If-Match", "\"b\"")], Failed, Failed);
    check(&[("If-Match", "W/\"a\"")], Failed, Failed);
    check_against(Some(b"W/\"a\""), None, &[("If-Match", "\"a\"")], Failed, Failed);
    check_against(None, None, &[("If-Match", "\"a\"")], Failed, Failed);
}

#[test]
fn rfc9110_13_1_4_if_unmodified_since_fails_after_a_change() {
    check(&[("If-Unmodified-Since", MODIFIED)], Proceed, Proceed);
    check(&[("If-Unmodified-Since", EARLIER)], Failed, Failed);
    check(&[("If-Unmodified-Since", "yesterday")], Proceed, Proceed);
    check_against(None, None, &[("If-Unmodified-Since", EARLIER)], Proceed, Proceed);
}

#[test]
fn rfc9110_13_2_2_preconditions_are_evaluated_in_order() {
    check(&[], Proceed, Proceed);
    check(&[("If-Match", "\"a\""), ("If-Unmodified-Since", EARLIER)], Proceed, Proceed);
    check(&[("If-Match", "\"b\""), ("If-None-Match", "\"a\"")], Failed, Failed);
    check(&[("If-Match", "\"a\""), ("If-None-Match", "\"a\"")], NotModified, Failed);
    check(&[("If-None-Match", "\"b\""), ("If-Modified-Since", MODIFIED)], Proceed, Proceed);
    check(&[("If-Unmodified-Since", EARLIER), ("If-None-Match", "\"a\"")], Failed, Failed);
}

#[test]
fn rfc9110_13_1_5_if_range_requires_a_strong_validator() {
    let applies = |value: &str, date: Option<u64>| {
        range_applies(Some(value.as_bytes()), Some(b"\"a\""), Some(MODIFIED_S), date)
    };
    assert!(range_applies(None, None, None, None));
    assert!(applies("\"a\"", None));
    assert!(!applies("\"b\"", None));
    assert!(!applies("W/\"a\"", None));
    assert!(applies(MODIFIED, None));
    assert!(applies(MODIFIED, Some(MODIFIED_S + 1)));
    assert!(!applies(MODIFIED, Some(MODIFIED_S)));
    assert!(!applies(LATER, None));
    assert!(!applies(EARLIER, None));
    assert!(!applies("a", None));
    assert!(!range_applies(Some(b"\"a\""), Some(b"W/\"a\""), None, None));
    assert!(!range_applies(Some(b"\"a\""), None, Some(MODIFIED_S), None));
    assert!(!range_applies(Some(MODIFIED.as_bytes()), Some(b"\"a\""), None, None));
}

#[test]
fn test_dates_match_their_text() {
    assert_eq!(date::parse(MODIFIED.as_bytes()), Some(MODIFIED_S));
    assert_eq!(date::parse(LATER.as_bytes()), Some(MODIFIED_S + 1));
}
