//! Conditions for serving stale responses (RFC 9111 §4.2.4, RFC 5861).

use crate::sequence::{Sequence, sequence};

pub(crate) fn all() -> Vec<Sequence> {
    [while_revalidating(), on_errors()].concat()
}

fn while_revalidating() -> Vec<Sequence> {
    let stored = |name, clause, fields| {
        sequence(name, clause).ok(fields, "one").ok("Cache-Control: max-age=60", "two")
    };
    vec![
        stored("swr", "RFC 5861 §3", "Cache-Control: max-age=1, stale-while-revalidate=60")
            .get("")
            .later()
            .background()
            .until("two")
            .shows(&["warning"]),
        stored("swr-over", "RFC 5861 §3", "Cache-Control: max-age=1, stale-while-revalidate=1")
            .get("")
            .later()
            .background()
            .until("two"),
        stored("swr-s-maxage", "RFC 9111 §5.2.2.10", "Cache-Control: s-maxage=1, stale-while-revalidate=60")
            .get("")
            .later()
            .background()
            .until("two"),
        stored(
            "swr-must-revalidate",
            "RFC 9111 §5.2.2.2",
            "Cache-Control: max-age=1, stale-while-revalidate=60, must-revalidate",
        )
        .get("")
        .later()
        .background()
        .until("two"),
        stored(
            "swr-proxy-revalidate",
            "RFC 9111 §5.2.2.8",
            "Cache-Control: max-age=1, stale-while-revalidate=60, proxy-revalidate",
        )
        .get("")
        .later()
        .background()
        .until("two"),
        stored("swr-together", "RFC 5861 §3", "Cache-Control: max-age=1, stale-while-revalidate=60")
            .get("")
            .later()
            .together(4)
            .until("two"),
        stored("no-swr", "RFC 9111 §4.2.4", "Cache-Control: max-age=1").get("").later().get("").get(""),
        sequence("swr-failing", "RFC 5861 §3")
            .ok("Cache-Control: max-age=1, stale-while-revalidate=60", "one")
            .answers(503, "", "failed")
            .ok("Cache-Control: max-age=60", "two")
            .get("")
            .later()
            .background()
            .until("two"),
    ]
}

fn on_errors() -> Vec<Sequence> {
    let lenient = "Cache-Control: max-age=1, stale-if-error=60";
    let clause = "RFC 5861 §4";
    vec![
        sequence("sie-503", clause).ok(lenient, "one").answers(503, "", "failed").get("").later().get(""),
        sequence("sie-500", clause).ok(lenient, "one").answers(500, "", "failed").get("").later().get(""),
        sequence("sie-closed", clause).ok(lenient, "one").closed().get("").later().get(""),
        sequence("sie-404", clause).ok(lenient, "one").answers(404, "", "gone").get("").later().get(""),
        sequence("sie-over", clause)
            .ok("Cache-Control: max-age=1, stale-if-error=1", "one")
            .answers(503, "", "failed")
            .get("")
            .later()
            .get(""),
        sequence("sie-must-revalidate", "RFC 9111 §5.2.2.2")
            .ok("Cache-Control: max-age=1, stale-if-error=60, must-revalidate", "one")
            .answers(503, "", "failed")
            .get("")
            .later()
            .get(""),
        sequence("sie-etag", clause)
            .ok("Cache-Control: max-age=1, stale-if-error=60\nETag: \"a\"", "one")
            .answers(503, "", "failed")
            .ok("Cache-Control: max-age=60\nETag: \"a\"", "one")
            .get("")
            .later()
            .get("")
            .get(""),
        sequence("no-sie", "RFC 9111 §4.2.4")
            .ok("Cache-Control: max-age=1", "one")
            .answers(503, "", "failed")
            .get("")
            .later()
            .get(""),
        sequence("no-sie-closed", "RFC 9111 §4.2.4")
            .ok("Cache-Control: max-age=1, must-revalidate", "one")
            .closed()
            .get("")
            .later()
            .get(""),
    ]
}
