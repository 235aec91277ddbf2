//! Literals in conditions: strings, booleans, numbers with a unit, and points in time.

use std::cmp::Ordering;

use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

/// Accepted time formats, for error messages.
pub(super) const TIME_EXPECTED: &str = "a time: 2026-11-20, 2026-11-20T23:00, 2026-11-20T23:00:05.5Z, 23:00 or 23:00:05 of any day, all in UTC, or 10min ago";

/// A parsed literal.
#[derive(Debug)]
pub(super) enum Literal {
    Text(Box<str>),
    Truth(bool),
    /// A number, in the field's unit.
    Number(f64),
    Time(Moment),
}

/// A field's number syntax.
#[derive(Debug, Clone)]
pub struct Quantity {
    /// The accepted units, each as a multiple of the field's unit.
    pub units: Vec<(String, f64)>,
    /// Whether a non-zero number requires a unit.
    pub needs_unit: bool,
    /// An example for the error message, such as `a status such as 404`.
    pub example: &'static str,
}

impl Quantity {
    /// Accepts plain numbers without a unit.
    pub fn count(example: &'static str) -> Self {
        Self { units: Vec::new(), needs_unit: false, example }
    }

    /// Accepts a number of seconds, or a number with one of the duration units of policies.
    pub fn seconds(example: &'static str) -> Self {
        let units = crate::units::DURATIONS.iter().map(|(name, seconds)| ((*name).to_owned(), *seconds));
        Self { units: units.collect(), needs_unit: false, example }
    }

    /// Parses a number into the field's unit; the error describes the accepted syntax.
    pub(super) fn parse(&self, text: &str) -> Result<f64, String> {
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (digits, unit) = text.split_at(digits);
        let (number, unit): (f64, _) = (digits.parse().map_err(|_| self.expected())?, unit.trim_start());
        match self.units.iter().find(|(name, _)| name == unit) {
            Some((_, scale)) => Ok(number * scale),
            None if unit.is_empty() && (!self.needs_unit || number == 0.0) => Ok(number),
            None => Err(self.expected()),
        }
    }

    fn expected(&self) -> String {
        if self.units.is_empty() {
            return self.example.to_owned();
        }
        let units: Vec<_> = self.units.iter().map(|(name, _)| name.as_str()).collect();
        format!("{}; units: {}", self.example, units.join(", "))
    }
}

/// A point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    At(Timestamp),
    /// A time of day in UTC, compared with the time of day in a record regardless of the record's
    /// date.
    OfDay(Time),
}

impl Moment {
    pub(super) fn parse(text: &str, now_us: i64) -> Option<Self> {
        if let Some(span) = text.strip_suffix("ago") {
            let span: SignedDuration = span.trim_end().parse().ok()?;
            let now = Timestamp::from_microsecond(now_us).ok()?;
            return now.checked_sub(span).ok().map(Self::At);
        }
        if let Ok(time) = text.parse::<Timestamp>() {
            return Some(Self::At(time));
        }
        // Require a colon: `jiff` would parse a bare number as an hour.
        if text.as_bytes().get(2) == Some(&b':') {
            return text.parse().ok().map(Self::OfDay);
        }
        let time = text.parse::<DateTime>().ok()?;
        TimeZone::UTC.to_timestamp(time).ok().map(Self::At)
    }

    /// Compares `found`, a time in RFC 3339 format, with this point in time.
    pub(super) fn order(self, found: &str) -> Option<Ordering> {
        let found: Timestamp = found.parse().ok()?;
        Some(match self {
            Self::At(time) => found.cmp(&time),
            Self::OfDay(time) => TimeZone::UTC.to_datetime(found).time().cmp(&time),
        })
    }
}
