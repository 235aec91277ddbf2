//! `std`: strings, shell patterns, conversions, dates and addresses (vmod_std(3)).
//!
//! A failed conversion returns an [`Error`]. If the policy specifies a fallback, the fallback is
//! used instead; otherwise evaluation fails. Functions that need files, the log or the connection
//! are in the bindings.

pub mod address;
pub mod glob;
pub mod number;
pub mod strftime;
pub mod text;
pub mod time;

use std::fmt;

/// Reason why a string or number could not be converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The string is not exactly one number.
    Number,
    /// The number has a fraction where an integer is required.
    Fraction,
    /// The unit is missing or unknown.
    Unit,
    /// The number is negative, or out of range for its type.
    Range,
    /// The string matches none of the date formats.
    Time,
    /// The string is not a numeric address, or its port is invalid.
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

/// `std.syntax(wanted)`: returns whether the policy's VCL version is at least `wanted`. `version`
/// is ten times the version number, such as 40 for 4.0.
pub fn syntax(wanted: f64, version: u8) -> bool {
    f64::from(version) >= (wanted * 10.0).round()
}

/// Trims white space as defined by C's `isspace`, as all conversions do.
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
    fn syntax_compares_versions() {
        assert!(syntax(4.0, 41) && syntax(4.1, 41) && syntax(4.0, 40));
        assert!(!syntax(4.1, 40) && !syntax(5.0, 41) && !syntax(f64::NAN, 41));
    }

    #[test]
    fn trim_removes_white_space_at_both_ends() {
        assert_eq!(trim(b" \t\r\n\x0b\x0ca b "), b"a b");
        assert_eq!(trim(b"  "), b"");
    }
}
