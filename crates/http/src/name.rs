//! Names of fields (RFC 9110 §5.1): tokens that compare without regard to ASCII case, told apart by a key first.
//!
//! **Invariant:** names that are equal have equal keys.

use crate::token::is_token;

/// The longest field name; far above what a head's limit lets in.
pub const NAME_BYTES_MAX: usize = u16::MAX as usize;

/// A name that was checked once, for a field that is looked up or set again and again.
#[derive(Clone, Debug)]
pub struct Name {
    /// The name and what stands between it and a value, as a line begins.
    line: Box<str>,
    key: NameKey,
}

/// What stands between name and value of a line.
pub(crate) const SEPARATOR: &str = ": ";

impl Name {
    /// `None` if `text` is no token or longer than [`NAME_BYTES_MAX`].
    pub fn new(text: &str) -> Option<Name> {
        let is_name = is_token(text.as_bytes()) && text.len() <= NAME_BYTES_MAX;
        is_name.then(|| Name { line: format!("{text}{SEPARATOR}").into(), key: NameKey::of(text.as_bytes()) })
    }

    /// As it was given.
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

/// What tells nearly all names apart without a look at the text: length, first and last letter, the latter two with
/// the bit set that makes letters lower-case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NameKey(u32);

impl NameKey {
    /// A longer name than a line may have gets a key all the same, and is called like no line.
    pub(crate) fn of(name: &[u8]) -> NameKey {
        let letter = |byte: Option<&u8>| u32::from(byte.copied().unwrap_or(0) | 0x20);
        let bytes = u16::try_from(name.len()).unwrap_or(u16::MAX);
        NameKey(u32::from(bytes) << 16 | letter(name.first()) << 8 | letter(name.last()))
    }

    pub(crate) fn name_bytes(self) -> usize {
        (self.0 >> 16) as usize
    }

    /// One of 64 bits, the same for the same name.
    pub(crate) fn bit(self) -> u64 {
        1 << (self.0.wrapping_mul(0x9e37_79b1) >> 26)
    }
}

/// Out of line: a look-up comes here once, for the line that it finds. [`eq_ignore_ascii_case`](slice::eq_ignore_ascii_case), eight bytes at a time: names have some twelve.
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
    // The top bit of each byte that is a letter; no sum reaches the byte beside it.
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
    fn only_the_case_of_letters_makes_no_difference() {
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
