//! Validators and conditional requests (RFC 9110 §8.8 and §13).
//!
//! Conditions are evaluated on field values, not messages, so that they work with any HTTP library.

mod entity_tag;
mod preconditions;

pub use entity_tag::{EntityTag, entity_tags};
pub use preconditions::{Outcome, Preconditions, range_applies};

use crate::Fields;

/// Returns the value of `ETag` if it is a strong entity tag. Responses with equal strong tags have
/// identical content (RFC 9110 §8.8.1).
pub fn strong_etag(fields: &Fields) -> Option<&[u8]> {
    fields.get("etag").filter(|etag| EntityTag::parse(etag).is_some_and(|tag| !tag.weak))
}

/// Returns whether a response with `fields` can be validated (RFC 9111 §4.3.1).
pub fn has_validator(fields: &Fields) -> bool {
    fields.contains("etag") || fields.contains("last-modified")
}
