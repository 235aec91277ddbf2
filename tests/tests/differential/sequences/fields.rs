//! Targeted cache fields (RFC 9213), hop-by-hop fields (RFC 9110 §7.6), and fields added by caches.

use crate::sequence::{Sequence, sequence};

pub(crate) fn all() -> Vec<Sequence> {
    [targeted(), by_hop()].concat()
}

fn targeted() -> Vec<Sequence> {
    let of =
        |name, fields| sequence(name, "RFC 9213 §2.2").ok(fields, "one").ok(fields, "two").get("").get("");
    vec![
        of("cdn-longer", "CDN-Cache-Control: max-age=60\nCache-Control: no-store"),
        of("cdn-no-store", "CDN-Cache-Control: no-store\nCache-Control: max-age=60"),
        of("cdn-before-expires", "CDN-Cache-Control: max-age=60\nExpires: {-60}"),
        of("cdn-malformed", "CDN-Cache-Control: max-age=60, &\nCache-Control: no-store"),
        of("cdn-passed-on", "CDN-Cache-Control: max-age=60\nCache-Control: max-age=5")
            .shows(&["cdn-cache-control"]),
    ]
}

fn by_hop() -> Vec<Sequence> {
    let fresh = "Cache-Control: max-age=60";
    vec![
        sequence("response-nominated", "RFC 9110 §7.6.1")
            .ok("Cache-Control: max-age=60\nConnection: x-hop\nX-Hop: yes\nX-End: yes", "one")
            .get("")
            .get("")
            .shows(&["x-hop", "x-end"]),
        sequence("response-hop", "RFC 9110 §7.6.1")
            .ok(
                "Cache-Control: max-age=60\nKeep-Alive: timeout=5\nProxy-Connection: close\nUpgrade: h2c\nTrailer: x",
                "one",
            )
            .get("")
            .get("")
            .shows(&["keep-alive", "proxy-connection", "upgrade", "trailer"]),
        sequence("request-nominated", "RFC 9110 §7.6.1")
            .ok(fresh, "one")
            .get("Connection: x-hop\nX-Hop: yes\nX-End: yes")
            .passes(&["x-hop", "x-end"]),
        sequence("request-hop", "RFC 9110 §7.6.1")
            .ok(fresh, "one")
            .get("Keep-Alive: timeout=5\nProxy-Connection: keep-alive\nTE: trailers\nUpgrade: h2c")
            .passes(&["keep-alive", "proxy-connection", "te", "upgrade"]),
        sequence("via", "RFC 9110 §7.6.3").ok(fresh, "one").get("").shows(&["via"]).passes(&["via"]),
        sequence("forwarded-for", "RFC 7239 §1").ok(fresh, "one").get("").passes(&["x-forwarded-for"]),
        sequence("host", "RFC 9110 §7.2").ok(fresh, "one").get("").passes(&["host"]),
        sequence("date-kept", "RFC 9110 §6.6.1")
            .ok("Cache-Control: max-age=60\nDate: Thu, 01 Jan 2026 00:00:00 GMT", "one")
            .get("")
            .shows(&["date"]),
        sequence("own-fields-kept", "RFC 9110 §5.1")
            .ok("Cache-Control: max-age=60\nServer: origin\nX-Twice: a\nX-Twice: b", "one")
            .get("")
            .get("")
            .shows(&["server", "x-twice", "cache-control"]),
    ]
}
