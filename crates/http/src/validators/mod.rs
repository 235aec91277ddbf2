//! Validators and conditional requests (RFC 9110 §8.8 and §13).
//!
//! Those of conditions take field values, not messages, so that they serve any HTTP library.

mod entity_tag;
mod preconditions;

pub use entity_tag::{EntityTag, entity_tags};
pub use preconditions::{Outcome, Preconditions, range_applies};

use crate::Fields;

/// The value of `ETag`, if it is a strong entity tag (RFC 9110 §8.8.1): equal ones are of the same bytes.
pub fn strong_etag(fields: &Fields) -> Option<&[u8]> {
    fields.get("etag").filter(|etag| EntityTag::parse(etag).is_some_and(|tag| !tag.weak))
}

/// Whether a response with `fields` can be asked about with a condition (RFC 9111 §4.3.1).
pub fn has_validator(fields: &Fields) -> bool {
    fields.contains("etag") || fields.contains("last-modified")
}
