//! Read plan: which bytes of a file to read for data that lies in many places, such as a segment of
//! a file whose tracks are interleaved.

use std::ops::Range;

/// Maximum unneeded bytes between two pieces of one read. A request to object storage takes about
/// as long as 1 MiB of transfer, so reading over a small gap is cheaper than another request.
pub const GAP_BYTES_MAX: u64 = 128 << 10;
/// Maximum size of one read, in bytes.
pub const READ_BYTES_MAX: u64 = 1 << 20;

/// One read, and what to take from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    /// Offset in the file.
    pub offset: u64,
    /// Length in bytes, at least 1 and at most [`READ_BYTES_MAX`].
    pub len: u64,
    /// Needed parts of the read, in the order of the data, relative to `offset`.
    pub pieces: Vec<Range<usize>>,
}

/// Returns an iterator over the reads for the bytes in `wanted`, an excerpt of the data whose parts
/// lie at `ranges` in the file, in order.
pub fn reads(ranges: Vec<Range<u64>>, wanted: Range<u64>) -> impl Iterator<Item = Read> {
    let mut pieces = cut(ranges, wanted).peekable();
    std::iter::from_fn(move || {
        let first = pieces.next()?;
        let mut read = Read { offset: first.start, len: 0, pieces: Vec::new() };
        read.add(&first);
        while let Some(next) = pieces.next_if(|next| read.takes(next)) {
            read.add(&next);
        }
        Some(read)
    })
}

impl Read {
    /// Returns whether a further piece may be part of this read.
    fn takes(&self, piece: &Range<u64>) -> bool {
        let end = self.offset + self.len;
        piece.start >= end && piece.start - end <= GAP_BYTES_MAX && piece.end - self.offset <= READ_BYTES_MAX
    }

    fn add(&mut self, piece: &Range<u64>) {
        let at = |position: u64| usize::try_from(position - self.offset).expect("a read fits in memory");
        let piece_in_read = at(piece.start)..at(piece.end);
        self.len = piece.end - self.offset;
        match self.pieces.last_mut() {
            Some(last) if last.end == piece_in_read.start => last.end = piece_in_read.end,
            _ => self.pieces.push(piece_in_read),
        }
    }
}

/// Returns the file ranges of the excerpt `wanted`, none longer than [`READ_BYTES_MAX`].
fn cut(ranges: Vec<Range<u64>>, wanted: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let mut position = 0;
    ranges.into_iter().flat_map(move |range| {
        let (start, len) = (position, range.end - range.start);
        position += len;
        let from = wanted.start.clamp(start, start + len) - start;
        let to = wanted.end.clamp(start, start + len) - start;
        let (from, to) = (range.start + from, range.start + to);
        let starts = (from..to).step_by(READ_BYTES_MAX as usize);
        starts.map(move |start| start..to.min(start + READ_BYTES_MAX))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plan(ranges: &[Range<u64>], wanted: Range<u64>) -> Vec<(u64, u64, usize)> {
        reads(ranges.to_vec(), wanted).map(|r| (r.offset, r.len, r.pieces.len())).collect()
    }

    #[test]
    fn small_gaps_are_read_over() {
        const K: u64 = 1 << 10;
        let interleaved = [0..100 * K, 120 * K..200 * K, 400 * K..500 * K];
        assert_eq!(plan(&interleaved, 0..280 * K), [(0, 200 * K, 2), (400 * K, 100 * K, 1)]);
        assert_eq!(plan(&interleaved, 99 * K..101 * K), [(99 * K, 22 * K, 2)]);
        let backwards = [K..2 * K, 0..K];
        assert_eq!(plan(&backwards, 0..2 * K), [(K, K, 1), (0, K, 1)]);
        let large = 0..READ_BYTES_MAX + 1;
        assert_eq!(
            plan(std::slice::from_ref(&large), large.clone()),
            [(0, READ_BYTES_MAX, 1), (READ_BYTES_MAX, 1, 1)]
        );
    }

    proptest! {
        /// The pieces of all reads are the wanted bytes, in order, each once.
        #[test]
        fn reads_yield_the_wanted_bytes(
            ranges in prop::collection::vec((0u64..4 << 20, 0u64..3 << 20), 0..8),
            from in 0u64..8 << 20, len in 0u64..8 << 20,
        ) {
            let ranges: Vec<Range<u64>> = ranges.into_iter().map(|(start, len)| start..start + len).collect();
            let total: u64 = ranges.iter().map(|r| r.end - r.start).sum();
            let wanted = from.min(total)..(from + len).min(total);
            let mut expected: Vec<Range<u64>> = Vec::new();
            let mut position = 0;
            for range in &ranges {
                let len = range.end - range.start;
                let from = wanted.start.clamp(position, position + len) - position + range.start;
                let to = wanted.end.clamp(position, position + len) - position + range.start;
                position += len;
                join(&mut expected, from..to);
            }
            let mut taken = Vec::new();
            for read in reads(ranges, wanted) {
                prop_assert!((1..=READ_BYTES_MAX).contains(&read.len));
                for piece in read.pieces {
                    prop_assert!(piece.end as u64 <= read.len);
                    join(&mut taken, read.offset + piece.start as u64..read.offset + piece.end as u64);
                }
            }
            prop_assert_eq!(taken, expected);
        }
    }

    fn join(ranges: &mut Vec<Range<u64>>, range: Range<u64>) {
        match ranges.last_mut() {
            _ if range.is_empty() => {}
            Some(last) if last.end == range.start => last.end = range.end,
            _ => ranges.push(range),
        }
    }
}
