//! Conditional requests answered from the cache (RFC 9110 §13, RFC 9111 §4.3.2), and HEAD (RFC 9110
//! §9.3.2).

use crate::sequence::{Sequence, sequence};

fn backed(name: &'static str, clause: &'static str) -> Sequence {
    let fields = "Cache-Control: max-age=60\nETag: \"a\"\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\n\
                  Content-Type: text/plain\nX-Other: yes";
    sequence(name, clause).ok(fields, "one")
}

fn stored(name: &'static str, clause: &'static str, fields: &'static str) -> Sequence {
    backed(name, clause).get("").get(fields)
}

pub(crate) fn all() -> Vec<Sequence> {
    let none_match = "RFC 9110 §13.1.2";
    let since = "RFC 9110 §13.1.3";
    vec![
        stored("inm-same", "RFC 9110 §15.4.5", "If-None-Match: \"a\"").shows(&[
            "etag",
            "cache-control",
            "last-modified",
            "content-type",
            "content-length",
            "x-other",
        ]),
        stored("inm-other", none_match, "If-None-Match: \"b\""),
        stored("inm-weak", none_match, "If-None-Match: W/\"a\""),
        stored("inm-list", none_match, "If-None-Match: \"x\", \"a\""),
        stored("inm-any", none_match, "If-None-Match: *"),
        stored("inm-unquoted", none_match, "If-None-Match: a"),
        stored(
            "inm-before-ims",
            since,
            "If-None-Match: \"b\"\nIf-Modified-Since: Thu, 01 Jan 2026 00:00:00 GMT",
        ),
        stored("ims-same", since, "If-Modified-Since: Thu, 01 Jan 2026 00:00:00 GMT"),
        stored("ims-later", since, "If-Modified-Since: Fri, 02 Jan 2026 00:00:00 GMT"),
        stored("ims-earlier", since, "If-Modified-Since: Wed, 31 Dec 2025 00:00:00 GMT"),
        stored("ims-invalid", since, "If-Modified-Since: yesterday"),
        stored("im-same", "RFC 9110 §13.1.1", "If-Match: \"a\""),
        stored("im-other", "RFC 9110 §13.1.1", "If-Match: \"b\""),
        stored("im-weak", "RFC 9110 §13.1.1", "If-Match: W/\"a\""),
        stored("ius-later", "RFC 9110 §13.1.4", "If-Unmodified-Since: Fri, 02 Jan 2026 00:00:00 GMT"),
        stored("ius-earlier", "RFC 9110 §13.1.4", "If-Unmodified-Since: Wed, 31 Dec 2025 00:00:00 GMT"),
        stored("inm-before-range", "RFC 9110 §13.2.2", "If-None-Match: \"a\"\nRange: bytes=0-0"),
        backed("inm-cold", "RFC 9111 §4.3.1").get("If-None-Match: \"a\"").get(""),
        backed("inm-cold-other", "RFC 9111 §4.3.1").get("If-None-Match: \"b\"").get(""),
        sequence("inm-unshared", none_match)
            .ok("Cache-Control: no-store\nETag: \"a\"", "one")
            .get("If-None-Match: \"a\"")
            .get("If-None-Match: \"a\""),
        sequence("inm-of-404", "RFC 9110 §13.2.1")
            .answers(404, "Cache-Control: max-age=30\nETag: \"a\"", "one")
            .get("")
            .get("If-None-Match: \"a\""),
        backed("head-after-get", "RFC 9110 §9.3.2").get("").head("").shows(&["content-length", "etag"]),
        backed("head-before-get", "RFC 9110 §9.3.2").head("").get("").shows(&["content-length", "etag"]),
        backed("head-condition", "RFC 9110 §13.1.2").get("").head("If-None-Match: \"a\""),
        sequence("head-unshared", "RFC 9110 §9.3.2")
            .ok("Cache-Control: no-store", "one")
            .head("")
            .head("")
            .shows(&["content-length"]),
    ]
}
