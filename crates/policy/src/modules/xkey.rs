//! `xkey`: tags for purging related responses together (vmod_xkey(3) of varnish-modules).
//!
//! Keys appear in the response fields [`FIELDS`] and in the argument of `xkey.purge` and
//! `xkey.softpurge`. Keys are separated by any number of commas, spaces and tabs, and are
//! case-sensitive.

/// The response fields that carry keys. The second name is that of hashtwo, the module's
/// predecessor.
pub const FIELDS: [&str; 2] = ["xkey", "X-HashTwo"];

/// Returns the keys in `text`, in order, including duplicates.
pub fn keys(text: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    text.split(|byte| matches!(byte, b',' | b' ' | b'\t')).filter(|key| !key.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_separated_by_commas_and_blanks() {
        for (text, expected) in [
            ("", ""),
            (" ,\t", ""),
            ("a", "a"),
            ("8155054 166412 234323", "8155054|166412|234323"),
            (" a,b ,, c\td,", "a|b|c|d"),
            ("a;b A", "a;b|A"),
            ("a\nb", "a\nb"),
        ] {
            let expected: Vec<&[u8]> =
                expected.split('|').filter(|key| !key.is_empty()).map(str::as_bytes).collect();
            assert_eq!(keys(text.as_bytes()).collect::<Vec<_>>(), expected, "{text}");
        }
    }
}
