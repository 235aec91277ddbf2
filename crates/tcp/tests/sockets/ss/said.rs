//! What is said of one socket, by `ss` or by a dump in its words.

use std::collections::BTreeMap;

/// Names are those of `ss`; what it prints without one has the name of the option or the number that it shows.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Said {
    /// What stays as it is as long as nothing happens to the socket.
    pub(super) facts: BTreeMap<String, String>,
    /// Times that pass also then, in milliseconds; one that is absent is 0.
    pub(super) clocks_ms: BTreeMap<String, u64>,
}

impl Said {
    pub(super) fn fact(&mut self, name: &str, value: impl ToString) {
        let before = self.facts.insert(name.to_owned(), value.to_string());
        assert_eq!(before, None, "{name} is said twice");
    }

    pub(super) fn clock(&mut self, name: &str, ms: u64) {
        let before = self.clocks_ms.insert(name.to_owned(), ms);
        assert_eq!(before, None, "{name} is said twice");
    }

    pub(super) fn clock_ms(&self, name: &str) -> u64 {
        self.clocks_ms.get(name).copied().unwrap_or(0)
    }
}
