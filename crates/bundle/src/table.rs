//! Lookup table from client address to rule: sorted ranges and binary search.

use std::net::IpAddr;

use thalweg_record::Prefix;

/// Non-overlapping address ranges, each with its rule index. Sorted like [`IpAddr`], so IPv4 comes
/// before IPv6.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Table {
    ranges: Vec<(IpAddr, IpAddr, usize)>,
}

impl Table {
    /// Builds a table from prefixes and their rule indices.
    ///
    /// # Errors
    ///
    /// Returns an error if prefixes overlap: for each prefix inside another, its rule index and
    /// that of the enclosing prefix.
    pub(crate) fn new(prefixes: &[(Prefix, usize)]) -> Result<Self, Vec<(usize, usize)>> {
        let mut sorted = prefixes.to_vec();
        // Two prefixes overlap only if one contains the other. The enclosing prefix starts first
        // or, if both start at the same address, has fewer bits.
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

    /// Returns the index of the rule whose prefix contains `address`.
    pub(crate) fn find(&self, address: IpAddr) -> Option<usize> {
        let after = self.ranges.partition_point(|(first, _, _)| *first <= address);
        let (_, last, index) = self.ranges.get(after.checked_sub(1)?)?;
        (address <= *last).then_some(*index)
    }
}
