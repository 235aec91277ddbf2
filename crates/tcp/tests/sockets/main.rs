//! Tests with real loopback sockets: dumps, filters and events report exactly the sockets that
//! exist.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod crowd;
mod dumps;
mod events;
mod filters;
mod namespace;
mod pairs;
mod ss;
