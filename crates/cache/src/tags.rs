//! Tags: the names by which a response can be purged together with others, in two fields of its own.
//!
//! `Surrogate-Key` separates them by spaces and is for this cache alone; `xkey` by spaces or commas, on any number of
//! lines, and goes on to clients, as Varnish's vmod of that name has it.

use thalweg_http::Fields;

/// Tags of one response; with more it is not stored, as it could not be purged by all of them.
pub const TAGS_MAX: usize = 256;
/// The longest tag; a response with a longer one is not stored.
pub const TAG_BYTES_MAX: usize = 1024;

/// The response field whose tags are for this cache alone; it is kept, and not sent on.
pub const SURROGATE_KEY: &str = "surrogate-key";
const XKEY: &str = "xkey";

/// The tags in `Surrogate-Key` and `xkey`.
pub fn tags<'a>(fields: impl IntoIterator<Item = &'a Fields>) -> impl Iterator<Item = &'a [u8]> {
    fields.into_iter().flat_map(|fields| {
        let surrogate = fields.get_all(SURROGATE_KEY).flat_map(|line| names(line, b" \t"));
        surrogate.chain(fields.get_all(XKEY).flat_map(xkeys))
    })
}

/// The tags in a value of `xkey`.
pub fn xkeys(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    names(value, b" \t,")
}

fn names<'a>(value: &'a [u8], separators: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    value.split(|byte| separators.contains(byte)).filter(|name| !name.is_empty())
}

/// Whether a response with `fields` has more tags, or longer ones, than are kept.
pub fn has_too_many_tags(fields: &Fields) -> bool {
    let mut count = 0;
    tags([fields]).any(|tag| {
        count += 1;
        count > TAGS_MAX || tag.len() > TAG_BYTES_MAX
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_of_both_fields_over_lines() {
        let fields: Fields =
            [("Surrogate-Key", "a  b,c"), ("xkey", "d e,f"), ("XKey", "g"), ("X", "h")].into_iter().collect();
        let found: Vec<_> = tags([&fields]).map(|tag| str::from_utf8(tag).unwrap()).collect();
        assert_eq!(found, ["a", "b,c", "d", "e", "f", "g"]);
    }

    #[test]
    fn tags_are_bounded() {
        let of = |value: String| [("Surrogate-Key", value)].into_iter().collect::<Fields>();
        assert!(!has_too_many_tags(&of("a ".repeat(TAGS_MAX))));
        assert!(has_too_many_tags(&of("a ".repeat(TAGS_MAX + 1))));
        assert!(!has_too_many_tags(&of("a".repeat(TAG_BYTES_MAX))));
        assert!(has_too_many_tags(&of("a".repeat(TAG_BYTES_MAX + 1))));
    }
}
