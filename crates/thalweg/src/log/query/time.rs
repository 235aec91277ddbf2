//! Times as an expression gives them (RFC 3339 §5.6, to any precision, or a time of day), and as records have them.

use std::ops::Range;

const SECOND_US: i64 = 1_000_000;
const DAY_US: i64 = 86_400 * SECOND_US;

/// What may stand where a time is wanted.
pub(super) const WANTED: &str = "a time: 2026-11-20, 2026-11-20T23:00, 2026-11-20T23:00:05.5Z, 23:00 or 23:00:05 of any day, all in UTC, or 10min ago";

/// A moment, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    /// Since 1970.
    Unix(i64),
    /// Since midnight (UTC) of the record's own day.
    OfDay(i64),
}

impl Moment {
    /// Reads a date, a date and a time of day, or a time of day.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if text.as_bytes().get(2) == Some(&b':') {
            return of_day(text).map(Self::OfDay);
        }
        let date = text.get(..10)?;
        let days = days(date)?;
        let time = match text[10..].strip_prefix(['T', 't', ' ']) {
            Some(time) => zoned(time)?,
            None if text.len() == 10 => 0,
            None => return None,
        };
        Some(Self::Unix(days * DAY_US + time))
    }

    /// What of a record's time (since 1970, in microseconds) is compared with it, and itself.
    pub(super) fn beside(self, unix_us: i64) -> (i64, i64) {
        match self {
            Self::Unix(own) => (unix_us, own),
            Self::OfDay(own) => (unix_us.rem_euclid(DAY_US), own),
        }
    }
}

/// A number of digits alone, within `range`.
fn number(text: &str, range: Range<i64>) -> Option<i64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| is_number && range.contains(number))
}

/// Days from 1970 to `YYYY-MM-DD`.
fn days(date: &str) -> Option<i64> {
    let mut parts = date.split('-');
    let mut part = |length, range| number(parts.next().filter(|part| part.len() == length)?, range);
    let (year, month, day) = (part(4, 1..10_000)?, part(2, 1..13)?, part(2, 1..32)?);
    let leap = i64::from(year % 4 == 0 && (year % 100 != 0 || year % 400 == 0));
    let length = [31, 28 + leap, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let month = month as usize - 1;
    let before = year - 1;
    let since_1 = before * 365 + before / 4 - before / 100 + before / 400;
    // 1970-01-01 is the 719 162nd day after 0001-01-01.
    (day <= length[month]).then(|| since_1 - 719_162 + length[..month].iter().sum::<i64>() + day - 1)
}

/// Microseconds of a time of day with or without its zone, from midnight of UTC.
fn zoned(text: &str) -> Option<i64> {
    if let Some(time) = text.strip_suffix(['Z', 'z']) {
        return of_day(time);
    }
    let Some(at) = text.find(['+', '-']) else { return of_day(text) };
    let (time, zone) = text.split_at(at);
    let (hours, minutes) = zone[1..].split_once(':').filter(|_| zone.len() == 6)?;
    let offset_us = (number(hours, 0..24)? * 60 + number(minutes, 0..60)?) * 60 * SECOND_US;
    Some(of_day(time)? - if zone.starts_with('-') { -offset_us } else { offset_us })
}

/// Microseconds since midnight of `HH:MM[:SS[.F]]`; a second 60 is a leap second.
fn of_day(text: &str) -> Option<i64> {
    let mut parts = text.splitn(3, ':');
    let two = |part: Option<&str>, range| number(part.filter(|part| part.len() == 2)?, range);
    let minutes = two(parts.next(), 0..24)? * 60 + two(parts.next(), 0..60)?;
    let Some(seconds) = parts.next() else { return Some(minutes * 60 * SECOND_US) };
    let (whole, fraction) = seconds.split_once('.').map_or((seconds, None), |(s, f)| (s, Some(f)));
    let us = match fraction {
        // Past microseconds there is nothing to compare with.
        Some(digits) => number(&format!("{:0<6}", digits.get(..6).unwrap_or(digits)), 0..SECOND_US)
            .filter(|_| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))?,
        None => 0,
    };
    Some((minutes * 60 + two(Some(whole), 0..61)?) * SECOND_US + us)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_counted_as_the_calendar_has_them() {
        let unix = |text: &str| match Moment::parse(text) {
            Some(Moment::Unix(us)) => us / SECOND_US,
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(unix("1970-01-01"), 0);
        assert_eq!(unix("2000-02-29T00:00"), 951_782_400);
        assert_eq!(unix("2026-11-20T23:40:00Z"), 1_795_218_000);
        assert_eq!(unix("2026-11-21T01:10:00+01:30"), 1_795_218_000);
        assert_eq!(unix("2026-11-20T18:40:00.9-05:00"), 1_795_218_000);
        assert_eq!(Moment::parse("16:40:05.25"), Some(Moment::OfDay(60_005_250_000)));
        let wrong = "16 2026 2026-11 2026-02-29 2026-13-01 2026-11-20T 2026-11-20T23 2026-11-20T23:0 24:00 16:60 \
                     16:4 16:40: 16:40:5 16:40:05. 16:40:05.x 2026-11-20T23:00+1 2026-11-20X23:00 yesterday é2:00";
        for text in wrong.split_whitespace() {
            assert_eq!(Moment::parse(text), None, "{text}");
        }
    }
}
