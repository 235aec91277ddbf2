//! Policies: VCL programs, which of them new requests run through, and a request's way through one.
//!
//! - [`loaded`]: programs by name, compiled from files, one of them active.
//! - [`transaction`]: a client's request: what its subroutines work on, and what they have decided.
//! - [`fetching`]: the same on the backend's side, for a fetch.
//! - [`geo`]: databases of where clients are.
//! - [`host`] and [`socket`]: what a policy may ask of the process and of the client's connection.
//!
//! Without a policy none of this is touched: the rules of RFC 9111 alone say what happens.
//!
//! **Invariant:** a request, and the fetch it causes, run through the program that was active when the request came.
//! **Invariant:** whatever a program does ends that one request at most, with 503 and a line in the log.

mod fetching;
mod geo;
mod host;
mod loaded;
mod socket;
mod transaction;

use thalweg_policy::step::Action;
use thalweg_policy::{Failure, Sub};

pub(crate) use fetching::Fetching;
pub(crate) use geo::GeoFiles;
pub(crate) use loaded::{Compiled, Loaded};
pub use loaded::{LoadError, Policies, SHOWN_BYTES_MAX, Source, Told};
pub(crate) use transaction::{Heads, Instead, Noted, Transaction, shown};

/// What a run of `sub` in the policy called `name` came to. Whatever went wrong in it is [`Action::Fail`], and told.
fn settled(result: Result<Action, Failure>, name: &str, sub: Sub) -> Action {
    match result {
        Ok(Action::Fail { reason }) => {
            let reason = reason.map(|text| String::from_utf8_lossy(&text).into_owned());
            tracing::warn!(policy = name, %sub, reason, "policy failed");
            Action::Fail { reason: None }
        }
        Ok(action) => action,
        Err(failure) => {
            tracing::warn!(policy = name, %sub, %failure, "policy failed");
            Action::Fail { reason: None }
        }
    }
}
