//! `directors`: select one of several backends for each request (vmod_directors(3)).
//!
//! The caller chooses the member type `M`, such as an index. A member may be another director,
//! which the caller then resolves. The caller passes health as a closure over members, randomness
//! as a closure or a number in [0, 1), and time in Unix seconds. Selection takes `&self`, so that
//! all workers can share a director; changes take `&mut self`.

pub mod in_turn;
pub mod parameters;
mod ring;
pub mod shard;
pub mod weighted;

use std::fmt;

pub use in_turn::{Fallback, InTurn, RoundRobin};
pub use shard::Shard;
pub use weighted::Weighted;

/// Maximum number of members of a director.
pub const MEMBERS_MAX: usize = 1024;

/// Reason why a director could not be configured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Error {
    /// The director would have more than [`MEMBERS_MAX`] members.
    Members,
    /// The weight is negative or not finite.
    Weight(f64),
    /// The warmup is outside 0 to 1.
    Warmup(f64),
    /// The rampup is negative or not finite.
    Rampup(f64),
    /// The shard director has no members.
    Empty,
    /// The number of replicas is not positive, or the ring would have more than
    /// [`shard::POINTS_MAX`] points.
    Replicas(i64),
    /// The key is outside 0 to 2³² − 1.
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
                write!(
                    f,
                    "invalid number of replicas {replicas}: the ring must have 1 to {} points",
                    shard::POINTS_MAX
                )
            }
            Error::Key(key) => write!(f, "key must be between 0 and {}, got {key}", u32::MAX),
        }
    }
}

impl std::error::Error for Error {}

/// Returns whether any of `members` is healthy, in which case their director is healthy.
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
