//! Policies: VCL programs, the active one, and their interface to the process.
//!
//! - [`loaded`]: programs by name, compiled from files; one of them is active.
//! - [`notes`]: what a request and its fetches add to the record.
//! - [`geo`]: databases for the geolocation of clients.
//! - [`host`] and [`socket`]: a policy's access to the process and the client's connection.
//!
//! [`session::policy`](crate::session) is the client side of a request's policy; `fetch::policy` is
//! the backend side. Without a policy, neither is used and RFC 9111 alone decides.
//!
//! **Invariant:** a request, and any fetch it causes, use the program that was active when the
//! request arrived.
//! **Invariant:** a faulty program affects only the request that runs it, which gets 503 and a log
//! line.

mod geo;
pub(crate) mod host;
pub(crate) mod loaded;
pub(crate) mod notes;
pub(crate) mod socket;
pub(crate) mod visible_head;

pub(crate) use geo::GeoFiles;
pub(crate) use loaded::Compiled;
pub use loaded::{LoadError, Policies, PolicyInfo, SHOWN_BYTES_MAX, Source};
