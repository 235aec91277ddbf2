//! Parses numbers, sizes and durations, and converts between numeric types (vmod_std(3), "Type
//! conversion").
//!
//! Numbers have the format of RFC 8941 §3.3.1 and §3.3.2: an optional `-`, then up to 15 digits, or
//! up to 12 before a decimal point. `+` and exponents are not allowed. As in varnishd, the digits
//! on one side of the point may be missing. Only the first three decimals are used, except that a
//! size in bytes must be exact. Surrounding white space is skipped.

use super::{Error, trim};
use crate::units::{duration_unit, size_unit};

/// RFC 8941 §3.3.1: digits of an integer.
const INTEGER_DIGITS_MAX: usize = 15;
/// RFC 8941 §3.3.2: digits before the point.
const WHOLE_DIGITS_MAX: usize = 12;
/// RFC 8941 §3.3.2: digits after the point.
const FRACTION_DIGITS_MAX: usize = 3;

/// Maximum size in bytes: 2⁵³ − 1. All sizes up to this one are exact as doubles.
pub const BYTES_MAX: i64 = (1 << 53) - 1;

/// 2⁶³, the first number beyond the range of `i64`.
const INTEGER_END: f64 = 9_223_372_036_854_775_808.0;

/// A number at the start of a string.
struct Number<'a> {
    negative: bool,
    /// The integer part.
    whole: u64,
    /// The first three decimals.
    thousandths: u16,
    /// Whether any decimal is non-zero.
    has_fraction: bool,
    /// Whether the number strictly conforms to RFC 8941.
    strict: bool,
    /// The rest of the string, after the number.
    rest: &'a [u8],
}

impl<'a> Number<'a> {
    fn parse(text: &'a [u8]) -> Result<Number<'a>, Error> {
        let (negative, text) = match text {
            [b'-', rest @ ..] => (true, rest),
            _ => (false, text),
        };
        let (whole, rest) = digits(text);
        let (point, fraction, rest) = match rest {
            [b'.', rest @ ..] => {
                let (fraction, rest) = digits(rest);
                (true, fraction, rest)
            }
            _ => (false, &b""[..], rest),
        };
        if whole.len() + fraction.len() == 0 {
            return Err(Error::Number);
        }
        if whole.len() > if point { WHOLE_DIGITS_MAX } else { INTEGER_DIGITS_MAX } {
            return Err(Error::Range);
        }
        let thousandths = (0..FRACTION_DIGITS_MAX)
            .fold(0, |sum, index| sum * 10 + fraction.get(index).map_or(0, |digit| u16::from(digit - b'0')));
        Ok(Number {
            negative,
            whole: whole.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')),
            thousandths,
            has_fraction: fraction.iter().any(|&digit| digit != b'0'),
            strict: !point || (!whole.is_empty() && (1..=FRACTION_DIGITS_MAX).contains(&fraction.len())),
            rest,
        })
    }

    /// Returns the value. A fraction is exact to the thousandth, because 15 digits fit in the 53
    /// bits of a double.
    fn value(&self) -> f64 {
        let value = if self.thousandths == 0 {
            self.whole as f64
        } else {
            (self.whole * 1000 + u64::from(self.thousandths)) as f64 / 1000.0
        };
        if self.negative { -value } else { value }
    }
}

fn digits(text: &[u8]) -> (&[u8], &[u8]) {
    text.split_at(text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len()))
}

/// `std.real(s)`: parses a number.
pub fn real(text: &[u8]) -> Result<f64, Error> {
    let number = Number::parse(trim(text))?;
    if number.rest.is_empty() { Ok(number.value()) } else { Err(Error::Number) }
}

/// `std.integer(s)`: parses an integer; a fraction that consists of zeros is accepted.
pub fn integer(text: &[u8]) -> Result<i64, Error> {
    let number = Number::parse(trim(text))?;
    if !number.rest.is_empty() {
        return Err(Error::Number);
    }
    if number.has_fraction {
        return Err(Error::Fraction);
    }
    let whole = i64::try_from(number.whole).map_err(|_| Error::Range)?;
    Ok(if number.negative { -whole } else { whole })
}

/// `std.bytes(s)`: parses a number, an optional multiplier (`k`, `m`, `g`, `t` or `p` in either
/// case, for a power of 1,024) and an optional `b`. A fraction of a byte is dropped, but without a
/// multiplier a fraction is an error.
pub fn bytes(text: &[u8]) -> Result<i64, Error> {
    let number = Number::parse(trim(text))?;
    if !number.strict {
        return Err(Error::Number);
    }
    let scale = match str::from_utf8(trim(number.rest)) {
        Ok("") => 1,
        Ok(unit) => u128::from(size_unit(unit).ok_or(Error::Unit)?.unsigned_abs()),
        Err(_) => return Err(Error::Unit),
    };
    if scale == 1 && number.has_fraction {
        return Err(Error::Fraction);
    }
    let thousandths = u128::from(number.whole) * 1000 + u128::from(number.thousandths);
    if number.negative && thousandths > 0 {
        return Err(Error::Range);
    }
    let bytes = i64::try_from(thousandths * scale / 1000).map_err(|_| Error::Range)?;
    bytes_from_integer(bytes)
}

/// `std.duration(s)`: parses a duration in seconds, a number followed by `ms`, `s`, `m`, `h`, `d`,
/// `w` or `y` (365 days).
pub fn duration_s(text: &[u8]) -> Result<f64, Error> {
    let number = Number::parse(trim(text))?;
    let value = number.value();
    match str::from_utf8(trim(number.rest)) {
        // Division is exact to the thousandth; multiplication by 0.001 is not.
        Ok("ms") => Ok(value / 1000.0),
        Ok(unit) => duration_unit(unit).map(|seconds| value * seconds).ok_or(Error::Unit),
        Err(_) => Err(Error::Unit),
    }
}

/// `std.integer(real=…)`, also for a duration or a time in seconds: truncates the fraction. The
/// manual says it rounds down, but varnishd converts −1.5 to −1.
pub fn integer_from_real(value: f64) -> Result<i64, Error> {
    if (-INTEGER_END..INTEGER_END).contains(&value) { Ok(value as i64) } else { Err(Error::Range) }
}

/// `std.bytes(real=…)`: rounds down.
pub fn bytes_from_real(value: f64) -> Result<i64, Error> {
    // The cast saturates.
    if value >= 0.0 { bytes_from_integer(value as i64) } else { Err(Error::Range) }
}

/// `std.bytes(integer=…)`: checks the range.
pub fn bytes_from_integer(value: i64) -> Result<i64, Error> {
    if (0..=BYTES_MAX).contains(&value) { Ok(value) } else { Err(Error::Range) }
}

/// `std.time(real=…)`: returns Unix seconds; a negative number is an error.
pub fn time_from_real(value: f64) -> Result<f64, Error> {
    if value >= 0.0 && value.is_finite() { Ok(value) } else { Err(Error::Range) }
}

/// `std.round`: rounds to the nearest integer, halves away from zero.
pub fn round(value: f64) -> f64 {
    value.round()
}

/// `std.random`: returns a number in [`low`, `high`), given a random `unit` in [0, 1).
pub fn random(low: f64, high: f64, unit: f64) -> f64 {
    low + (high - low) * unit
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Results must match varnishd 7.1.1; `None` means that varnishd uses the fallback.
    #[test]
    fn sizes_are_parsed() {
        for (text, expected) in [
            ("1", Some(1)),
            ("1B", Some(1)),
            ("1 B", Some(1)),
            ("1.0", Some(1)),
            ("1.0B", Some(1)),
            ("1.3B", None),
            ("1k", Some(1024)),
            ("10K", Some(10_240)),
            ("1.3kB", Some(1331)),
            ("1.5M", Some(1_572_864)),
            ("0.1p", Some(112_589_990_684_262)),
            ("1  K", Some(1024)),
            ("1\tk", Some(1024)),
            (" 1k ", Some(1024)),
            ("-0", Some(0)),
            ("-1", None),
            ("+1", None),
            ("1e3", None),
            ("1.", None),
            (".5k", None),
            ("0.0001k", None),
            ("0.5k", Some(512)),
            ("1.5", None),
            ("", None),
            ("m", None),
            ("3*", None),
            ("1kk", None),
            ("1K B", None),
            ("1kbb", None),
            ("1e", None),
            ("7p", Some(7 << 50)),
            ("8p", None),
            ("9p", None),
            ("123456789012345", Some(123_456_789_012_345)),
            ("1234567890123456", None),
            ("100%", None),
            ("0x10", None),
            ("999999999999999p", None),
        ] {
            assert_eq!(bytes(text.as_bytes()).ok(), expected, "{text}");
        }
    }

    #[test]
    fn durations_are_parsed() {
        for (text, expected) in [
            ("10s", Some(10.0)),
            ("1.5s", Some(1.5)),
            ("1ms", Some(0.001)),
            ("1  s", Some(1.0)),
            (" 1s ", Some(1.0)),
            ("1m", Some(60.0)),
            ("1h", Some(3600.0)),
            ("1d", Some(86_400.0)),
            ("1w", Some(604_800.0)),
            ("1y", Some(31_536_000.0)),
            ("-1s", Some(-1.0)),
            (".5s", Some(0.5)),
            ("1.s", Some(1.0)),
            ("1.0006s", Some(1.0)),
            ("+1s", None),
            ("1", None),
            ("1.5", None),
            ("1x", None),
            ("1S", None),
            ("1us", None),
            ("- 1s", None),
            ("1e3s", None),
            ("0000000000000001s", None),
            ("abc", None),
            ("", None),
        ] {
            assert_eq!(duration_s(text.as_bytes()).ok(), expected, "{text}");
        }
    }

    #[test]
    fn integers_are_parsed() {
        for (text, expected) in [
            ("1", Some(1)),
            ("-1", Some(-1)),
            ("\t1 ", Some(1)),
            ("00012", Some(12)),
            ("1.0", Some(1)),
            ("1.", Some(1)),
            ("-1.0", Some(-1)),
            ("999999999999999", Some(999_999_999_999_999)),
            ("1000000000000000", None),
            ("+1", None),
            ("1.5", None),
            ("1.9999", None),
            ("1x", None),
            ("0x1f", None),
            ("1e3", None),
            ("- 5", None),
            ("-", None),
            ("", None),
        ] {
            assert_eq!(integer(text.as_bytes()).ok(), expected, "{text}");
        }
    }

    #[test]
    fn reals_are_parsed() {
        for (text, expected) in [
            ("1", Some(1.0)),
            ("-1.5", Some(-1.5)),
            ("-.5", Some(-0.5)),
            (".5", Some(0.5)),
            ("1. ", Some(1.0)),
            ("1.0006", Some(1.0)),
            ("0.1234567890123456", Some(0.123)),
            ("123456789012.5", Some(123_456_789_012.5)),
            ("1234567890123.5", None),
            ("+1", None),
            ("1e3", None),
            ("inf", None),
            ("nan", None),
            ("1..5", None),
            ("1.5x", None),
            ("1 2", None),
            ("", None),
        ] {
            assert_eq!(real(text.as_bytes()).ok(), expected, "{text}");
        }
    }

    #[test]
    fn numeric_types_convert() {
        assert_eq!(integer_from_real(126.42 / 3.0), Ok(42));
        assert_eq!(integer_from_real(-1.5), Ok(-1));
        assert_eq!(integer_from_real(-INTEGER_END), Ok(i64::MIN));
        assert_eq!(bytes_from_real(1.9), Ok(1));
        assert_eq!(bytes_from_integer(-1), Err(Error::Range));
        assert_eq!(time_from_real(-0.5), Err(Error::Range));
        for value in [f64::NAN, f64::INFINITY, 1e300, INTEGER_END] {
            assert_eq!(integer_from_real(value), Err(Error::Range), "{value}");
            assert_eq!(bytes_from_real(value), Err(Error::Range), "{value}");
        }
    }

    #[test]
    fn halves_are_rounded_away_from_zero() {
        for (value, rounded) in [(0.5, 1.0), (-0.5, -1.0), (1.5, 2.0), (2.5, 3.0), (-1.5, -2.0), (0.49, 0.0)]
        {
            assert_eq!(round(value), rounded, "{value}");
        }
    }

    #[test]
    fn random_stays_within_its_bounds() {
        assert_eq!(random(1.0, 100.0, 0.0), 1.0);
        assert_eq!(random(1.0, 3.0, 0.5), 2.0);
        assert_eq!(random(3.0, 1.0, 0.25), 2.5);
    }

    proptest! {
        #[test]
        fn no_input_panics(text in proptest::collection::vec(any::<u8>(), 0..32)) {
            let _ = (real(&text), integer(&text), bytes(&text), duration_s(&text));
        }

        #[test]
        fn formatted_integers_parse_back(value in -999_999_999_999_999i64..=999_999_999_999_999) {
            prop_assert_eq!(integer(value.to_string().as_bytes()), Ok(value));
            prop_assert_eq!(real(value.to_string().as_bytes()), Ok(value as f64));
        }

        #[test]
        fn formatted_thousandths_parse_back(whole in 0u64..=999_999_999_999, thousandths in 0u32..1000) {
            let text = format!("{whole}.{thousandths:03}");
            prop_assert_eq!(real(text.as_bytes()).ok(), text.parse::<f64>().ok());
        }
    }
}
