//! `std`: text, globs, conversions, dates and addresses (vmod_std(3)).
//!
//! A conversion that fails is an [`Error`]; the fallback that a policy may give takes its place, and without one the
//! evaluation fails with it. What needs files, the log or the connection is not here.

pub mod address;
pub mod glob;
pub mod number;
pub mod strftime;
pub mod text;
pub mod time;

use std::fmt;

/// Why a text or number could not be converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// There is no number, or more than one.
    Number,
    /// The number has a fraction where a whole one is needed.
    Fraction,
    /// The unit is missing or unknown.
    Unit,
    /// The number is negative, or too small or too large for its type.
    Range,
    /// It is none of the date forms.
    Time,
    /// It is no numeric address, or its port is none.
    Address,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Error::Number => "not a number",
            Error::Fraction => "not a whole number",
            Error::Unit => "missing or unknown unit",
            Error::Range => "out of range",
            Error::Time => "not a date",
            Error::Address => "not a numeric address with or without a port",
        })
    }
}

impl std::error::Error for Error {}

/// Whether a policy's VCL version is at least `wanted`, as `std.syntax(4.1)` asks. `version` is 40 for 4.0.
pub fn syntax(wanted: f64, version: u8) -> bool {
    f64::from(version) >= (wanted * 10.0).round()
}

/// `text` without the white space of C's `isspace` around it, which the conversions skip.
fn trim(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|&byte| !is_space(byte)).unwrap_or(text.len());
    let end = text.iter().rposition(|&byte| !is_space(byte)).map_or(start, |last| last + 1);
    &text[start..end]
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_compared() {
        assert!(syntax(4.0, 41) && syntax(4.1, 41) && syntax(4.0, 40));
        assert!(!syntax(4.1, 40) && !syntax(5.0, 41) && !syntax(f64::NAN, 41));
    }

    #[test]
    fn white_space_is_dropped_at_both_ends() {
        assert_eq!(trim(b" \t\r\n\x0b\x0ca b "), b"a b");
        assert_eq!(trim(b"  "), b"");
    }
}
