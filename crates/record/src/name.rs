//! Names of machines, edges and PoPs. Names appear unescaped in URLs, keys and log lines; all parts
//! of Thalweg accept the same names.

/// Maximum length of a name, equal to that of a DNS name.
pub const NAME_BYTES_MAX: usize = 253;

/// Returns whether a text is a valid name: ASCII letters, digits, `-`, `_` and `.`, at least one
/// and at most [`NAME_BYTES_MAX`].
pub fn is_name(text: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_and_invalid_names() {
        let longest = "a".repeat(NAME_BYTES_MAX);
        for name in ["edge-1.fra1.example", "A_b", "0", &longest] {
            assert!(is_name(name), "{name}");
        }
        let too_long = "a".repeat(NAME_BYTES_MAX + 1);
        for text in ["", "a b", "a/b", "a\nb", "a%20b", "é", "a:1", &too_long] {
            assert!(!is_name(text), "{text}");
        }
    }
}
