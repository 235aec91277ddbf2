//! What is stale is validated, and what that brings (RFC 9111 §4.3).

use crate::sequence::{Sequence, sequence};

pub(crate) fn all() -> Vec<Sequence> {
    vec![
        sequence("etag", "RFC 9111 §4.3.1")
            .ok("Cache-Control: max-age=1\nETag: \"a\"", "one")
            .ok("Cache-Control: max-age=60\nETag: \"a\"", "one")
            .get("")
            .later()
            .get("")
            .get("")
            .shows(&["etag"]),
        sequence("etag-changed", "RFC 9111 §4.3.3")
            .ok("Cache-Control: max-age=1\nETag: \"a\"", "one")
            .ok("Cache-Control: max-age=60\nETag: \"b\"", "two")
            .get("")
            .later()
            .get("")
            .get("")
            .shows(&["etag"]),
        sequence("etag-weak", "RFC 9110 §8.8.3.2")
            .ok("Cache-Control: max-age=1\nETag: W/\"a\"", "one")
            .ok("Cache-Control: max-age=60\nETag: W/\"a\"", "one")
            .get("")
            .later()
            .get("")
            .get("")
            .shows(&["etag"]),
        sequence("last-modified", "RFC 9111 §4.3.1")
            .ok("Cache-Control: max-age=1\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT", "one")
            .ok("Cache-Control: max-age=60\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT", "one")
            .get("")
            .later()
            .get("")
            .get(""),
        sequence("both-validators", "RFC 9110 §13.1.3")
            .ok("Cache-Control: max-age=1\nETag: \"a\"\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT", "one")
            .ok("Cache-Control: max-age=60\nETag: \"a\"\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT", "one")
            .get("")
            .later()
            .get("")
            .get(""),
        sequence("no-validator", "RFC 9111 §4.3.1")
            .ok("Cache-Control: max-age=1", "one")
            .ok("Cache-Control: max-age=60", "two")
            .get("")
            .later()
            .get("")
            .get(""),
        sequence("not-modified-updates", "RFC 9111 §3.2")
            .ok(
                "Cache-Control: max-age=1\nETag: \"a\"\nX-Version: 1\nX-Old: yes\nContent-Type: text/plain",
                "one",
            )
            .ok("ETag: \"a\"", "one")
            .not_modified("Cache-Control: max-age=60\nETag: \"a\"\nX-Version: 2\nContent-Type: text/html")
            .get("")
            .later()
            .get("")
            .get("")
            .shows(&["x-version", "x-old", "content-type"]),
        sequence("not-modified-bare", "RFC 9111 §4.3.4")
            .ok("Cache-Control: max-age=1\nETag: \"a\"", "one")
            .ok("ETag: \"a\"", "one")
            .not_modified("ETag: \"a\"")
            .get("")
            .later()
            .get("")
            .get("")
            .shows(&["cache-control"]),
        sequence("client-condition-when-stale", "RFC 9111 §4.3.2")
            .ok("Cache-Control: max-age=1\nETag: \"a\"", "one")
            .ok("Cache-Control: max-age=60\nETag: \"b\"", "two")
            .get("")
            .later()
            .get("If-None-Match: \"a\"")
            .get("If-None-Match: \"b\"")
            .shows(&["etag"]),
        sequence("validation-collapsed", "RFC 9111 §4.3.4")
            .ok("Cache-Control: max-age=1\nETag: \"a\"", "one")
            .ok("Cache-Control: max-age=60\nETag: \"a\"", "one")
            .get("")
            .later()
            .together(4),
    ]
}
