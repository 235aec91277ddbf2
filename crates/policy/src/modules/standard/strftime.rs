//! A time as text, `std.strftime` (vmod_std(3); strftime(3) in the C locale and UTC).
//!
//! All conversions of C11 §7.27.3.5 and of glibc `%P`, `%k`, `%l` and `%s`, with one of glibc's flags `-` (no padding), `_`
//! (spaces) and `0` before the letter. What else follows a `%`, such as a width or the modifiers `E` and `O`, stays as it
//! is written.

use super::time::{Civil, MONTHS};

const MONTH_NAMES: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// The first second of the year 1 and the last of 9999.
const UNIX_S_MIN: f64 = -62_135_596_800.0;
const UNIX_S_MAX: f64 = 253_402_300_799.0;

/// How a number is filled up.
#[derive(Clone, Copy)]
enum Padding {
    None,
    Spaces,
    Zeros,
}

/// `time_s`, seconds since 1970, as `format` says. Empty for a time before the year 1 or after 9999.
pub fn format(time_s: f64, format: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    let second = time_s.floor();
    if (UNIX_S_MIN..=UNIX_S_MAX).contains(&second) {
        // The cast keeps the value.
        write(&mut text, &Civil::of_unix_s(second as i64), format);
    }
    text
}

fn write(text: &mut Vec<u8>, civil: &Civil, format: &[u8]) {
    let mut rest = format;
    while let [byte, after @ ..] = rest {
        rest = after;
        if *byte != b'%' {
            text.push(*byte);
            continue;
        }
        let (padding, conversion) = match after {
            [b'-', after @ ..] => (Some(Padding::None), after),
            [b'_', after @ ..] => (Some(Padding::Spaces), after),
            [b'0', after @ ..] => (Some(Padding::Zeros), after),
            _ => (None, after),
        };
        match conversion {
            [letter, after @ ..] if write_one(text, civil, *letter, padding) => rest = after,
            _ => text.push(b'%'),
        }
    }
}

/// Writes one conversion; `false` if the letter is none.
fn write_one(text: &mut Vec<u8>, civil: &Civil, letter: u8, padding: Option<Padding>) -> bool {
    if let Some(format) = compound(letter) {
        write(text, civil, format);
    } else if let Some(name) = name(civil, letter) {
        text.extend_from_slice(name.as_bytes());
    } else if let Some((value, width, usual)) = number(civil, letter) {
        let digits = match padding.unwrap_or(usual) {
            Padding::None => format!("{value}"),
            Padding::Spaces => format!("{value:width$}"),
            Padding::Zeros => format!("{value:0width$}"),
        };
        text.extend_from_slice(digits.as_bytes());
    } else {
        return false;
    }
    true
}

fn compound(letter: u8) -> Option<&'static [u8]> {
    Some(match letter {
        b'c' => b"%a %b %e %H:%M:%S %Y",
        b'D' | b'x' => b"%m/%d/%y",
        b'F' => b"%Y-%m-%d",
        b'r' => b"%I:%M:%S %p",
        b'R' => b"%H:%M",
        b'T' | b'X' => b"%H:%M:%S",
        _ => return None,
    })
}

fn name(civil: &Civil, letter: u8) -> Option<&'static str> {
    let month = civil.month.unsigned_abs() as usize - 1;
    let is_morning = civil.second_of_day < 12 * 3600;
    Some(match letter {
        b'a' => &civil.weekday()[..3],
        b'A' => civil.weekday(),
        b'b' | b'h' => MONTHS[month],
        b'B' => MONTH_NAMES[month],
        b'n' => "\n",
        b'p' if is_morning => "AM",
        b'p' => "PM",
        b'P' if is_morning => "am",
        b'P' => "pm",
        b't' => "\t",
        b'z' => "+0000",
        b'Z' => "GMT",
        b'%' => "%",
        _ => return None,
    })
}

/// The number that `letter` stands for, its least width, and what it is filled up with.
fn number(civil: &Civil, letter: u8) -> Option<(i64, usize, Padding)> {
    let hour = civil.second_of_day / 3600;
    let hour_of_twelve = (hour + 11) % 12 + 1;
    let weekday = days_since_monday(civil);
    let day_of_year = civil.days() - Civil { month: 1, day: 1, ..*civil }.days();
    Some(match letter {
        b'C' => (civil.year / 100, 2, Padding::Zeros),
        b'd' => (civil.day, 2, Padding::Zeros),
        b'e' => (civil.day, 2, Padding::Spaces),
        b'g' => (iso_week(civil).0 % 100, 2, Padding::Zeros),
        b'G' => (iso_week(civil).0, 4, Padding::None),
        b'H' => (hour, 2, Padding::Zeros),
        b'I' => (hour_of_twelve, 2, Padding::Zeros),
        b'j' => (day_of_year + 1, 3, Padding::Zeros),
        b'k' => (hour, 2, Padding::Spaces),
        b'l' => (hour_of_twelve, 2, Padding::Spaces),
        b'm' => (civil.month, 2, Padding::Zeros),
        b'M' => (civil.second_of_day / 60 % 60, 2, Padding::Zeros),
        b's' => (civil.unix_s(), 1, Padding::None),
        b'S' => (civil.second_of_day % 60, 2, Padding::Zeros),
        b'u' => (weekday + 1, 1, Padding::None),
        b'U' => ((day_of_year + 7 - (weekday + 1) % 7) / 7, 2, Padding::Zeros),
        b'V' => (iso_week(civil).1, 2, Padding::Zeros),
        b'w' => ((weekday + 1) % 7, 1, Padding::None),
        b'W' => ((day_of_year + 7 - weekday) / 7, 2, Padding::Zeros),
        b'y' => (civil.year % 100, 2, Padding::Zeros),
        b'Y' => (civil.year, 4, Padding::None),
        _ => return None,
    })
}

/// 0 to 6; 1970-01-01 was a Thursday.
fn days_since_monday(civil: &Civil) -> i64 {
    (civil.days() + 3).rem_euclid(7)
}

/// Year and week of ISO 8601: those of the Thursday of the week.
fn iso_week(civil: &Civil) -> (i64, i64) {
    let thursday = civil.days() - days_since_monday(civil) + 3;
    let year = Civil::of_days(thursday).year;
    let first = Civil { year, month: 1, day: 1, second_of_day: 0 };
    (year, (thursday - first.days()) / 7 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: &str = "%a|%A|%b|%B|%c|%C|%d|%D|%e|%F|%g|%G|%h|%H|%I|%j|%k|%l|%m|%M|%p|%P|%r|%R|%s|%S|%T|%u|%U|%V|%w|%W|%x|%X|%y|%Y|%z|%Z|%%";

    fn text(time_s: f64, pattern: &str) -> String {
        String::from_utf8(format(time_s, pattern.as_bytes())).unwrap()
    }

    /// What varnishd 7.1.1 with glibc writes.
    #[test]
    fn all_conversions_are_written() {
        for (time_s, expected) in [
            (
                784_111_777.0,
                "Sun|Sunday|Nov|November|Sun Nov  6 08:49:37 1994|19|06|11/06/94| 6|1994-11-06|94|1994|Nov|08|08|310| 8| 8|11|49|AM|am|08:49:37 AM|08:49|784111777|37|08:49:37|7|45|44|0|44|11/06/94|08:49:37|94|1994|+0000|GMT|%",
            ),
            (
                0.0,
                "Thu|Thursday|Jan|January|Thu Jan  1 00:00:00 1970|19|01|01/01/70| 1|1970-01-01|70|1970|Jan|00|12|001| 0|12|01|00|AM|am|12:00:00 AM|00:00|0|00|00:00:00|4|00|01|4|00|01/01/70|00:00:00|70|1970|+0000|GMT|%",
            ),
            (
                1_709_164_800.0,
                "Thu|Thursday|Feb|February|Thu Feb 29 00:00:00 2024|20|29|02/29/24|29|2024-02-29|24|2024|Feb|00|12|060| 0|12|02|00|AM|am|12:00:00 AM|00:00|1709164800|00|00:00:00|4|08|09|4|09|02/29/24|00:00:00|24|2024|+0000|GMT|%",
            ),
            (
                1_735_603_200.0,
                "Tue|Tuesday|Dec|December|Tue Dec 31 00:00:00 2024|20|31|12/31/24|31|2024-12-31|25|2025|Dec|00|12|366| 0|12|12|00|AM|am|12:00:00 AM|00:00|1735603200|00|00:00:00|2|52|01|2|53|12/31/24|00:00:00|24|2024|+0000|GMT|%",
            ),
            (
                253_402_300_799.0,
                "Fri|Friday|Dec|December|Fri Dec 31 23:59:59 9999|99|31|12/31/99|31|9999-12-31|99|9999|Dec|23|11|365|23|11|12|59|PM|pm|11:59:59 PM|23:59|253402300799|59|23:59:59|5|52|52|5|52|12/31/99|23:59:59|99|9999|+0000|GMT|%",
            ),
            (
                1_104_537_600.0,
                "Sat|Saturday|Jan|January|Sat Jan  1 00:00:00 2005|20|01|01/01/05| 1|2005-01-01|04|2004|Jan|00|12|001| 0|12|01|00|AM|am|12:00:00 AM|00:00|1104537600|00|00:00:00|6|00|53|6|00|01/01/05|00:00:00|05|2005|+0000|GMT|%",
            ),
            (
                978_307_199.0,
                "Sun|Sunday|Dec|December|Sun Dec 31 23:59:59 2000|20|31|12/31/00|31|2000-12-31|00|2000|Dec|23|11|366|23|11|12|59|PM|pm|11:59:59 PM|23:59|978307199|59|23:59:59|7|53|52|0|52|12/31/00|23:59:59|00|2000|+0000|GMT|%",
            ),
            (
                43_200.0,
                "Thu|Thursday|Jan|January|Thu Jan  1 12:00:00 1970|19|01|01/01/70| 1|1970-01-01|70|1970|Jan|12|12|001|12|12|01|00|PM|pm|12:00:00 PM|12:00|43200|00|12:00:00|4|00|01|4|00|01/01/70|12:00:00|70|1970|+0000|GMT|%",
            ),
        ] {
            assert_eq!(text(time_s, ALL), expected, "{time_s}");
        }
    }

    #[test]
    fn text_stays_around_conversions() {
        for (pattern, expected) in [
            ("%Y%m%dT%H%M%SZ", "19941106T084937Z"),
            ("a%n%tb%%%", "a\n\tb%%"),
            ("%-d|%_d|%0e|%-j|%_Y", "6| 6|06|310|1994"),
            ("%Q%5d%1%i%-", "%Q%5d%1%i%-"),
            ("%", "%"),
            ("é", "é"),
            ("", ""),
        ] {
            assert_eq!(text(784_111_777.9, pattern), expected, "{pattern}");
        }
        for time_s in [f64::NAN, f64::INFINITY, -1e12, 1e12] {
            assert_eq!(text(time_s, "%Y"), "", "{time_s}");
        }
    }

    proptest! {
        #[test]
        fn nothing_panics(time_s: f64, pattern in proptest::collection::vec(any::<u8>(), 0..16)) {
            format(time_s, &pattern);
            format(time_s % 1e11, &[b"%", pattern.as_slice()].concat());
        }

        #[test]
        fn a_date_reads_back(unix_s: u32) {
            let written = text(f64::from(unix_s), "%a, %d %b %Y %T %Z");
            prop_assert_eq!(super::super::time::time_s(written.as_bytes()), Ok(f64::from(unix_s)));
        }
    }
}
