//! Lab experiments: congestion control and load on emulated networks, and reproductions of
//! published results.
//!
//! - [`cc`]: compares congestion control algorithms over emulated paths.
//! - [`reproduce`]: reproduces published results.
//! - [`report`]: charts and pages of results.
//!
//! The lab runs the delivery program only as a separate process. `thalweg_netem` provides the
//! paths, `thalweg_load` the clients.

pub mod cc;
mod process;
pub mod report;
pub mod reproduce;
