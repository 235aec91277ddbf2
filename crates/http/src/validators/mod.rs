//! Validators and conditional requests (RFC 9110 §8.8 and §13).
//!
//! All functions take field values, not messages, so that they serve any HTTP library.

mod entity_tag;
mod preconditions;

pub use entity_tag::{EntityTag, entity_tags};
pub use preconditions::{Outcome, Preconditions, range_applies};
