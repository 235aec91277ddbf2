//! Dates in fields (RFC 9110 §5.6.7) as unix seconds.
//!
//! All three forms are read: IMF-fixdate, RFC 850, asctime; IMF-fixdate is written.

use std::io::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use httpdate::HttpDate;

/// The bytes of an IMF-fixdate: `Sun, 06 Nov 1994 08:49:37 GMT`.
pub const DATE_BYTES: usize = 29;

/// The last second that the format can say: 9999-12-31 23:59:59.
pub const DATE_S_MAX: u64 = 253_402_300_799;

/// Reads a date; `None` for anything else, also for one before 1970 or with a weekday that is not its own.
pub fn parse(value: &[u8]) -> Option<u64> {
    // The parser below trims what is no white space of a field.
    if !value.last()?.is_ascii_alphanumeric() || !value.first()?.is_ascii_alphanumeric() {
        return None;
    }
    let date: HttpDate = str::from_utf8(value).ok()?.parse().ok()?;
    let since_epoch = SystemTime::from(date).duration_since(UNIX_EPOCH).ok()?;
    Some(since_epoch.as_secs())
}

/// Writes `unix_s`, held to [`DATE_S_MAX`], into `buffer`.
pub fn write(unix_s: u64, buffer: &mut [u8; DATE_BYTES]) {
    let date = HttpDate::from(UNIX_EPOCH + Duration::from_secs(unix_s.min(DATE_S_MAX)));
    write!(&mut buffer[..], "{date}").expect("an IMF-fixdate has 29 bytes");
}

/// [`write`](fn@write) into an array of its own.
pub fn format(unix_s: u64) -> [u8; DATE_BYTES] {
    let mut buffer = [0; DATE_BYTES];
    write(unix_s, &mut buffer);
    buffer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_three_forms_are_read() {
        for text in
            ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"]
        {
            assert_eq!(parse(text.as_bytes()), Some(784_111_777), "{text}");
        }
    }

    #[test]
    fn anything_else_is_no_date() {
        for text in
            ["", "0", "-1", "Sun, 06 Nov 1994 08:49:37 CET", "Mon, 06 Nov 1994 08:49:37 GMT", "1994-11-06"]
        {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(parse(&[0xff; 29]), None);
        assert_eq!(parse(b"Sun Nov  6 08:49:37 1994\x0c"), None);
    }

    #[test]
    fn the_fixed_form_is_written() {
        assert_eq!(&format(784_111_777), b"Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(&format(u64::MAX), b"Fri, 31 Dec 9999 23:59:59 GMT");
        assert_eq!(parse(&format(0)), Some(0));
    }
}
