//! End-to-end scenarios, and the real services that they run against.

pub mod services;
