//! Fixtures for end-to-end tests: telemetry records, and the real services they are sent to.

pub mod records;
pub mod services;
