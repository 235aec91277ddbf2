//! Emulated network paths: scenario files, emulation between network namespaces, and checks that
//! the emulation matches the scenario.
//!
//! - [`scenario`]: a server and the paths to its clients, parsed from TOML.
//! - [`emulation`]: runs a scenario.
//! - [`check`]: measures emulated paths and compares them with the scenario.
//! - [`signals`]: handlers for termination signals, so that an interrupted run removes its
//!   emulation.

pub mod check;
pub mod emulation;
pub mod scenario;
pub mod signals;
