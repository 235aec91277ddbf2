//! Values reported for one socket, either by `ss` or by one of our dumps under the names used by
//! `ss`.

use std::collections::BTreeMap;

/// Values by name. Names are those printed by `ss`; a value printed without a name is named after
/// its option or field.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Reported {
    /// Values that are constant while the socket is idle.
    pub(super) facts: BTreeMap<String, String>,
    /// Times that advance even while the socket is idle, in milliseconds. An absent time counts as
    /// 0.
    pub(super) clocks_ms: BTreeMap<String, u64>,
}

impl Reported {
    pub(super) fn fact(&mut self, name: &str, value: impl ToString) {
        let before = self.facts.insert(name.to_owned(), value.to_string());
        assert_eq!(before, None, "{name} is reported twice");
    }

    pub(super) fn clock(&mut self, name: &str, ms: u64) {
        let before = self.clocks_ms.insert(name.to_owned(), ms);
        assert_eq!(before, None, "{name} is reported twice");
    }

    pub(super) fn clock_ms(&self, name: &str) -> u64 {
        self.clocks_ms.get(name).copied().unwrap_or(0)
    }
}
