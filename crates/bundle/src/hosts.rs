//! Map from host names to values, with case-insensitive lookup that does not allocate.

use std::cmp::Ordering;

/// Lower-case host names with their values, sorted by name. Names are unique.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hosts<T>(Vec<(String, T)>);

impl<T> Default for Hosts<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Copy> Hosts<T> {
    /// Builds the map. If a name occurs more than once, its first value is kept.
    pub fn new<'a>(hosts: impl Iterator<Item = (&'a str, T)>) -> Self {
        let mut hosts: Vec<_> = hosts.map(|(host, value)| (host.to_ascii_lowercase(), value)).collect();
        hosts.sort_by(|(one, _), (other, _)| one.cmp(other));
        hosts.dedup_by(|(one, _), (other, _)| one == other);
        Self(hosts)
    }

    /// Returns the value for a host.
    pub fn get(&self, host: &str) -> Option<T> {
        let at = self.0.binary_search_by(|(known, _)| compare(known, host)).ok()?;
        self.0.get(at).map(|(_, value)| *value)
    }
}

/// Compares a lower-case name with a name in any case, ignoring case.
fn compare(known: &str, host: &str) -> Ordering {
    known.bytes().cmp(host.bytes().map(|byte| byte.to_ascii_lowercase()))
}
