//! Rules by address: sorted ranges with binary search.

use std::net::IpAddr;

use thalweg_record::Prefix;

/// Non-overlapping ranges, each with the index of its rule; IPv4 before IPv6, as [`IpAddr`] is
/// ordered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Table {
    ranges: Vec<(IpAddr, IpAddr, usize)>,
}

impl Table {
    /// Builds a table of prefixes, each with its index.
    ///
    /// # Errors
    /// For each prefix inside another: its index and the index of the enclosing prefix.
    pub(crate) fn new(prefixes: &[(Prefix, usize)]) -> Result<Self, Vec<(usize, usize)>> {
        let mut sorted = prefixes.to_vec();
        // If two prefixes overlap, one contains the other: the one that starts first or, with the
        // same start, has fewer bits.
        sorted.sort_unstable_by_key(|(prefix, index)| (prefix.first(), prefix.bits(), *index));
        let mut table = Self { ranges: Vec::with_capacity(sorted.len()) };
        let mut overlaps = Vec::new();
        for (prefix, index) in sorted {
            match table.ranges.last() {
                Some((_, last, holder)) if prefix.first() <= *last => overlaps.push((index, *holder)),
                _ => table.ranges.push((prefix.first(), prefix.last(), index)),
            }
        }
        if overlaps.is_empty() { Ok(table) } else { Err(overlaps) }
    }

    /// Returns the index of the prefix that contains `address`.
    pub(crate) fn find(&self, address: IpAddr) -> Option<usize> {
        let after = self.ranges.partition_point(|(first, _, _)| *first <= address);
        let (_, last, index) = self.ranges.get(after.checked_sub(1)?)?;
        (address <= *last).then_some(*index)
    }
}
