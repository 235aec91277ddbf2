//! Tests of the `thalweg` program: its roles and tools, run as users run them.
#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod backends;
mod bundle;
mod bundles;
mod cli;
mod inspect;
mod log;
mod metrics;
#[path = "../../../tcp/tests/sockets/namespace.rs"]
mod namespace;
mod policy;
mod program;
mod purge;
mod routes;
mod servers;
mod slow_start;
mod sockets;
mod state;
mod up;
