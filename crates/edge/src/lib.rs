//! The edge: takes requests, answers from the cache, fetches from backends, and tells how each response went.
//!
//! A request goes through these rooms, in this order:
//!
//! - [`worker`]: one thread a core, each with its own runtime and its own listener on the shared port.
//! - [`connection`]: a client's connection: one response after the other, its congestion control.
//! - [`steering`]: who decides on a connection's congestion control, and what was decided.
//! - [`bundle`]: the rules and experiments in force, from a file or a server.
//! - [`request`]: requests as they come: heads, content that is handed on or read over.
//! - [`answer`]: what answers a request: stored, joined, fetched, passed, or an error of our own.
//! - [`purge`]: what is no longer to be served, as clients and the admin interface ask for it.
//! - [`policy`]: VCL programs, and a request's way through one.
//! - [`fetch`]: the exchange with a backend that fills a `FillBuffer`; it outlives the client that caused it.
//! - [`upload`] and [`interim`]: between the two connections: a request's content one way, interim responses the other.
//! - [`hops`]: by which nodes a message came, and that it does not go in a circle.
//! - [`content`] and [`slices`]: what a reply is read from: one fill, or slices of large content, fetched as they are read.
//! - [`reply`] and [`multipart`]: from a stored head and the request to status, ranges and fields.
//! - [`send`]: head and content onto the socket, by `writev` or `sendfile`.
//! - [`sent`] and [`log`]: the record of each response, to the log file and to who follows.
//! - [`state`]: how many responses each start of the edge has begun, over kills. [`mod@replace`]: files that are replaced in one step.
//!
//! **Invariant:** all content leaves through a `FillBuffer` reader.
//! **Invariant:** a failed fill never looks like a complete response: the connection closes before its end.

mod admin;
mod answer;
mod backend;
mod bundle;
mod config;
mod connection;
mod content;
mod exchange;
mod fetch;
mod hops;
mod interim;
mod log;
mod multipart;
mod policy;
mod purge;
mod replace;
mod reply;
mod request;
mod send;
mod sent;
mod server;
mod slices;
mod state;
mod steering;
mod upload;
mod worker;

pub use admin::{KEEP_ALIVE, record_stream};
pub use backend::{BackendUrl, BackendUrlError};
pub use bundle::{BundleSource, BundleSourceError, BundleUrl, FileLook, WatchedFile};
pub use config::{AbandonedFills, Config, DiskPlace, LogTo, SlowStartAfterIdle, Timeouts};
pub use log::{Follower, Numbered, Records};
pub use policy::{LoadError, Policies, SHOWN_BYTES_MAX, Source, Told};
pub use replace::replace;
pub use server::{BindError, Edge};
pub use state::Ended;
pub use thalweg_cache::rules::Rules;
pub use thalweg_cache::{Expression, ExpressionError};
pub use thalweg_geo::GeoError;

/// The name by which this cache tells of itself in `Via` and `Cache-Status`.
const CACHE_NAME: &str = "thalweg";

/// Unix seconds, as [`now_ms`] has them.
fn coarse_now_s() -> f64 {
    now_ms() as f64 / 1e3
}

/// Unix seconds, to the microsecond.
fn now_s() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Unix milliseconds, as of the kernel's last tick: at most 10 ms ago, for a third of the cost.
fn now_ms() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    u64::try_from(now.tv_sec * 1000 + now.tv_nsec / 1_000_000).unwrap_or_default()
}
