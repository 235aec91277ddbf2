//! `Cache-Status` (RFC 9211).

use expect_test::{Expect, expect};
use thalweg_http::Fields;
use thalweg_http::cache_status::{CACHE_STATUS, CacheStatus, Forward};

fn check(cache: &str, status: &CacheStatus<'_>, expect: Expect) {
    let mut out = Vec::new();
    status.write(cache, &mut out);
    expect.assert_eq(&String::from_utf8(out).unwrap());
}

#[test]
fn rfc9211_2_members_are_written() {
    check(
        "thalweg",
        &CacheStatus { hit: true, ttl_s: Some(545), ..CacheStatus::default() },
        expect!["thalweg; hit; ttl=545"],
    );
    check(
        "thalweg",
        &CacheStatus {
            forward: Some(Forward::UriMiss),
            forward_status: Some(200),
            ttl_s: Some(-412),
            stored: true,
            collapsed: true,
            key: Some("/a\"b"),
            detail: Some("HIT-FOR-PASS"),
            ..CacheStatus::default()
        },
        expect![[
            r#"thalweg; fwd=uri-miss; fwd-status=200; ttl=-412; stored; collapsed; key="/a\"b"; detail=HIT-FOR-PASS"#
        ]],
    );
    check(
        "1 edge",
        &CacheStatus { detail: Some("no\tbackend é\\"), ..CacheStatus::default() },
        expect![[r#""1 edge"; detail="no?backend ?\\""#]],
    );
    let far = CacheStatus { hit: true, ttl_s: Some(i64::MIN), ..CacheStatus::default() };
    check("a", &far, expect!["a; hit; ttl=-999999999999999"]);
}

#[test]
fn rfc9211_2_2_forward_reasons_are_named() {
    let reasons = [
        Forward::Bypass,
        Forward::Method,
        Forward::UriMiss,
        Forward::VaryMiss,
        Forward::Miss,
        Forward::Request,
        Forward::Stale,
        Forward::Partial,
    ];
    expect!["bypass method uri-miss vary-miss miss request stale partial"]
        .assert_eq(&reasons.map(Forward::as_str).join(" "));
}

#[test]
fn rfc9211_2_cache_appends_itself_after_those_nearer_the_origin() {
    let mut fields: Fields = [(CACHE_STATUS, "origin; hit")].into_iter().collect();
    let status = CacheStatus { forward: Some(Forward::Stale), ..CacheStatus::default() };
    status.append_to("edge", &mut fields);
    assert_eq!(fields.get("cache-status"), Some(&b"origin; hit, edge; fwd=stale"[..]));
}
