//! Request smuggling (RFC 9112 §11.2): every request is either rejected or has an unambiguous end.

use std::fmt::Write as _;

use expect_test::expect;
use thalweg_http::framing::request_framing;
use thalweg_http::head::parse_request;
use thalweg_http::{Error, Limits, RequestHead};

fn verdict(lines: &str) -> String {
    let text = format!("POST / HTTP/1.1\r\nHost: a\r\n{lines}\r\n\r\n");
    let mut head = RequestHead::default();
    let parsed = parse_request(text.as_bytes(), &mut head, &Limits::default());
    match parsed.map_err(Error::from) {
        Ok(None) => "incomplete".into(),
        Ok(Some(_)) => match request_framing(&head) {
            Ok(framing) => format!("{framing:?}"),
            Err(error) => format!("{} {error}", error.status()),
        },
        Err(error) => format!("{} {}", error.status(), std::error::Error::source(&error).unwrap()),
    }
}

#[test]
fn no_request_is_ambiguous() {
    let cases = [
        "Content-Length: 5",
        "Transfer-Encoding: chunked",
        "Transfer-Encoding:\tChunked ",
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked, chunked",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: identity",
        "Transfer-Encoding: identity, chunked",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: chunked;q=1",
        "Transfer-Encoding: \"chunked\"",
        "Transfer-Encoding: ,chunked",
        "Transfer-Encoding:",
        "Transfer-Encoding: chunked\u{0b}",
        "Transfer-Encoding : chunked",
        " Transfer-Encoding: chunked",
        "Transfer-Encoding:\r\n chunked",
        "X: y\r\n Transfer-Encoding: chunked",
        "X: y\rTransfer-Encoding: chunked",
        "X: y\nTransfer-Encoding: chunked",
        "X\r\nTransfer-Encoding: chunked",
        ": x",
        "X: \0",
        "Transfer-Encoding\0: chunked",
        "Transfer_Encoding: chunked",
        "Content-Length: 5\r\nContent-Length: 5",
        "Content-Length: 5, 5",
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: 5, 6",
        "Content-Length: 5,",
        "Content-Length:",
        "Content-Length: +5",
        "Content-Length: -5",
        "Content-Length: 5 5",
        "Content-Length: 0x5",
        "Content-Length: 5.0",
        "Content-Length: \"5\"",
        "Content-Length: 05",
        "Content-Length: 18446744073709551615",
        "Content-Length: 18446744073709551616",
        "Connection: Content-Length\r\nContent-Length: 5",
        "",
    ];
    let mut table = String::new();
    for lines in cases {
        writeln!(table, "{} => {}", lines.escape_default(), verdict(lines)).unwrap();
    }
    expect![[r#"
        Content-Length: 5 => Length(5)
        Transfer-Encoding: chunked => Chunked
        Transfer-Encoding:\tChunked  => Chunked
        Content-Length: 5\r\nTransfer-Encoding: chunked => 400 both content-length and transfer-encoding are present
        Transfer-Encoding: chunked\r\nContent-Length: 5 => 400 both content-length and transfer-encoding are present
        Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked => 400 transfer-encoding must end in exactly one chunked coding
        Transfer-Encoding: chunked, chunked => 400 transfer-encoding must end in exactly one chunked coding
        Transfer-Encoding: chunked, identity => 400 transfer-encoding must end in exactly one chunked coding
        Transfer-Encoding: identity => 400 transfer-encoding must end in exactly one chunked coding
        Transfer-Encoding: identity, chunked => 501 transfer coding is not implemented
        Transfer-Encoding: gzip, chunked => 501 transfer coding is not implemented
        Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked => 501 transfer coding is not implemented
        Transfer-Encoding: xchunked => 400 transfer-encoding must end in exactly one chunked coding
        Transfer-Encoding: chunked;q=1 => 400 transfer-encoding must end in exactly one chunked coding
        Transfer-Encoding: \"chunked\" => 400 transfer-encoding must end in exactly one chunked coding
        Transfer-Encoding: ,chunked => 400 transfer-encoding must end in exactly one chunked coding
        Transfer-Encoding: => 400 transfer-encoding must end in exactly one chunked coding
        Transfer-Encoding: chunked\u{b} => 400 field value contains a control character
        Transfer-Encoding : chunked => 400 malformed field line
         Transfer-Encoding: chunked => 400 malformed field line
        Transfer-Encoding:\r\n chunked => 400 malformed field line
        X: y\r\n Transfer-Encoding: chunked => 400 malformed field line
        X: y\rTransfer-Encoding: chunked => 400 field value contains a control character
        X: y\nTransfer-Encoding: chunked => 400 line must end in CRLF
        X\r\nTransfer-Encoding: chunked => 400 malformed field line
        : x => 400 malformed field line
        X: \u{0} => 400 field value contains a control character
        Transfer-Encoding\u{0}: chunked => 400 malformed field line
        Transfer_Encoding: chunked => None
        Content-Length: 5\r\nContent-Length: 5 => Length(5)
        Content-Length: 5, 5 => Length(5)
        Content-Length: 5\r\nContent-Length: 6 => 400 content-length values differ
        Content-Length: 5, 6 => 400 content-length values differ
        Content-Length: 5, => 400 content-length must be a decimal number below 2^64
        Content-Length: => 400 content-length must be a decimal number below 2^64
        Content-Length: +5 => 400 content-length must be a decimal number below 2^64
        Content-Length: -5 => 400 content-length must be a decimal number below 2^64
        Content-Length: 5 5 => 400 content-length must be a decimal number below 2^64
        Content-Length: 0x5 => 400 content-length must be a decimal number below 2^64
        Content-Length: 5.0 => 400 content-length must be a decimal number below 2^64
        Content-Length: \"5\" => 400 content-length must be a decimal number below 2^64
        Content-Length: 05 => Length(5)
        Content-Length: 18446744073709551615 => Length(18446744073709551615)
        Content-Length: 18446744073709551616 => 400 content-length must be a decimal number below 2^64
        Connection: Content-Length\r\nContent-Length: 5 => Length(5)
         => None
    "#]].assert_eq(&table);
}
