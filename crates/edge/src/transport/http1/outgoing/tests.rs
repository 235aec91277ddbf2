//! Tests of response heads on the wire.

use expect_test::{Expect, expect};
use thalweg_http::cache_status::CacheStatus;

use super::*;

fn check_head(status: u16, delimited: Delimited, version: Version, keep_alive: bool, expect: Expect) {
    let fields = [
        ("ETag", "\"v1\""),
        ("Date", "Thu, 01 Jan 2026 00:00:10 GMT"),
        ("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT"),
        ("Cache-Control", "max-age=60"),
        ("Content-Type", "video/mp4"),
        ("Access-Control-Allow-Origin", "*"),
    ];
    let content_range = (status == 206).then_some("bytes 0-1/2");
    let head = ReplyHead {
        reason: None,
        status,
        fields: &fields.into_iter().collect(),
        by_policy: false,
        withheld: None,
        age_s: Some(7),
        length: None,
        has_trailer: false,
        content_range,
        cache_status: Some(CacheStatus { hit: true, ..CacheStatus::default() }),
        closes: false,
    };
    let mut out = Vec::new();
    write_head(&mut out, &head, delimited, version, !keep_alive);
    expect.assert_eq(&String::from_utf8(out).unwrap().replace('\r', ""));
}

#[test]
fn rfc9110_15_4_5_304_has_only_fields_that_update() {
    check_head(
        304,
        Delimited::None,
        Version::Http11,
        true,
        expect![[r#"
            HTTP/1.1 304 Not Modified
            ETag: "v1"
            Date: Thu, 01 Jan 2026 00:00:10 GMT
            Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT
            Cache-Control: max-age=60
            Access-Control-Allow-Origin: *
            Age: 7
            Cache-Status: thalweg; hit

        "#]],
    );
}

#[test]
fn range_response_to_http_1_0_keeps_connection() {
    check_head(
        206,
        Delimited::Length(2),
        Version::Http10,
        true,
        expect![[r#"
            HTTP/1.1 206 Partial Content
            ETag: "v1"
            Date: Thu, 01 Jan 2026 00:00:10 GMT
            Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT
            Cache-Control: max-age=60
            Content-Type: video/mp4
            Access-Control-Allow-Origin: *
            Age: 7
            Content-Length: 2
            Content-Range: bytes 0-1/2
            Cache-Status: thalweg; hit
            Connection: keep-alive

        "#]],
    );
}
