//! Names of machines, edges and PoPs. Names appear unescaped in URLs, keys and log lines, so every
//! component accepts the same restricted names.

/// Maximum length of a name in bytes, the same as for DNS names.
pub const NAME_BYTES_MAX: usize = 253;

/// Returns whether `text` is a valid name: 1 to [`NAME_BYTES_MAX`] ASCII letters, digits, `-`, `_`
/// and `.`.
pub fn is_name(text: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_names_are_distinguished_from_invalid_ones() {
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
