//! `directors`: which of several backends a request goes to (vmod_directors(3)).
//!
//! A member `M` is whatever the caller takes for a backend, such as an index; it may stand for another director, whose
//! own choice the caller asks for next. Health is a closure over members, randomness a closure or a number from 0 on and
//! below 1, time is seconds since 1970. Choosing takes `&self`, so that one director serves every worker; changes take
//! `&mut self`.

pub mod in_turn;
mod ring;
pub mod shard;
pub mod weighted;

use std::fmt;

pub use in_turn::{Fallback, InTurn, RoundRobin};
pub use shard::Shard;
pub use weighted::Weighted;

/// The most members of a director.
pub const MEMBERS_MAX: usize = 1024;

/// Why a director could not be set up so.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Error {
    /// More than [`MEMBERS_MAX`] members.
    Members,
    /// A weight that is negative or no number.
    Weight(f64),
    /// A warmup that is not from 0 to 1.
    Warmup(f64),
    /// A rampup that is negative or no number.
    Rampup(f64),
    /// A shard director without members.
    Empty,
    /// No replica, or with the weights more than [`shard::POINTS_MAX`].
    Replicas(i64),
    /// A key that is not from 0 to 2³² − 1.
    Key(i64),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Members => write!(f, "more than {MEMBERS_MAX} backends in a director"),
            Error::Weight(weight) => write!(f, "weight {weight} is not a number from 0 on"),
            Error::Warmup(warmup) => write!(f, "warmup {warmup} is not between 0 and 1"),
            Error::Rampup(rampup) => write!(f, "rampup of {rampup} s is not a duration from 0 on"),
            Error::Empty => f.write_str("no backends in the shard director"),
            Error::Replicas(replicas) => {
                write!(f, "{replicas} replicas do not make 1 to {} points on the ring", shard::POINTS_MAX)
            }
            Error::Key(key) => write!(f, "key {key} is not between 0 and {}", u32::MAX),
        }
    }
}

impl std::error::Error for Error {}

/// Whether any of `members` is healthy: so is then a director of them.
pub fn any_healthy<'a, M: 'a>(
    members: impl IntoIterator<Item = &'a M>,
    is_healthy: impl FnMut(&'a M) -> bool,
) -> bool {
    members.into_iter().any(is_healthy)
}

fn push<T>(members: &mut Vec<T>, member: T) -> Result<(), Error> {
    if members.len() == MEMBERS_MAX {
        return Err(Error::Members);
    }
    members.push(member);
    Ok(())
}
