//! Status codes that are stored, and for how long (RFC 9110 §15.1, RFC 9111 §3).

use crate::sequence::{Sequence, sequence};

fn twice(name: &'static str, clause: &'static str, status: u16, fields: &'static str) -> Sequence {
    sequence(name, clause).answers(status, fields, "one").answers(status, fields, "two").get("").get("")
}

pub(crate) fn all() -> Vec<Sequence> {
    let fresh = "Cache-Control: max-age=30";
    let cacheable = "RFC 9110 §15.1";
    let any = "RFC 9111 §3";
    vec![
        twice("status-204", cacheable, 204, fresh),
        twice("status-301", cacheable, 301, "Cache-Control: max-age=30\nLocation: /there")
            .shows(&["location"]),
        twice("status-302", any, 302, "Cache-Control: max-age=30\nLocation: /there"),
        twice("status-302-bare", any, 302, "Location: /there"),
        twice("status-307", any, 307, "Cache-Control: max-age=30\nLocation: /there"),
        twice("status-404", cacheable, 404, fresh),
        twice("status-404-bare", cacheable, 404, ""),
        twice("status-404-no-store", cacheable, 404, "Cache-Control: no-store"),
        twice("status-410-bare", cacheable, 410, ""),
        twice("status-403", any, 403, fresh),
        twice("status-500", any, 500, fresh),
        twice("status-503", any, 503, fresh),
        twice("status-503-bare", any, 503, ""),
        twice("status-599", any, 599, fresh),
        twice("status-599-bare", any, 599, "ETag: \"a\""),
        twice(
            "status-599-must-understand",
            "RFC 9111 §5.2.2.3",
            599,
            "Cache-Control: must-understand, max-age=30",
        ),
        twice(
            "status-206-unasked",
            "RFC 9111 §3.3",
            206,
            "Cache-Control: max-age=30\nContent-Range: bytes 0-2/9",
        ),
    ]
}
