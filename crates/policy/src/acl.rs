//! Access control lists. As in Varnish, the most specific matching entry decides, regardless of the
//! order of entries.

use std::net::IpAddr;

/// Maximum number of entries in one ACL.
pub(crate) const ENTRIES_MAX: usize = 10_000;

/// A compiled ACL.
#[derive(Debug, Clone, Default)]
pub(crate) struct Acl {
    pub(crate) name: String,
    /// Whether each look-up and its result are logged.
    pub(crate) is_logged: bool,
    /// Sorted by prefix length, longest first.
    entries: Vec<Entry>,
}

/// One entry: an address prefix. An IPv4 address occupies the top 32 bits of `bits`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) is_v4: bool,
    pub(crate) bits: u128,
    pub(crate) prefix_bits: u32,
    pub(crate) is_negated: bool,
    pub(crate) shown: String,
}

/// Returns whether `address` is IPv4, and the left-aligned bits of the address.
pub(crate) fn bits(address: IpAddr) -> (bool, u128) {
    match address {
        IpAddr::V4(address) => (true, u128::from(u32::from(address)) << 96),
        IpAddr::V6(address) => (false, u128::from(address)),
    }
}

/// Returns a mask with the top `prefix_bits` bits set.
pub(crate) fn mask(prefix_bits: u32) -> u128 {
    if prefix_bits == 0 { 0 } else { u128::MAX << (128 - prefix_bits) }
}

impl Acl {
    pub(crate) fn new(name: String, is_logged: bool, mut entries: Vec<Entry>) -> Acl {
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.prefix_bits));
        Acl { name, is_logged, entries }
    }

    /// Returns whether the ACL contains `address`, and the line to log if the ACL has `+log`.
    pub(crate) fn matches(&self, address: IpAddr) -> (bool, Option<String>) {
        let (is_v4, bits) = bits(address);
        let found = self
            .entries
            .iter()
            .find(|entry| entry.is_v4 == is_v4 && (bits ^ entry.bits) & mask(entry.prefix_bits) == 0);
        let line = self.is_logged.then(|| match found {
            Some(Entry { is_negated: false, shown, .. }) => format!("MATCH {} {shown}", self.name),
            Some(Entry { shown, .. }) => format!("NEG_MATCH {} {shown}", self.name),
            None => format!("NO_MATCH {}", self.name),
        });
        (found.is_some_and(|entry| !entry.is_negated), line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(address: &str, prefix_bits: u32) -> Acl {
        let (is_v4, bits) = bits(address.parse().expect("the address is valid"));
        let entry = Entry { is_v4, bits, prefix_bits, is_negated: false, shown: address.to_owned() };
        Acl::new("list".to_owned(), false, vec![entry])
    }

    /// An IPv6 entry must not match an IPv4 address that starts with the same bits. `c000:2aa::`
    /// and 192.0.2.170 have the same first 32 bits.
    #[test]
    fn entry_matches_only_its_own_address_family() {
        let listed = |acl: &Acl, address: &str| acl.matches(address.parse().expect("the address is valid")).0;
        let v4 = acl("192.0.2.0", 24);
        assert!(listed(&v4, "192.0.2.170") && !listed(&v4, "c000:2aa::"));
        let all_v4 = acl("0.0.0.0", 0);
        assert!(listed(&all_v4, "192.0.2.170") && !listed(&all_v4, "::1"));
        let v6 = acl("c000:200::", 24);
        assert!(listed(&v6, "c000:2aa::") && !listed(&v6, "192.0.2.170"));
    }
}
