//! History of a prefix: for each window, whether it was observed and whether it was in the bottom
//! group.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Observed windows and windows in the bottom group, as one bit per window. The newest window is
/// the lowest bit.
///
/// **Invariant:** a window in the bottom group was observed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct History {
    #[serde(serialize_with = "write_bits", deserialize_with = "read_bits")]
    observed: u128,
    #[serde(serialize_with = "write_bits", deserialize_with = "read_bits")]
    in_group: u128,
}

impl History {
    /// Advances by `windows` unobserved windows and keeps the newest `length`.
    pub fn advance(&mut self, windows: u64, length: u32) {
        let by = u32::try_from(windows).unwrap_or(u32::MAX);
        let kept = u128::MAX.checked_shr(128_u32.saturating_sub(length)).unwrap_or(0);
        self.observed = self.observed.checked_shl(by).unwrap_or(0) & kept;
        self.in_group = self.in_group.checked_shl(by).unwrap_or(0) & kept;
    }

    /// Marks the newest window as observed, and as in the bottom group if `is_in_group`.
    pub fn observe(&mut self, is_in_group: bool) {
        self.observed |= 1;
        self.in_group = self.in_group & !1 | u128::from(is_in_group);
    }

    /// Returns whether every window in the group was observed.
    pub(crate) fn is_whole(self) -> bool {
        self.in_group & !self.observed == 0
    }

    /// Returns whether no window was observed.
    pub fn is_empty(self) -> bool {
        self.observed == 0
    }

    /// Returns whether the newest window was observed.
    pub fn is_observed_now(self) -> bool {
        self.observed & 1 == 1
    }

    /// Returns the number of observed windows.
    pub fn observed_windows(self) -> u32 {
        self.observed.count_ones()
    }

    /// Returns the number of windows in the bottom group.
    pub fn windows_in_group(self) -> u32 {
        self.in_group.count_ones()
    }

    /// Returns the share of observed windows in the bottom group; 0 if none was observed.
    pub fn duty_cycle(self) -> f64 {
        f64::from(self.windows_in_group()) / f64::from(self.observed_windows().max(1))
    }

    /// Returns the number of membership changes per observed window after the first. Unobserved
    /// windows are skipped.
    pub fn flap_rate(self) -> f64 {
        let (mut left, mut changes, mut last) = (self.observed, 0_u32, None);
        while left != 0 {
            let bit = left.trailing_zeros();
            left &= left - 1;
            let is_in_group = self.in_group >> bit & 1 == 1;
            changes += u32::from(last.is_some_and(|last| last != is_in_group));
            last = Some(is_in_group);
        }
        f64::from(changes) / f64::from(self.observed_windows().saturating_sub(1).max(1))
    }

    /// Formats the newest `length` windows as one character each, oldest first: `#` in the group,
    /// `.` not in the group, `-` not observed.
    pub fn text(self, length: u32) -> String {
        let letter = |at: u32| match (self.observed >> at & 1, self.in_group >> at & 1) {
            (0, _) => '-',
            (_, 0) => '.',
            _ => '#',
        };
        (0..length.min(128)).rev().map(letter).collect()
    }
}

/// Writes the bits as hexadecimal, because some JSON readers keep only 53 bits of a number.
fn write_bits<S: Serializer>(bits: &u128, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{bits:x}"))
}

fn read_bits<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u128, D::Error> {
    let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
    u128::from_str_radix(&text, 16).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn history(text: &str) -> History {
        let mut history = History::default();
        for letter in text.chars() {
            history.advance(1, 128);
            if letter != '-' {
                history.observe(letter == '#');
            }
        }
        history
    }

    #[test]
    fn duty_cycle_and_flap_rate() {
        let check = |text: &str, duty_cycle: f64, flap_rate: f64| {
            let history = history(text);
            assert_eq!((history.duty_cycle(), history.flap_rate()), (duty_cycle, flap_rate), "{text}");
            assert_eq!(history.text(text.len() as u32), text);
        };
        check("", 0.0, 0.0);
        check("#", 1.0, 0.0);
        check("--#--", 1.0, 0.0);
        check("####.", 0.8, 0.25);
        check(".#.#.", 0.4, 1.0);
        check("#-#--#", 1.0, 0.0);
        check("#-.-#", 2.0 / 3.0, 1.0);
    }

    #[test]
    fn windows_beyond_the_length_are_dropped() {
        let mut history = history("####....");
        history.advance(1, 8);
        assert_eq!(history.text(9), "-###....-");
        history.advance(1 << 40, 8);
        assert!(history.is_empty());
    }

    proptest! {
        #[test]
        fn counts_match_the_text_form(text in "[#.-]{0,72}", by in 0_u64..100) {
            let mut history = history(&text);
            history.advance(by, 72);
            let kept: String = text.chars().skip((text.len() as u64 + by).saturating_sub(72) as usize).collect();
            let seen: Vec<_> = kept.chars().filter(|letter| *letter != '-').collect();
            prop_assert_eq!(history.observed_windows() as usize, seen.len());
            prop_assert_eq!(history.windows_in_group() as usize, seen.iter().filter(|letter| **letter == '#').count());
            let changes = seen.windows(2).filter(|pair| pair[0] != pair[1]).count();
            let rate = changes as f64 / seen.len().saturating_sub(1).max(1) as f64;
            prop_assert!((history.flap_rate() - rate).abs() < 1e-12);
            let json = serde_json::to_string(&history).unwrap();
            prop_assert_eq!(serde_json::from_str::<History>(&json).unwrap(), history);
        }
    }
}
