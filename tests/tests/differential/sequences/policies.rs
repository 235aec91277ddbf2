//! Policies: each sequence tests one section of `policy.vcl`.

use crate::sequence::{Request, Sequence, Step, sequence};

const FRESH: &str = "Cache-Control: max-age=60";

pub(crate) fn all() -> Vec<Sequence> {
    [values(), more_values(), client_side(), backend_side(), marks(), anew(), times()].concat()
}

fn of(name: &'static str) -> Sequence {
    sequence(name, "vcl(7)")
}

fn values() -> Vec<Sequence> {
    vec![
        of("policy-texts").ok(FRESH, "one").get("Mixed: AbC\nGone: x").passes(&[
            "concat", "absent", "int", "real", "duration", "bool", "ip", "lower", "upper", "long", "empty",
            "gone",
        ]),
        of("policy-regex")
            .ok(FRESH, "one")
            .ok(FRESH, "two")
            .get_at("x", "Agent: Mobile phone")
            .get_at("y", "Agent: mobile tablet")
            .passes(&["sub", "all", "none", "icase", "look", "device"]),
        of("policy-std").ok(FRESH, "one").get_at("x", "Many: a\nMany: b").passes(&[
            "integer", "fallback", "duration", "real", "sort", "upper", "fnmatch", "ip", "bad-ip", "healthy",
            "many",
        ]),
        of("policy-cookie")
            .ok(FRESH, "one")
            .get("Cookie: tracking=1; session=abc; lang=en; other=x")
            .get("Cookie: lang=de")
            .passes(&["cookie", "lang", "isset"]),
        of("policy-acl").ok(FRESH, "one").get("").passes(&["in", "out"]),
    ]
}

fn more_values() -> Vec<Sequence> {
    vec![
        of("policy-types")
            .ok(FRESH, "one")
            .get("")
            .passes(&["real", "duration", "time", "bool", "ip", "int", "bytes", "backend", "joined"]),
        of("policy-regsub").ok(FRESH, "one").get("Latin: h\u{e9}h").passes(&[
            "empty-match",
            "empty-text",
            "star",
            "start",
            "end",
            "whole",
            "many",
            "unmatched",
            "no-group",
            "backslash",
            "ampersand",
            "case",
            "lazy",
            "class",
            "back",
            "ahead",
            "possessive",
            "unicode",
            "none",
            "matched",
        ]),
        of("policy-compare").ok(FRESH, "one").get("A: abc\nBlank:").passes(&[
            "equal", "unset", "less", "sign", "blank", "int", "real", "duration", "bytes", "ip", "backend",
            "logic", "truth",
        ]),
        of("policy-numbers")
            .ok(FRESH, "one")
            .get("")
            .passes(&["int", "real", "duration", "bytes", "time", "grown", "ttl"]),
        of("policy-pure").ok(FRESH, "one").get("").passes(&[
            "integer", "real", "duration", "bytes", "round", "convert", "sort", "strstr", "upper", "fnmatch",
            "strftime", "port", "syntax", "exists", "healthy",
        ]),
        of("policy-blob").ok(FRESH, "one").get("").passes(&["encode", "decode", "object", "length", "equal"]),
        of("policy-cookies")
            .ok(FRESH, "one")
            .get("Cookie: a=1; b=2;c=3; _x=y; quoted=\"q w\"; empty=; =nameless; a=again")
            .passes(&[
                "get", "isset", "get-re", "all", "changed", "filtered", "kept", "rest", "clean", "date",
            ]),
        of("policy-digest")
            .ok(FRESH, "one")
            .ok(FRESH, "two")
            .get_at("a", "")
            .get_at("a", "More: 1")
            .passes(&["digest", "length", "bedigest"]),
    ]
}

fn client_side() -> Vec<Sequence> {
    let purge = Step::Send(Request { method: "PURGE", tail: "", fields: "" });
    let synth = ["made", "location"];
    vec![
        of("policy-pass").ok(FRESH, "one").ok(FRESH, "two").get("").get(""),
        of("policy-synth").ok(FRESH, "one").get("").get("Redirect: 1").head("").shows(&synth),
        of("policy-purge").ok(FRESH, "one").ok(FRESH, "two").get("").get("").step(purge).get(""),
        of("policy-hash")
            .ok(FRESH, "one")
            .ok(FRESH, "two")
            .get_at("a?1", "Device: phone")
            .get_at("a?2", "Device: phone")
            .get_at("a?3", "Device: desk")
            .get_at("a?4", "Device: desk"),
        of("policy-hit")
            .ok(FRESH, "one")
            .ok(FRESH, "two")
            .get("")
            .get("")
            .get("Fresh: 1")
            .get("")
            .shows(&["found", "hits"]),
        of("policy-miss").ok(FRESH, "one").get("Refuse: 1").get("").get("Refuse: 1").shows(&synth),
        of("policy-restart")
            .answers(404, FRESH, "none")
            .ok(FRESH, "two")
            .get("")
            .get("Always: 1")
            .shows(&["restarts", "made"])
            .passes(&["restarts"]),
        of("policy-deliver")
            .ok("Cache-Control: max-age=60\nSecret: x", "one")
            .get("")
            .get("")
            .get("Range: bytes=1-1")
            .shows(&["status", "secret", "uncacheable"]),
        of("policy-rollback")
            .ok(FRESH, "one")
            .ok(FRESH, "two")
            .get_at("a", "RequestState: as sent\nRemoved: not")
            .get_at("b", "RequestState: as sent\nRemoved: not\nBack: 1")
            .passes(&["kept", "added", "removed", "after"]),
        of("policy-late").ok(FRESH, "one").get("").get("").shows(&synth),
    ]
}

fn backend_side() -> Vec<Sequence> {
    let directors = [
        "turns1",
        "turns2",
        "turns3",
        "turns4",
        "last",
        "one1",
        "one2",
        "hashed1",
        "hashed2",
        "hashed3",
        "hashed4",
        "within",
        "none",
        "ring1",
        "ring2",
        "ring3",
        "ring4",
        "ring1-alt",
        "later1",
        "later2",
        "later3",
        "later1-alt",
        "by",
    ];
    let of_directors = directors
        .iter()
        .fold(of("policy-directors"), |all, tail| all.ok("Cache-Control: no-store", "one").get_at(tail, ""))
        .shows(&["from"])
        .passes(&["by"]);
    vec![
        of_directors,
        of("policy-rolled").ok(FRESH, "one").get("RequestState: as sent").passes(&["kept", "added", "after"]),
        of("policy-fetch")
            .ok(FRESH, "one")
            .get_at("a", "Secret: x")
            .get_at("b", "Refuse: 1")
            .shows(&["made"])
            .passes(&["retries", "host", "secret"]),
        of("policy-retry")
            .answers(503, FRESH, "busy")
            .answers(503, FRESH, "busy")
            .ok(FRESH, "three")
            .get("")
            .get(""),
        of("policy-error").ok(FRESH, "one").ok(FRESH, "two").get("").get("").shows(&["made"]),
        of("policy-ttl")
            .ok("Cache-Control: max-age=5, private", "one")
            .ok(FRESH, "two")
            .get("")
            .get("")
            .shows(&["first", "then", "grace"]),
        of("policy-uncacheable").ok(FRESH, "one").ok(FRESH, "two").get("").get("").shows(&["known"]),
        of("policy-passed").ok(FRESH, "one").ok(FRESH, "two").get("").get("").shows(&["known"]),
        of("policy-method").ok(FRESH, "one").ok(FRESH, "two").get("As: HEAD"),
        of("policy-fields")
            .ok("Cache-Control: max-age=60\nETag: \"a\"\nContent-Type: a/b\nGone: x\nOther: x", "one")
            .get("")
            .get("If-None-Match: \"a\"")
            .get("Range: bytes=1-1")
            .shows(&["made", "gone", "other", "content-type"]),
        of("policy-set-cookie")
            .ok("Cache-Control: max-age=60\nSet-Cookie: a=b", "one")
            .ok(FRESH, "two")
            .get("")
            .get("")
            .shows(&["set-cookie"]),
        of("policy-status").ok(FRESH, "one").ok(FRESH, "two").get("").get(""),
        of("policy-vary")
            .ok(FRESH, "one")
            .ok(FRESH, "two")
            .get("Device: phone")
            .get("Device: phone")
            .get("Device: desk")
            .shows(&["vary"]),
        of("policy-built-in")
            .ok("Cache-Control: no-store, max-age=60", "one")
            .ok(FRESH, "two")
            .ok(FRESH, "three")
            .ok(FRESH, "four")
            .get("")
            .get("")
            .get("Cookie: a=b")
            .get("Authorization: Basic x"),
    ]
}

/// Builds sequences for hit-for-miss and hit-for-pass.
fn marks() -> Vec<Sequence> {
    let for_long = "Cache-Control: max-age=60\nFor: long";
    let for_short = "Cache-Control: max-age=60\nFor: short";
    let known = ["known"];
    vec![
        of("policy-hitpass").ok(for_long, "one").ok(FRESH, "two").ok(FRESH, "three").get("").get("").get(""),
        of("policy-hitpass-short")
            .ok(for_short, "one")
            .ok(FRESH, "two")
            .ok(FRESH, "three")
            .get("")
            .get("")
            .later()
            .get("")
            .get(""),
        of("policy-hitmiss")
            .ok(for_long, "one")
            .ok(for_long, "two")
            .ok(FRESH, "three")
            .get("")
            .get("")
            .get("")
            .get(""),
        of("policy-hitmiss-short").ok(for_short, "one").ok(FRESH, "two").get("").later().get("").get(""),
        of("policy-hitmiss-grace")
            .ok("Cache-Control: max-age=60\nFor: short, grace", "one")
            .ok(FRESH, "two")
            .get("")
            .later()
            .get("")
            .get(""),
        of("policy-hitmiss-together").ok(for_long, "one").ok(for_long, "two").get("").together(3),
    ]
    .into_iter()
    .map(|sequence| sequence.shows(&known).passes(&known))
    .collect()
}

/// Builds sequences that fetch stored responses again, even while another fetch is in progress.
fn anew() -> Vec<Sequence> {
    let validated = "Cache-Control: max-age=60\nETag: \"a\"";
    let together = |fields| Step::Together(Request { method: "GET", tail: "", fields }, 3);
    vec![
        of("policy-anew")
            .ok(validated, "one")
            .ok(validated, "two")
            .closed()
            .ok(validated, "four")
            .get("")
            .get("Anew: 1")
            .get("")
            .get("Anew: 1")
            .get("")
            .later()
            .get("Young: 1")
            .get("")
            .shows(&["made"]),
        of("policy-anew-together").ok(FRESH, "one").step(together("Anew: 1")).get(""),
        of("policy-busy").ok(FRESH, "one").step(together("Busy: 1")).get(""),
    ]
}

/// Builds sequences for durations below a second, and for grace.
fn times() -> Vec<Sequence> {
    let behind = ["behind"];
    let validated = "ETag: \"a\"";
    vec![
        of("policy-below").ok("", "one").get("").get("").shows(&["lives", "grace"]),
        of("policy-grace")
            .ok(validated, "one")
            .closed()
            .ok("ETag: \"b\"", "three")
            .get("")
            .later()
            .get("Strict: 1")
            .background()
            .until("three")
            .shows(&["made"])
            .passes(&behind),
        of("policy-grace-strict")
            .ok(validated, "one")
            .ok("ETag: \"b\"", "two")
            .get("")
            .later()
            .get("Strict: 1")
            .get("Strict: 1")
            .passes(&behind),
        of("policy-grace-retry")
            .ok("", "one")
            .closed()
            .closed()
            .ok("", "four")
            .get("")
            .later()
            .background_fetching(2)
            .until("four")
            .passes(&behind),
        of("policy-grace-busy")
            .ok("", "one")
            .answers(503, "Cache-Control: max-age=0", "busy")
            .ok("", "three")
            .get("")
            .later()
            .background()
            .until("three")
            .passes(&behind),
        of("policy-grace-waiting").closed().together(3).shows(&["made"]).passes(&behind),
    ]
}
