//! UTC timestamps in the format of manifests and `/time`: ISO 8601 with milliseconds, such as
//! `2026-11-20T23:35:18.250Z`.

use std::fmt;

use jiff::Timestamp;

/// Milliseconds since 1970-01-01T00:00:00Z, not counting leap seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Utc(pub i64);

impl Utc {
    /// Converts microseconds since 1970, rounded to the nearest millisecond.
    pub fn from_micros(us: i64) -> Utc {
        Utc((us + 500).div_euclid(1000))
    }
}

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // ISO 8601 years have four digits.
        let time = Timestamp::from_millisecond(self.0).unwrap_or(Timestamp::MAX);
        write!(f, "{time:.3}")
    }
}

#[cfg(test)]
mod tests {
    use super::Utc;

    #[test]
    fn known_instants_are_formatted() {
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
