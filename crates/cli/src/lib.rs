//! Command-line tools: all commands of `thalweg` that do not run a role.
//!
//! Each module is a command or a group of commands, with its flags, help and output. [`admin`] is
//! the client of admin interfaces. The `thalweg` crate defines the command line.

pub mod admin;
pub mod admin_args;
pub mod backends;
pub mod bundle;
pub mod controller;
pub mod log;
pub mod origin;
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

/// Prints to standard output. Ignores errors, because a reader such as `head` may have closed the
/// pipe.
pub fn print_stdout(text: &str) {
    let _ = stdout().write_all(text.as_bytes());
}

/// Starts logging to standard error, one line per event.
pub fn start_logging() {
    let filter = EnvFilter::try_from_env("THALWEG_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let colour = stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr).with_ansi(colour).init();
}
