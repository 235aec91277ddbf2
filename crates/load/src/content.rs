//! Test content derived from path and offset, so that a client can verify any byte without a copy
//! of the content.
//!
//! Byte `n` of the content at a path is byte `n % 8`, least significant first, of
//! `mix(xxh3_64(path) + (n / 8) * GOLDEN)`, where `mix` is the output function of SplitMix64
//! (Steele, Lea and Flood, OOPSLA 2014). The path is taken unmodified from the request target. The
//! query is not part of it, because it only controls how the content is sent. Content can have any
//! length.

use twox_hash::XxHash3_64;

/// 2^64 divided by the golden ratio: SplitMix64's step.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
/// Bytes per word.
const WORD_BYTES: u64 = 8;

/// The content at one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Content {
    key: u64,
}

impl Content {
    /// Derives the content for a request target, ignoring the query.
    pub fn of(target: &str) -> Self {
        let path = target.split_once('?').map_or(target, |(path, _)| path);
        Self { key: XxHash3_64::oneshot(path.as_bytes()) }
    }

    /// Returns a number that identifies the content, for use in an entity tag.
    pub fn key(&self) -> u64 {
        self.key
    }

    fn word(&self, index: u64) -> [u8; 8] {
        let mut word = self.key.wrapping_add(index.wrapping_mul(GOLDEN));
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)).to_le_bytes()
    }

    /// Returns the byte at `offset`.
    pub fn byte(&self, offset: u64) -> u8 {
        self.word(offset / WORD_BYTES)[(offset % WORD_BYTES) as usize]
    }

    /// Fills `into` with the bytes from `offset` on.
    pub fn fill(&self, offset: u64, into: &mut [u8]) {
        let (before, words) = into.split_at_mut(bytes_to_word(offset).min(into.len()));
        for (at, byte) in (offset..).zip(before) {
            *byte = self.byte(at);
        }
        let first = offset.div_ceil(WORD_BYTES);
        for (index, chunk) in (first..).zip(words.chunks_mut(WORD_BYTES as usize)) {
            chunk.copy_from_slice(&self.word(index)[..chunk.len()]);
        }
    }

    /// Returns the offset of the first wrong byte in `bytes`, which start at `offset`, if any.
    pub fn find_difference(&self, offset: u64, bytes: &[u8]) -> Option<u64> {
        let (before, words) = bytes.split_at(bytes_to_word(offset).min(bytes.len()));
        let differs = |(at, byte): (u64, &u8)| (self.byte(at) != *byte).then_some(at);
        if let Some(at) = (offset..).zip(before).find_map(differs) {
            return Some(at);
        }
        let first = offset.div_ceil(WORD_BYTES);
        let (whole, rest) = words.as_chunks::<8>();
        let wrong = whole.iter().zip(first..).find(|(word, index)| self.word(*index) != **word);
        if let Some((word, index)) = wrong {
            return (index * WORD_BYTES..).zip(word).find_map(differs);
        }
        ((first + whole.len() as u64) * WORD_BYTES..).zip(rest).find_map(differs)
    }
}

/// Returns the number of bytes before the next word.
fn bytes_to_word(offset: u64) -> usize {
    (offset.wrapping_neg() % WORD_BYTES) as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn derivation_matches_the_documentation() {
        // mix(xxh3_64("/a")) and the next word, computed by an independent program.
        let mut bytes = [0; 16];
        Content::of("/a?bytes=7").fill(0, &mut bytes);
        assert_eq!(bytes.map(|byte| format!("{byte:02x}")).concat(), "8b77a4013ad2765b4fc368fd870a121c");
    }

    proptest! {
        #[test]
        fn any_range_has_the_same_bytes(start in 0u64..100, length in 0usize..100, flipped in 0usize..100) {
            let content = Content::of("/video/1.m4s");
            let mut bytes = vec![0; length];
            content.fill(start, &mut bytes);
            for (at, byte) in (start..).zip(&bytes) {
                prop_assert_eq!(content.byte(at), *byte);
            }
            prop_assert_eq!(content.find_difference(start, &bytes), None);
            if flipped < length {
                bytes[flipped] ^= 0x40;
                prop_assert_eq!(content.find_difference(start, &bytes), Some(start + flipped as u64));
            }
        }
    }
}
