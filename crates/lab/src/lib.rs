//! The lab: networks on one machine, and what congestion control and load do on them.
//!
//! - [`scenario`]: what is asked for, read from text; pure.
//! - [`emulation`]: the same as it runs, between network namespaces.
//! - [`check`]: whether it is what was asked for.
//! - [`viewer`]: viewers that keep a playhead and count their stalls.
//!
//! It knows the delivery program as a process alone.

pub mod check;
pub mod emulation;
pub mod scenario;
pub mod viewer;
