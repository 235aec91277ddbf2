//! A map from host names to values, looked up without regard to case and without a copy.

use std::cmp::Ordering;

/// Host names in lower case, unique and sorted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hosts<T>(Vec<(String, T)>);

impl<T> Default for Hosts<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Copy> Hosts<T> {
    /// Builds the map; keeps one of several equal names.
    pub fn new<'a>(hosts: impl Iterator<Item = (&'a str, T)>) -> Self {
        let mut hosts: Vec<_> = hosts.map(|(host, of)| (host.to_ascii_lowercase(), of)).collect();
        hosts.sort_by(|(one, _), (other, _)| one.cmp(other));
        hosts.dedup_by(|(one, _), (other, _)| one == other);
        Self(hosts)
    }

    /// Returns the value for a host.
    pub fn get(&self, host: &str) -> Option<T> {
        let at = self.0.binary_search_by(|(known, _)| compare(known, host)).ok()?;
        self.0.get(at).map(|(_, of)| *of)
    }
}

/// Compares a lower-case name with one in any case.
fn compare(known: &str, host: &str) -> Ordering {
    known.bytes().cmp(host.bytes().map(|byte| byte.to_ascii_lowercase()))
}
