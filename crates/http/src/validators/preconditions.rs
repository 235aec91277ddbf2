//! Request preconditions, evaluated in the order of RFC 9110 §13.2.2.

use super::entity_tag::{EntityTag, entity_tags};
use crate::{Fields, Method, date};

/// Result of evaluating a request's preconditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Respond as if there were no preconditions.
    Proceed,
    /// Respond with 304.
    NotModified,
    /// Respond with 412.
    Failed,
}

/// The conditional fields of a request except `If-Range`, which [`range_applies`] evaluates.
#[derive(Clone, Copy, Debug, Default)]
pub struct Preconditions<'a> {
    if_match: Lines<'a>,
    if_none_match: Lines<'a>,
    if_modified_since: Option<&'a [u8]>,
    if_unmodified_since: Option<&'a [u8]>,
}

/// The lines of a list field, either joined into one value or still in a field section.
#[derive(Clone, Copy, Debug, Default)]
enum Lines<'a> {
    #[default]
    None,
    One(&'a [u8]),
    In(&'a Fields, &'static str),
}

/// How entity tags are compared (RFC 9110 §8.8.3.2).
#[derive(Clone, Copy)]
enum Comparison {
    Strong,
    Weak,
}

impl<'a> Preconditions<'a> {
    /// Reads the preconditions from a request's fields.
    pub fn from_fields(fields: &'a Fields) -> Preconditions<'a> {
        Preconditions {
            if_match: Lines::of(fields, "if-match"),
            if_none_match: Lines::of(fields, "if-none-match"),
            if_modified_since: fields.get("if-modified-since"),
            if_unmodified_since: fields.get("if-unmodified-since"),
        }
    }

    /// Reads the preconditions from field values. The lines of a list field must be joined by
    /// commas.
    pub fn from_values(
        if_match: Option<&'a [u8]>,
        if_none_match: Option<&'a [u8]>,
        if_modified_since: Option<&'a [u8]>,
        if_unmodified_since: Option<&'a [u8]>,
    ) -> Preconditions<'a> {
        Preconditions {
            if_match: if_match.map_or(Lines::None, Lines::One),
            if_none_match: if_none_match.map_or(Lines::None, Lines::One),
            if_modified_since,
            if_unmodified_since,
        }
    }

    /// Returns whether the request has no preconditions.
    pub fn is_empty(&self) -> bool {
        matches!((self.if_match, self.if_none_match), (Lines::None, Lines::None))
            && self.if_modified_since.is_none()
            && self.if_unmodified_since.is_none()
    }

    /// Evaluates the preconditions against an existing response, given its `ETag` value and its
    /// `Last-Modified` in Unix seconds. Call this only for a request whose response would otherwise
    /// be 2xx (RFC 9110 §13.2.1).
    ///
    /// Ignores invalid dates, and any date if the response has no `Last-Modified`.
    pub fn evaluate(&self, etag: Option<&[u8]>, last_modified: Option<u64>, method: Method) -> Outcome {
        let tag = etag.and_then(EntityTag::parse);
        if !self.holds_for_change(tag, last_modified) {
            return Outcome::Failed;
        }
        let reads = matches!(method, Method::Get | Method::Head);
        match self.if_none_match.any_matches(tag, Comparison::Weak) {
            Some(true) if reads => Outcome::NotModified,
            Some(true) => Outcome::Failed,
            Some(false) => Outcome::Proceed,
            None if reads && self.is_unmodified(last_modified) => Outcome::NotModified,
            None => Outcome::Proceed,
        }
    }

    /// Evaluates steps 1 and 2: `If-Match`, else `If-Unmodified-Since`.
    fn holds_for_change(&self, tag: Option<EntityTag<'_>>, last_modified: Option<u64>) -> bool {
        if let Some(matches) = self.if_match.any_matches(tag, Comparison::Strong) {
            return matches;
        }
        match (self.if_unmodified_since.and_then(date::parse), last_modified) {
            (Some(since), Some(modified)) => modified <= since,
            _ => true,
        }
    }

    /// Evaluates step 4: whether `If-Modified-Since` shows that the client's copy is current.
    fn is_unmodified(&self, last_modified: Option<u64>) -> bool {
        match (self.if_modified_since.and_then(date::parse), last_modified) {
            (Some(since), Some(modified)) => modified <= since,
            _ => false,
        }
    }
}

impl<'a> Lines<'a> {
    fn of(fields: &'a Fields, name: &'static str) -> Lines<'a> {
        if fields.contains(name) { Lines::In(fields, name) } else { Lines::None }
    }

    /// Returns whether any member is `*` or equals `tag`; `None` if the field is absent.
    fn any_matches(&self, tag: Option<EntityTag<'_>>, comparison: Comparison) -> Option<bool> {
        let equal = |member: EntityTag<'_>, tag: &EntityTag<'_>| match comparison {
            Comparison::Strong => member.strong_eq(tag),
            Comparison::Weak => member.weak_eq(tag),
        };
        let line_matches = |line: &[u8]| {
            line == b"*" || tag.is_some_and(|tag| entity_tags(line).any(|member| equal(member, &tag)))
        };
        match *self {
            Lines::None => None,
            Lines::One(line) => Some(line_matches(crate::token::trim_ows(line))),
            Lines::In(fields, name) => Some(fields.get_all(name).any(line_matches)),
        }
    }
}

/// Returns whether `Range` applies, given `If-Range` (RFC 9110 §13.1.5). It applies if `If-Range`
/// is absent, or if its validator is strong and matches the response. Otherwise, respond with the
/// complete content.
///
/// A date is a strong validator (§8.8.2.2) if the response's `Last-Modified` is at least a second
/// before its `Date`, both in Unix seconds. Pass `None` as `date` if the content is known not to
/// have changed twice within a second.
pub fn range_applies(
    if_range: Option<&[u8]>,
    etag: Option<&[u8]>,
    last_modified: Option<u64>,
    date: Option<u64>,
) -> bool {
    let Some(value) = if_range else { return true };
    if let Some(expected) = EntityTag::parse(value) {
        return etag.and_then(EntityTag::parse).is_some_and(|tag| tag.strong_eq(&expected));
    }
    match (date::parse(value), last_modified) {
        (Some(expected), Some(modified)) => {
            expected == modified && date.is_none_or(|date| modified.saturating_add(1) <= date)
        }
        _ => false,
    }
}
