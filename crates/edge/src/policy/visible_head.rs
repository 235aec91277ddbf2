//! Stored response head as visible to a policy.

use thalweg_cache::Head;
use thalweg_http::{ResponseHead, Version};

/// Returns a stored response's head without the fields reserved for the client that caused the
/// fetch.
pub(crate) fn visible_head(head: &Head) -> ResponseHead {
    ResponseHead {
        status: head.status,
        version: Version::Http11,
        reason: head.reason.clone(),
        fields: head.fields.clone(),
    }
}
