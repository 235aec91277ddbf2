//! Conditional request target: entity tags (RFC 9110 §8.8.3), preconditions (§13) and `If-Range`
//! (§13.1.5).

use thalweg_http::validators::{EntityTag, Outcome, Preconditions, entity_tags, range_applies};
use thalweg_http::{Fields, Method};

use crate::{lines, number};

/// Evaluates preconditions. `input` has one line each for `ETag`, `Last-Modified` in Unix seconds,
/// `If-Match`, `If-None-Match`, `If-Modified-Since` and `If-Unmodified-Since`; an empty line means
/// that the field is absent.
pub(crate) fn run(input: &[u8]) {
    let [etag, modified_s, if_match, if_none_match, since, unmodified_since] = lines(input);
    let modified_s = (!modified_s.is_empty()).then(|| number(modified_s));
    list(if_match);
    list(if_none_match);
    let value = |line| Some(line).filter(|line: &&[u8]| !line.is_empty());
    let conditions = Preconditions::from_values(
        value(if_match),
        value(if_none_match),
        value(since),
        value(unmodified_since),
    );
    let of_get = conditions.evaluate(value(etag), modified_s, Method::Get);
    let of_put = conditions.evaluate(value(etag), modified_s, Method::Put);
    assert!(!conditions.is_empty() || of_get == Outcome::Proceed);
    assert_ne!(of_put, Outcome::NotModified, "only GET and HEAD may get a 304");
    assert_eq!(
        of_put == Outcome::Failed,
        of_get == Outcome::Failed || is_put_refused(if_none_match, etag, of_get)
    );
    // An entity tag takes precedence over a date (§13.2.2).
    if value(if_none_match).is_some() && value(if_match).is_some() {
        let without = Preconditions::from_values(value(if_match), value(if_none_match), None, None);
        assert_eq!(without.evaluate(value(etag), modified_s, Method::Get), of_get);
    }
    own_tag(etag);
    as_fields([("If-Match", if_match), ("If-None-Match", if_none_match)], value(etag), modified_s);
}

/// Returns whether a PUT must fail with 412: its `If-None-Match` matches the entity tag, for which
/// a GET gets 304.
fn is_put_refused(if_none_match: &[u8], etag: &[u8], of_get: Outcome) -> bool {
    let tag = EntityTag::parse(etag);
    let is_any = thalweg_http::token::trim_ows(if_none_match) == b"*";
    let matches = tag.is_some_and(|tag| entity_tags(if_none_match).any(|member| member.weak_eq(&tag)));
    of_get == Outcome::NotModified && (is_any || matches)
}

/// Checks that each entity tag parses to itself, alone and in a list.
fn list(value: &[u8]) {
    let tags: Vec<EntityTag<'_>> = entity_tags(value).collect();
    let written: Vec<Vec<u8>> = tags.iter().map(written).collect();
    for (tag, text) in tags.iter().zip(&written) {
        assert_eq!(EntityTag::parse(text), Some(*tag));
        assert!(tag.weak_eq(tag) && tag.strong_eq(tag) != tag.weak);
    }
    assert!(entity_tags(&written.join(&b", "[..])).eq(tags));
}

fn written(tag: &EntityTag<'_>) -> Vec<u8> {
    [if tag.weak { &b"W/\""[..] } else { b"\"" }, tag.opaque, b"\""].concat()
}

/// Checks that a client with the current response gets a 304, and that its range request applies
/// unless the tag is weak.
fn own_tag(etag: &[u8]) {
    let Some(tag) = EntityTag::parse(etag) else { return };
    let conditions = Preconditions::from_values(None, Some(etag), None, None);
    assert_eq!(conditions.evaluate(Some(etag), None, Method::Get), Outcome::NotModified);
    assert_eq!(range_applies(Some(etag), Some(etag), None, None), !tag.weak);
    let conditions = Preconditions::from_values(Some(etag), None, None, None);
    let expected = if tag.weak { Outcome::Failed } else { Outcome::Proceed };
    assert_eq!(conditions.evaluate(Some(etag), None, Method::Get), expected);
}

/// Checks that conditions read from fields evaluate like those given as values.
fn as_fields(lines: [(&str, &[u8]); 2], etag: Option<&[u8]>, modified_s: Option<u64>) {
    let fields: Fields = lines.into_iter().filter(|(_, value)| !value.is_empty()).collect();
    let [if_match, if_none_match] = [fields.get("if-match"), fields.get("if-none-match")];
    let of_values = Preconditions::from_values(if_match, if_none_match, None, None);
    let of_fields = Preconditions::from_fields(&fields);
    assert_eq!(
        of_fields.evaluate(etag, modified_s, Method::Get),
        of_values.evaluate(etag, modified_s, Method::Get)
    );
}
