//! Policies: VCL programs, the active one, and their interface to the process.
//!
//! - [`loaded`]: programs by name, compiled from files; one of them is active.
//! - [`notes`]: the contributions of a request and its fetches to the record.
//! - [`geo`]: client geolocation databases.
//! - [`host`] and [`socket`]: a policy's access to the process and to the client connection.
//!
//! [`session::policy`](crate::session) runs the client side of a request's policy, and
//! `fetch::policy` the backend side. Without a policy, neither runs, and RFC 9111 alone decides.
//!
//! **Invariant:** a request and its fetches use the program that was active when the request
//! arrived.
//! **Invariant:** a program that fails affects only the request that runs it. That request gets a
//! 503, and the failure is logged.

mod geo;
pub(crate) mod host;
pub(crate) mod loaded;
pub(crate) mod notes;
pub(crate) mod socket;
pub(crate) mod visible_head;

pub(crate) use geo::GeoFiles;
pub(crate) use loaded::Compiled;
pub use loaded::{LoadError, Policies, PolicyInfo, SHOWN_BYTES_MAX, Source};
