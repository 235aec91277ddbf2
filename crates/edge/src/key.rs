//! Cache keys, which consist of the host and the normalised path and query.

use thalweg_http::{Authority, target};

/// Writes the cache key for `target` at `authority` to `key`, replacing its content.
pub(crate) fn write_key(authority: &Authority, target: &str, key: &mut String) {
    key.clear();
    // The default port of `http` is omitted (RFC 9110 §4.2.3).
    let authority = authority.as_str();
    key.push_str(authority.strip_suffix(":80").unwrap_or(authority));
    key.push_str(&target::normalise(target));
}
