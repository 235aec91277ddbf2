//! A stored head as a policy sees it.

use thalweg_cache::Head;
use thalweg_http::{ResponseHead, Version};

/// Returns the head of a stored response, without fields withheld from all but the fetching client.
pub(crate) fn visible_head(head: &Head) -> ResponseHead {
    ResponseHead {
        status: head.status,
        version: Version::Http11,
        reason: head.reason.clone(),
        fields: head.fields.clone(),
    }
}
