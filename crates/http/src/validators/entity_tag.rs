//! Entity tags (RFC 9110 §8.8.3) and lists of them.

use crate::token::trim_ows;

/// An entity tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntityTag<'a> {
    /// Whether the tag has the prefix `W/`.
    pub weak: bool,
    /// The string between the quotes, which has no escapes.
    pub opaque: &'a [u8],
}

impl<'a> EntityTag<'a> {
    /// Parses exactly one entity tag.
    pub fn parse(value: &'a [u8]) -> Option<EntityTag<'a>> {
        match parse_prefix(value)? {
            (tag, []) => Some(tag),
            _ => None,
        }
    }

    /// Compares strongly (RFC 9110 §8.8.3.2): the tags must be equal and both strong.
    pub fn strong_eq(&self, other: &EntityTag<'_>) -> bool {
        !self.weak && !other.weak && self.opaque == other.opaque
    }

    /// Compares weakly (RFC 9110 §8.8.3.2): the tags must be equal, weak or not.
    pub fn weak_eq(&self, other: &EntityTag<'_>) -> bool {
        self.opaque == other.opaque
    }
}

/// Parses the entity tags in one list value, as in `If-None-Match`; skips invalid members.
///
/// Does not use [`fields::members`](crate::fields::members): in an entity tag, a backslash is an
/// ordinary character, not an escape.
pub fn entity_tags(value: &[u8]) -> impl Iterator<Item = EntityTag<'_>> + Clone {
    EntityTags { rest: value }
}

#[derive(Clone)]
struct EntityTags<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for EntityTags<'a> {
    type Item = EntityTag<'a>;

    fn next(&mut self) -> Option<EntityTag<'a>> {
        while !self.rest.is_empty() {
            let member = trim_ows(self.rest);
            let parsed = parse_prefix(member);
            let rest = parsed.map_or(member, |(_, rest)| rest);
            let end = rest.iter().position(|byte| *byte == b',').unwrap_or(rest.len());
            self.rest = rest.get(end + 1..).unwrap_or_default();
            if let Some((tag, _)) = parsed
                && trim_ows(&rest[..end]).is_empty()
            {
                return Some(tag);
            }
        }
        None
    }
}

/// Parses the entity tag at the start of `text`; also returns the rest.
fn parse_prefix(text: &[u8]) -> Option<(EntityTag<'_>, &[u8])> {
    let (weak, quoted) = match text {
        [b'W', b'/', quoted @ ..] => (true, quoted),
        quoted => (false, quoted),
    };
    let [b'"', opaque @ ..] = quoted else { return None };
    let end = opaque.iter().position(|byte| *byte == b'"')?;
    let (opaque, rest) = (&opaque[..end], &opaque[end + 1..]);
    // RFC 9110 §8.8.3 allows only visible characters and obs-text. Spaces and tabs are accepted
    // too, because some servers send them.
    let valid = opaque.iter().all(|byte| crate::token::is_value_byte(*byte));
    valid.then_some((EntityTag { weak, opaque }, rest))
}
