//! Request targets (RFC 3986 §6.2.2, RFC 9112 §3.2): rejected targets and the normal form of
//! accepted ones.

use std::borrow::Cow;

use expect_test::{Expect, expect};
use proptest::prelude::*;
use thalweg_http::Target;
use thalweg_http::target::{decode, normalise};

use crate::cases;

fn check(text: &str, expect: Expect) {
    expect.assert_eq(&match Target::new(text) {
        Ok(target) => format!("{} {:?}", target.path(), target.query()),
        Err(error) => error.to_string(),
    });
}

#[test]
fn path_and_query_split_at_the_first_question_mark() {
    check("/", expect!["/ None"]);
    check("/a?b?c", expect![[r#"/a Some("b?c")"#]]);
    check("/a?", expect![[r#"/a Some("")"#]]);
    check("//a/%2f%C3%a9", expect!["//a/%2f%C3%a9 None"]);
    check("/a?../%zz\\", expect![[r#"/a Some("../%zz\\")"#]]);
    check("/...", expect!["/... None"]);
    check("/.a/..b/c.", expect!["/.a/..b/c. None"]);
}

#[test]
fn path_cannot_leave_its_root() {
    for text in [
        "/.",
        "/..",
        "/../a",
        "/a/./b",
        "/a/..",
        "/%2e%2e/a",
        "/.%2E/a",
        "/%2e",
        "/a/..%2fb",
        "/..%2Fa",
        "/..;x/a",
        "/.;/a",
        "/%2e%2e%3bx/a",
    ] {
        check(text, expect!["path contains a dot segment"]);
    }
    for text in ["/a\\..\\b", "/a%5c..", "/%5C"] {
        check(text, expect!["path contains a backslash"]);
    }
    for text in ["/a%00.m4s", "/%0d%0aX", "/%7f"] {
        check(text, expect!["path contains an encoded control character"]);
    }
}

#[test]
fn malformed_targets_are_refused() {
    check("", expect!["target must start with /"]);
    check("a", expect!["target must start with /"]);
    check("/a b", expect!["target contains a byte outside visible ASCII"]);
    check("/a?\u{e9}", expect!["target contains a byte outside visible ASCII"]);
    check("/a?b#c", expect!["target must not have a fragment"]);
    for text in ["/%", "/%4", "/%4g", "/%+1"] {
        check(text, expect!["path contains invalid percent-encoding"]);
    }
}

#[test]
fn refused_target_leaves_the_old_one() {
    let mut target = Target::new("/a?b").unwrap();
    target.set("/..").unwrap_err();
    assert_eq!((target.path(), target.query()), ("/a", Some("b")));
}

#[test]
fn rfc3986_6_2_2_equivalent_targets_have_the_same_normal_form() {
    for (text, normal) in [
        ("/%7euser/%2d%41", "/~user/-A"),
        ("/a%2fb?x=%c3%A9", "/a%2Fb?x=%C3%A9"),
        ("/a?100%&%4&%", "/a?100%&%4&%"),
        ("/a%25%37", "/a%257"),
    ] {
        assert_eq!(normalise(text), normal);
    }
    for text in ["/", "/a%2Fb?c=d", "/a?%zz"] {
        assert!(matches!(normalise(text), Cow::Borrowed(_)), "{text}");
    }
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn normalising_keeps_the_meaning_and_is_idempotent(text in "/([a-z./?]|%[0-9a-fA-F]{2}){0,8}") {
        let normal = normalise(&text);
        prop_assert_eq!(decode(&normal), decode(&text));
        prop_assert!(matches!(normalise(&normal), Cow::Borrowed(_)), "{}", normal);
        prop_assert_eq!(Target::new(&normal).is_ok(), Target::new(&text).is_ok());
    }
}
