//! Networks excluded from steering, stored as address ranges.
//!
//! **Invariant:** ranges are sorted and disjoint, so one binary search finds whether a prefix
//! overlaps any of them.

use std::net::IpAddr;

use thalweg_record::Prefix;

#[derive(Debug, Clone, Default)]
pub(crate) struct LeftAlone(Vec<(IpAddr, IpAddr)>);

impl LeftAlone {
    pub(crate) fn new(networks: &[Prefix]) -> Self {
        let mut all: Vec<_> = networks.iter().map(|network| (network.first(), network.last())).collect();
        all.sort_unstable();
        let mut ranges: Vec<(IpAddr, IpAddr)> = Vec::with_capacity(all.len());
        for (first, last) in all {
            match ranges.last_mut() {
                Some(before) if before.1 >= first => before.1 = before.1.max(last),
                _ => ranges.push((first, last)),
            }
        }
        Self(ranges)
    }

    /// Returns whether `prefix` overlaps one of the networks.
    pub(crate) fn meets(&self, prefix: Prefix) -> bool {
        let upto = self.0.partition_point(|(first, _)| *first <= prefix.last());
        upto.checked_sub(1).is_some_and(|at| self.0[at].1 >= prefix.first())
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn prefix() -> impl Strategy<Value = Prefix> {
        (any::<bool>(), 0_u32..64, 24_u8..=32).prop_map(|(is_v4, at, bits)| {
            let v4 = IpAddr::V4((0x0a00_0000 + at * 37).into());
            let v6 = IpAddr::V6((0x2001_0db8_u128 << 96 | u128::from(at) << 70).into());
            Prefix::cut(if is_v4 { v4 } else { v6 }, if is_v4 { bits } else { bits + 28 })
        })
    }

    proptest! {
        #[test]
        fn search_agrees_with_checking_each_network(networks in vec(prefix(), 0..12), prefix in prefix()) {
            let meets = networks
                .iter()
                .any(|network| network.contains(prefix.first()) || prefix.contains(network.first()));
            prop_assert_eq!(LeftAlone::new(&networks).meets(prefix), meets);
        }
    }
}
