//! Time formatting for `std.strftime` (vmod_std(3); strftime(3) in the C locale and UTC).
//!
//! Supports all conversions of C11 §7.27.3.5 and glibc's `%P`, `%k`, `%l` and `%s`. One of glibc's
//! flags `-` (no padding), `_` (spaces) and `0` may precede the letter. Anything else after a `%`,
//! such as a width or the modifiers `E` and `O`, is copied unchanged.

use jiff::civil::DateTime;

use super::time;

/// Conversions for which jiff's output equals glibc's.
const CONVERSIONS: &[u8] = b"aAbBCdDegGhHIjklmMnpPRStTuUVwWyY%";

/// Formats `time_s`, in Unix seconds. Returns an empty string for a time before the year 1 or after
/// 9999.
pub fn format(time_s: f64, format: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    if let Some(civil) = time::of_unix_s(time_s) {
        write(&mut text, civil, format);
    }
    text
}

fn write(text: &mut Vec<u8>, civil: DateTime, format: &[u8]) {
    let mut rest = format;
    while let [byte, after @ ..] = rest {
        rest = after;
        if *byte != b'%' {
            text.push(*byte);
            continue;
        }
        let (flag, conversion) = match after {
            [flag @ (b'-' | b'_' | b'0'), after @ ..] => (Some(*flag), after),
            _ => (None, after),
        };
        match conversion {
            [letter, after @ ..] if write_one(text, civil, *letter, flag) => rest = after,
            _ => text.push(b'%'),
        }
    }
}

/// Writes one conversion; returns `false` if the letter is unknown.
fn write_one(text: &mut Vec<u8>, civil: DateTime, letter: u8, flag: Option<u8>) -> bool {
    match letter {
        b'c' => write(text, civil, b"%a %b %e %H:%M:%S %Y"),
        b'F' => write(text, civil, b"%Y-%m-%d"),
        b'x' => write(text, civil, b"%m/%d/%y"),
        b'r' => write(text, civil, b"%I:%M:%S %p"),
        b'X' => write(text, civil, b"%H:%M:%S"),
        b's' => text.extend_from_slice(time::unix_s(civil).to_string().as_bytes()),
        b'z' => text.extend_from_slice(b"+0000"),
        b'Z' => text.extend_from_slice(b"GMT"),
        _ if CONVERSIONS.contains(&letter) => {
            // By default, glibc pads a century with zeros but does not pad a year.
            let (usual, width) = match letter {
                b'G' | b'Y' => (Some('-'), None),
                b'C' => (Some('0'), Some('2')),
                _ => (None, None),
            };
            let parts = [Some('%'), flag.map(char::from).or(usual), width, Some(char::from(letter))];
            let conversion: String = parts.into_iter().flatten().collect();
            text.extend_from_slice(civil.strftime(&conversion).to_string().as_bytes());
        }
        _ => return false,
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: &str = "%a|%A|%b|%B|%c|%C|%d|%D|%e|%F|%g|%G|%h|%H|%I|%j|%k|%l|%m|%M|%p|%P|%r|%R|%s|%S|%T|%u|%U|%V|%w|%W|%x|%X|%y|%Y|%z|%Z|%%";

    fn text(time_s: f64, pattern: &str) -> String {
        String::from_utf8(format(time_s, pattern.as_bytes())).unwrap()
    }

    /// Output must match varnishd 7.1.1 with glibc.
    #[test]
    fn all_conversions_are_formatted() {
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
    fn text_around_conversions_is_copied() {
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
        fn no_input_panics(time_s: f64, pattern in proptest::collection::vec(any::<u8>(), 0..16)) {
            format(time_s, &pattern);
            format(time_s % 1e11, &[b"%", pattern.as_slice()].concat());
        }

        #[test]
        fn formatted_date_parses_back(unix_s: u32) {
            let written = text(f64::from(unix_s), "%a, %d %b %Y %T %Z");
            prop_assert_eq!(super::super::time::time_s(written.as_bytes()), Ok(f64::from(unix_s)));
        }
    }
}
