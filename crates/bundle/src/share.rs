//! Shares: fractions stored exactly, so that the shares of an experiment's arms sum to exactly 1.

/// A fraction from 0 to 1 with at most six decimals, stored in millionths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Share {
    millionths: u32,
}

/// Maximum deviation from a whole number of millionths that is attributed to floating-point
/// rounding, in millionths.
const ROUNDING_MAX: f64 = 1e-6;

impl Share {
    /// The full share, 1.
    pub const ALL: Self = Self { millionths: 1_000_000 };

    /// Creates a share from millionths. Returns `None` above 1,000,000.
    pub fn from_millionths(millionths: u32) -> Option<Self> {
        (millionths <= Self::ALL.millionths).then_some(Self { millionths })
    }

    /// Creates a share from a number. Returns `None` unless the number is from 0 to 1 and has at
    /// most six decimals.
    pub fn from_number(number: f64) -> Option<Self> {
        let millionths = number * 1e6;
        let whole = millionths.round();
        if !(0.0..=1e6).contains(&whole) || (millionths - whole).abs() > ROUNDING_MAX {
            return None;
        }
        Self::from_millionths(whole as u32)
    }

    /// Returns the share in millionths.
    pub fn millionths(self) -> u32 {
        self.millionths
    }

    /// Returns the share as a number from 0 to 1.
    pub fn number(self) -> f64 {
        f64::from(self.millionths) / 1e6
    }
}
