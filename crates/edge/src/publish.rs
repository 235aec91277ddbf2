//! Publish requests: unsafe methods below `/ingest/`, where an origin accepts live channels.
//!
//! An edge is public: if it forwarded publish requests, any client could replace a channel. It
//! therefore refuses them unless configured otherwise. The origin also refuses forwarded ingest
//! requests.

use thalweg_http::{Method, target};

/// First path segment of a publishing point.
const INGEST: &[u8] = b"ingest";

/// Returns whether a request publishes. Percent-encoding, empty path segments and upper case are
/// normalised first, because a server between this edge and the origin may do the same.
pub(crate) fn publishes(method: Method, path: &str) -> bool {
    if matches!(method, Method::Get | Method::Head | Method::Options | Method::Trace | Method::Purge) {
        return false;
    }
    let Some(decoded) = target::decode(path) else { return false };
    let first = decoded.split(|&byte| byte == b'/').find(|segment| !segment.is_empty());
    first.is_some_and(|segment| segment.eq_ignore_ascii_case(INGEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_methods_below_ingest_publish() {
        for path in [
            "/ingest/demo/Streams(v.cmfv)",
            "/ingest",
            "//ingest/a",
            "/%69ngest/a",
            "/%2Fingest%2Fa",
            "/INGEST/a",
        ] {
            for method in [Method::Put, Method::Post, Method::Delete, Method::Patch, Method::Other] {
                assert!(publishes(method, path), "{method:?} {path}");
            }
            for method in [Method::Get, Method::Head, Method::Options] {
                assert!(!publishes(method, path), "{method:?} {path}");
            }
        }
        for path in ["/", "/ingested/a", "/live/ingest/a", "/upload"] {
            assert!(!publishes(Method::Put, path), "{path}");
        }
    }
}
