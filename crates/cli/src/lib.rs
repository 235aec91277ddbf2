//! Command-line tools: everything `thalweg` does besides running roles.
//!
//! Each module is a command or a group of commands, with its flags, help and output. [`admin`] is
//! the client of admin interfaces. The `thalweg` crate defines the command line.

pub mod admin;
pub mod admin_args;
pub mod backends;
pub mod bundle;
pub mod controller;
pub mod log;
pub mod policies;
pub mod purge;
pub mod query;
pub mod routes;
pub mod schema;
pub mod secret;
mod signals;
pub mod simulate;
pub mod sockets;

use std::io::{IsTerminal, Write, stderr, stdout};

use tracing_subscriber::EnvFilter;

pub use signals::Signals;

/// Prints to standard output and ignores a pipe closed by its reader, such as `head`.
pub fn print_or_gone(text: &str) {
    let _ = stdout().write_all(text.as_bytes());
}

/// Logs events to standard error, one line each.
pub fn start_logging() {
    let filter = EnvFilter::try_from_env("THALWEG_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let colour = stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr).with_ansi(colour).init();
}
