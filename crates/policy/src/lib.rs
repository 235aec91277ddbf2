//! Policies: what operators say in VCL about each request and connection.
//!
//! The functions of the modules that a policy imports are in [`modules`].

pub mod modules;
