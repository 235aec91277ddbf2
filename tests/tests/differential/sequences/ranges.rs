//! Ranges of stored and of uncacheable responses (RFC 9110 §14).

use crate::sequence::{Sequence, sequence};

const DIGITS: &str = "0123456789";
/// Content long enough that a multipart response is shorter than the complete content.
const LONG: &str = concat!(
    "0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000001",
    "1000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000002",
    "2000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000003",
    "3000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000004",
    "4000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000005",
);

fn backed(name: &'static str, clause: &'static str) -> Sequence {
    let fields = "Cache-Control: max-age=60\nAccept-Ranges: bytes\nETag: \"a\"\n\
                  Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT\nContent-Type: text/plain";
    sequence(name, clause).ok(fields, DIGITS).shows(&["content-range", "content-type"])
}

/// Builds a sequence that requests a range of a stored response.
fn stored(name: &'static str, clause: &'static str, fields: &'static str) -> Sequence {
    backed(name, clause).get("").get(fields)
}

pub(crate) fn all() -> Vec<Sequence> {
    let ranges = "RFC 9110 §14.2";
    let if_range = "RFC 9110 §13.1.5";
    vec![
        stored("range", ranges, "Range: bytes=2-5"),
        stored("range-to-end", ranges, "Range: bytes=7-"),
        stored("range-suffix", ranges, "Range: bytes=-3"),
        stored("range-suffix-longer", ranges, "Range: bytes=-30"),
        stored("range-suffix-0", ranges, "Range: bytes=-0"),
        stored("range-beyond-end", ranges, "Range: bytes=7-30"),
        stored("range-all", ranges, "Range: bytes=0-"),
        stored("range-unsatisfiable", "RFC 9110 §15.5.17", "Range: bytes=20-30"),
        stored("range-backwards", "RFC 9110 §14.1.1", "Range: bytes=5-2"),
        stored("range-other-unit", ranges, "Range: lines=1-2"),
        stored("range-unit-case", "RFC 9110 §14.1", "Range: BYTES=2-5"),
        stored("range-several", "RFC 9110 §15.3.7.2", "Range: bytes=0-0,9-9"),
        sequence("range-parts", "RFC 9110 §15.3.7.2")
            .ok("Cache-Control: max-age=60\nAccept-Ranges: bytes\nContent-Type: text/plain", LONG)
            .get("")
            .get("Range: bytes=99-100, -1")
            .get("Range: bytes=499-, 0-0, 900-")
            .shows(&["content-range", "content-type"]),
        stored("range-several-one-left", "RFC 9110 §15.3.7.2", "Range: bytes=2-3,20-30"),
        stored("range-overlapping", "RFC 9110 §15.3.7.2", "Range: bytes=0-5,3-9"),
        stored(
            "range-many-same",
            "RFC 9110 §14.2",
            "Range: bytes=0-,0-,0-,0-,0-,0-,0-,0-,0-,0-,0-,0-,0-,0-,0-,0-,0-",
        ),
        stored("if-range-holds", if_range, "Range: bytes=2-5\nIf-Range: \"a\""),
        stored("if-range-fails", if_range, "Range: bytes=2-5\nIf-Range: \"b\""),
        stored("if-range-weak", if_range, "Range: bytes=2-5\nIf-Range: W/\"a\""),
        stored("if-range-date", if_range, "Range: bytes=2-5\nIf-Range: Thu, 01 Jan 2026 00:00:00 GMT"),
        stored("if-range-other-date", if_range, "Range: bytes=2-5\nIf-Range: Fri, 02 Jan 2026 00:00:00 GMT"),
        backed("range-head", ranges).get("").head("Range: bytes=2-5"),
        backed("range-cold", "RFC 9111 §3.3").get("Range: bytes=2-5").get("").get("Range: bytes=-1"),
        backed("range-cold-unsatisfiable", "RFC 9110 §15.5.17").get("Range: bytes=20-").get(""),
        sequence("range-unshared", ranges)
            .ok("Cache-Control: no-store\nAccept-Ranges: bytes\nETag: \"a\"", DIGITS)
            .get("Range: bytes=2-5")
            .shows(&["content-range"]),
        sequence("range-of-404", ranges)
            .answers(404, "Cache-Control: max-age=30\nAccept-Ranges: bytes", DIGITS)
            .get("")
            .get("Range: bytes=2-5"),
        sequence("range-no-accept-ranges", "RFC 9110 §14.3")
            .ok("Cache-Control: max-age=60\nETag: \"a\"", DIGITS)
            .get("")
            .get("Range: bytes=2-5"),
    ]
}
