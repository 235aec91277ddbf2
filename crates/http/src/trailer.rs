//! Trailer sections (RFC 9110 §6.5) and the fields allowed in them.

use crate::Fields;

/// Fields forbidden in trailers. Most are needed before the content, for framing, routing, response
/// and cache control, authentication or the content format (§6.5.1). The others apply to a single
/// hop, client or page.
const FORBIDDEN: [&str; 54] = [
    "accept-ranges",
    "age",
    "allow",
    "alt-svc",
    "authentication-info",
    "authorization",
    "cache-control",
    "cache-status",
    "cdn-cache-control",
    "cdn-loop",
    "clear-site-data",
    "connection",
    "content-disposition",
    "content-encoding",
    "content-length",
    "content-location",
    "content-range",
    "content-security-policy",
    "content-type",
    "cookie",
    "date",
    "expect",
    "expires",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "keep-alive",
    "location",
    "max-forwards",
    "pragma",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    "proxy-connection",
    "proxy-status",
    "range",
    "refresh",
    "retry-after",
    "set-cookie",
    "set-cookie2",
    "strict-transport-security",
    "surrogate-control",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "vary",
    "via",
    "warning",
    "www-authenticate",
    "x-forwarded-for",
];

/// Removes from `trailer` the forbidden fields and those nominated as hop-by-hop in `head`, the
/// header section of the message.
pub fn remove_forbidden(trailer: &mut Fields, head: &Fields) {
    let is = |name: &[u8], other: &[u8]| name.eq_ignore_ascii_case(other);
    trailer.remove_where(|name, _| {
        FORBIDDEN.iter().any(|forbidden| is(name, forbidden.as_bytes()))
            || head.list("connection").any(|option| is(name, option))
    });
}

/// Returns whether the sender of `fields` accepts trailers (RFC 9110 §10.1.4).
pub fn are_accepted(fields: &Fields) -> bool {
    fields.list("te").any(|coding| coding.eq_ignore_ascii_case(b"trailers"))
}
