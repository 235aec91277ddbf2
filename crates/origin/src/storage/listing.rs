//! What listings of buckets and web servers share: entries, names, and the meaning of statuses.

use std::time::SystemTime;

use hyper::StatusCode;
use hyper::header::HeaderValue;

use super::pool::FailureKind;

/// A file found by a listing.
#[derive(Debug)]
pub(super) struct Listed {
    /// Path below the library's root.
    pub(super) key: String,
    pub(super) size: u64,
    pub(super) modified: SystemTime,
    /// Strong entity tag.
    pub(super) etag: Option<String>,
}

/// Returns the kind of failure that a status expresses.
pub(super) fn kind_of(status: StatusCode) -> Option<FailureKind> {
    Some(match status.as_u16() {
        401 | 403 => FailureKind::Denied,
        404 | 410 | 412 | 416 => FailureKind::Changed,
        429 | 500 | 502 | 503 | 504 => FailureKind::SlowDown,
        _ => return None,
    })
}

/// Returns whether an entity tag is strong and can be sent in `If-Match`.
pub(super) fn is_strong(etag: &str) -> bool {
    etag.len() > 2 && etag.starts_with('"') && etag.ends_with('"') && HeaderValue::from_str(etag).is_ok()
}

/// Returns whether a name can be that of a presentation: one path segment that is not hidden.
pub(super) fn is_presentation_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with('.')
        && !name.contains(['/', '\\'])
        && !name.contains(char::is_control)
}

/// Percent-encodes all characters but the unreserved ones (RFC 3986 §2.3) and, in a path, slashes.
pub(super) fn encode(text: &str, is_path: bool) -> String {
    use std::fmt::Write;
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || is_path && byte == b'/' {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}
