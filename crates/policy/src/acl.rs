//! Lists of addresses. The most specific entry that covers an address decides, whatever their order, as in Varnish.

use std::net::IpAddr;

/// Entries of one list.
pub(crate) const ENTRIES_MAX: usize = 10_000;

/// A list.
#[derive(Debug, Clone, Default)]
pub(crate) struct Acl {
    pub(crate) name: String,
    /// Whether each match is logged.
    pub(crate) is_logged: bool,
    /// The longest prefix first.
    entries: Vec<Entry>,
}

/// One entry; an IPv4 address is held with its 32 bits on top.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) is_v4: bool,
    pub(crate) bits: u128,
    pub(crate) prefix_bits: u32,
    pub(crate) is_negated: bool,
    pub(crate) shown: String,
}

/// The bits of an address from the top, and whether it is IPv4.
pub(crate) fn bits(address: IpAddr) -> (bool, u128) {
    match address {
        IpAddr::V4(address) => (true, u128::from(u32::from(address)) << 96),
        IpAddr::V6(address) => (false, u128::from(address)),
    }
}

/// The top `prefix_bits` bits.
pub(crate) fn mask(prefix_bits: u32) -> u128 {
    if prefix_bits == 0 { 0 } else { u128::MAX << (128 - prefix_bits) }
}

impl Acl {
    pub(crate) fn new(name: String, is_logged: bool, mut entries: Vec<Entry>) -> Acl {
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.prefix_bits));
        Acl { name, is_logged, entries }
    }

    /// Whether `address` is in the list, and for a list that logs, the line.
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
