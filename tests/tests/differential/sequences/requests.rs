//! Cache directives in requests (RFC 9111 §5.2.1, §5.4).

use crate::sequence::{Sequence, sequence};

/// Builds a sequence: a response with lifetime 1000 and age 50 is stored, then requested with
/// `fields`, then without them.
fn stored(name: &'static str, clause: &'static str, fields: &'static str) -> Sequence {
    let fresh = "Cache-Control: max-age=1000\nAge: 50\nETag: \"a\"";
    sequence(name, clause)
        .ok(fresh, "one")
        .ok("Cache-Control: max-age=1000\nETag: \"b\"", "two")
        .get("")
        .get(fields)
        .get("")
}

pub(crate) fn all() -> Vec<Sequence> {
    vec![
        stored("request-no-cache", "RFC 9111 §5.2.1.4", "Cache-Control: no-cache"),
        stored("request-max-age-0", "RFC 9111 §5.2.1.1", "Cache-Control: max-age=0"),
        stored("request-max-age-10", "RFC 9111 §5.2.1.1", "Cache-Control: max-age=10"),
        stored("request-max-age-500", "RFC 9111 §5.2.1.1", "Cache-Control: max-age=500"),
        stored("request-min-fresh-100", "RFC 9111 §5.2.1.3", "Cache-Control: min-fresh=100"),
        stored("request-min-fresh-2000", "RFC 9111 §5.2.1.3", "Cache-Control: min-fresh=2000"),
        stored("request-no-store", "RFC 9111 §5.2.1.5", "Cache-Control: no-store"),
        stored("request-only-if-cached", "RFC 9111 §5.2.1.7", "Cache-Control: only-if-cached"),
        stored("request-pragma", "RFC 9111 §5.4", "Pragma: no-cache"),
        stored("request-pragma-overruled", "RFC 9111 §5.4", "Pragma: no-cache\nCache-Control: max-age=500"),
        sequence("only-if-cached-miss", "RFC 9111 §5.2.1.7")
            .ok("Cache-Control: max-age=60", "one")
            .get("Cache-Control: only-if-cached")
            .get(""),
        sequence("no-store-miss", "RFC 9111 §5.2.1.5")
            .ok("Cache-Control: max-age=60", "one")
            .ok("Cache-Control: max-age=60", "two")
            .get("Cache-Control: no-store")
            .get(""),
        sequence("max-stale", "RFC 9111 §5.2.1.2")
            .ok("Cache-Control: max-age=1\nETag: \"a\"", "one")
            .ok("Cache-Control: max-age=60\nETag: \"b\"", "two")
            .get("")
            .later()
            .get("Cache-Control: max-stale=60")
            .get(""),
        sequence("max-stale-must-revalidate", "RFC 9111 §5.2.2.2")
            .ok("Cache-Control: max-age=1, must-revalidate\nETag: \"a\"", "one")
            .ok("Cache-Control: max-age=60\nETag: \"b\"", "two")
            .get("")
            .later()
            .get("Cache-Control: max-stale=60"),
        sequence("max-stale-s-maxage", "RFC 9111 §5.2.2.10")
            .ok("Cache-Control: s-maxage=1\nETag: \"a\"", "one")
            .ok("Cache-Control: max-age=60\nETag: \"b\"", "two")
            .get("")
            .later()
            .get("Cache-Control: max-stale=60"),
        stored("request-max-age-invalid", "RFC 9111 §5.2.1.1", "Cache-Control: max-age=x"),
        sequence("reload-immutable", "RFC 8246 §2")
            .ok("Cache-Control: max-age=60, immutable\nETag: \"a\"", "one")
            .ok("Cache-Control: max-age=60\nETag: \"b\"", "two")
            .get("")
            .get("Cache-Control: max-age=0"),
    ]
}
