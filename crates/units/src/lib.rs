//! Quantities with units: sizes (`512KiB`), durations (`250ms`) and rates (`20Mbit/s`). They are
//! parsed from settings and formatted for people, alone or in the columns of a [`table`]. The crate
//! also suggests the known name [`nearest`] to an unknown one. It performs no I/O.
//!
//! A quantity is a whole number directly followed by a unit. A number without a unit is rejected,
//! so that no setting has an implicit unit. A fraction is rejected, because it can always be
//! written as a whole number of a smaller unit. Error messages state what to write instead.

mod nearest;
mod print;
pub mod table;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

pub use nearest::nearest;
pub use print::{Escaped, bit_rate, bit_rate_of_bytes, micros, or_dash, share, size};

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size {
    /// The number of bytes.
    pub bytes: u64,
}

/// A span of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// The span, in whole milliseconds.
    pub duration: Duration,
}

/// An amount of data per unit of time, such as a link's capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate {
    /// Bits per second.
    pub bits_per_s: u64,
}

/// A unit's name and its value in the smallest unit.
pub type Unit = (&'static str, u64);

/// Units of sizes, in bytes.
pub const SIZE_UNITS: &[Unit] = &[
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

/// Units of spans, in milliseconds.
pub const SPAN_UNITS: &[Unit] = &[("ms", 1), ("s", 1_000), ("min", 60_000), ("h", 3_600_000)];

/// Units of rates, in bits per second.
pub const RATE_UNITS: &[Unit] =
    &[("bit/s", 1), ("kbit/s", 1_000), ("Mbit/s", 1_000_000), ("Gbit/s", 1_000_000_000)];

/// Error for text that is not a valid quantity. The message states why, and what to write instead.
#[derive(Debug, PartialEq, Eq)]
pub struct Error {
    message: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl FromStr for Size {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Ok(Self { bytes: parse(text, "size", SIZE_UNITS)? })
    }
}

impl FromStr for Span {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Ok(Self { duration: Duration::from_millis(parse(text, "duration", SPAN_UNITS)?) })
    }
}

impl FromStr for Rate {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Ok(Self { bits_per_s: parse(text, "rate", RATE_UNITS)? })
    }
}

/// Parses `text` as a whole number of one of `units`. Returns the value in the smallest unit.
fn parse(text: &str, what: &str, units: &[Unit]) -> Result<u64, Error> {
    let fail = |message| Err(Error { message });
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return fail(format!(
            "{text:?} is not a {what}: write a number and a unit, as in {}",
            example("10", units)
        ));
    }
    if unit.is_empty() {
        return fail(format!("{text:?} has no unit: write {}", example(number, units)));
    }
    if unit.starts_with('.') {
        return fail(format!("{text:?} is a fraction: write a whole number of a smaller unit"));
    }
    let Some((_, scale)) = units.iter().find(|(name, _)| *name == unit) else {
        let meant = unit.trim_start();
        if let Some((name, _)) = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(meant)) {
            return fail(format!("{text:?} is not a {what}: write \"{number}{name}\""));
        }
        let names: Vec<_> = units.iter().map(|(name, _)| *name).collect();
        return fail(format!("{text:?} has an unknown unit, expected one of {}", names.join(", ")));
    };
    match number.parse::<u64>().ok().and_then(|number| number.checked_mul(*scale)) {
        Some(total) => Ok(total),
        None => fail(format!("{text:?} is too large")),
    }
}

/// Formats `number` with each of the first three units, as in `10B, 10KiB or 10MiB`.
fn example(number: &str, units: &[Unit]) -> String {
    format!("{number}{}, {number}{} or {number}{}", units[0].0, units[1].0, units[2].0)
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_are_parsed() {
        let check = |text: &str, bytes| assert_eq!(text.parse(), Ok(Size { bytes }));
        check("0B", 0);
        check("512KiB", 512 << 10);
        check("1GiB", 1 << 30);
        check("5MB", 5_000_000);
    }

    #[test]
    fn durations_are_parsed() {
        let check =
            |text: &str, ms| assert_eq!(text.parse(), Ok(Span { duration: Duration::from_millis(ms) }));
        check("250ms", 250);
        check("2s", 2_000);
        check("5min", 300_000);
        check("1h", 3_600_000);
    }

    #[test]
    fn rates_are_parsed() {
        let check = |text: &str, bits_per_s| assert_eq!(text.parse(), Ok(Rate { bits_per_s }));
        check("0bit/s", 0);
        check("20Mbit/s", 20_000_000);
        expect![[r#""20mbit/s" is not a rate: write "20Mbit/s""#]]
            .assert_eq(&"20mbit/s".parse::<Rate>().unwrap_err().to_string());
    }

    #[test]
    fn errors_say_what_to_write_instead() {
        let size =
            |text: &str, expected: Expect| expected.assert_eq(&text.parse::<Size>().unwrap_err().to_string());
        size("", expect![[r#""" is not a size: write a number and a unit, as in 10B, 10KiB or 10MiB"#]]);
        size(
            "much",
            expect![[r#""much" is not a size: write a number and a unit, as in 10B, 10KiB or 10MiB"#]],
        );
        size("512", expect![[r#""512" has no unit: write 512B, 512KiB or 512MiB"#]]);
        size("1.5GiB", expect![[r#""1.5GiB" is a fraction: write a whole number of a smaller unit"#]]);
        size("512 KiB", expect![[r#""512 KiB" is not a size: write "512KiB""#]]);
        size("512kb", expect![[r#""512kb" is not a size: write "512kB""#]]);
        size(
            "-1B",
            expect![[r#""-1B" is not a size: write a number and a unit, as in 10B, 10KiB or 10MiB"#]],
        );
        size("99999999999999999999B", expect![[r#""99999999999999999999B" is too large"#]]);
        size("99999999TiB", expect![[r#""99999999TiB" is too large"#]]);
        expect![[r#""250" has no unit: write 250ms, 250s or 250min"#]]
            .assert_eq(&"250".parse::<Span>().unwrap_err().to_string());
        expect![[r#""2sec" has an unknown unit, expected one of ms, s, min, h"#]]
            .assert_eq(&"2sec".parse::<Span>().unwrap_err().to_string());
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in ".*") {
            let _ = (text.parse::<Size>(), text.parse::<Span>());
        }

        #[test]
        fn every_whole_number_of_a_unit_is_parsed(number in 0u64..1_000_000, unit in 0usize..SIZE_UNITS.len()) {
            let (name, scale) = SIZE_UNITS[unit];
            prop_assert_eq!(format!("{number}{name}").parse(), Ok(Size { bytes: number * scale }));
        }
    }
}
