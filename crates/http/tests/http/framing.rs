//! Framing (RFC 9112 §6.3) and persistence (§9.3); `smuggling` covers hostile requests.

use expect_test::{Expect, expect};
use thalweg_http::framing::{keep_alive, request_framing, response_framing};
use thalweg_http::{Fields, Method, RequestHead, ResponseHead, Version};

fn check(method: Method, status: u16, version: Version, lines: &[(&str, &str)], expect: Expect) {
    let head = ResponseHead { status, version, reason: None, fields: lines.iter().copied().collect() };
    expect.assert_eq(&match response_framing(method, &head) {
        Ok(framing) => format!("{framing:?}"),
        Err(error) => error.to_string(),
    });
}

const CHUNKED: (&str, &str) = ("Transfer-Encoding", "chunked");
const FIVE: (&str, &str) = ("Content-Length", "5");

#[test]
fn rfc9112_6_3_1_some_responses_have_no_content() {
    for status in [100, 199, 204, 304] {
        check(Method::Get, status, Version::Http11, &[FIVE], expect!["None"]);
    }
    check(Method::Head, 200, Version::Http11, &[CHUNKED], expect!["None"]);
    check(Method::Head, 200, Version::Http11, &[FIVE], expect!["None"]);
}

#[test]
fn rfc9112_6_3_4_to_8_response_content_is_delimited() {
    check(Method::Get, 200, Version::Http11, &[CHUNKED], expect!["Chunked"]);
    check(Method::Get, 206, Version::Http11, &[FIVE], expect!["Length(5)"]);
    check(Method::Get, 200, Version::Http10, &[FIVE, FIVE], expect!["Length(5)"]);
    check(Method::Get, 200, Version::Http11, &[("Content-Length", "0")], expect!["Length(0)"]);
    check(Method::Get, 200, Version::Http11, &[], expect!["UntilClose"]);
}

#[test]
fn rfc9112_6_1_and_6_3_3_ambiguous_response_is_an_error() {
    check(
        Method::Get,
        200,
        Version::Http11,
        &[CHUNKED, FIVE],
        expect!["both content-length and transfer-encoding are present"],
    );
    check(
        Method::Get,
        200,
        Version::Http10,
        &[CHUNKED],
        expect!["transfer-encoding is not allowed in HTTP/1.0"],
    );
    check(
        Method::Get,
        200,
        Version::Http11,
        &[("Transfer-Encoding", "gzip")],
        expect!["transfer-encoding must end in exactly one chunked coding"],
    );
    check(
        Method::Get,
        200,
        Version::Http11,
        &[FIVE, ("Content-Length", "6")],
        expect!["content-length values differ"],
    );
}

#[test]
fn rfc9112_6_1_coding_in_http10_request_is_refused() {
    let fields = [CHUNKED].into_iter().collect();
    let head = RequestHead { version: Version::Http10, fields, ..RequestHead::default() };
    let error = request_framing(&head).unwrap_err();
    expect!["400 transfer-encoding is not allowed in HTTP/1.0"]
        .assert_eq(&format!("{} {error}", error.status()));
}

#[test]
fn rfc9112_9_3_version_and_connection_decide_persistence() {
    let keeps = |version, options: &[&str]| {
        let fields: Fields = options.iter().map(|option| ("Connection", *option)).collect();
        keep_alive(version, &fields)
    };
    assert!(keeps(Version::Http11, &[]));
    assert!(keeps(Version::Http11, &["x"]));
    assert!(!keeps(Version::Http11, &["x, Close"]));
    assert!(!keeps(Version::Http11, &["keep-alive", "close"]));
    assert!(!keeps(Version::Http10, &[]));
    assert!(keeps(Version::Http10, &["Keep-Alive"]));
    assert!(!keeps(Version::Http10, &["keep-alive, close"]));
}
