//! UTC as manifests and `/time` write it: ISO 8601 with milliseconds, such as `2026-11-20T23:35:18.250Z`.

use std::fmt;

/// Milliseconds since 1970-01-01T00:00:00Z, not counting leap seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Utc(pub i64);

const MS_PER_DAY: i64 = 86_400_000;

impl Utc {
    /// From microseconds since the epoch, to the nearest millisecond.
    pub fn from_micros(us: i64) -> Utc {
        Utc((us + 500).div_euclid(1000))
    }
}

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = civil(self.0.div_euclid(MS_PER_DAY));
        let ms = self.0.rem_euclid(MS_PER_DAY);
        let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", ms % 1000)
    }
}

/// Year, month and day of a day counted from 1970-01-01 in the Gregorian calendar. Counts from
/// 0000-03-01 so that the leap day is the last of its year, in eras of 400 years.
fn civil(day: i64) -> (i64, i64, i64) {
    let day = day + 719_468;
    let era = day.div_euclid(146_097);
    let of_era = day.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day_of_month = of_year - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year_of_era + carry, month, day_of_month)
}

#[cfg(test)]
mod tests {
    use super::Utc;

    #[test]
    fn known_instants() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_799_999, "2000-02-29T23:59:59.999Z"),
            (1_795_217_718_250, "2026-11-20T23:35:18.250Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(Utc(ms).to_string(), text);
        }
    }

    #[test]
    fn microseconds_round_to_the_nearest_millisecond() {
        assert_eq!(Utc::from_micros(1_499), Utc(1));
        assert_eq!(Utc::from_micros(1_500), Utc(2));
        assert_eq!(Utc::from_micros(-1_501), Utc(-2));
    }
}
