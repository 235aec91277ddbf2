//! End-to-end scenarios, the records that they send, and the real services that they run against.

pub mod records;
pub mod services;
