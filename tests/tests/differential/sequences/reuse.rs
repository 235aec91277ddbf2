//! Reuse of stored responses for requests, and the age of responses (RFC 9111 §4).

use crate::sequence::{Sequence, sequence};

pub(crate) fn all() -> Vec<Sequence> {
    let mut all = vec![
        sequence("age", "RFC 9111 §5.1")
            .ok("Cache-Control: max-age=1000\nAge: 50", "one")
            .get("")
            .get("")
            .shows(&["age"]),
        sequence("age-from-date", "RFC 9111 §4.2.3")
            .ok("Cache-Control: max-age=1000\nDate: {-50}", "one")
            .get("")
            .get("")
            .shows(&["age"]),
        sequence("same-path", "RFC 9110 §4.2.3")
            .ok("Cache-Control: max-age=60", "one")
            .ok("Cache-Control: max-age=60", "two")
            .get_at("~a", "")
            .get_at("%7Ea", "")
            .get_at("%7ea", ""),
        sequence("other-query", "RFC 9111 §2")
            .ok("Cache-Control: max-age=60", "one")
            .ok("Cache-Control: max-age=60", "two")
            .get_at("?a=1", "")
            .get_at("?a=2", "")
            .get_at("?a=1", ""),
        sequence("collapsed", "RFC 9111 §4").ok("Cache-Control: max-age=60", "one").together(4).get(""),
        sequence("not-collapsed", "RFC 9111 §4").ok("Cache-Control: no-store", "one").together(4),
    ];
    all.extend(by_vary());
    all
}

fn by_vary() -> Vec<Sequence> {
    let clause = "RFC 9111 §4.1";
    let of = |name, vary| sequence(name, clause).ok(vary, "one").ok(vary, "two").ok(vary, "three");
    let language = "Cache-Control: max-age=60\nVary: Accept-Language";
    let encoding = "Cache-Control: max-age=60\nVary: Accept-Encoding";
    let other = "Cache-Control: max-age=60\nVary: X-Kind";
    vec![
        of("vary-variants", language)
            .get("Accept-Language: de")
            .get("Accept-Language: en")
            .get("Accept-Language: de")
            .get("Accept-Language: en"),
        of("vary-absent", language).get("").get("Accept-Language: de").get(""),
        of("vary-space", other).get("X-Kind: a, b").get("X-Kind: a,b").get("X-Kind: a ,  b"),
        of("vary-lines", other).get("X-Kind: a, b").get("X-Kind: a\nX-Kind: b"),
        of("vary-case", other).get("X-Kind: a").get("X-Kind: A"),
        of("vary-order", other).get("X-Kind: a, b").get("X-Kind: b, a"),
        of("vary-language-case", language).get("Accept-Language: de").get("Accept-Language: DE"),
        of("vary-language-space", language).get("Accept-Language: de, en").get("Accept-Language: de,en"),
        of("vary-language-order", language).get("Accept-Language: de, en").get("Accept-Language: en, de"),
        of("vary-encoding", encoding)
            .get("Accept-Encoding: gzip")
            .get("Accept-Encoding: br")
            .get("Accept-Encoding: GZIP"),
        of("vary-two-names", "Cache-Control: max-age=60\nVary: X-A, X-B")
            .get("X-A: 1\nX-B: 1")
            .get("X-A: 1\nX-B: 2")
            .get("X-B: 1\nX-A: 1"),
        of("vary-not-named", language).get("X-Other: a").get("X-Other: b"),
        sequence("vary-changes", clause)
            .ok(language, "one")
            .ok(other, "two")
            .ok(other, "three")
            .get("Accept-Language: de\nX-Kind: a")
            .get("Accept-Language: en\nX-Kind: a")
            .get("Accept-Language: fr\nX-Kind: a"),
    ]
}
