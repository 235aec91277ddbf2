//! What a policy does to a request: values and their texts, operators, flow, limits, failures.

mod common;

use std::sync::atomic::Ordering::Relaxed;

use common::{Bench, program, request};
use expect_test::{Expect, expect};
use thalweg_policy::step::Action;
use thalweg_policy::{Program, Sub};

/// Statements in `vcl_recv`; told are the action, `X-Seen` and the log.
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
fn texts() {
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
fn the_host_is_asked_once_where_a_client_is_and_only_if_the_policy_asks() {
    let program = program(
        r#"vcl 4.1; backend b none;
        sub vcl_recv { if (req.http.ask) { set req.http.seen = client.geo.city + client.as.number; } }
        sub vcl_deliver { if (req.http.ask && client.geo.country_code == "NO") { set resp.http.seen = "yes"; } }"#,
    );
    let mut bench = Bench::default();
    for (ask, asked) in [(false, 0), (true, 1)] {
        if ask {
            bench.req.fields.push("Ask", "1");
        }
        for sub in [Sub::Recv, Sub::Deliver] {
            bench.run(&program, sub).expect("it runs");
        }
        assert_eq!(bench.host.geo_asked.load(Relaxed), asked);
    }
    assert_eq!(bench.resp.fields.get("seen"), Some(&b"yes"[..]));
}

/// Shard directors that share a set of parameters: what is set for one fetch counts where the director is asked.
#[test]
fn a_set_of_parameters_counts_for_directors_that_are_asked_later() {
    let program = {
        let text = r#"vcl 4.1; import directors;
            backend a { .host = "::1"; }
            backend b { .host = "::2"; }
            sub vcl_init {
                new p = directors.shard_param();
                new d = directors.shard();
                d.add_backend(a); d.add_backend(b);
                d.associate(p.use());
                # What is set after it was associated counts too.
                p.set(by = KEY, key = 5, healthy = IGNORE);
            }
            sub vcl_recv { set req.backend_hint = d.backend(resolve = LAZY); }
            sub vcl_backend_fetch {
                if (bereq.http.alt) { p.set(alt = 1); }
                if (bereq.http.own) { set bereq.backend = d.backend(resolve = LAZY, alt = 0); }
            }"#;
        let mut program = program(text);
        program.init(&mut Bench::default().task()).expect("it begins");
        program
    };
    let asked = |fields: &str| {
        let req = request(&format!("GET /a HTTP/1.1\nHost: a{fields}"));
        let mut bench = Bench { bereq: req.clone(), req, ..Bench::default() };
        bench.run(&program, Sub::Recv).expect("it runs");
        bench.fetch.backend = bench.client.backend_hint;
        bench.run(&program, Sub::BackendFetch).expect("it runs");
        let backend = bench.fetch.backend;
        let index = program.resolve(backend, &mut bench.task()).expect("a backend");
        program.backends()[index as usize].name.as_str()
    };
    let (plain, other) = (asked(""), asked("\nAlt: 1"));
    assert_ne!(plain, other);
    assert_eq!(asked("\nAlt: 1\nOwn: 1"), plain);
    assert_eq!(asked(""), plain, "what one fetch sets is its own");
}

/// A member that is a director is as healthy as what is in it, and asking moves nothing on.
#[test]
fn directors_within_directors() {
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
    program.init(&mut Bench::default().task()).expect("it begins");
    let mut bench = Bench::default();
    for name in ["well", "spare", "well"] {
        bench.run(&program, Sub::Recv).expect("it runs");
        assert_eq!(bench.req.fields.get("seen"), Some(&b"false true true true"[..]));
        let backend = bench.client.backend_hint;
        let index = program.resolve(backend, &mut bench.task()).expect("a backend");
        assert_eq!(program.backends()[index as usize].name, name);
    }
}

#[test]
fn a_director_takes_no_backend_that_is_none() {
    for none in ["nowhere", "directors.lookup(\"nosuch\")"] {
        for class in ["round_robin", "fallback", "shard"] {
            let text = format!(
                "vcl 4.1; import directors; backend a {{ .host = \"::1\"; }} backend nowhere none;
                 sub vcl_init {{ new d = directors.{class}(); d.add_backend(a); d.add_backend({none}); }}"
            );
            let failure = program(&text).init(&mut Bench::default().task()).expect_err("it fails");
            assert!(failure.to_string().contains("none cannot be added to a director"), "{failure}");
        }
    }
}

#[test]
fn requests_are_rolled_back() {
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
        bench.run(&program, sub).expect("it runs");
        assert_eq!((&bench.req, &bench.bereq), (&before, &before), "{sub}");
    }
    bench.original = None;
    let failure = bench.run(&program, Sub::Pipe).expect_err("what it was is not known").to_string();
    assert!(failure.contains("req cannot be rolled back here"), "{failure}");
}

#[test]
fn conditions() {
    value("req.http.x-empty == \"\" && req.http.nosuch + \"\" == \"\"", expect!["Hash true []"]);
    // An unset text alone is like no other.
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
fn substitutions() {
    value("regsub(\"aXbXc\", \"X\", \"-\")", expect!["Hash a-bXc []"]);
    value("regsuball(\"aXbXc\", \"X\", \"-\")", expect!["Hash a-b-c []"]);
    value(
        "regsub(\"key=value\", \"(\\w+)=(\\w+)\", \"\\2:\\1:\\0:\\&:\\9:\\x&\")",
        expect!["Hash value:key:key=value:key=value::x& []"],
    );
    value("regsuball(\"abc\", \"x*\", \"-\")", expect!["Hash -abc []"]);
    value("regsuball(\"foofoo\", \"^foo\", \"\")", expect!["Hash foo []"]);
    value("regsub(req.http.nosuch, \"^$\", \"empty\")", expect!["Hash empty []"]);
}

#[test]
fn flow() {
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
fn failures() {
    recv(
        "set req.http.X-Seen = 1 / req.restarts;",
        expect![[r#"failed: main.vcl:6: 1 / 0 - ["main.vcl:6: 1 / 0"]"#]],
    );
    recv(
        "set req.http.X-Seen = 999999999999999 * 999999999999999;",
        expect![[r#"failed: main.vcl:6: a number is too large - ["main.vcl:6: a number is too large"]"#]],
    );
    recv(
        "set req.http.X-Seen = 1.0 / req.restarts;",
        expect![[r#"failed: main.vcl:6: 1 / 0 - ["main.vcl:6: 1 / 0"]"#]],
    );
    recv(
        "\nset req.url = \"no path\";",
        expect![[
            r#"failed: main.vcl:7: cannot set req.url to "no path": target is not an absolute path - ["main.vcl:7: cannot set req.url to \"no path\": target is not an absolute path"]"#
        ]],
    );
    recv(
        "set req.http.host = \"a b\";",
        expect![[
            r#"failed: main.vcl:6: cannot set req.http.host: host has a character that no host name has - ["main.vcl:6: cannot set req.http.host: host has a character that no host name has"]"#
        ]],
    );
    recv(
        "set req.method = \"a b\";",
        expect![[r#"failed: main.vcl:6: "a b" is no method - ["main.vcl:6: \"a b\" is no method"]"#]],
    );
    recv(
        "return (synth(req.restarts));",
        expect![[
            r#"failed: main.vcl:6: 0 is no status of a final response - ["main.vcl:6: 0 is no status of a final response"]"#
        ]],
    );
    recv(
        "return (synth(req.restarts + 103));",
        expect![[
            r#"failed: main.vcl:6: 103 is no status of a final response - ["main.vcl:6: 103 is no status of a final response"]"#
        ]],
    );
    recv(
        "return (synth(req.restarts + 1103));",
        expect![[
            r#"failed: main.vcl:6: 1103 is no status of a final response - ["main.vcl:6: 1103 is no status of a final response"]"#
        ]],
    );
    recv(
        "set req.http.X-Seen = std.integer(\"x\");",
        expect![[r#"failed: main.vcl:6: not a number - ["main.vcl:6: not a number"]"#]],
    );
    recv(
        "set req.http.X-Seen = std.fnmatch(\"a\", req.http.nosuch);",
        expect![[
            r#"failed: main.vcl:6: std.fnmatch of an unset header - ["main.vcl:6: std.fnmatch of an unset header"]"#
        ]],
    );
    recv(
        "set req.http.a = \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!\"; if (req.http.a ~ \"^(a+)+(?!x)$\") { }",
        expect![[
            r#"failed: main.vcl:6: a regular expression gave up: PCRE2: error matching: match limit exceeded - ["main.vcl:6: a regular expression gave up: PCRE2: error matching: match limit exceeded"]"#
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
    let failure = Bench::default().run(&program, Sub::Recv).expect_err("too many statements");
    assert_eq!(failure.what(), "more than 10000 statements");
    assert_eq!(failure.place().map(|place| place.file.as_str()), Some("main.vcl"));
}

#[test]
fn what_is_missing_ends_in_a_failure() {
    let program = program("vcl 4.1; backend b none; sub vcl_deliver { set resp.http.a = \"b\"; }");
    let mut bench = Bench::default();
    let mut task = bench.task();
    task.resp = None;
    let failure = program.run(Sub::Deliver, &mut task).expect_err("there is no resp");
    assert_eq!(failure.to_string(), "main.vcl:1: there is no resp here");
}

/// What the built-in policy does alone.
#[test]
fn the_built_in_policy() {
    let program = program("vcl 4.1; backend b { .host = \"::1\"; }");
    for sub in Sub::ALL {
        assert!(!program.is_written(sub), "{sub}");
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
    let body = String::from_utf8(bench.client.body.clone().expect("a body")).expect("text");
    assert!(body.contains("<h1>404 Not Found</h1>"), "{body}");
}

#[test]
fn what_the_built_in_policy_does_not_store() {
    let program = program("vcl 4.1; backend b { .host = \"::1\"; }");
    let stored = |change: fn(&mut Bench)| {
        let mut bench = Bench::default();
        change(&mut bench);
        assert_eq!(bench.run(&program, Sub::BackendResponse), Ok(Action::Deliver));
        (!bench.fetch.uncacheable, bench.fetch.ttl_s)
    };
    assert_eq!(stored(|_| ()), (true, 60.0));
    assert_eq!(stored(|bench| bench.fetch.ttl_s = 0.0), (false, 120.0));
    assert_eq!(stored(|bench| bench.beresp.fields.set("Set-Cookie", "a")), (false, 120.0));
    assert_eq!(stored(|bench| bench.beresp.fields.set("Cache-Control", "Private")), (false, 120.0));
    assert_eq!(stored(|bench| bench.beresp.fields.set("Vary", "*")), (false, 120.0));
    assert_eq!(stored(|bench| bench.fetch.is_pass = true), (true, 60.0));
}

/// Parts of a subroutine are one, in the order of the text; the policy's come before the built-in ones.
#[test]
fn parts_of_a_subroutine_are_one() {
    let program = program(
        "vcl 4.1; backend b none; sub vcl_recv { set req.http.X-Seen = \"1\"; } sub vcl_req_method { return (pipe); }\n\
         sub vcl_recv { set req.http.X-Seen = req.http.X-Seen + \"2\"; }",
    );
    let mut bench = Bench { req: request("GET / HTTP/1.1\nHost: a"), ..Bench::default() };
    assert_eq!(bench.run(&program, Sub::Recv), Ok(Action::Pipe));
    assert_eq!(bench.req.fields.get_str("X-Seen"), Some("12"));
    assert!(program.is_written(Sub::Recv) && !program.is_written(Sub::Deliver));
}

#[test]
fn backends_are_as_declared() {
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
fn a_pace_below_0_is_told_and_changes_nothing() {
    recv(
        "set client.socket.pace = 2000; set client.socket.pace = 0 - 5; set req.http.X-Seen = client.socket.pace;",
        expect![[r#"Hash 2000 ["client.socket.pace stays as it is: -5 is below 0"]"#]],
    );
}
