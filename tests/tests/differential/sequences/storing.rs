//! Decisions to store a response, depending on its fields (RFC 9111 §3, §5.2.2, §5.3).

use crate::sequence::{Sequence, sequence};

pub(crate) fn all() -> Vec<Sequence> {
    [lifetimes(), refusals(), malformed()].concat()
}

/// Builds a sequence of two requests for a response with `fields`. The second one is a hit if the
/// response was stored.
fn twice(name: &'static str, clause: &'static str, fields: &'static str) -> Sequence {
    sequence(name, clause).ok(fields, "one").ok(fields, "two").get("").get("")
}

fn lifetimes() -> Vec<Sequence> {
    vec![
        twice("max-age", "RFC 9111 §5.2.2.1", "Cache-Control: max-age=60"),
        twice("max-age-0", "RFC 9111 §5.2.2.1", "Cache-Control: max-age=0"),
        twice("s-maxage-longer", "RFC 9111 §5.2.2.10", "Cache-Control: max-age=0, s-maxage=60"),
        twice("s-maxage-0", "RFC 9111 §5.2.2.10", "Cache-Control: max-age=60, s-maxage=0"),
        twice("expires", "RFC 9111 §5.3", "Expires: {+60}"),
        twice("expires-past", "RFC 9111 §5.3", "Expires: {-60}"),
        twice("expires-overruled", "RFC 9111 §5.3", "Cache-Control: max-age=60\nExpires: {-60}"),
        twice("expires-overrules-not", "RFC 9111 §5.3", "Expires: {+60}\nCache-Control: max-age=0"),
        twice("expires-from-date", "RFC 9111 §4.2.1", "Date: {-40}\nExpires: {-10}"),
        twice("heuristic", "RFC 9111 §4.2.2", "Last-Modified: {-864000}"),
        twice("no-lifetime", "RFC 9111 §3", ""),
        twice("public-alone", "RFC 9111 §5.2.2.9", "Cache-Control: public"),
        twice("apparent-age", "RFC 9111 §4.2.3", "Date: {-100}\nCache-Control: max-age=60"),
        twice("received-age", "RFC 9111 §4.2.3", "Age: 100\nCache-Control: max-age=60"),
        twice("immutable", "RFC 8246 §2", "Cache-Control: max-age=60, immutable"),
        twice("chunked", "RFC 9112 §7.1", "Cache-Control: max-age=60").chunked(),
    ]
}

fn refusals() -> Vec<Sequence> {
    vec![
        twice("no-store", "RFC 9111 §5.2.2.5", "Cache-Control: no-store, max-age=60"),
        twice("private", "RFC 9111 §5.2.2.7", "Cache-Control: private, max-age=60"),
        twice(
            "private-field",
            "RFC 9111 §5.2.2.7",
            "Cache-Control: private=\"x-user\", max-age=60\nX-User: me",
        )
        .shows(&["x-user"]),
        twice("no-cache", "RFC 9111 §5.2.2.4", "Cache-Control: no-cache, max-age=60\nETag: \"a\""),
        twice(
            "no-cache-field",
            "RFC 9111 §5.2.2.4",
            "Cache-Control: no-cache=\"x-user\", max-age=60\nX-User: me",
        )
        .shows(&["x-user"]),
        twice("set-cookie", "RFC 9111 §7.3", "Cache-Control: max-age=60\nSet-Cookie: a=b")
            .shows(&["set-cookie"]),
        twice("vary-any", "RFC 9111 §4.1", "Cache-Control: max-age=60\nVary: *"),
        twice("must-understand", "RFC 9111 §5.2.2.3", "Cache-Control: must-understand, no-store, max-age=60"),
        twice("pragma-response", "RFC 9111 §5.4", "Pragma: no-cache\nCache-Control: max-age=60"),
        with_authorization("authorization", "Cache-Control: max-age=60"),
        with_authorization("authorization-public", "Cache-Control: public, max-age=60"),
        with_authorization("authorization-s-maxage", "Cache-Control: s-maxage=60"),
        with_authorization("authorization-must-revalidate", "Cache-Control: must-revalidate, max-age=60"),
        sequence("cookie-request", "RFC 9111 §3")
            .ok("Cache-Control: max-age=60", "one")
            .ok("Cache-Control: max-age=60", "two")
            .get("Cookie: a=b")
            .get("Cookie: a=c"),
        sequence("backend-closes", "RFC 9110 §9.2.2")
            .closed()
            .ok("Cache-Control: max-age=60", "two")
            .get("")
            .get(""),
    ]
}

fn with_authorization(name: &'static str, fields: &'static str) -> Sequence {
    let request = "Authorization: Basic YTpi";
    sequence(name, "RFC 9111 §3.5").ok(fields, "one").ok(fields, "two").get(request).get(request)
}

fn malformed() -> Vec<Sequence> {
    vec![
        twice("max-age-twice", "RFC 9111 §4.2.1", "Cache-Control: max-age=60, max-age=0"),
        twice("max-age-twice-other-way", "RFC 9111 §4.2.1", "Cache-Control: max-age=0, max-age=60"),
        twice("max-age-invalid", "RFC 9111 §4.2.1", "Cache-Control: max-age=abc"),
        twice("max-age-tail", "RFC 9111 §4.2.1", "Cache-Control: max-age=60x"),
        twice("max-age-negative", "RFC 9111 §1.2.2", "Cache-Control: max-age=-60"),
        twice("max-age-quoted", "RFC 9111 §5.2", "Cache-Control: max-age=\"60\""),
        twice("max-age-overflow", "RFC 9111 §1.2.2", "Cache-Control: max-age=99999999999999999999"),
        twice("directive-case", "RFC 9111 §5.2", "Cache-Control: MAX-AGE=60"),
        twice("two-lines", "RFC 9110 §5.3", "Cache-Control: max-age=60\nCache-Control: no-store"),
        twice("unknown-directive", "RFC 9111 §5.2.3", "Cache-Control: x-no-store=\"no-store\", max-age=60"),
        twice("quoted-directive", "RFC 9111 §5.2", "Cache-Control: x=\", no-store, \", max-age=60"),
        twice("expires-0", "RFC 9111 §5.3", "Expires: 0\nETag: \"a\""),
        twice("expires-invalid", "RFC 9111 §5.3", "Expires: tomorrow"),
        twice("expires-twice", "RFC 9111 §4.2.1", "Expires: {+60}\nExpires: {-60}"),
        twice("age-invalid", "RFC 9111 §5.1", "Age: x\nCache-Control: max-age=60"),
    ]
}
