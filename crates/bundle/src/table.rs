//! The rules by address: ranges in order, found by halving.

use std::net::IpAddr;

use thalweg_record::Prefix;

/// Ranges that do not overlap, each with the index of its rule; IPv4 before IPv6, as [`IpAddr`] is ordered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Table {
    ranges: Vec<(IpAddr, IpAddr, usize)>,
}

impl Table {
    /// A table of prefixes, each with its index.
    ///
    /// # Errors
    /// The indexes of each that lies within another, and of that one.
    pub(crate) fn new(prefixes: &[(Prefix, usize)]) -> Result<Self, Vec<(usize, usize)>> {
        let mut sorted = prefixes.to_vec();
        // Of two that overlap one holds the other: the one that begins first, or else the one with fewer bits.
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

    /// The index of the prefix that `address` begins with.
    pub(crate) fn find(&self, address: IpAddr) -> Option<usize> {
        let after = self.ranges.partition_point(|(first, _, _)| *first <= address);
        let (_, last, index) = self.ranges.get(after.checked_sub(1)?)?;
        (address <= *last).then_some(*index)
    }
}
