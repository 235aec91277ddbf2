//! The lab: networks on one machine, and what congestion control and load do on them.
//!
//! - [`scenario`]: what is asked for, read from text; pure.
//! - [`emulation`]: the same as it runs, between network namespaces.
//! - [`check`]: whether it is what was asked for.
//! - [`load`]: what many clients ask of a server, and what they measure.
//!
//! It knows the delivery program as a process alone.

pub mod check;
pub mod emulation;
pub mod load;
pub mod scenario;
