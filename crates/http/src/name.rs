//! Field names (RFC 9110 §5.1): case-insensitive tokens, compared by a short key first.
//!
//! **Invariant:** equal names have equal keys.

use crate::token::is_token;

/// Maximum field name length in bytes, far above what the head limits allow.
pub const NAME_BYTES_MAX: usize = u16::MAX as usize;

/// A validated name, for a field that is looked up or set repeatedly.
#[derive(Clone, Debug)]
pub struct Name {
    /// The name followed by the separator, as it appears at the start of a line.
    line: Box<str>,
    key: NameKey,
}

/// Separator between the name and the value of a line.
pub(crate) const SEPARATOR: &str = ": ";

impl Name {
    /// Creates a name; `None` if `text` is not a token or is longer than [`NAME_BYTES_MAX`].
    pub fn new(text: &str) -> Option<Name> {
        let is_name = is_token(text.as_bytes()) && text.len() <= NAME_BYTES_MAX;
        is_name.then(|| Name { line: format!("{text}{SEPARATOR}").into(), key: NameKey::of(text.as_bytes()) })
    }

    /// Returns the name as given.
    pub fn as_str(&self) -> &str {
        &self.line[..self.key.name_bytes()]
    }

    pub(crate) fn line_start(&self) -> &[u8] {
        self.line.as_bytes()
    }

    pub(crate) fn key(&self) -> NameKey {
        self.key
    }
}

/// A key that distinguishes nearly all names without a full comparison. It combines the name's
/// length with its first and last bytes, each with the ASCII lower-case bit set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NameKey(u32);

impl NameKey {
    /// Computes the key of a name. A name longer than [`NAME_BYTES_MAX`] also has a key, but never
    /// equals a stored name.
    pub(crate) fn of(name: &[u8]) -> NameKey {
        let letter = |byte: Option<&u8>| u32::from(byte.copied().unwrap_or(0) | 0x20);
        let bytes = u16::try_from(name.len()).unwrap_or(u16::MAX);
        NameKey(u32::from(bytes) << 16 | letter(name.first()) << 8 | letter(name.last()))
    }

    pub(crate) fn name_bytes(self) -> usize {
        (self.0 >> 16) as usize
    }

    /// Returns a mask with one of 64 bits set; equal names have the same bit.
    pub(crate) fn bit(self) -> u64 {
        1 << (self.0.wrapping_mul(0x9e37_79b1) >> 26)
    }
}

/// Like [`eq_ignore_ascii_case`](slice::eq_ignore_ascii_case), but compares eight bytes at a time:
/// a typical name has about twelve. Not inlined, because a look-up usually calls it only for the
/// matching line.
#[inline(never)]
pub(crate) fn is_same(left: &[u8], right: &[u8]) -> bool {
    let (Some(left_last), Some(right_last)) = (left.last_chunk(), right.last_chunk()) else {
        return left.eq_ignore_ascii_case(right);
    };
    left.len() == right.len()
        && left.as_chunks().0.iter().zip(right.as_chunks().0).all(|(left, right)| is_same_word(left, right))
        && is_same_word(left_last, right_last)
}

fn is_same_word(left: &[u8; 8], right: &[u8; 8]) -> bool {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const CASE: u64 = 0x20 * ONES;
    const TOP: u64 = 0x80 * ONES;
    let (left, right) = (u64::from_ne_bytes(*left), u64::from_ne_bytes(*right));
    let differing = left ^ right;
    if differing & !CASE != 0 {
        return false;
    }
    // Set the top bit of each byte that is a letter. No addition carries into the next byte.
    let lower = (left | CASE) & !TOP;
    let from_a = lower + u64::from(0x80 - b'a') * ONES;
    let past_z = lower + u64::from(0x7f - b'z') * ONES;
    let letters = from_a & !past_z & !left & TOP;
    (differing << 2) & !letters == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differing_only_in_letter_case_are_equal() {
        for (left, right) in (0..=u8::MAX).flat_map(|left| (0..=u8::MAX).map(move |right| (left, right))) {
            for (before, after) in [("", ""), ("x-forwar", ""), ("", "ed-For-y"), ("x-forward", "-For")] {
                let name = |byte: u8| [before.as_bytes(), &[byte], after.as_bytes()].concat();
                let (left, right) = (name(left), name(right));
                assert_eq!(is_same(&left, &right), left.eq_ignore_ascii_case(&right), "{left:?} {right:?}");
            }
        }
        assert!(!is_same(b"content-length", b"content-lengths"));
    }
}
