//! Shares: parts of all, exact, so that those of all arms add up.

/// A part of all, in millionths: 0 to 1 with at most six decimals.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Share {
    millionths: u32,
}

/// How far from six decimals a number may be that was read as binary.
const ROUNDING_MAX: f64 = 1e-6;

impl Share {
    /// All of it.
    pub const ALL: Self = Self { millionths: 1_000_000 };

    /// So many millionths, if they are no more than all.
    pub fn from_millionths(millionths: u32) -> Option<Self> {
        (millionths <= Self::ALL.millionths).then_some(Self { millionths })
    }

    /// The number, if it is from 0 to 1 and has at most six decimals.
    pub fn from_number(number: f64) -> Option<Self> {
        let millionths = number * 1e6;
        let whole = millionths.round();
        if !(0.0..=1e6).contains(&whole) || (millionths - whole).abs() > ROUNDING_MAX {
            return None;
        }
        Self::from_millionths(whole as u32)
    }

    /// In millionths.
    pub fn millionths(self) -> u32 {
        self.millionths
    }

    /// As a number from 0 to 1.
    pub fn number(self) -> f64 {
        f64::from(self.millionths) / 1e6
    }
}
