//! Entity tags (RFC 9110 §8.8.3) and lists of them.

use crate::token::trim_ows;

/// An entity tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntityTag<'a> {
    /// Whether `W/` stands before it.
    pub weak: bool,
    /// What is between the quotes. No character is escaped in it.
    pub opaque: &'a [u8],
}

impl<'a> EntityTag<'a> {
    /// Reads one entity tag and nothing else.
    pub fn parse(value: &'a [u8]) -> Option<EntityTag<'a>> {
        match parse_prefix(value)? {
            (tag, []) => Some(tag),
            _ => None,
        }
    }

    /// Strong comparison (RFC 9110 §8.8.3.2): equal and neither weak.
    pub fn strong_eq(&self, other: &EntityTag<'_>) -> bool {
        !self.weak && !other.weak && self.opaque == other.opaque
    }

    /// Weak comparison (RFC 9110 §8.8.3.2): equal, weak or not.
    pub fn weak_eq(&self, other: &EntityTag<'_>) -> bool {
        self.opaque == other.opaque
    }
}

/// The entity tags of one list value, as in `If-None-Match`; members that are none are skipped.
///
/// Not [`fields::members`](crate::fields::members): a backslash is an ordinary character of an entity tag.
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

/// The entity tag at the start of `text`, and what follows it.
fn parse_prefix(text: &[u8]) -> Option<(EntityTag<'_>, &[u8])> {
    let (weak, quoted) = match text {
        [b'W', b'/', quoted @ ..] => (true, quoted),
        quoted => (false, quoted),
    };
    let [b'"', opaque @ ..] = quoted else { return None };
    let end = opaque.iter().position(|byte| *byte == b'"')?;
    let (opaque, rest) = (&opaque[..end], &opaque[end + 1..]);
    // RFC 9110 §8.8.3: etagc is visible or obs-text; spaces are outside the grammar but some servers send them.
    let valid = opaque.iter().all(|byte| crate::token::is_value_byte(*byte));
    valid.then_some((EntityTag { weak, opaque }, rest))
}
