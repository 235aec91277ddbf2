//! HTTP dates (RFC 9110 §5.6.7) as Unix seconds.
//!
//! Parses all three formats (IMF-fixdate, RFC 850 and asctime) and writes IMF-fixdate.

use std::io::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use httpdate::HttpDate;

/// Length of an IMF-fixdate: `Sun, 06 Nov 1994 08:49:37 GMT`.
pub const DATE_BYTES: usize = 29;

/// Last second that an IMF-fixdate can express: 9999-12-31 23:59:59 UTC.
pub const DATE_S_MAX: u64 = 253_402_300_799;

const WEEKDAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// Parses a date. Returns `None` if `value` is not a valid date or is before 1970.
///
/// Ignores letter case, as RFC 9111 §4.2 recommends for caches. Accepts any weekday, because the
/// rest of the date determines it.
pub fn parse(value: &[u8]) -> Option<u64> {
    parse_exact(value).or_else(|| corrected(value).find_map(|value| parse_exact(&value)))
}

fn parse_exact(value: &[u8]) -> Option<u64> {
    // `httpdate` also trims bytes that are not white space in HTTP, so reject them first.
    if !value.last()?.is_ascii_alphanumeric() || !value.first()?.is_ascii_alphanumeric() {
        return None;
    }
    let date: HttpDate = str::from_utf8(value).ok()?.parse().ok()?;
    let since_epoch = SystemTime::from(date).duration_since(UNIX_EPOCH).ok()?;
    Some(since_epoch.as_secs())
}

/// Returns seven copies of `value` in the correct letter case, each with a different weekday, so
/// that one of them has the weekday of the date. Returns no copies if `value` does not start with a
/// weekday.
fn corrected(value: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let weekday_bytes = value.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
    let (weekday, rest) = value.split_at(weekday_bytes);
    let in_form =
        move |name: &'static str| if weekday_bytes == 3 { &name.as_bytes()[..3] } else { name.as_bytes() };
    let is_weekday = WEEKDAYS.into_iter().any(|name| in_form(name).eq_ignore_ascii_case(weekday));
    let rest = in_title_case(rest);
    WEEKDAYS.into_iter().filter(move |_| is_weekday).map(move |name| [in_form(name), &rest].concat())
}

/// Capitalises the month name and converts the time zone to upper case.
fn in_title_case(text: &[u8]) -> Vec<u8> {
    let mut text = text.to_ascii_lowercase();
    let mut is_inside = false;
    for byte in &mut text {
        let is_letter = byte.is_ascii_alphabetic();
        if is_letter && !is_inside {
            byte.make_ascii_uppercase();
        }
        is_inside = is_letter;
    }
    if let Some(zone) = text.strip_suffix(b"Gmt").map(<[u8]>::len) {
        text[zone..].make_ascii_uppercase();
    }
    text
}

/// Writes `unix_s`, clamped to [`DATE_S_MAX`], into `buffer`.
pub fn write(unix_s: u64, buffer: &mut [u8; DATE_BYTES]) {
    let date = HttpDate::from(UNIX_EPOCH + Duration::from_secs(unix_s.min(DATE_S_MAX)));
    write!(&mut buffer[..], "{date}").expect("an IMF-fixdate is 29 bytes long");
}

/// Like [`write`](fn@write), but returns a new array.
pub fn format(unix_s: u64) -> [u8; DATE_BYTES] {
    let mut buffer = [0; DATE_BYTES];
    write(unix_s, &mut buffer);
    buffer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_three_forms_are_parsed() {
        for text in
            ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"]
        {
            assert_eq!(parse(text.as_bytes()), Some(784_111_777), "{text}");
        }
    }

    #[test]
    fn rfc9111_4_2_case_and_wrong_weekday_are_ignored() {
        for text in [
            "sun, 06 nov 1994 08:49:37 gmt",
            "SUN, 06 NOV 1994 08:49:37 GMT",
            "Mon, 06 Nov 1994 08:49:37 GMT",
            "SUNDAY, 06-NOV-94 08:49:37 Gmt",
            "friday, 06-Nov-94 08:49:37 GMT",
            "tue nov  6 08:49:37 1994",
        ] {
            assert_eq!(parse(text.as_bytes()), Some(784_111_777), "{text}");
        }
        for text in [
            "Son, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06-Nov-94 08:49:37 GMT",
            "Sunda, 06-Nov-94 08:49:37 GMT",
            "Mon, 31 Nov 1994 08:49:37 GMT",
            "mon, 06 Nov 1994 24:00:00 gmt",
            " mon, 06 nov 1994 08:49:37 gmt",
            ", 06 nov 1994 08:49:37 gmt",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn other_text_is_not_a_date() {
        for text in
            ["", "0", "-1", "Sun, 06 Nov 1994 08:49:37 CET", "Sun, 31 Nov 1994 08:49:37 GMT", "1994-11-06"]
        {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(parse(&[0xff; 29]), None);
        assert_eq!(parse(b"Sun Nov  6 08:49:37 1994\x0c"), None);
    }

    #[test]
    fn fixed_form_is_written() {
        assert_eq!(&format(784_111_777), b"Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(&format(u64::MAX), b"Fri, 31 Dec 9999 23:59:59 GMT");
        assert_eq!(parse(&format(0)), Some(0));
    }
}
