//! Message heads (RFC 9112 §2 to §5): accepted heads, the status for rejected ones, and round
//! trips.

use expect_test::{Expect, expect};
use proptest::prelude::*;
use thalweg_http::head::{HeadError, is_worth_parsing, parse_request, parse_response};
use thalweg_http::status::{REASON_BYTES_MAX, unusual_reason};
use thalweg_http::write::{write_request_head, write_response_head};
use thalweg_http::{Fields, Limits, Method, RequestHead, ResponseHead, Version};

use crate::{cases, shown};

fn request(text: &str) -> Result<Option<(usize, RequestHead)>, HeadError> {
    let mut head = RequestHead::default();
    let parsed = parse_request(text.as_bytes(), &mut head, &Limits::default())?;
    Ok(parsed.map(|bytes| (bytes, head)))
}

fn check(text: &str, expect: Expect) {
    expect.assert_eq(&match request(text) {
        Ok(None) => "incomplete".into(),
        Ok(Some((bytes, head))) => format!(
            "{bytes} of {}: {} path={} query={:?} authority={} {} {}",
            text.len(),
            head.method_str(),
            head.target.path(),
            head.target.query(),
            head.authority,
            head.version.as_str(),
            shown(head.fields.text())
        ),
        Err(error) => format!("{} {error}", error.status()),
    });
}

fn check_response(text: &str, expect: Expect) {
    let mut head = ResponseHead::default();
    expect.assert_eq(&match parse_response(text.as_bytes(), &mut head, &Limits::default()) {
        Ok(None) => "incomplete".into(),
        Ok(Some(bytes)) => {
            let version = head.version.as_str();
            let reason = head.reason.map(|reason| format!(" {reason:?}")).unwrap_or_default();
            format!(
                "{bytes} of {}: {version} {}{reason} {}",
                text.len(),
                head.status,
                shown(head.fields.text())
            )
        }
        Err(error) => error.to_string(),
    });
}

#[test]
fn rfc9112_3_2_1_origin_form_is_parsed() {
    check(
        "GET /a/b?c=d HTTP/1.1\r\nHost: Example.com:80\r\nX:\t1 \r\n\r\nGET",
        expect![[
            r#"54 of 57: GET path=/a/b query=Some("c=d") authority=example.com:80 HTTP/1.1 Host: Example.com:80\r\nX: 1\r\n"#
        ]],
    );
    check(
        "BREW /? HTTP/1.0\r\n\r\n",
        expect![[r#"20 of 20: BREW path=/ query=Some("") authority= HTTP/1.0 "#]],
    );
}

#[test]
fn rfc9112_3_2_2_absolute_form_wins_over_host() {
    check(
        "GET HTTP://B.example:8080?q HTTP/1.1\r\nHost: a\r\nX: 1\r\n\r\n",
        expect![[
            r#"55 of 55: GET path=/ query=Some("q") authority=b.example:8080 HTTP/1.1 X: 1\r\nHost: b.example:8080\r\n"#
        ]],
    );
    check(
        "GET https://b/x HTTP/1.0\r\n\r\n",
        expect![[r#"28 of 28: GET path=/x query=None authority=b HTTP/1.0 Host: b\r\n"#]],
    );
    check("GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n", expect!["400 host is empty"]);
    check("GET ftp://a/x HTTP/1.1\r\nHost: a\r\n\r\n", expect!["400 malformed start line"]);
    check(
        "GET http://user@a/x HTTP/1.1\r\nHost: a\r\n\r\n",
        expect!["400 host contains an invalid character"],
    );
}

#[test]
fn rfc9112_3_2_3_and_4_other_forms_are_refused() {
    check("CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n", expect!["405 method CONNECT is not allowed"]);
    check("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", expect!["501 target * is not implemented"]);
    check("GET a:443 HTTP/1.1\r\nHost: a\r\n\r\n", expect!["400 malformed start line"]);
}

#[test]
fn rfc9112_3_2_host_must_be_given_once() {
    check("GET / HTTP/1.1\r\n\r\n", expect!["400 host is missing"]);
    check("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", expect!["400 more than one host field"]);
    check("GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", expect!["400 more than one host field"]);
    check("GET / HTTP/1.1\r\nHost:\r\n\r\n", expect!["400 host is empty"]);
    check("GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", expect!["400 host contains an invalid character"]);
}

#[test]
fn rfc9112_2_2_empty_lines_before_a_request_are_skipped() {
    check("\r\n\r\nGET / HTTP/1.0\r\n\r\n", expect!["22 of 22: GET path=/ query=None authority= HTTP/1.0 "]);
    check("\r\n\r", expect!["incomplete"]);
    check("\r\n\r\n\r\n\r\n\r\n", expect!["400 too many empty lines before the start line"]);
    check("\nGET / HTTP/1.0\r\n\r\n", expect!["400 malformed start line"]);
}

#[test]
fn rfc9112_2_3_and_3_invalid_start_lines_are_refused() {
    check("GET / HTTP/2.0\r\n\r\n", expect!["505 version is not HTTP/1"]);
    check("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", expect!["505 version is not HTTP/1"]);
    check("GET / HTTP/1.10\r\n\r\n", expect!["400 malformed start line"]);
    check("GET / http/1.1\r\n\r\n", expect!["400 malformed start line"]);
    check("GET /\r\n\r\n", expect!["400 malformed start line"]);
    check("GET  / HTTP/1.1\r\n\r\n", expect!["400 malformed start line"]);
    check("GET /a b HTTP/1.1\r\n\r\n", expect!["400 malformed start line"]);
    check("\x16\x03\x01", expect!["400 malformed start line"]);
    check(&"M".repeat(25), expect!["501 method is too long"]);
    check(&format!("{} / HTTP/1.1\r\nHost: a\r\n\r\n", "M".repeat(25)), expect!["501 method is too long"]);
}

#[test]
fn rfc9110_2_5_later_minor_version_is_processed_as_http_1_1() {
    check(
        "GET /a HTTP/1.2\r\nHost: a\r\nX: HTTP/1.2\r\n\r\nG",
        expect![[r#"41 of 42: GET path=/a query=None authority=a HTTP/1.1 Host: a\r\nX: HTTP/1.2\r\n"#]],
    );
    check(
        "\r\nGET / HTTP/1.9\r\nHost: a\r\n\r\n",
        expect![[r#"29 of 29: GET path=/ query=None authority=a HTTP/1.1 Host: a\r\n"#]],
    );
    check("GET / HTTP/1.2\r\n\r\n", expect!["400 host is missing"]);
    check("GET / HTTP/1.2\r\nHost: a\r\n", expect!["incomplete"]);
    check("GET / HTTP/1.23\r\nHost: a\r\n\r\n", expect!["400 malformed start line"]);
    check("GET / HTTP/0.9\r\nHost: a\r\n\r\n", expect!["505 version is not HTTP/1"]);
    check_response("HTTP/1.3 200 OK\r\nX: 1\r\n\r\n", expect![[r#"25 of 25: HTTP/1.1 200 X: 1\r\n"#]]);
    check_response("HTTP/3.0 200 OK\r\n\r\n", expect!["version is not HTTP/1"]);
}

#[test]
fn rfc9112_3_target_is_checked() {
    check("GET /\u{e9} HTTP/1.0\r\n\r\n", expect!["400 target contains a byte outside visible ASCII"]);
    check("GET /\x01 HTTP/1.0\r\n\r\n", expect!["400 malformed start line"]);
    check("GET /a/../b HTTP/1.0\r\n\r\n", expect!["400 path contains a dot segment"]);
    check("GET http://a#b HTTP/1.0\r\n\r\n", expect!["400 target must not have a fragment"]);
}

#[test]
fn every_prefix_of_a_head_is_incomplete() {
    let text = "GET /a HTTP/1.1\r\nHost: a\r\nRange: bytes=0-1\r\n\r\n";
    for end in 0..text.len() {
        assert!(matches!(request(&text[..end]), Ok(None)), "{:?}", &text[..end]);
    }
}

#[test]
fn reused_head_keeps_nothing_from_the_last_message() {
    let mut head = RequestHead::default();
    let first = b"BREW http://a/x?y HTTP/1.0\r\nA: b\r\n\r\n";
    parse_request(first, &mut head, &Limits::default()).unwrap();
    let second = "GET / HTTP/1.0\r\n\r\n";
    parse_request(second.as_bytes(), &mut head, &Limits::default()).unwrap();
    let fresh = request(second).unwrap().unwrap().1;
    assert_eq!(head, fresh);
}

fn limited(text: &str, limits: &Limits) -> String {
    match parse_request(text.as_bytes(), &mut RequestHead::default(), limits) {
        Ok(bytes) => format!("{bytes:?}"),
        Err(error) => format!("{} {error}", error.status()),
    }
}

#[test]
fn limits_hold_whether_the_head_is_complete_or_not() {
    let limits = Limits { head_bytes_max: 64, target_bytes_max: 8, fields_max: 2 };
    let line = "GET /234567 HTTP/1.0\r\n";
    let check = |text: String, expect: Expect| expect.assert_eq(&limited(&text, &limits));
    check(format!("{line}\r\n"), expect!["Some(24)"]);
    check("GET /2345678".into(), expect!["None"]);
    check("GET /23456789".into(), expect!["414 target is too long"]);
    check("GET /2345678 HTTP/1.0\r\n\r\n".into(), expect!["Some(25)"]);
    check("GET /23456789 HTTP/1.0\r\n\r\n".into(), expect!["414 target is too long"]);
    check(format!("GET /23456789 HTTP/1.0\r\nA: {}", "a".repeat(64)), expect!["414 target is too long"]);
    check(format!("{line}A: b\r\nC: d\r\n\r\n"), expect!["Some(36)"]);
    check(format!("{line}A: b\r\nC: d\r\nE: f\r\n"), expect!["431 too many field lines"]);
    check(format!("{line}A: {}\r\n\r\n", "a".repeat(35)), expect!["Some(64)"]);
    check(format!("{line}A: {}\r\n\r\n", "a".repeat(36)), expect!["431 head is too large"]);
    check(format!("{line}A: {}", "a".repeat(39)), expect!["431 head is too large"]);
    check(format!("{line}A: {}", "a".repeat(38)), expect!["None"]);
}

#[test]
fn slowly_arriving_head_is_parsed_once_per_line() {
    let limits = Limits { head_bytes_max: 8, ..Limits::default() };
    assert!(!is_worth_parsing(b"GET /", 0, &limits));
    assert!(is_worth_parsing(b"GET /\n", 5, &limits));
    assert!(!is_worth_parsing(b"GET /\nx", 6, &limits));
    assert!(is_worth_parsing(b"GET /\nxy", 7, &limits));
}

#[test]
fn rfc9112_4_status_lines_are_parsed_or_refused() {
    check_response("HTTP/1.1 200 OK\r\nA: b\r\n\r\nx", expect![[r#"25 of 26: HTTP/1.1 200 A: b\r\n"#]]);
    check_response("HTTP/1.0 404\r\n\r\n", expect!["16 of 16: HTTP/1.0 404 "]);
    check_response("HTTP/1.1 100 \r\n\r\n", expect!["17 of 17: HTTP/1.1 100 "]);
    check_response("HTTP/1.1 200 OK\nA: b\n\n", expect![[r#"22 of 22: HTTP/1.1 200 A: b\r\n"#]]);
    check_response(
        "HTTP/1.1 418 I'm a\tteapot\r\n\r\n",
        expect![[r#"29 of 29: HTTP/1.1 418 "I'm a teapot" "#]],
    );
    check_response("HTTP/1.1 200 Tr\u{e8}s bien\r\n\r\n", expect!["27 of 27: HTTP/1.1 200 "]);
    check_response("HTTP/1.1 200 OK\r\n", expect!["incomplete"]);
    check_response("HTTP/1.1 099 \r\n\r\n", expect!["status code must be from 100 to 599"]);
    check_response("HTTP/1.1 600 \r\n\r\n", expect!["status code must be from 100 to 599"]);
    check_response("HTTP/2 200\r\n\r\n", expect!["version is not HTTP/1"]);
    check_response("\r\nHTTP/1.1 200 OK\r\n\r\n", expect!["too many empty lines before the start line"]);
    check_response("HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n", expect!["malformed field line"]);
    check_response("ICY 200 OK\r\n\r\n", expect!["version is not HTTP/1"]);
}

#[test]
fn unusual_reason_phrase_is_kept_bounded_and_without_line_ends() {
    assert_eq!(unusual_reason(404, "Not Found"), None);
    assert_eq!(unusual_reason(404, "a\r\nSet-Cookie: b\0").as_deref(), Some("a  Set-Cookie: b "));
    assert_eq!(unusual_reason(299, &"\u{e8}".repeat(200)).map(|kept| kept.len()), Some(REASON_BYTES_MAX));
    assert_eq!(unusual_reason(299, &format!("a{}", "\u{e8}".repeat(200))).map(|kept| kept.len()), Some(255));
    assert_eq!((unusual_reason(200, ""), unusual_reason(299, "")), (None, None));
}

#[test]
fn response_head_over_its_limit_is_refused() {
    let limits = Limits { head_bytes_max: 20, ..Limits::default() };
    let parse = |text: &[u8]| parse_response(text, &mut ResponseHead::default(), &limits);
    assert_eq!(parse(b"HTTP/1.1 200 OK\r\nA"), Ok(None));
    assert_eq!(parse(b"HTTP/1.1 200 OK\r\nA: "), Err(HeadError::TooLarge));
}

#[test]
fn heads_are_written() {
    let fields: Fields = [("Host", "a"), ("Range", "bytes=0-")].into_iter().collect();
    let mut out = Vec::new();
    write_request_head(&mut out, Method::Get.as_str(), "/x?y", &fields);
    write_response_head(&mut out, 206, &fields);
    write_response_head(&mut out, 299, &Fields::new());
    expect![[r#"GET /x?y HTTP/1.1\r\nHost: a\r\nRange: bytes=0-\r\n\r\nHTTP/1.1 206 Partial Content\r\nHost: a\r\nRange: bytes=0-\r\n\r\nHTTP/1.1 299 \r\n\r\n"#]]
        .assert_eq(&shown(&out));
}

fn some_fields() -> impl Strategy<Value = Fields> {
    let value =
        prop::collection::vec(prop_oneof![Just(b' '), Just(b'\t'), 0x21..=0x7eu8, 0x80..=0xffu8], 0..8);
    prop::collection::vec(("[a-zA-Z!#$%&'*+.^_`|~-]{1,6}", value), 0..6)
        .prop_map(|lines| lines.into_iter().filter(|(name, _)| !name.eq_ignore_ascii_case("host")).collect())
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn written_request_parses_back(
        method in "[A-Z]{1,8}", path in "(/[a-z%;=&@:]{0,4}){1,3}", query in prop::option::of("[a-z?/%=]{0,4}"),
        mut fields in some_fields(),
    ) {
        prop_assume!(method != "CONNECT");
        let path = path.replace('%', "%7e");
        fields.push("Host", "a.example");
        let target = query.map_or(path.clone(), |query| format!("{path}?{query}"));
        let mut out = Vec::new();
        write_request_head(&mut out, &method, &target, &fields);
        let mut head = RequestHead::default();
        prop_assert_eq!(parse_request(&out, &mut head, &Limits::default()), Ok(Some(out.len())));
        prop_assert_eq!((head.method_str(), head.target.as_str()), (&method[..], &target[..]));
        prop_assert_eq!(head.version, Version::Http11);
        prop_assert_eq!(head.fields, fields);
    }

    #[test]
    fn written_response_parses_back(status in 100..600u16, fields in some_fields()) {
        let mut out = Vec::new();
        write_response_head(&mut out, status, &fields);
        let mut head = ResponseHead::default();
        prop_assert_eq!(parse_response(&out, &mut head, &Limits::default()), Ok(Some(out.len())));
        prop_assert_eq!(head, ResponseHead { status, version: Version::Http11, reason: None, fields });
    }
}
