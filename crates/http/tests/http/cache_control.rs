//! `Cache-Control` (RFC 9111 §5.2).

use expect_test::{Expect, expect};
use thalweg_http::Fields;
use thalweg_http::cache_control::{CacheControl, DELTA_S_MAX, Qualified, RequestCacheControl};

fn fields(lines: &[&str]) -> Fields {
    lines.iter().map(|line| ("Cache-Control", *line)).collect()
}

fn response(lines: &[&str]) -> CacheControl {
    CacheControl::from_fields(&fields(lines))
}

fn request(lines: &[&str]) -> RequestCacheControl {
    RequestCacheControl::from_fields(&fields(lines))
}

fn names(qualified: &Qualified) -> String {
    match qualified {
        Qualified::Absent => "absent".into(),
        Qualified::Whole => "whole".into(),
        Qualified::Fields(_) => qualified.names().map(String::from_utf8_lossy).collect::<Vec<_>>().join(" "),
    }
}

#[test]
fn rfc9111_5_2_2_all_response_directives_are_parsed() {
    let all = [
        "max-age=1, S-MaxAge=\"2\", stale-while-revalidate=3",
        "stale-if-error=4,no-store,must-revalidate, proxy-revalidate, public",
        "must-understand, immutable, no-transform, no-cache, private, x=y",
    ];
    expect![[r#"
        CacheControl {
            max_age: Some(
                1,
            ),
            s_maxage: Some(
                2,
            ),
            stale_while_revalidate: Some(
                3,
            ),
            stale_if_error: Some(
                4,
            ),
            no_store: true,
            no_cache: Whole,
            private: Whole,
            public: true,
            must_revalidate: true,
            proxy_revalidate: true,
            must_understand: true,
            no_transform: true,
            immutable: true,
        }
    "#]]
    .assert_debug_eq(&response(&all));
    assert_eq!(response(&["", ",", "maxage=1, max-agee=1, max-ag=1"]), CacheControl::default());
}

#[test]
fn rfc9111_1_2_2_lifetimes_are_clamped() {
    let max_age = |line: &str| response(&[line]).max_age;
    assert_eq!(max_age("max-age=0"), Some(0));
    assert_eq!(max_age("max-age=\"10\""), Some(10));
    assert_eq!(max_age("max-age=010"), Some(10));
    assert_eq!(max_age("max-age=2147483649"), Some(DELTA_S_MAX));
    assert_eq!(max_age("max-age=99999999999999999999"), Some(DELTA_S_MAX));
}

#[test]
fn rfc9111_4_2_1_malformed_lifetime_is_stale() {
    for line in [
        "max-age",
        "max-age=",
        "max-age=-1",
        "max-age=1.5",
        "max-age=a",
        "max-age=1a",
        "max-age='10'",
        "max-age= 10",
        "max-age =10",
        "max-age=\"10",
        "max-age=10\"",
        "max-age=1 0",
        "max-age=\"1\\0\"",
        "max-age=\"\"",
    ] {
        assert_eq!(response(&[line]).max_age, Some(0), "{line}");
    }
}

#[test]
fn rfc9111_4_2_1_smallest_of_duplicates_counts() {
    assert_eq!(response(&["max-age=10, max-age=5"]).max_age, Some(5));
    assert_eq!(response(&["max-age=5", "max-age=10"]).max_age, Some(5));
    assert_eq!(response(&["s-maxage=5, s-maxage=x"]).s_maxage, Some(0));
}

#[test]
fn rfc9111_5_2_2_4_and_7_field_names_are_parsed() {
    let check = |lines: &[&str], expect: Expect| {
        let directives = response(lines);
        expect.assert_eq(&format!("{} / {}", names(&directives.no_cache), names(&directives.private)));
    };
    check(&["no-cache=\"a, B\""], expect!["a B / absent"]);
    check(&["private=\"a\"", "private=\"b,c\""], expect!["absent / a b c"]);
    check(&["private=\"a\", private"], expect!["absent / whole"]);
    check(&["no-cache, no-cache=\"a\""], expect!["whole / absent"]);
    check(&["private=a"], expect!["absent / whole"]);
    check(&["private=\"a, max-age=5"], expect!["absent / whole"]);
}

#[test]
fn quoted_comma_hides_no_directive() {
    let directives = response(&["x=\"a, max-age=5\", max-age=6, y=\", no-store"]);
    assert_eq!((directives.max_age, directives.no_store), (Some(6), false));
}

#[test]
fn loosening_directive_counts_only_in_exact_form() {
    let directives =
        response(&["public=x, immutable=1, must-understand=\"\", no-store=x, must-revalidate=1"]);
    assert!(!directives.public && !directives.immutable && !directives.must_understand);
    assert!(directives.no_store && directives.must_revalidate);
}

#[test]
fn rfc9111_5_2_1_all_request_directives_are_parsed() {
    let all = ["max-age=1, max-stale=2, min-fresh=3", "no-cache, no-store, only-if-cached, no-transform"];
    expect![[r#"
        RequestCacheControl {
            max_age: Some(
                1,
            ),
            max_stale: Some(
                2,
            ),
            min_fresh: Some(
                3,
            ),
            no_cache: true,
            no_store: true,
            no_transform: true,
            only_if_cached: true,
        }
    "#]]
    .assert_debug_eq(&request(&all));
    assert_eq!(request(&[]), RequestCacheControl::default());
}

#[test]
fn rfc9111_5_2_1_strictest_of_several_counts() {
    assert_eq!(request(&["max-stale"]).max_stale, Some(DELTA_S_MAX));
    assert_eq!(request(&["max-stale, max-stale=5"]).max_stale, Some(5));
    assert_eq!(request(&["max-stale=5, max-stale"]).max_stale, Some(5));
    assert_eq!(request(&["max-stale=x"]).max_stale, Some(0));
    assert_eq!(request(&["min-fresh=1, min-fresh=9, min-fresh=x"]).min_fresh, Some(9));
    assert_eq!(request(&["max-age=9, max-age=x"]).max_age, Some(0));
}
