//! Parses times for `std.time` (vmod_std(3)).
//!
//! Accepts the three formats of RFC 9110 §5.6.7, ISO 8601 as `1994-11-06T08:49:37` in UTC, and
//! non-negative Unix seconds. Names are case-sensitive, and the weekday must match the date. As in
//! varnishd, a date may precede 1970, a two-digit year below 69 means 20xx (RFC 9110's 50-year rule
//! would require a clock), and a leap second counts as the second before it. The only difference
//! from varnishd is 1970-01-01T00:00:00, which varnishd rejects and which is 0 here.

use jiff::SignedDuration;
use jiff::civil::DateTime;

use super::{Error, number, trim};

const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// `std.time(s)`: parses a time and returns Unix seconds.
pub fn time_s(text: &[u8]) -> Result<f64, Error> {
    let text = trim(text);
    if let Some(unix_s) = str::from_utf8(text).ok().and_then(date) {
        return Ok(unix_s as f64);
    }
    number::real(text).and_then(number::time_from_real).map_err(|_| Error::Time)
}

fn date(text: &str) -> Option<i64> {
    if !text.is_ascii() {
        return None;
    }
    if text.as_bytes().first()?.is_ascii_digit() {
        return Some(unix_s(iso_8601(text)?));
    }
    let name_bytes = text.bytes().position(|byte| !byte.is_ascii_alphabetic())?;
    let (weekday, rest) = text.split_at(name_bytes);
    let (civil, weekday_bytes) = if let Some(rest) = rest.strip_prefix(", ") {
        if rest.as_bytes().get(2) == Some(&b'-') {
            (rfc_850(rest)?, None)
        } else {
            (imf_fixdate(rest)?, Some(3))
        }
    } else {
        (asctime(rest.strip_prefix(' ')?)?, Some(3))
    };
    let full_name = civil.strftime("%A").to_string();
    (weekday == &full_name[..weekday_bytes.unwrap_or(full_name.len())]).then(|| unix_s(civil))
}

/// Parses `06 Nov 1994 08:49:37 GMT`.
fn imf_fixdate(text: &str) -> Option<DateTime> {
    let text = text.strip_suffix(" GMT").filter(|text| text.len() == 20)?;
    separated(text, [(2, ' '), (6, ' '), (11, ' ')])?;
    civil(number(&text[7..11])?, month(&text[3..6])?, number(&text[..2])?, &text[12..])
}

/// Parses `06-Nov-94 08:49:37 GMT`.
fn rfc_850(text: &str) -> Option<DateTime> {
    let text = text.strip_suffix(" GMT").filter(|text| text.len() == 18)?;
    separated(text, [(2, '-'), (6, '-'), (9, ' ')])?;
    let year = number(&text[7..9])?;
    let century = if year < 69 { 2000 } else { 1900 };
    civil(century + year, month(&text[3..6])?, number(&text[..2])?, &text[10..])
}

/// Parses `Nov  6 08:49:37 1994`.
fn asctime(text: &str) -> Option<DateTime> {
    if text.len() != 20 {
        return None;
    }
    separated(text, [(3, ' '), (6, ' '), (15, ' ')])?;
    let day = &text[4..6];
    civil(
        number(&text[16..])?,
        month(&text[..3])?,
        number(day.strip_prefix(' ').unwrap_or(day))?,
        &text[7..15],
    )
}

/// Parses `1994-11-06T08:49:37`.
fn iso_8601(text: &str) -> Option<DateTime> {
    if text.len() != 19 {
        return None;
    }
    separated(text, [(4, '-'), (7, '-'), (10, 'T')])?;
    civil(number(&text[..4])?, number(&text[5..7])?, number(&text[8..10])?, &text[11..])
}

/// Checks that each of `separators` occurs at its position.
fn separated(text: &str, separators: [(usize, char); 3]) -> Option<()> {
    separators.iter().all(|&(at, separator)| text[at..].starts_with(separator)).then_some(())
}

fn number(digits: &str) -> Option<i16> {
    if digits.bytes().all(|byte| byte.is_ascii_digit()) { digits.parse().ok() } else { None }
}

fn month(name: &str) -> Option<i16> {
    let index = MONTHS.iter().position(|month| *month == name)?;
    i16::try_from(index + 1).ok()
}

/// Combines a date and a `clock` such as `08:49:37`.
fn civil(year: i16, month: i16, day: i16, clock: &str) -> Option<DateTime> {
    let mut parts = clock.split(':');
    let mut part = || number(parts.next().filter(|digits| digits.len() == 2)?);
    let (hour, minute, second) = (part()?, part()?, part()?);
    if year == 0 || parts.next().is_some() || second > 60 {
        return None;
    }
    let [month, day, hour, minute, second] =
        [month, day, hour, minute, second.min(59)].map(|value| i8::try_from(value).unwrap_or(i8::MAX));
    DateTime::new(year, month, day, hour, minute, second, 0).ok()
}

pub(super) fn unix_s(civil: DateTime) -> i64 {
    civil.duration_since(EPOCH).as_secs()
}

/// Returns the date and time of a Unix second; `None` before the year 1 and after 9999.
pub(super) fn of_unix_s(unix_s: f64) -> Option<DateTime> {
    // The cast saturates to a second outside the supported years.
    let civil = EPOCH.checked_add(SignedDuration::from_secs(unix_s.floor() as i64)).ok();
    civil.filter(|civil| civil.year() > 0 && !unix_s.is_nan())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use thalweg_http::date::{DATE_S_MAX, format};

    #[test]
    fn documented_formats_are_parsed() {
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            " Sun, 06 Nov 1994 08:49:37 GMT ",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "Sun Nov 06 08:49:37 1994",
            "1994-11-06T08:49:37",
            "784111777.00",
            "784111777 ",
        ] {
            assert_eq!(time_s(text.as_bytes()), Ok(784_111_777.0), "{text}");
        }
    }

    #[test]
    fn unusual_times_match_varnishd() {
        for (text, unix_s) in [
            ("784111777.5", 784_111_777.5),
            ("0", 0.0),
            ("99999999999", 99_999_999_999.0),
            ("Sun, 06 Nov 1994 08:49:60 GMT", 784_111_799.0),
            ("Friday, 06-Nov-70 08:49:37 GMT", 26_729_377.0),
            ("Tuesday, 06-Nov-68 08:49:37 GMT", 3_119_417_377.0),
            ("Thursday, 06-Nov-69 08:49:37 GMT", -4_806_623.0),
            ("2024-02-29T00:00:00", 1_709_164_800.0),
            ("2012-06-30T23:59:60", 1_341_100_799.0),
            ("1970-01-01T00:00:00", 0.0),
            ("Wed, 31 Dec 1969 23:59:59 GMT", -1.0),
            ("Mon, 01 Jan 1900 00:00:00 GMT", -2_208_988_800.0),
            ("1899-12-31T23:59:59", -2_208_988_801.0),
            ("9999-12-31T23:59:59", 253_402_300_799.0),
        ] {
            assert_eq!(time_s(text.as_bytes()), Ok(unix_s), "{text}");
        }
    }

    #[test]
    fn other_text_is_not_a_time() {
        for text in [
            "",
            "x",
            "-1",
            "+5",
            "1e3",
            "784111777x",
            "Mon, 06 Nov 1994 08:49:37 GMT",
            "Sun, 6 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:61 GMT",
            "Sun, 06 Nov 1994 24:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 1994 08:49:37 CET",
            "Sun, 06 nov 1994 08:49:37 GMT",
            "sun, 06 Nov 1994 08:49:37 GMT",
            "Wed, 29 Feb 2023 00:00:00 GMT",
            "Sun, 06-Nov-94 08:49:37 GMT",
            "Sun Nov 6 08:49:37 1994",
            "Sun Nov  6 08:49:37 1994 GMT",
            "1994-11-06T08:49:37Z",
            "1994-11-06T08:49:37.5",
            "1994-11-06 08:49:37",
            "1994-11-06T08:49",
            "1994-13-06T08:49:37",
            "1994-11-00T08:49:37",
            "1994-11-31T08:49:37",
            "1994-11-06T24:00:00",
            "1994-11-06T8:49:037",
            "0000-01-01T00:00:00",
            "Sun, é6 Nov 1994 08:49:37 GMT",
        ] {
            assert_eq!(time_s(text.as_bytes()), Err(Error::Time), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_input_panics(text in "[ -~é]{0,32}", noise in proptest::collection::vec(any::<u8>(), 0..32)) {
            let _ = (time_s(text.as_bytes()), time_s(&noise));
        }

        #[test]
        fn each_second_has_one_date(second in -62_135_596_800i64..=253_402_300_799) {
            prop_assert_eq!(of_unix_s(second as f64).map(unix_s), Some(second));
        }

        #[test]
        fn formatted_dates_parse_back(unix_s in 0u64..=DATE_S_MAX) {
            prop_assert_eq!(time_s(&format(unix_s)), Ok(unix_s as f64));
        }
    }
}
