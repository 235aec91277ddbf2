//! The lab: networks on one machine, and what congestion control and load do on them.
//!
//! - [`scenario`]: what is asked for, read from text; pure.
//! - [`emulation`]: the same as it runs, between network namespaces.
//! - [`check`]: whether it is what was asked for.
//! - [`cc`]: algorithms of congestion control, compared over such paths.
//! - [`load`]: what many clients ask of a server, and what they measure.
//! - [`reproduce`]: the field's published results, measured again.
//! - [`report`]: charts and pages of results.
//! - [`signals`]: those that ask it to end.
//! - [`viewer`]: viewers that keep a playhead and count their stalls.
//!
//! It knows the delivery program as a process alone.

pub mod cc;
pub mod check;
pub mod emulation;
pub mod load;
mod process;
pub mod report;
pub mod reproduce;
pub mod scenario;
pub mod signals;
pub mod viewer;
