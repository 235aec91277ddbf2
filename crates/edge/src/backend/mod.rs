//! Backends: the servers to fetch from, and persistent connections to them.
//!
//! There are two kinds. Configured backends are used in rotation. A backend that refuses a
//! connection, or closes it without responding, is avoided briefly while others are available.
//! Backends declared by a policy are selected by name, without fallback to another backend.
//!
//! - [`url`]: the URL of a configured backend. [`server`]: one backend, and new connections to it.
//! - [`route`] and [`timeouts`]: a fetch's backend and timeouts.
//! - [`choice`]: all backends of an edge, and the choice between them. [`declared`]: the backends
//!   of one policy.
//! - [`endpoint`] and [`proxy`]: a backend's address, and the PROXY header sent on new connections.
//! - [`pool`] and [`idle`]: connections in use, and idle connections. [`error`]: connection errors.
//! - [`health`] and [`probe`]: whether a backend may be used.
//!
//! **Invariant:** a connection stays on one thread, because each worker has its own idle
//! connections.
//! **Invariant:** once no loaded policy and no request references a backend, its idle connections
//! close and its probe stops.

mod choice;
mod declared;
mod endpoint;
mod error;
mod health;
mod idle;
mod pool;
mod probe;
mod proxy;
mod route;
mod server;
#[cfg(test)]
mod tests;
mod timeouts;
pub(crate) mod url;

pub(crate) use choice::{BackendState, Backends};
pub(crate) use declared::PolicyBackends;
pub(crate) use health::{HealthOverride, InvalidHealth};
pub(crate) use pool::{Connection, Pool, Wanted};
pub(crate) use proxy::Ends;
pub(crate) use route::{Route, Target};
pub(crate) use server::{Backend, BackendId};
pub(crate) use timeouts::{FetchTimeouts, duration};
pub use url::{BackendUrl, BackendUrlError};
