//! Trailer sections (RFC 9110 §6.5 and §10.1.4).

use thalweg_http::{Fields, trailer};

#[test]
fn rfc9110_6_5_1_fields_needed_before_the_content_are_dropped() {
    let mut fields: Fields = [
        ("X-Sum", "1"),
        ("Content-LENGTH", "5"),
        ("Transfer-Encoding", "chunked"),
        ("Host", "a"),
        ("Set-Cookie", "a=b"),
        ("cache-control", "max-age=9"),
        ("WWW-Authenticate", "Basic"),
        ("X-Hop", "1"),
        ("ETag", "\"v1\""),
        ("Content-Digest", "sha-256=:AA==:"),
    ]
    .into_iter()
    .collect();
    let head: Fields = [("Connection", "close, x-hop")].into_iter().collect();
    trailer::remove_forbidden(&mut fields, &head);
    assert_eq!(fields.text(), b"X-Sum: 1\r\nETag: \"v1\"\r\nContent-Digest: sha-256=:AA==:\r\n");
}

#[test]
fn rfc9110_10_1_4_te_trailers_declares_acceptance() {
    let accepted = |te: &str| trailer::are_accepted(&[("TE", te)].into_iter().collect());
    assert!(accepted("trailers") && accepted("gzip;q=0.5, Trailers"));
    assert!(!accepted("") && !accepted("gzip") && !accepted("trailersx"));
}
