//! Unsafe methods and the stored responses that they invalidate (RFC 9110 §9.3, RFC 9111 §4.4).

use crate::sequence::{Sequence, sequence};

/// Builds a sequence: a response is stored, an unsafe request results in `status`, and the response
/// is looked up again.
fn changed(name: &'static str, method: &'static str, status: u16) -> Sequence {
    sequence(name, "RFC 9111 §4.4")
        .ok("Cache-Control: max-age=60", "one")
        .answers(status, "", "done")
        .ok("Cache-Control: max-age=60", "two")
        .get("")
        .change(method)
        .get("")
}

/// Builds a sequence: a response is stored, the response to an unsafe request for another URL names
/// the stored URL in `fields`, and the stored response is looked up again.
fn named(name: &'static str, fields: &'static str) -> Sequence {
    sequence(name, "RFC 9111 §4.4")
        .ok("Cache-Control: max-age=60", "one")
        .answers(201, fields, "done")
        .ok("Cache-Control: max-age=60", "two")
        .get_at("a", "")
        .change("POST")
        .get_at("a", "")
}

pub(crate) fn all() -> Vec<Sequence> {
    vec![
        changed("change-post", "POST", 200),
        changed("change-put", "PUT", 201),
        changed("change-delete", "DELETE", 200),
        changed("change-patch", "PATCH", 200),
        changed("change-unknown", "UPDATE", 200),
        changed("change-seen-elsewhere", "POST", 303),
        changed("change-failed", "POST", 500),
        changed("change-refused", "PUT", 403),
        named("change-location", "Location: /change-location/a"),
        named("change-content-location", "Content-Location: /change-content-location/a"),
        named("change-location-elsewhere", "Location: http://other.example/change-location-elsewhere/a"),
        sequence("change-not-stored", "RFC 9110 §9.3.3")
            .ok("Cache-Control: max-age=60", "one")
            .ok("Cache-Control: max-age=60", "two")
            .change("POST")
            .get(""),
    ]
}
