//! Times from text (vmod_std(3), `std.time`).
//!
//! Read are the three forms of RFC 9110 §5.6.7, ISO 8601 as `1994-11-06T08:49:37` in UTC, and seconds since 1970 as a
//! number that is not negative. Names are compared in their case, and a weekday has to be the date's own. As in varnishd,
//! a date may lie before 1970, two digits of a year below 69 mean 20xx (RFC 9110's fifty years would need a clock), and a
//! leap second is the second before it. The one difference: 1970-01-01T00:00:00, which varnishd refuses, is 0.

use super::{Error, number, trim};

const DAY_S: i64 = 86_400;
pub(super) const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
/// From the day of 1970-01-01 on.
const WEEKDAYS: [&str; 7] = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

/// A date and a time of day in UTC, each number within its bounds.
pub(super) struct Civil {
    pub(super) year: i64,
    pub(super) month: i64,
    pub(super) day: i64,
    pub(super) second_of_day: i64,
}

/// `std.time(s)`: seconds since 1970.
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
        return Some(iso_8601(text)?.unix_s());
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
    let full_name = civil.weekday();
    (weekday == &full_name[..weekday_bytes.unwrap_or(full_name.len())]).then(|| civil.unix_s())
}

/// `06 Nov 1994 08:49:37 GMT`
fn imf_fixdate(text: &str) -> Option<Civil> {
    let text = text.strip_suffix(" GMT").filter(|text| text.len() == 20)?;
    separated(text, [(2, ' '), (6, ' '), (11, ' ')])?;
    Civil::new(number(&text[7..11])?, month(&text[3..6])?, number(&text[..2])?, &text[12..])
}

/// `06-Nov-94 08:49:37 GMT`
fn rfc_850(text: &str) -> Option<Civil> {
    let text = text.strip_suffix(" GMT").filter(|text| text.len() == 18)?;
    separated(text, [(2, '-'), (6, '-'), (9, ' ')])?;
    let year = number(&text[7..9])?;
    let century = if year < 69 { 2000 } else { 1900 };
    Civil::new(century + year, month(&text[3..6])?, number(&text[..2])?, &text[10..])
}

/// `Nov  6 08:49:37 1994`
fn asctime(text: &str) -> Option<Civil> {
    if text.len() != 20 {
        return None;
    }
    separated(text, [(3, ' '), (6, ' '), (15, ' ')])?;
    let day = &text[4..6];
    Civil::new(
        number(&text[16..])?,
        month(&text[..3])?,
        number(day.strip_prefix(' ').unwrap_or(day))?,
        &text[7..15],
    )
}

/// `1994-11-06T08:49:37`
fn iso_8601(text: &str) -> Option<Civil> {
    if text.len() != 19 {
        return None;
    }
    separated(text, [(4, '-'), (7, '-'), (10, 'T')])?;
    Civil::new(number(&text[..4])?, number(&text[5..7])?, number(&text[8..10])?, &text[11..])
}

/// Whether each of `separators` stands in its place.
fn separated(text: &str, separators: [(usize, char); 3]) -> Option<()> {
    separators.iter().all(|&(at, separator)| text[at..].starts_with(separator)).then_some(())
}

fn number(digits: &str) -> Option<i64> {
    if digits.bytes().all(|byte| byte.is_ascii_digit()) { digits.parse().ok() } else { None }
}

fn month(name: &str) -> Option<i64> {
    let index = MONTHS.iter().position(|month| *month == name)?;
    i64::try_from(index + 1).ok()
}

impl Civil {
    /// `clock` is `08:49:37`.
    fn new(year: i64, month: i64, day: i64, clock: &str) -> Option<Civil> {
        let mut parts = clock.split(':');
        let mut part = |end: i64| {
            let digits = parts.next().filter(|digits| digits.len() == 2)?;
            number(digits).filter(|value| *value < end)
        };
        let (hour, minute, second) = (part(24)?, part(60)?, part(61)?);
        let fits = year > 0 && (1..=12).contains(&month) && (1..=days_of(year, month)).contains(&day);
        let second_of_day = (hour * 60 + minute) * 60 + second.min(59);
        (fits && parts.next().is_none()).then_some(Civil { year, month, day, second_of_day })
    }

    /// The date and time of a second since 1970.
    pub(super) fn of_unix_s(unix_s: i64) -> Civil {
        Civil { second_of_day: unix_s.rem_euclid(DAY_S), ..Civil::of_days(unix_s.div_euclid(DAY_S)) }
    }

    /// The beginning of a day since 1970-01-01: the inverse of [`days`](Self::days), in eras of 400 years.
    pub(super) fn of_days(days: i64) -> Civil {
        let (era, day_of_era) = ((days + 719_468).div_euclid(146_097), (days + 719_468).rem_euclid(146_097));
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let month = (month_from_march + 2) % 12 + 1;
        Civil {
            year: era * 400 + year_of_era + i64::from(month < 3),
            month,
            day: day_of_year - (153 * month_from_march + 2) / 5 + 1,
            second_of_day: 0,
        }
    }

    /// The weekday's full name.
    pub(super) fn weekday(&self) -> &'static str {
        WEEKDAYS[self.days().rem_euclid(7).unsigned_abs() as usize]
    }

    /// Days since 1970-01-01 in the Gregorian calendar. Years are counted from March on, so that the leap day is the last
    /// one of its year; months from March on have 153 days in five.
    pub(super) fn days(&self) -> i64 {
        let year = if self.month < 3 { self.year - 1 } else { self.year };
        let month_from_march = (self.month + 9) % 12;
        let day_of_year = (153 * month_from_march + 2) / 5 + self.day - 1;
        year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year - 719_468
    }

    pub(super) fn unix_s(&self) -> i64 {
        self.days() * DAY_S + self.second_of_day
    }
}

fn days_of(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use thalweg_http::date::{DATE_S_MAX, format};

    #[test]
    fn the_forms_of_the_manual_are_read() {
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
    fn odd_times_are_those_of_varnishd() {
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
    fn anything_else_is_no_time() {
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
        fn nothing_panics(text in "[ -~é]{0,32}", noise in proptest::collection::vec(any::<u8>(), 0..32)) {
            let _ = (time_s(text.as_bytes()), time_s(&noise));
        }

        #[test]
        fn a_second_has_one_date(unix_s in -62_135_596_800i64..=253_402_300_799) {
            let civil = Civil::of_unix_s(unix_s);
            prop_assert_eq!(civil.unix_s(), unix_s);
            prop_assert!((1..=12).contains(&civil.month) && (1..=days_of(civil.year, civil.month)).contains(&civil.day));
        }

        #[test]
        fn written_dates_read_back(unix_s in 0u64..=DATE_S_MAX) {
            prop_assert_eq!(time_s(&format(unix_s)), Ok(unix_s as f64));
        }
    }
}
