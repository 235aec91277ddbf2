//! Evaluation tests: conversion to strings, operators, control flow, limits and failures.

use std::sync::atomic::Ordering::Relaxed;

use crate::common::{Bench, program, request};
use expect_test::{Expect, expect};
use thalweg_policy::step::Action;
use thalweg_policy::{Program, Sub};

/// Runs statements in `vcl_recv` and compares the action, `X-Seen` and the log.
fn recv(statements: &str, expect: Expect) {
    let text = format!(
        "vcl 4.1; import std;\nbackend b {{ .host = \"::1\"; }}\nacl inside +log {{ \"192.0.2.0\"/24; ! \"192.0.2.7\"; \"::1\"; }}\n\
         sub helper {{ if (!req.http.X-Never) {{ return; }} set req.http.X-Seen = \"never\"; }}\n\
         sub ends {{ return (pass); }}\nsub vcl_recv {{ {statements}\n}}"
    );
    let program = program(&text);
    let req = request("GET /a?b=1 HTTP/1.1\nHost: Example.com\nX-Empty:\nX-One: one");
    let mut bench = Bench { req, ..Bench::default() };
    let result = match bench.run(&program, Sub::Recv) {
        Ok(action) => format!("{action:?}"),
        Err(failure) => format!("failed: {failure}"),
    };
    let seen = bench.req.fields.get("X-Seen").map(|seen| String::from_utf8_lossy(seen).into_owned());
    let log: Vec<&str> = bench.log.iter().map(|line| line.text.as_str()).collect();
    expect.assert_eq(&format!("{result} {} {log:?}", seen.as_deref().unwrap_or("-")));
}

fn value(expression: &str, expect: Expect) {
    recv(&format!("set req.http.X-Seen = \"\" + ({expression}); return (hash);"), expect);
}

#[test]
fn values_convert_to_text() {
    value("1 + 2", expect!["Hash 3 []"]);
    value("\"a\" + 1 + 2", expect!["Hash a12 []"]);
    value("1.5 + 1", expect!["Hash 2.500 []"]);
    value("7 / 2 * 2 + 7 % 4", expect!["Hash 9 []"]);
    value("5s * 1.5 - 1ms", expect!["Hash 7.499 []"]);
    value("1KB + 1B", expect!["Hash 1025 []"]);
    value("now + 1d", expect!["Hash Mon, 07 Nov 1994 08:49:37 GMT []"]);
    value("now - req.time", expect!["Hash -0.250 []"]);
    value("true && 1 < 2", expect!["Hash true []"]);
    value("client.ip", expect!["Hash 192.0.2.7 []"]);
    value("b", expect!["Hash b []"]);
    value("req.http.nosuch + \"-\" + req.http.x-empty", expect!["Hash - []"]);
    value("\"a\" \"b\" req.http.x-one", expect!["Hash abone []"]);
    value("req.http.\"x-one\".upper() + \"AB\".lower()", expect!["Hash ONEab []"]);
    value("{\"a\"b\"} + \"\"\"c\"d\"\"\"", expect![[r#"Hash a"bc"d []"#]]);
    value("-(-5) + -2", expect!["Hash 3 []"]);
    value("-1.0004", expect!["Hash -1.000 []"]);
}

#[test]
fn client_location_is_looked_up_once_and_on_demand() {
    let program = program(
        r#"vcl 4.1; backend b none;
        sub vcl_recv { if (req.http.ask) { set req.http.seen = client.geo.city + client.as.number; } }
        sub vcl_deliver { if (req.http.ask && client.geo.country_code == "NO") { set resp.http.seen = "yes"; } }"#,
    );
    let mut bench = Bench::default();
    for (reads_location, calls) in [(false, 0), (true, 1)] {
        if reads_location {
            bench.req.fields.push("Ask", "1");
        }
        for sub in [Sub::Recv, Sub::Deliver] {
            bench.run(&program, sub).expect("the run must succeed");
        }
        assert_eq!(bench.host.geo_calls.load(Relaxed), calls);
    }
    assert_eq!(bench.resp.fields.get("seen"), Some(&b"yes"[..]));
}

/// Changes made by a fetch to a shared `shard_param` must apply when the shard director is
/// resolved.
#[test]
fn parameter_set_applies_to_lazily_resolved_directors() {
    let program = {
        let text = r#"vcl 4.1; import directors;
            backend a { .host = "::1"; }
            backend b { .host = "::2"; }
            sub vcl_init {
                new p = directors.shard_param();
                new d = directors.shard();
                d.add_backend(a); d.add_backend(b);
                d.associate(p.use());
                # Settings made after associate() apply too.
                p.set(by = KEY, key = 5, healthy = IGNORE);
            }
            sub vcl_recv { set req.backend_hint = d.backend(resolve = LAZY); }
            sub vcl_backend_fetch {
                if (bereq.http.alt) { p.set(alt = 1); }
                if (bereq.http.own) { set bereq.backend = d.backend(resolve = LAZY, alt = 0); }
            }"#;
        let mut program = program(text);
        program.init(&mut Bench::default().task()).expect("init must succeed");
        program
    };
    let selected = |fields: &str| {
        let req = request(&format!("GET /a HTTP/1.1\nHost: a{fields}"));
        let mut bench = Bench { bereq: req.clone(), req, ..Bench::default() };
        bench.run(&program, Sub::Recv).expect("the run must succeed");
        bench.fetch.backend = bench.client.backend_hint;
        bench.run(&program, Sub::BackendFetch).expect("the run must succeed");
        let backend = bench.fetch.backend;
        let index = program.resolve(backend, &mut bench.task()).expect("the director must select a backend");
        program.backends()[index as usize].name.as_str()
    };
    let (plain, other) = (selected(""), selected("\nAlt: 1"));
    assert_ne!(plain, other);
    assert_eq!(selected("\nAlt: 1\nOwn: 1"), plain);
    assert_eq!(selected(""), plain, "settings leaked from another fetch");
}

/// A nested director must be healthy if any of its members is, and the health check must not
/// advance it.
#[test]
fn directors_can_be_nested() {
    let mut program = program(
        r#"vcl 4.1; import directors; import std;
        backend well { .host = "::1"; }
        backend sick { .host = "::2"; }
        backend spare { .host = "::3"; }
        sub vcl_init {
            new none = directors.round_robin(); none.add_backend(sick);
            new turns = directors.round_robin(); turns.add_backend(well); turns.add_backend(spare);
            new all = directors.fallback(); all.add_backend(none.backend()); all.add_backend(turns.backend());
        }
        sub vcl_recv {
            set req.http.seen = std.healthy(none.backend()) + " " + std.healthy(turns.backend()) + " "
                + std.healthy(turns.backend()) + " " + std.healthy(all.backend());
            set req.backend_hint = all.backend();
        }"#,
    );
    program.init(&mut Bench::default().task()).expect("init must succeed");
    let mut bench = Bench::default();
    for name in ["well", "spare", "well"] {
        bench.run(&program, Sub::Recv).expect("the run must succeed");
        assert_eq!(bench.req.fields.get("seen"), Some(&b"false true true true"[..]));
        let backend = bench.client.backend_hint;
        let index = program.resolve(backend, &mut bench.task()).expect("the director must select a backend");
        assert_eq!(program.backends()[index as usize].name, name);
    }
}

#[test]
fn director_rejects_backend_none() {
    for none in ["nowhere", "directors.lookup(\"nosuch\")"] {
        for class in ["round_robin", "fallback", "shard"] {
            let text = format!(
                "vcl 4.1; import directors; backend a {{ .host = \"::1\"; }} backend nowhere none;
                 sub vcl_init {{ new d = directors.{class}(); d.add_backend(a); d.add_backend({none}); }}"
            );
            let failure = program(&text).init(&mut Bench::default().task()).expect_err("init must fail");
            assert!(failure.to_string().contains("cannot add backend none to a director"), "{failure}");
        }
    }
}

#[test]
fn rollback_restores_requests() {
    let program = program(
        r#"vcl 4.1; import std; backend b none;
        sub vcl_recv { set req.url = "/b"; unset req.http.x-two; set req.http.host = "other"; std.rollback(req); }
        sub vcl_backend_fetch { set bereq.url = "/b"; set bereq.http.new = "1"; std.rollback(bereq); }
        sub vcl_backend_response { set bereq.method = "HEAD"; std.rollback(bereq); }
        sub vcl_pipe { std.rollback(req); }"#,
    );
    let mut bench = Bench::default();
    let before = bench.req.clone();
    bench.original = Some(before.clone());
    for sub in [Sub::Recv, Sub::BackendFetch, Sub::BackendResponse] {
        bench.run(&program, sub).expect("the run must succeed");
        assert_eq!((&bench.req, &bench.bereq), (&before, &before), "{sub}");
    }
    bench.original = None;
    let failure =
        bench.run(&program, Sub::Pipe).expect_err("rollback must fail without the original").to_string();
    assert!(failure.contains("req cannot be rolled back here"), "{failure}");
}

#[test]
fn conditions_evaluate() {
    value("req.http.x-empty == \"\" && req.http.nosuch + \"\" == \"\"", expect!["Hash true []"]);
    // An unset string differs from every string, including itself.
    value("req.http.nosuch == \"\" || req.http.nosuch == req.http.nosuch", expect!["Hash false []"]);
    value(
        "req.http.nosuch != \"\" && client.geo.metro_code + \"\" != req.http.nosuch",
        expect!["Hash true []"],
    );
    value("!req.http.x-empty", expect!["Hash false []"]);
    value("!req.http.nosuch", expect!["Hash true []"]);
    value("!req.http.x-one == \"one\"", expect!["Hash false []"]);
    value("false && true || true", expect!["Hash true []"]);
    value("req.restarts || 1s", expect!["Hash true []"]);
    value("!0s && !(0.0s) && !(-1s) && 1ms && 0s == -0s", expect!["Hash true []"]);
    value("\"a\" < \"b\" && \"b\" >= \"b\" && \"b\" != \"c\"", expect!["Hash true []"]);
    value("5.0 == 5 && 1.5 > 1", expect!["Hash true []"]);
    value("client.ip == \"192.0.2.7\"", expect!["Hash true []"]);
    value("client.ip ~ inside", expect![[r#"Hash false ["NEG_MATCH inside \"192.0.2.7\"/32"]"#]]);
    value(
        "std.ip(\"192.0.2.8\", client.ip) ~ inside",
        expect![[r#"Hash true ["MATCH inside \"192.0.2.0\"/24"]"#]],
    );
    value(
        "std.ip(\"::ffff:192.0.2.8\", client.ip) !~ inside",
        expect![[r#"Hash false ["MATCH inside \"192.0.2.0\"/24"]"#]],
    );
    value("req.backend_hint == b", expect!["Hash false []"]);
    value(
        "req.url ~ \"^/a[?]\" && req.url !~ \"(?i)^/B\" && req.url + \"x\" ~ \"x$\"",
        expect!["Hash true []"],
    );
}

#[test]
fn substitutions_replace_matches() {
    value("regsub(\"aXbXc\", \"X\", \"-\")", expect!["Hash a-bXc []"]);
    value("regsuball(\"aXbXc\", \"X\", \"-\")", expect!["Hash a-b-c []"]);
    value(
        "regsub(\"key=value\", \"(\\w+)=(\\w+)\", \"\\2:\\1:\\0:\\&:\\9:\\x&\")",
        expect!["Hash value:key:key=value:&::x& []"],
    );
    value("regsuball(\"abc\", \"x*\", \"-\")", expect!["Hash -abc []"]);
    value("regsuball(\"foofoo\", \"^foo\", \"\")", expect!["Hash foo []"]);
    value("regsub(req.http.nosuch, \"^$\", \"empty\")", expect!["Hash empty []"]);
}

#[test]
fn control_flow_reaches_an_action() {
    recv("call helper; call ends; set req.http.X-Seen = \"never\";", expect!["Pass - []"]);
    recv(
        "if (false) { return (pipe); } elsif (false) { } elif (req.http.x-one) { set req.http.X-Seen = \"elif\"; } else { return (pass); } { return (purge); }",
        expect!["Purge elif []"],
    );
    recv(
        "return (synth(700 + 50, \"a\" + 5));",
        expect!["Synth { status: 750, reason: Some([97, 53]) } - []"],
    );
    recv("return (pass(5s));", expect!["Pass - []"]);
    recv("return (vcl(other));", expect![[r#"Vcl("other") - []"#]]);
    recv(
        "return (fail(\"no\"));",
        expect![[r#"Fail { reason: Some([110, 111]) } - ["vcl_recv failed: no"]"#]],
    );
    recv("set req.method = \"POST\";", expect!["Pass - []"]);
    recv(
        "set req.http.host = \"A.B\"; set req.http.X-Seen = req.http.host; unset req.http.host;",
        expect!["Synth { status: 400, reason: None } a.b []"],
    );
}

#[test]
fn failures_are_logged_with_their_position() {
    recv(
        "set req.http.X-Seen = 1 / req.restarts;",
        expect![[r#"failed: main.vcl:6: 1 / 0 - ["main.vcl:6: 1 / 0"]"#]],
    );
    recv(
        "set req.http.X-Seen = 999999999999999 * 999999999999999;",
        expect![[r#"failed: main.vcl:6: number too large - ["main.vcl:6: number too large"]"#]],
    );
    for sum in [
        "9223 * 999999999999999 + 9223 * 999999999999999",
        "-9223 * 999999999999999 - 9223 * 999999999999999",
    ] {
        recv(
            &format!("set req.http.X-Seen = {sum};"),
            expect![[r#"failed: main.vcl:6: number too large - ["main.vcl:6: number too large"]"#]],
        );
    }
    recv(
        "set req.http.X-Seen = std.bytes(\"\", 9000000 TB + 9000000 TB);",
        expect![[r#"failed: main.vcl:6: number too large - ["main.vcl:6: number too large"]"#]],
    );
    recv(
        "set req.http.X-Seen = 1.0 / req.restarts;",
        expect![[r#"failed: main.vcl:6: 1 / 0 - ["main.vcl:6: 1 / 0"]"#]],
    );
    recv(
        "\nset req.url = \"no path\";",
        expect![[
            r#"failed: main.vcl:7: cannot set req.url to "no path": target must start with / - ["main.vcl:7: cannot set req.url to \"no path\": target must start with /"]"#
        ]],
    );
    recv(
        "set req.http.host = \"a b\";",
        expect![[
            r#"failed: main.vcl:6: cannot set req.http.host: host contains an invalid character - ["main.vcl:6: cannot set req.http.host: host contains an invalid character"]"#
        ]],
    );
    recv(
        "set req.method = \"a b\";",
        expect![[r#"failed: main.vcl:6: invalid method "a b" - ["main.vcl:6: invalid method \"a b\""]"#]],
    );
    recv(
        "return (synth(req.restarts));",
        expect![[
            r#"failed: main.vcl:6: 0 is not the status of a final response - ["main.vcl:6: 0 is not the status of a final response"]"#
        ]],
    );
    recv(
        "return (synth(req.restarts + 103));",
        expect![[
            r#"failed: main.vcl:6: 103 is not the status of a final response - ["main.vcl:6: 103 is not the status of a final response"]"#
        ]],
    );
    recv(
        "return (synth(req.restarts + 1103));",
        expect![[
            r#"failed: main.vcl:6: 1103 is not the status of a final response - ["main.vcl:6: 1103 is not the status of a final response"]"#
        ]],
    );
    recv(
        "set req.http.X-Seen = std.integer(\"x\");",
        expect![[r#"failed: main.vcl:6: not a number - ["main.vcl:6: not a number"]"#]],
    );
    recv(
        "set req.http.X-Seen = std.fnmatch(\"a\", req.http.nosuch);",
        expect![[
            r#"failed: main.vcl:6: std.fnmatch was called with an unset header - ["main.vcl:6: std.fnmatch was called with an unset header"]"#
        ]],
    );
    recv(
        "set req.http.a = \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!\"; if (req.http.a ~ \"^(a+)+(?!x)$\") { }",
        expect![[
            r#"failed: main.vcl:6: regular expression match failed: PCRE2: error matching: match limit exceeded - ["main.vcl:6: regular expression match failed: PCRE2: error matching: match limit exceeded"]"#
        ]],
    );
    let double = "set req.http.a = req.http.a + req.http.a + \"0123456789\";".repeat(16);
    recv(
        &double,
        expect![[
            r#"failed: main.vcl:6: the workspace of 65536 bytes is full - ["main.vcl:6: the workspace of 65536 bytes is full"]"#
        ]],
    );
    let double: String =
        (0..24).map(|at| format!("sub s{at} {{ call s{0}; call s{0}; }}\n", at + 1)).collect();
    let program =
        program(&format!("vcl 4.1; backend b none; {double} sub s24 {{ }} sub vcl_recv {{ call s0; }}"));
    let failure = Bench::default().run(&program, Sub::Recv).expect_err("the run must exceed STEPS_MAX");
    assert_eq!(failure.what(), "more than 10000 statements");
    assert_eq!(failure.place().map(|place| place.file.as_str()), Some("main.vcl"));
}

#[test]
fn missing_message_is_a_failure() {
    let program = program("vcl 4.1; backend b none; sub vcl_deliver { set resp.http.a = \"b\"; }");
    let mut bench = Bench::default();
    let mut task = bench.task();
    task.resp = None;
    let failure = program.run(Sub::Deliver, &mut task).expect_err("the run must fail without resp");
    assert_eq!(failure.to_string(), "main.vcl:1: resp is not available here");
}

/// A policy without subroutines must behave like the built-in policy.
#[test]
fn built_in_policy_returns_its_actions() {
    let program = program("vcl 4.1; backend b { .host = \"::1\"; }");
    for sub in Sub::ALL {
        assert!(!program.extends_builtin(sub), "{sub}");
    }
    let recv = |head: &str| Bench { req: request(head), ..Bench::default() }.run(&program, Sub::Recv);
    assert_eq!(recv("GET / HTTP/1.1\nHost: a"), Ok(Action::Hash));
    assert_eq!(recv("HEAD / HTTP/1.1\nHost: a"), Ok(Action::Hash));
    assert_eq!(recv("POST / HTTP/1.1\nHost: a"), Ok(Action::Pass));
    assert_eq!(recv("BREW / HTTP/1.1\nHost: a"), Ok(Action::Pipe));
    assert_eq!(recv("PRI / HTTP/1.1\nHost: a"), Ok(Action::Synth { status: 405, reason: None }));
    assert_eq!(recv("GET / HTTP/1.1\nHost: a\nCookie: a=b"), Ok(Action::Pass));
    assert_eq!(recv("GET / HTTP/1.1\nHost: a\nAuthorization: x"), Ok(Action::Pass));
    assert_eq!(recv("GET / HTTP/1.0"), Ok(Action::Hash));

    let mut bench = Bench { req: request("GET /a HTTP/1.1\nHost: A.b"), ..Bench::default() };
    bench.client.hash_data.clear();
    assert_eq!(bench.run(&program, Sub::Hash), Ok(Action::Lookup));
    assert_eq!(bench.client.hash_data, b"/a\0a.b\0");
    assert_eq!(bench.run(&program, Sub::Hit), Ok(Action::Deliver));
    assert_eq!(bench.run(&program, Sub::Miss), Ok(Action::Fetch));
    assert_eq!(bench.run(&program, Sub::Pass), Ok(Action::Fetch));
    assert_eq!(bench.run(&program, Sub::Pipe), Ok(Action::Pipe));
    assert_eq!(
        bench.run(&program, Sub::Purge),
        Ok(Action::Synth { status: 200, reason: Some(b"Purged".to_vec()) })
    );
    assert_eq!(bench.run(&program, Sub::BackendFetch), Ok(Action::Fetch));
    assert!(bench.fetch.drop_body);
    assert_eq!(bench.run(&program, Sub::Fini), Ok(Action::Ok));
    bench.resp.status = 404;
    assert_eq!(bench.run(&program, Sub::Synth), Ok(Action::Deliver));
    let body = String::from_utf8(bench.client.body.clone().expect("the policy sets a body"))
        .expect("the body is UTF-8");
    assert!(body.contains("<h1>404 Not Found</h1>"), "{body}");
}

#[test]
fn built_in_policy_marks_responses_uncacheable() {
    let program = program("vcl 4.1; backend b { .host = \"::1\"; }");
    let stored = |change: fn(&mut Bench)| {
        let mut bench = Bench::default();
        change(&mut bench);
        assert_eq!(bench.run(&program, Sub::BackendResponse), Ok(Action::Deliver));
        (!bench.fetch.uncacheable, bench.fetch.ttl_s)
    };
    assert_eq!(stored(|_| ()), (true, 60.0));
    assert_eq!(stored(|bench| bench.fetch.ttl_s = 0.0), (false, 120.0));
    for second in ["private", "no-store", "No-Cache=\"Set-Cookie\""] {
        let (mut bench, mut lines) = (Bench::default(), ["max-age=60", second]);
        for _ in 0..2 {
            bench.fetch = Bench::default().fetch;
            bench.beresp.fields.remove("Cache-Control");
            lines.iter().for_each(|line| bench.beresp.fields.push("Cache-Control", line));
            bench.run(&program, Sub::BackendResponse).expect("the run must succeed");
            assert!(bench.fetch.uncacheable, "{lines:?}");
            lines.reverse();
        }
    }
    assert_eq!(stored(|bench| bench.beresp.fields.push("Vary", "Accept, *")), (false, 120.0));
    assert_eq!(stored(|bench| bench.beresp.fields.push("Vary", "Accept, X-*")), (true, 60.0));
    assert_eq!(
        stored(|bench| ["A", "*"].iter().for_each(|vary| bench.beresp.fields.push("Vary", vary))),
        (false, 120.0)
    );
    assert_eq!(stored(|bench| bench.beresp.fields.set("Set-Cookie", "a")), (false, 120.0));
    assert_eq!(stored(|bench| bench.beresp.fields.set("Cache-Control", "Private")), (false, 120.0));
    assert_eq!(stored(|bench| bench.beresp.fields.set("Vary", "*")), (false, 120.0));
    assert_eq!(stored(|bench| bench.fetch.is_pass = true), (true, 60.0));
}

/// Definitions of one subroutine must run in source order, and the policy's definitions before the
/// built-in definition.
#[test]
fn definitions_of_a_subroutine_are_concatenated() {
    let program = program(
        "vcl 4.1; backend b none; sub vcl_recv { set req.http.X-Seen = \"1\"; } sub vcl_req_method { return (pipe); }\n\
         sub vcl_recv { set req.http.X-Seen = req.http.X-Seen + \"2\"; }",
    );
    let mut bench = Bench { req: request("GET / HTTP/1.1\nHost: a"), ..Bench::default() };
    assert_eq!(bench.run(&program, Sub::Recv), Ok(Action::Pipe));
    assert_eq!(bench.req.fields.get_str("X-Seen"), Some("12"));
    assert!(program.extends_builtin(Sub::Recv) && !program.extends_builtin(Sub::Deliver));
}

#[test]
fn declarations_become_backends_and_probes() {
    let program: Program = program(
        "vcl 4.1; probe p { .url = \"/up\"; .interval = 1s; .window = 4; .threshold = 2; }\n\
         backend a { .host = \"a.example\"; .port = \"8080\"; .connect_timeout = 500ms; .max_connections = 9; .probe = p; .host_header = \"h\"; }\n\
         backend default { .host = \"[::1]:81\"; .probe = { .request = \"GET / HTTP/1.1\" \"Host: x\"; } }\n\
         backend c { .path = \"/run/x\"; } backend d none; backend e { .host = \"e:82\"; .preamble = :YQ==:; .proxy_header = 2; }\n\
         sub vcl_recv { set req.backend_hint = c; set req.backend_hint = d; set req.backend_hint = e; set req.backend_hint = a; }",
    );
    assert_eq!(program.default_backend(), Some(1));
    expect![[r#"
        (
            [
                BackendRow {
                    name: "a",
                    address: Some(
                        Host {
                            host: "a.example",
                            port: 8080,
                        },
                    ),
                    host_header: Some(
                        "h",
                    ),
                    connect_timeout_s: Some(
                        0.5,
                    ),
                    first_byte_timeout_s: None,
                    between_bytes_timeout_s: None,
                    connections_max: Some(
                        9,
                    ),
                    proxy_header: None,
                    preamble: [],
                    probe: Some(
                        0,
                    ),
                },
                BackendRow {
                    name: "default",
                    address: Some(
                        Host {
                            host: "::1",
                            port: 81,
                        },
                    ),
                    host_header: None,
                    connect_timeout_s: None,
                    first_byte_timeout_s: None,
                    between_bytes_timeout_s: None,
                    connections_max: None,
                    proxy_header: None,
                    preamble: [],
                    probe: Some(
                        1,
                    ),
                },
                BackendRow {
                    name: "c",
                    address: Some(
                        Path(
                            "/run/x",
                        ),
                    ),
                    host_header: None,
                    connect_timeout_s: None,
                    first_byte_timeout_s: None,
                    between_bytes_timeout_s: None,
                    connections_max: None,
                    proxy_header: None,
                    preamble: [],
                    probe: None,
                },
                BackendRow {
                    name: "d",
                    address: None,
                    host_header: None,
                    connect_timeout_s: None,
                    first_byte_timeout_s: None,
                    between_bytes_timeout_s: None,
                    connections_max: None,
                    proxy_header: None,
                    preamble: [],
                    probe: None,
                },
                BackendRow {
                    name: "e",
                    address: Some(
                        Host {
                            host: "e",
                            port: 82,
                        },
                    ),
                    host_header: None,
                    connect_timeout_s: None,
                    first_byte_timeout_s: None,
                    between_bytes_timeout_s: None,
                    connections_max: None,
                    proxy_header: Some(
                        2,
                    ),
                    preamble: [
                        97,
                    ],
                    probe: None,
                },
            ],
            [
                ProbeRow {
                    name: "p",
                    url: "/up",
                    request: [],
                    expected_status: 200,
                    timeout_s: 2.0,
                    interval_s: 1.0,
                    initial: 1,
                    window: 4,
                    threshold: 2,
                },
                ProbeRow {
                    name: "",
                    url: "/",
                    request: [
                        "GET / HTTP/1.1",
                        "Host: x",
                    ],
                    expected_status: 200,
                    timeout_s: 2.0,
                    interval_s: 5.0,
                    initial: 2,
                    window: 8,
                    threshold: 3,
                },
            ],
        )
    "#]]
    .assert_debug_eq(&(program.backends(), program.probes()));
}

#[test]
fn negative_pace_is_logged_and_ignored() {
    recv(
        "set client.socket.pace = 2000; set client.socket.pace = 0 - 5; set req.http.X-Seen = client.socket.pace;",
        expect![[r#"Hash 2000 ["client.socket.pace unchanged: -5 is negative"]"#]],
    );
}

/// Reading a field must join all its lines; setting it must replace all of them.
#[test]
fn repeated_field_reads_as_one_list() {
    let seen = |statements: &str| {
        let program = program(&format!("vcl 4.1; backend b none; sub vcl_recv {{ {statements} }}"));
        let lines = "X: a\nx: b\nX:\nX: c, d\nCookie: e=1\nCookie: f=2\nSet-Cookie: g=3\nSet-Cookie: h=4\nEmpty:\nEmpty:";
        let req = request(&format!("GET / HTTP/1.1\nHost: a\n{lines}"));
        let mut bench = Bench { req, ..Bench::default() };
        bench.run(&program, Sub::Recv).expect("the run must succeed");
        let seen = bench.req.fields.get_str("Seen").unwrap_or("-").to_owned();
        (seen, bench.req.fields.get_all("x").count())
    };
    for (statements, expected) in [
        ("set req.http.Seen = req.http.x;", ("a, b, c, d", 4)),
        ("set req.http.Seen = \"<\" + req.http.x + \">\";", ("<a, b, c, d>", 4)),
        ("set req.http.Seen = req.http.x.upper();", ("A, B, C, D", 4)),
        ("set req.http.Seen = regsuball(req.http.x, \", \", \"-\");", ("a-b-c-d", 4)),
        ("set req.http.Seen = req.http.cookie + req.http.set-cookie;", ("e=1; f=2g=3", 4)),
        ("if (req.http.empty == \"\" && req.http.x == \"a, b, c, d\") { set req.http.Seen = 1; }", ("1", 4)),
        ("if (req.http.x ~ \"d$\" && req.http.x) { set req.http.Seen = 1; }", ("1", 4)),
        ("set req.http.x = req.http.x + \", e\"; set req.http.Seen = req.http.x;", ("a, b, c, d, e", 1)),
        ("unset req.http.x; if (!req.http.x) { set req.http.Seen = 1; }", ("1", 0)),
    ] {
        let (seen, lines) = seen(statements);
        assert_eq!((seen.as_str(), lines), expected, "{statements}");
    }
}

/// These forms must be accepted with the same results as in varnishd 7.1.1.
#[test]
fn varnish_forms_are_accepted() {
    value("10 s + 1.5 h + 2\tms", expect!["Hash 5410.002 []"]);
    value("std.bytes(\"\", 10K) + std.bytes(\"\", 1 kb) + std.bytes(\"\", 3b)", expect!["Hash 11267 []"]);
    value("std.bytes(\"\", 10m) - std.bytes(\"\", 10M)", expect!["Hash 0 []"]);
    value("std.bytes(\"\", 1.5 m) + std.bytes(\"\", 1P)", expect!["Hash 1125899908415488 []"]);
    value("10m + 0s", expect!["Hash 600.000 []"]);
    value("True && !FALSE && tRuE == true", expect!["Hash true []"]);
    value("0s", expect!["Hash 0.000 []"]);
    value("b.resolve()", expect!["Hash b []"]);
    recv(
        "set req.backend_hint = b; set req.http.X-Seen = req.backend_hint.resolve(); return (hash);",
        expect!["Hash b []"],
    );
    let mut program = program(
        r#"vcl 4.1; import directors; import cookie; import std;
        backend b { .host = "1.2.3.4 8000"; }
        backend c { .host = "::1  9"; }
        backend none_at_all None;
        sub vcl_init {
            new d = directors.fallback(); d.add_backend(b); d.add_backend(c);
            std.timestamp("begun");
        }
        sub vcl_recv {
            if (req.http.Remove) { d.remove_backend(b); }
            set req.http.Seen = directors.lookup("d") + " " + d.backend().resolve() + " " + req.hash_always_miss;
        }
        sub vcl_deliver {
            set resp.http.Hash = req.hash + "-";
            set resp.http.Date = cookie.format_rfc1123(std.time("1994-11-06T08:49:37"), 1h);
        }"#,
    );
    let mut bench = Bench::default();
    program.init(&mut bench.task()).expect("init must succeed");
    assert!(bench.log.iter().any(|line| line.text.starts_with("begun: ")), "{:?}", bench.log);
    let addresses: Vec<_> = program.backends().iter().map(|row| format!("{:?}", row.address)).collect();
    let expected =
        [r#"Some(Host { host: "1.2.3.4", port: 8000 })"#, r#"Some(Host { host: "::1", port: 9 })"#, "None"];
    assert_eq!(addresses, expected);
    for (remove, expected) in [(false, "d b false"), (true, "d - false"), (false, "d - false")] {
        if remove {
            bench.req.fields.push("Remove", "1");
        }
        bench.run(&program, Sub::Recv).expect("the run must succeed");
        // The test host reports its second backend as unhealthy.
        assert_eq!(bench.req.fields.get_str("Seen"), Some(expected.replace("- ", " ").as_str()));
    }
    bench.client.hash_data = b"/a\0h\0".to_vec();
    bench.run(&program, Sub::Deliver).expect("the run must succeed");
    // SHA-256 of the hashed data, in base64 between colons.
    let hash = ":y3eMX7h7iKKFSj9Du+q0HNypT0NHhN3nHGd9VEa2Xlg=:-";
    assert_eq!(bench.resp.fields.get_str("Hash"), Some(hash));
    assert_eq!(bench.resp.fields.get_str("Date"), Some("Sun, 06 Nov 1994 09:49:37 GMT"));
}
