//! `directors`: select one of several backends for a request (vmod_directors(3)).
//!
//! The caller chooses the member type `M`, such as an index. A member may be another director,
//! which the caller then resolves. Health is a closure over members; randomness is a closure or a
//! number in [0, 1); time is in Unix seconds. Selection takes `&self`, so that all workers share a
//! director; changes take `&mut self`.

pub mod in_turn;
pub mod parameters;
mod ring;
pub mod shard;
pub mod weighted;

use std::fmt;

pub use in_turn::{Fallback, InTurn, RoundRobin};
pub use shard::Shard;
pub use weighted::Weighted;

/// Maximum members of a director.
pub const MEMBERS_MAX: usize = 1024;

/// Why a director could not be configured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Error {
    /// More than [`MEMBERS_MAX`] members.
    Members,
    /// A weight that is negative or not finite.
    Weight(f64),
    /// A warmup outside 0 to 1.
    Warmup(f64),
    /// A rampup that is negative or not finite.
    Rampup(f64),
    /// A shard director without members.
    Empty,
    /// Zero replicas, or more than [`shard::POINTS_MAX`] when weighted.
    Replicas(i64),
    /// A key outside 0 to 2³² − 1.
    Key(i64),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Members => write!(f, "more than {MEMBERS_MAX} backends in a director"),
            Error::Weight(weight) => write!(f, "weight must be finite and not negative, got {weight}"),
            Error::Warmup(warmup) => write!(f, "warmup must be between 0 and 1, got {warmup}"),
            Error::Rampup(rampup) => write!(f, "rampup must be finite and not negative, got {rampup} s"),
            Error::Empty => f.write_str("shard director has no backends"),
            Error::Replicas(replicas) => {
                write!(f, "{replicas} replicas: the ring must have 1 to {} points", shard::POINTS_MAX)
            }
            Error::Key(key) => write!(f, "key must be between 0 and {}, got {key}", u32::MAX),
        }
    }
}

impl std::error::Error for Error {}

/// Returns whether any of `members` is healthy; if so, their director is healthy, too.
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
