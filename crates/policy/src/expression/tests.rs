//! Expression tests: grammar, faults, and times.

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;

/// A schema with the fields `status`, `path`, `complete` and `time`, and a field `none`, which is
/// always absent.
struct Fields;

impl Schema for Fields {
    type Field = &'static str;

    fn find(&self, name: &str) -> Option<(&'static str, Kind)> {
        Some(match name {
            "status" => ("status", Kind::Number(Quantity::count("a status such as 404"))),
            "path" => ("path", Kind::Text),
            "none" => ("none", Kind::Text),
            "complete" => ("complete", Kind::Truth),
            "time" => ("time", Kind::Time),
            _ => return None,
        })
    }

    fn advice(&self, _: &str) -> String {
        "there are few".to_owned()
    }
}

struct Fixed;

impl Record<&'static str> for Fixed {
    fn any(&self, field: &&'static str, test: &mut dyn FnMut(&Value<'_>) -> bool) -> bool {
        match *field {
            "status" => test(&Value::Int(404)),
            "path" => test(&Value::text("/a=(b)\"c")) || test(&Value::text("/second")),
            "complete" => test(&Value::Bool(false)),
            "time" => test(&Value::text("2026-11-20T23:00:00.123456Z")),
            _ => false,
        }
    }
}

fn compile(text: &str) -> Result<Expression<&'static str>, Error> {
    Expression::compile(text, &Fields, 1_795_215_600_000_000)
}

#[test]
fn true_conditions_hold() {
    for text in [
        "status == 404",
        "status==404&&path==/second",
        "(status == 404) and !(path ~ third)",
        "not status == 200 and not not status == 404",
        "status == 1 || status == 2 or status > 3",
        "status == 404 || status == 1 && status == 2",
        "path == /a=(b)\"c",
        r#"path == "/a=(b)\"c" && path ~ "[(]b[)]""#,
        "(path ~ ^/a=[(]b[)])",
        "(path ~ (a|b)=)",
        "path ~ ^/(x|sec)ond|nd$ && path != third && path !~ third",
        "none != a and none !~ . and not none == a and not none ~ . and not none",
        "status and path and not complete and complete == false",
        "time > 22:59 && time < 23:00:00.2 && time == 2026-11-20T23:00:00.123456Z && time ~ T23:",
        "time >= 2026-11-20 and time < 2026-11-21T00:30:00.2+01:30 and time < \"2026-11-20 23:01\"",
        "time < 0s ago or time > 10min ago and time > 1 h ago",
    ] {
        let holds = |text: &str| compile(text).unwrap_or_else(|e| panic!("{}", e.marked())).holds(&Fixed);
        assert_eq!(holds(text), Ok(true), "{text}");
        assert_eq!(holds(&format!("!({text})")), Ok(false), "!({text})");
    }
}

#[test]
fn faults_show_position_and_help() {
    let check = |text: &str, expected: Expect| {
        expected.assert_eq(&compile(text).map(|_| ()).unwrap_err().marked());
    };
    check(
        "",
        expect![[r#"
            expected a field, found the end
  
              ^"#]],
    );
    check(
        "status == 200 and",
        expect![[r#"
        expected a field, found the end
          status == 200 and
                           ^"#]],
    );
    check(
        "status = 200 && statuss == 3",
        expect![[r#"
        = assigns, it does not compare; did you mean ==?
          status = 200 && statuss == 3
                 ^
        unknown field statuss; there are few
          status = 200 && statuss == 3
                          ^^^^^^^"#]],
    );
    check(
        "path ~ 'a'",
        expect![[r#"
        single quotes are not supported; use double quotes or none
          path ~ 'a'
                 ^^^"#]],
    );
    check(
        "\"a\" == path",
        expect![[r#"
        expected a field, found a string
          "a" == path
          ^^^"#]],
    );
    check(
        "(status == 1) == path",
        expect![[r#"
        the field must be on the left side
          (status == 1) == path
          ^^^^^^^^^^^^^"#]],
    );
    check(
        "status(path)",
        expect![[r#"
        conditions cannot call functions
          status(path)
          ^^^^^^^^^^^^"#]],
    );
    check(
        "status >",
        expect![[r#"
        expected a value, found the end
          status >
                  ^"#]],
    );
    check(
        "path ~ \"(\"",
        expect![[r#"
        invalid regular expression: missing closing parenthesis, at byte 1
          path ~ "("
                 ^^^"#]],
    );
    check(
        "path ~ \"é\" and path == \"a",
        expect![[r#"
            unterminated string; end it with "
              path ~ "é" and path == "a
                                     ^^"#]],
    );
    check(
        "(status == 200",
        expect![[r#"
        expected ), found the end
          (status == 200
                        ^"#]],
    );
    check(
        "status == 200)",
        expect![[r#"
        expected &&, || or the end, found )
          status == 200)
                       ^"#]],
    );
    check(
        "status == 1 status == 2",
        expect![[r#"
        compare status with a status such as 404
          status == 1 status == 2
                    ^^^^^^^^
        expected &&, || or the end, found ==
          status == 1 status == 2
                             ^^"#]],
    );
    check(
        "complete < true and time ~ ( and time > soon",
        expect![[r#"
        complete does not support <; it supports == !=
          complete < true and time ~ ( and time > soon
                   ^
        invalid regular expression: missing closing parenthesis, at byte 1
          complete < true and time ~ ( and time > soon
                                     ^
        compare time with a time: 2026-11-20, 2026-11-20T23:00, 2026-11-20T23:00:05.5Z, 23:00 or 23:00:05 of any day, all in UTC, or 10min ago
          complete < true and time ~ ( and time > soon
                                                  ^^^^"#]],
    );
    let first = |text: &str| compile(text).map(|_| ()).unwrap_err().to_string();
    assert_eq!(first("status == 1 && colour"), "column 16: unknown field colour; there are few");
    assert!(first(&"(".repeat(100)).contains("nested more than 48 deep"));
    let long = format!("path ~ {}", "a".repeat(EXPRESSION_BYTES_MAX));
    assert_eq!(first(&long), "column 1: expression is longer than 4096 bytes");
}

#[test]
fn regex_beyond_its_limits_is_a_failure() {
    struct Long(String);
    impl Record<&'static str> for Long {
        fn any(&self, _: &&'static str, test: &mut dyn FnMut(&Value<'_>) -> bool) -> bool {
            test(&Value::text(&self.0))
        }
    }
    let expression = compile("path ~ ^(a+)+$").unwrap();
    expression.holds(&Long(format!("{}b", "a".repeat(5_000)))).unwrap_err();
    assert_eq!(expression.holds(&Long("aaa".to_owned())), Ok(true));
}

proptest! {
    #[test]
    fn no_text_panics(text in ".{0,60}") {
        let _ = compile(&text).map(|expression| expression.holds(&Fixed));
    }

    #[test]
    fn no_sequence_of_tokens_panics(tokens in proptest::collection::vec(
        proptest::sample::select(vec![
            "(", ")", "and", "or", "not", "&&", "||", "!", "==", "!=", "<", ">=", "~", "!~", "path", "status",
            "complete", "time", "100ms", "1.5.2", "1e400", "\"a\"", "\"(\"", "\"", "\\", "true", "é", "ago", "23:00",
        ]),
        0..12,
    )) {
        let _ = compile(&tokens.join(" ")).map(|expression| expression.holds(&Fixed));
    }
}
