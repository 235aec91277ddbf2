//! Edge server: serves requests from the cache or a backend, and records every response.
//!
//! A request passes through these modules, in this order:
//!
//! - [`accept`]: one thread per core, each with its own runtime and its own listener on the shared
//!   port.
//! - [`worker`]: state shared by the requests of one thread.
//! - [`transport`]: parses requests and sends responses on a client connection. HTTP/1 is the only
//!   transport.
//! - [`session`]: processes one request, from its head to its log record. A policy can act at each
//!   step.
//! - [`lookup`]: finds the stored response, selects the part to send, and reads its content.
//! - [`fetch`]: the exchange with a backend that fills a `FillBuffer`; it can outlive the client
//!   request that started it.
//! - [`backend`]: the backends to fetch from, and persistent connections to them.
//!
//! Supporting modules:
//!
//! - [`steering`]: selects a connection's congestion control. [`bundle`]: the active rules and
//!   experiments.
//! - [`policy`]: VCL programs, and their interface to the process.
//! - [`admin`]: the interface for operators. [`purge`] and [`ban`]: removal of stored responses.
//! - [`publish`]: detects publish requests, which the edge refuses by default.
//! - [`log`]: one record per response. [`state`]: response counts that survive a crash.
//! - Leaves: [`clock`], [`config`], [`hops`], [`key`], [`refusal`], [`sent`], [`slices`],
//!   [`warnings`], [`mod@replace`].
//!
//! **Invariant:** all response content is read from a `FillBuffer`.
//! **Invariant:** a failed fill never looks like a complete response: the connection closes before
//! the content ends.

mod accept;
mod admin;
mod backend;
mod ban;
mod bundle;
mod clock;
mod config;
mod delivery;
mod fetch;
mod hops;
mod key;
mod log;
mod lookup;
mod policy;
mod publish;
mod purge;
mod refusal;
mod sent;
mod server;
mod session;
mod slices;
mod state;
mod steering;
mod transport;
mod warnings;
mod worker;

pub use admin::{KEEP_ALIVE, record_stream};
pub use backend::{BackendUrl, BackendUrlError};
pub use ban::check_ban;
pub use bundle::{BundleSource, BundleSourceError, BundleUrl, FileCheck, WatchedFile};
pub use config::{AbandonedFills, Config, DiskPlace, LogDestination, SlowStartAfterIdle, Timeouts};
pub use log::{FollowError, Follower, NumberedRecord, Records};
pub use policy::{LoadError, Policies, PolicyInfo, SHOWN_BYTES_MAX, Source};
pub use server::{BindError, Edge};
pub use state::EndedRun;
pub use thalweg_cache::rules::Rules;
pub use thalweg_geo::GeoError;

/// This cache's name in `Via` and `Cache-Status`.
const CACHE_NAME: &str = "thalweg";
