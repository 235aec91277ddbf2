//! Emulated network paths: their description, their emulation between network namespaces, and a
//! check that the two agree.
//!
//! - [`scenario`]: a server and its clients' paths, parsed from text; pure.
//! - [`emulation`]: a running scenario.
//! - [`check`]: measures emulated paths and compares them with their descriptions.
//! - [`signals`]: termination signals, which must remove the emulation.

pub mod check;
pub mod emulation;
pub mod scenario;
pub mod signals;
