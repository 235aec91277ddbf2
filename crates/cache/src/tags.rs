//! Tags: names by which responses are purged together, taken from two response fields.
//!
//! `Surrogate-Key` is for this cache only, and its tags are separated by spaces. `xkey` is
//! forwarded to clients, and its tags are separated by spaces or commas, as in Varnish's vmod of
//! that name. Either field may have several lines.

use thalweg_http::Fields;

/// Maximum number of tags of one response. A response with more is not stored, because it could not
/// be purged by all of them.
pub const TAGS_MAX: usize = 256;
/// Maximum length of a tag, in bytes. A response with a longer tag is not stored.
pub const TAG_BYTES_MAX: usize = 1024;

/// Response field whose tags are for this cache only; it is stored but not forwarded.
pub const SURROGATE_KEY: &str = "surrogate-key";
const XKEY: &str = "xkey";

/// Returns the tags in `Surrogate-Key` and `xkey`.
pub fn tags<'a>(fields: impl IntoIterator<Item = &'a Fields>) -> impl Iterator<Item = &'a [u8]> {
    fields.into_iter().flat_map(|fields| {
        let surrogate = fields.get_all(SURROGATE_KEY).flat_map(|line| names(line, b" \t"));
        surrogate.chain(fields.get_all(XKEY).flat_map(xkeys))
    })
}

/// Returns the tags in a value of `xkey`.
pub fn xkeys(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    names(value, b" \t,")
}

fn names<'a>(value: &'a [u8], separators: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    value.split(|byte| separators.contains(byte)).filter(|name| !name.is_empty())
}

/// Returns whether a response with `fields` exceeds the limits on tags.
pub fn has_too_many_tags<'a>(fields: impl IntoIterator<Item = &'a Fields>) -> bool {
    let mut count = 0;
    tags(fields).any(|tag| {
        count += 1;
        count > TAGS_MAX || tag.len() > TAG_BYTES_MAX
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_come_from_both_fields_and_all_lines() {
        let fields: Fields =
            [("Surrogate-Key", "a  b,c"), ("xkey", "d e,f"), ("XKey", "g"), ("X", "h")].into_iter().collect();
        let found: Vec<_> = tags([&fields]).map(|tag| str::from_utf8(tag).unwrap()).collect();
        assert_eq!(found, ["a", "b,c", "d", "e", "f", "g"]);
    }

    #[test]
    fn tags_are_bounded() {
        let of = |value: String| [("Surrogate-Key", value)].into_iter().collect::<Fields>();
        assert!(!has_too_many_tags([&of("a ".repeat(TAGS_MAX))]));
        assert!(has_too_many_tags([&of("a ".repeat(TAGS_MAX + 1))]));
        assert!(!has_too_many_tags([&of("a".repeat(TAG_BYTES_MAX))]));
        assert!(has_too_many_tags([&of("a".repeat(TAG_BYTES_MAX + 1))]));
        assert!(
            has_too_many_tags([&of("a ".repeat(TAGS_MAX)), &of("b".into())]),
            "tags of all sections count together"
        );
    }
}
