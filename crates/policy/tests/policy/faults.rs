//! Fault tests: messages and help of the lexer, the parser and the checker. All faults in a policy
//! are reported together.

use crate::common::{build, build_with, report_text};
use expect_test::{Expect, expect};

fn check(text: &str, expect: Expect) {
    expect.assert_eq(&report_text(build(text)));
}

/// Checks statements in `vcl_recv`, one per line from line 3.
fn recv(statements: &str, expect: Expect) {
    check(
        &format!(
            "vcl 4.1; import tcp; backend b {{ .host = \"::1\"; }} acl inside {{ \"::1\"; }}\nsub vcl_recv {{ tcp.dump_info(); if (client.ip ~ inside) {{ return (pass); }}\n{statements}\n}}"
        ),
        expect,
    );
}

fn file(text: &str, expect: Expect) {
    check(&format!("vcl 4.1; backend b {{ .host = \"::1\"; }}\n{text}"), expect);
}

#[test]
fn fault_shows_its_source_line() {
    let report =
        build("vcl 4.1;\nbackend b { .host = \"::1\"; }\nsub vcl_recv {\n\tset req.urll = \"a\";\n}\n")
            .expect_err("the policy must be rejected");
    expect![[r#"
        error: unknown variable req.urll
         --> main.vcl:4:6
          |
        4 | 	set req.urll = "a";
          | 	    ^^^^^^^^
          = did you mean req.url?
    "#]]
    .assert_eq(&report.to_string());
}

#[test]
fn lexical_faults_are_reported() {
    recv(
        "set req.http.a = \"x;\nset req.http.b = 'x';",
        expect![[r#"
        main.vcl:3:18 unterminated string (write a multi-line string as {"…"} or """…""")
        main.vcl:3:21 expected ; at the end of the statement
        main.vcl:4:18 unexpected character '\'' (text needs quotes)
        main.vcl:4:19 unknown name x (text needs quotes)
        main.vcl:4:20 unexpected character '\'' (text needs quotes)
    "#]],
    );
    recv(
        "set req.http.a = {\"x;",
        expect![[r#"
            main.vcl:3:18 unterminated long string (end it with "})
            main.vcl:4:2 expected a value, found the end of the file
            main.vcl:4:2 expected }, found the end of the file
        "#]],
    );
    recv(
        "/* never",
        expect![[r#"
            main.vcl:3:1 unterminated comment (end it with */)
            main.vcl:4:2 expected }, found the end of the file
        "#]],
    );
    recv(
        "C{ exit(1); }C",
        expect![[r#"
        main.vcl:3:1 inline C is not allowed (Thalweg runs no C; use the modules std, tcp, header and cookie)
    "#]],
    );
    recv(
        "set req.ttl = 5x; set req.ttl = 1234567890123456s;",
        expect![[r#"
            main.vcl:3:15 unknown unit "x" (durations take ms, s, m, h, d, w or y; sizes take B, KB, MB, GB, TB or PB)
            main.vcl:3:33 number with too many digits (the limit is 15 digits)
        "#]],
    );
    recv(
        "tcp.dump_info(:a:);",
        expect![[r#"
            main.vcl:3:15 expected a value, found : (a blob is base64 between colons, :YQ==:)
        "#]],
    );
    recv(
        "set req.http.a = \"\0\";",
        expect![[r#"
        main.vcl:3:18 string contains a NUL character (NUL is not allowed in headers or content)
    "#]],
    );
    recv(
        &format!("set req.http.{} = \"a\";", "x".repeat(300)),
        expect![[r#"
            main.vcl:3:5 name too long (the limit is 256 bytes)
            main.vcl:3:5 unknown variable too-long (see docs/reference/policy-variables.md)
        "#]],
    );
}

#[test]
fn version_and_include_faults_are_reported() {
    check(
        "backend b { .host = \"::1\"; }",
        expect![[r#"
        main.vcl:1:1 missing version (start the policy with vcl 4.1;)
    "#]],
    );
    check(
        "vcl 5.0; backend b { .host = \"::1\"; }",
        expect![[r#"
        main.vcl:1:5 unknown version 5.0 (allowed here: 4.0, 4.1)
    "#]],
    );
    check(
        "vcl 4; backend b { .host = \"::1\"; }",
        expect![[r#"
        main.vcl:1:5 expected the version, 4.0 or 4.1, found 4
    "#]],
    );
    expect![[r#"
        main.vcl:1:35 cannot include "nosuch.vcl": not found
        main.vcl:1:57 include takes no flags here (name each file: include "a.vcl";)
        a.vcl:1:5 cannot include a file with a later version
        a.vcl:1:14 warning: sub x is never called
        a.vcl:1:22 unknown variable req.urll (did you mean req.url?)
        loop.vcl:1:9 includes nested more than 16 deep (a file must not include itself)
    "#]].assert_eq(&report_text(build_with(
        "vcl 4.0; include \"a.vcl\"; include \"nosuch.vcl\"; include +glob \"*\"; include \"loop.vcl\"; backend b none;",
        &[("a.vcl", "vcl 4.1; sub x { set req.urll = \"a\"; }"), ("loop.vcl", "include \"loop.vcl\";")],
    )));
}

#[test]
fn declaration_faults_are_reported() {
    file(
        "foo bar;\nsubb vcl_recv { }",
        expect![[r#"
        main.vcl:2:1 foo does not start a declaration (allowed here: vcl, import, include, backend, probe, acl, sub)
    "#]],
    );
    file(
        "import nosuch;\nimport tpc;\nimport tcp as t;\nimport tcp from \"x\";",
        expect![[r#"
        main.vcl:2:8 unknown module nosuch (allowed here: blob, cookie, directors, header, querystring, std, tcp, thalweg, xkey)
        main.vcl:3:8 unknown module tpc (did you mean tcp?)
        main.vcl:4:8 warning: module t is not used
        main.vcl:5:8 warning: module tcp is not used
        main.vcl:5:17 warning: from is ignored (modules are built in)
    "#]],
    );
    file(
        "backend b { .host = \"::1\"; }\nacl b { }\nsub b { }",
        expect![[r#"
        main.vcl:1:18 b is declared twice (first declared at main.vcl:4:5)
        main.vcl:2:9 b is declared twice (first declared at main.vcl:4:5)
        main.vcl:3:5 b is declared twice (first declared at main.vcl:4:5)
        main.vcl:4:5 warning: sub b is never called
    "#]],
    );
    file(
        "backend c { .port = \"80\"; }\nbackend d { .host = \"a\"; .path = \"/a\"; }",
        expect![[r#"
        main.vcl:2:9 a backend needs .host or .path (or write backend NAME none; for a backend that always fails)
        main.vcl:2:9 warning: backend c is not used
        main.vcl:3:9 a backend must not have both .host and .path
        main.vcl:3:9 warning: backend d is not used
    "#]],
    );
    file(
        "backend c { .host = 5; .prot = \"80\"; .connect_timeout = 5; .max_connections = 1s; .host = \"a\"; }",
        expect![[r#"
        main.vcl:2:9 warning: backend c is not used
        main.vcl:2:21 .host takes a string
        main.vcl:2:25 a backend has no .prot (did you mean port?)
        main.vcl:2:57 .connect_timeout takes a duration, such as 5s
        main.vcl:2:79 .max_connections takes a number from 0 to 4294967295
        main.vcl:2:84 .host is set twice
    "#]],
    );
    file(
        "backend c { .host = \"a b\"; .port = \"x\"; .proxy_header = 3; .preamble = \"a\"; .probe = p; }",
        expect![[r#"
            main.vcl:2:9 .host must be a name or an address
            main.vcl:2:9 "x" is not a port
            main.vcl:2:9 warning: backend c is not used
            main.vcl:2:57 .proxy_header takes a number from 1 to 2
            main.vcl:2:72 .preamble takes a blob, such as :YQ==:
            main.vcl:2:86 unknown probe p (none are defined)
        "#]],
    );
    file(
        "backend c { .path = \"a\"; .probe = 5; host = \"b\"; }",
        expect![[r#"
        main.vcl:2:9 .path must start with /
        main.vcl:2:9 warning: backend c is not used
        main.vcl:2:35 .probe takes a probe's name or a probe in braces
        main.vcl:2:38 expected an attribute, such as .host, found host
    "#]],
    );
    file(
        "probe p { .url = \"/\"; .request = \"GET\"; .window = 65; .threshold = 9; .expected_response = 99; .utl = 1; }",
        expect![[r#"
        main.vcl:2:7 .threshold must be at most .window (8), got 9
        main.vcl:2:7 warning: probe p is not used
        main.vcl:2:24 a probe must not have both .url and .request
        main.vcl:2:51 .window takes a number from 1 to 64
        main.vcl:2:92 .expected_response takes a number from 100 to 999
        main.vcl:2:97 a probe has no .utl (did you mean url?)
    "#]],
    );
    file(
        "acl a { \"10.0.0.1\"/8; \"::1\"/129; \"1.2.3.4\"/-1; \"nohost\"; (\"nohost\"); 5; }",
        expect![[r#"
        main.vcl:2:5 warning: acl a is not used
        main.vcl:2:9 the address has bits set after its prefix (write 10.0.0.0/8, or acl NAME -pedantic)
        main.vcl:2:23 the prefix length of ::1 must be 0 to 128
        main.vcl:2:44 expected the prefix length, found -
        main.vcl:2:48 "nohost" is not an address (an acl lists addresses; a name in parentheses, ("name"), is skipped if it does not resolve)
        main.vcl:2:70 expected an address in quotes, found 5
    "#]],
    );
    file(
        "acl a +lgo { \"10.0.0.1\"; ! \"10.0.0.1\"; }",
        expect![[r#"
        main.vcl:2:5 warning: acl a is not used
        main.vcl:2:8 unknown acl flag lgo (did you mean log?)
        main.vcl:2:26 "10.0.0.1"/32 is both included and excluded
    "#]],
    );
    file(
        "sub vcl_rec { }\nsub a.b { }\nsub twice { }\nsub twice { }",
        expect![[r#"
        main.vcl:2:5 unknown subroutine vcl_rec (names that begin with vcl_ are reserved; did you mean vcl_recv?)
        main.vcl:3:5 subroutine names cannot contain a dot
        main.vcl:3:5 warning: sub a.b is never called
        main.vcl:4:5 warning: sub twice is never called
        main.vcl:5:5 twice is declared twice (first declared at main.vcl:4:5)
        main.vcl:5:5 warning: sub twice is never called
    "#]],
    );
    file(
        "sub vcl_init { new a = tcp.x(); new b = x(); } import tcp;",
        expect![[r#"
        main.vcl:2:24 tcp has no class x (none are defined)
        main.vcl:2:41 x is not a class (write the module's name before the class: directors.round_robin)
    "#]],
    );
}

#[test]
fn statement_faults_are_reported() {
    recv(
        "set req.http.a = \"x\"\nset req.http.b = \"y\";",
        expect![[r#"
        main.vcl:3:21 expected ; at the end of the statement
    "#]],
    );
    recv(
        "retrun (pass);\nst req.url = \"a\";\nremove req.http.a;\nerror 500;",
        expect![[r#"
        main.vcl:3:1 unknown function retrun (did you mean return?)
        main.vcl:4:1 st does not start a statement (statements are set, unset, call, return, if, new and function calls)
        main.vcl:5:1 remove is not a statement (since VCL 4.0, use unset)
        main.vcl:6:1 error is not a statement (since VCL 4.0, use return (synth(STATUS, REASON));)
    "#]],
    );
    recv(
        "if (req.http.a) return (pass);\nelse { }",
        expect![[r#"
        main.vcl:3:17 expected {, found return
        main.vcl:4:1 else without a preceding if
    "#]],
    );
    recv(
        "if (req.http.a = \"b\") { }\nif req.http.a { }",
        expect![[r#"
        main.vcl:3:16 = assigns, it does not compare (did you mean ==?)
        main.vcl:4:4 expected (, found req.http.a
    "#]],
    );
    recv(
        "set req.url : \"a\";\nset \"a\" = \"b\";\nset req.http.a = ;\nunset 5;\ncall \"a\";",
        expect![[r#"
            main.vcl:3:13 unexpected colon after the variable (remove the colon)
            main.vcl:3:15 expected =, +=, -=, *= or /=, found a string
            main.vcl:4:5 expected a variable, found a string
            main.vcl:5:18 expected a value, found ;
            main.vcl:6:7 expected a variable, found 5
            main.vcl:7:6 expected a subroutine, found a string
        "#]],
    );
    recv(
        "call nosuch;\ncall vcl_deliver;",
        expect![[r#"
        main.vcl:3:6 unknown subroutine nosuch (none are defined)
        main.vcl:4:6 vcl_deliver cannot be called (the edge calls vcl_deliver; move the shared code to another subroutine)
    "#]],
    );
    recv(
        "return;\nreturn pass;",
        expect![[r#"
        main.vcl:3:1 vcl_recv must return an action (write return (ACTION); a plain return; only leaves a called subroutine)
        main.vcl:4:8 expected (ACTION), found pass
    "#]],
    );
    recv(
        "return (psas);\nreturn (deliver);\nreturn (pass(1));\nreturn (hash(1));",
        expect![[r#"
        main.vcl:3:9 unknown action psas (did you mean pass?)
        main.vcl:4:9 deliver cannot be returned in vcl_recv (allowed in: vcl_hit, vcl_deliver, vcl_synth, vcl_backend_response, vcl_backend_error)
        main.vcl:5:14 expected DURATION, found INT (a duration needs a unit: 5s)
        main.vcl:6:9 wrong arguments for hash (it takes no argument)
    "#]],
    );
    file(
        "sub vcl_deliver { set resp.status = 100; set resp.status = 1404; }\nsub vcl_backend_response { return (error(103)); }",
        expect![[r#"
            main.vcl:2:37 100 is not the status of a final response (use 200 to 999)
            main.vcl:3:42 103 is not the status of a final response (use 200 to 999)
        "#]],
    );
    recv(
        "return (synth);\nreturn (synth(99));\nreturn (synth(\"404\"));\nreturn (synth(404, \"a\", 1));",
        expect![[r#"
            main.vcl:3:9 wrong arguments for synth (it takes a status and a reason: synth(404, "Not here"))
            main.vcl:4:15 99 is not the status of a final response (use 200 to 999)
            main.vcl:5:15 expected INT, found STRING (write the number without quotes)
            main.vcl:6:25 too many arguments for synth
        "#]],
    );
    recv(
        "return (vcl(nosuch));\nreturn (vcl(\"other\"));\nreturn (vcl);",
        expect![[r#"
        main.vcl:3:13 unknown label nosuch (allowed here: other)
        main.vcl:4:13 expected a label
        main.vcl:5:9 wrong arguments for vcl (it takes a label: vcl(LABEL))
    "#]],
    );
    recv(
        "new a = tcp.x();",
        expect![[r#"
        main.vcl:3:5 new is not allowed in vcl_recv (allowed in: vcl_init)
        main.vcl:3:9 new is not allowed here (create objects directly in vcl_init)
    "#]],
    );
    recv(
        "5;\nregsub(\"a\", \"b\", \"c\");\nhash_data(\"a\");\nsynthetic(\"a\");\nban();\nnosuch();",
        expect![[r#"
        main.vcl:3:1 expected a statement, found 5
        main.vcl:4:1 the result of regsub is not used (write set req.url = regsub(…);)
        main.vcl:5:1 hash_data is not allowed in vcl_recv (allowed in: vcl_hash)
        main.vcl:6:1 synthetic is not allowed in vcl_recv (allowed in: vcl_synth, vcl_backend_error)
        main.vcl:7:1 ban takes one argument
        main.vcl:8:1 unknown function nosuch (allowed here: ban, hash_data, synthetic, set, unset, call, return, if)
    "#]],
    );
}

#[test]
fn variable_faults_are_reported() {
    recv(
        "set req.urll = \"a\";\nset req.nosuch = \"a\";\nset foo = \"a\";\nset req.http = \"a\";\nset req.http.a = fals;",
        expect![[r#"
            main.vcl:3:5 unknown variable req.urll (did you mean req.url?)
            main.vcl:4:5 unknown variable req.nosuch (allowed here: req.backend_hint, req.can_gzip, req.esi, req.esi_level, req.grace, req.hash, req.hash_always_miss, req.hash_ignore_busy, req.hash_ignore_vary, req.http.*, req.is_hitmiss, req.is_hitpass, req.method, req.proto, req.restarts, req.storage, req.time, req.transport, req.ttl, req.url, req.xid)
            main.vcl:5:5 unknown variable foo (see docs/reference/policy-variables.md)
            main.vcl:6:5 unknown variable req.http (a header needs a name: req.http.NAME)
            main.vcl:7:18 unknown name fals (did you mean false?)
        "#]],
    );
    recv(
        "set req.http.a = beresp.ttl;\nset beresp.ttl = 5s;\nunset beresp.http.a;",
        expect![[r#"
        main.vcl:3:18 beresp.ttl cannot be read in vcl_recv (allowed in: vcl_backend_response, vcl_backend_error)
        main.vcl:4:5 beresp.ttl cannot be set in vcl_recv (allowed in: vcl_backend_response, vcl_backend_error)
        main.vcl:5:7 beresp.http.a cannot be unset in vcl_recv (allowed in: vcl_backend_response, vcl_backend_error)
    "#]],
    );
    recv(
        "set req.restarts = 1;\nset req.proto = \"HTTP/1.1\";\nunset req.url;",
        expect![[r#"
        main.vcl:3:5 req.restarts cannot be set (it is read-only)
        main.vcl:4:5 req.proto cannot be set (it is read-only)
        main.vcl:5:7 req.url cannot be unset (only headers and bereq.body can be unset)
    "#]],
    );
    recv(
        "set req.http.a = storage.nosuch.happy;\nset req.storage = storage.s1;\nset req.esi = true;",
        expect![[r#"
        main.vcl:3:18 unknown storage nosuch (allowed here: s0, Transient)
        main.vcl:4:19 unknown storage s1 (allowed here: s0, Transient)
        main.vcl:5:5 unknown variable req.esi (it exists only in VCL 4.0)
    "#]],
    );
    file(
        "sub vcl_backend_fetch { set bereq.http.a = bereq.body; }",
        expect![[r#"
        main.vcl:2:44 bereq.body cannot be read
    "#]],
    );
    file(
        "sub helper { set beresp.ttl = 5s; }\nsub vcl_recv { call helper; }",
        expect![[r#"
        main.vcl:2:18 beresp.ttl cannot be set in vcl_recv (allowed in: vcl_backend_response, vcl_backend_error; vcl_recv calls helper)
    "#]],
    );
    recv(
        "set client.socket.congestion_algorithm = \"bbrr\";\nset req.http.a = tcp.congestion_algorithm(\"vegas\");",
        expect![[r#"
        main.vcl:3:5 warning: congestion control algorithm "bbrr" is not available (allowed here: bbr, cubic, reno; requests continue with the default)
        main.vcl:4:18 warning: congestion control algorithm "vegas" is not available (allowed here: bbr, cubic, reno; requests continue with the default)
    "#]],
    );
}

#[test]
fn type_faults_are_reported() {
    recv(
        "set req.ttl = 5;\nset req.ttl = \"5s\";\nset req.hash_always_miss = now;\nset req.backend_hint = \"b\";",
        expect![[r#"
        main.vcl:3:15 expected DURATION, found INT (a duration needs a unit: 5s)
        main.vcl:4:15 expected DURATION, found STRING (convert it with std.duration(TEXT, FALLBACK))
        main.vcl:5:28 expected BOOL, found TIME (use a comparison, such as == or >)
        main.vcl:6:24 expected BACKEND, found STRING (write the backend's name without quotes)
    "#]],
    );
    recv(
        "set client.socket.pace = \"5\";\nset client.socket.pace = 5.5;\nset req.http.a = inside;\nset req.http.a = req;",
        expect![[r#"
            main.vcl:3:26 expected INT, found STRING (write the number without quotes)
            main.vcl:4:26 expected INT, found REAL
            main.vcl:5:18 expected STRING, found ACL
            main.vcl:6:18 expected STRING, found HTTP
        "#]],
    );
    recv(
        "if (req.http.a == 5) { }\nif (5 == req.http.a) { }\nif (req.ttl > 5) { }\nif (req.http.a == true) { }",
        expect![[r#"
        main.vcl:3:16 STRING cannot be compared with INT (convert the text with std.integer(TEXT, 0))
        main.vcl:4:7 INT cannot be compared with STRING (write the right side without quotes)
        main.vcl:5:13 DURATION cannot be compared with INT (a duration needs a unit: 5s)
        main.vcl:6:16 STRING cannot be compared with BOOL (use the header alone to test whether it is set)
    "#]],
    );
    recv(
        "if (client.ip > \"::1\") { }\nif (client.ip == \"x\") { }\nif (inside == inside) { }\nif (client.ip) { }\nif (1.5) { }",
        expect![[r#"
        main.vcl:3:15 IP does not support > (allowed here: ==, !=)
        main.vcl:4:18 "x" is not an address
        main.vcl:5:12 ACL does not support ==
        main.vcl:6:5 expected BOOL, found IP (compare the IP with ==, or match it with an acl)
        main.vcl:7:5 expected BOOL, found REAL (use a comparison, such as == or >)
    "#]],
    );
    recv(
        "if (req.http.a ~ req.http.b) { }\nif (req.http.a ~ \"(\") { }\nif (client.ip ~ \"::1\") { }\nif (client.ip ~ insid) { }\nif (5 ~ \"5\") { }\nif (req.http.a ~ inside) { }",
        expect![[r#"
        main.vcl:3:18 expected a regular expression in quotes, found STRING (it must be constant, as it is compiled with the policy)
        main.vcl:4:18 invalid regular expression: missing closing parenthesis, at byte 1
        main.vcl:5:17 an IP must be matched with the name of an acl (declare acl NAME { "192.0.2.0"/24; } and match with its name)
        main.vcl:6:17 unknown acl insid (did you mean inside?)
        main.vcl:7:5 INT does not support ~ (STRING matches a regular expression, IP an acl)
        main.vcl:8:18 expected a regular expression in quotes, found ACL (match an address with the ACL: client.ip ~ LIST)
    "#]],
    );
    recv(
        "set req.ttl = 2 * 5s;\nset req.ttl = 5s % 2;\nset req.ttl = now + 5;\nset req.http.a = -true;\nset req.ttl = 5s 6s;",
        expect![[r#"
        main.vcl:3:17 INT * DURATION is not supported (the left side must be INT, REAL, DURATION or BYTES, the right side a number)
        main.vcl:4:18 DURATION % INT is not supported (% needs two INTs)
        main.vcl:5:19 TIME + INT is not supported (both sides must be numbers, DURATION or BYTES alike, or TIME and DURATION)
        main.vcl:6:18 BOOL does not support - (allowed on: INT, REAL, DURATION)
        main.vcl:7:18 expected ;, found 6s
    "#]],
    );
    recv(
        "set req.http.a -= \"b\";\nset req.ttl += 5;\nset req.hash_always_miss += true;",
        expect![[r#"
        main.vcl:3:5 STRING - STRING is not supported (both sides must be numbers, DURATION or BYTES alike, or TIME and DURATION)
        main.vcl:4:5 DURATION + INT is not supported (both sides must be numbers, DURATION or BYTES alike, or TIME and DURATION)
        main.vcl:5:5 BOOL + BOOL is not supported (both sides must be numbers, DURATION or BYTES alike, or TIME and DURATION)
    "#]],
    );
    recv(
        "set req.http.a = client.ip.upper();\nset req.http.a = req.url.uper();\nset req.http.a = req.url.upper(1);",
        expect![[r#"
            main.vcl:3:18 IP has no upper (STRING has upper and lower, BACKEND has resolve)
            main.vcl:4:18 STRING has no uper (allowed here: upper, lower)
            main.vcl:5:18 upper takes no argument
        "#]],
    );
}

#[test]
fn call_faults_are_reported() {
    recv(
        "tcp.dump();\ntpc.dump_info();\ntcp.dump_info(1);\ntcp.set_socket_pace();\ntcp.set_socket_pace(pace = 1);\ntcp.set_socket_pace(1, rate = 2);\ntcp.set_socket_pace(rate = 1, 2);",
        expect![[r#"
            main.vcl:3:1 tcp has no function dump (did you mean dump_info?)
            main.vcl:4:1 unknown module or object tpc (did you mean tcp?)
            main.vcl:5:15 tcp.dump_info takes no argument
            main.vcl:6:1 tcp.set_socket_pace needs INT rate (it takes (INT rate))
            main.vcl:7:1 tcp.set_socket_pace needs INT rate (it takes (INT rate))
            main.vcl:7:21 tcp.set_socket_pace has no argument pace (allowed here: rate)
            main.vcl:8:31 rate is given twice
            main.vcl:9:31 unnamed argument after a named one (named arguments come last)
        "#]],
    );
    recv(
        "set req.http.a = tcp.dump_info();\nset req.http.a = nosuch(1);\nset req.http.a = regsub(\"a\");\nset req.http.a = ban(\"a\");\nset req.http.a = vcl_recv;",
        expect![[r#"
        main.vcl:3:18 tcp.dump_info returns no value (write it as a statement)
        main.vcl:4:18 unknown function nosuch (allowed here: regsub, regsuball)
        main.vcl:5:18 regsub takes three arguments (regsub(TEXT, "REGEX", "REPLACEMENT"))
        main.vcl:6:18 ban returns no value (write it as a statement: ban(…);)
        main.vcl:7:18 vcl_recv is a subroutine (write call vcl_recv;)
    "#]],
    );
    file(
        "sub a { call b; }\nsub b { call a; }\nsub vcl_recv { call a; }",
        expect![[r#"
        main.vcl:1:18 b is declared twice (first declared at main.vcl:3:5)
        main.vcl:3:14 a would call itself (recursion is not allowed, direct or indirect)
    "#]],
    );
    file(
        "sub vcl_recv { call vcl_req_host; }\nsub vcl_deliver { tcp.dump_info(); }",
        expect![[r#"
        main.vcl:3:19 module tcp is not imported (add import tcp; at the top)
    "#]],
    );
    file(
        "import tcp;\nsub vcl_backend_fetch { tcp.dump_info(); }",
        expect![[r#"
        main.vcl:3:25 tcp.dump_info is not allowed in vcl_backend_fetch (allowed in: client)
    "#]],
    );
}

#[test]
fn unused_declarations_are_warned_about() {
    file(
        "import tcp;\nprobe p { }\nacl a { }\nbackend c { .host = \"::2\"; }\nsub s { }",
        expect![[r#"
        main.vcl:2:8 warning: module tcp is not used
        main.vcl:3:7 warning: probe p is not used
        main.vcl:4:5 warning: acl a is not used
        main.vcl:5:9 warning: backend c is not used
        main.vcl:6:5 warning: sub s is never called
    "#]],
    );
}

/// Regression test from fuzzing: the checker relies on the built-in policy, which must be parsed
/// even if there are too many files.
#[test]
fn too_many_files_are_rejected() {
    let text = format!("vcl 4.1; {} backend b none;", "include \"a\"; ".repeat(300));
    let report = build_with(&text, &[("a", "# nothing")]).expect_err("the policy must be rejected");
    assert!(report.to_string().contains("more than 256 files"), "{report}");
}

#[test]
fn limits_are_enforced() {
    let deep = format!("{}true{}", "(".repeat(60), ")".repeat(60));
    recv(
        &format!("if ({deep}) {{ }}"),
        expect![[r#"
            main.vcl:3:52 nested more than 48 deep
            main.vcl:4:2 expected }, found the end of the file
        "#]],
    );
    recv(
        &format!("set req.http.a = \"a\"{};", " + req.url".repeat(300)),
        expect![[r#"
        main.vcl:3:2582 more than 256 operators in a statement
    "#]],
    );
    let chain: String = (0..40).map(|at| format!("sub s{at} {{ call s{}; }}\n", at + 1)).collect();
    file(
        &format!("{chain}sub s40 {{ }}\nsub vcl_recv {{ call s0; }}"),
        expect![[r#"
        main.vcl:9:15 calls nested more than 32 deep
    "#]],
    );
    let many = build(&format!("vcl 4.1; backend b none; sub vcl_recv {{ {} }}", "set x = 1; ".repeat(300)));
    assert_eq!(
        many.expect_err("the policy must be rejected").faults.len(),
        thalweg_policy::fault::FAULTS_MAX
    );
}

#[test]
fn syntax_of_other_languages_is_explained() {
    recv(
        "if (req.http.a and req.http.b or req.http.c) { set req.url = \"/\"; } else { set req.url = \"/b\"; }",
        expect![[r#"
            main.vcl:3:16 and is not an operator (write &&)
            main.vcl:3:31 or is not an operator (write ||)
        "#]],
    );
    recv(
        "if (req.url ~ /live/) { return (pass); }\nif (req.url !~ /a\\.b$/ && req.ttl > 1) { return (pass); }",
        expect![[r#"
            main.vcl:3:15 a regular expression needs quotes (write "live")
            main.vcl:4:16 a regular expression needs quotes (write "a\.b$")
            main.vcl:4:18 unexpected character '\\' (text needs quotes)
            main.vcl:4:21 unexpected character '$' (text needs quotes)
            main.vcl:4:35 DURATION cannot be compared with INT (a duration needs a unit: 5s)
        "#]],
    );
    recv(
        "if (req.http.a ==) { } else { return (pass); }",
        expect![[r#"
        main.vcl:3:18 expected a value, found )
    "#]],
    );
    recv(
        "set req.http.X: = \"a\";",
        expect![[r#"
        main.vcl:3:15 unexpected colon after the variable (remove the colon)
    "#]],
    );
    recv(
        "set req.backend_hint = orign;",
        expect![[r#"
        main.vcl:3:24 unknown backend orign (allowed here: b)
    "#]],
    );
    recv(
        "if (client.socket.tcpi_rtt > 100ms) { }\nif (client.socket.tcpi_last_data_sent > 1s) { }\nif (req.restarts > 1s) { }",
        expect![[r#"
            main.vcl:3:28 INT cannot be compared with DURATION (it is an INT in µs: 100000 for 100ms)
            main.vcl:4:39 INT cannot be compared with DURATION (it is an INT in ms: 100 for 100ms)
            main.vcl:5:18 INT cannot be compared with DURATION (an INT has no unit)
        "#]],
    );
}

#[test]
fn distant_names_are_not_suggested() {
    recv(
        "set req.http.a = client.geo.conn_speed;\nset req.http.a = client.socket.nexthop;\nset req.http.a = client.geo.ip_override;",
        expect![[r#"
            main.vcl:3:18 unknown variable client.geo.conn_speed (allowed here: client.geo.city, client.geo.continent_code, client.geo.country_code, client.geo.country_name, client.geo.latitude, client.geo.longitude, client.geo.metro_code, client.geo.postal_code, client.geo.region)
            main.vcl:4:18 unknown variable client.socket.nexthop (allowed here: client.socket.congestion_algorithm, client.socket.cwnd, client.socket.goodput, client.socket.pace, client.socket.tcp_info, client.socket.tcpi_advmss, client.socket.tcpi_bytes_acked, client.socket.tcpi_bytes_received, client.socket.tcpi_data_segs_in, client.socket.tcpi_data_segs_out, client.socket.tcpi_delivery_rate, client.socket.tcpi_delta_retrans, client.socket.tcpi_last_data_sent, client.socket.tcpi_max_pacing_rate, client.socket.tcpi_min_rtt, client.socket.tcpi_notsent_bytes, client.socket.tcpi_pacing_rate, client.socket.tcpi_pmtu, client.socket.tcpi_rcv_mss, client.socket.tcpi_rcv_rtt, client.socket.tcpi_rcv_space, client.socket.tcpi_rcv_ssthresh, client.socket.tcpi_reordering, client.socket.tcpi_rtt, client.socket.tcpi_rttvar, client.socket.tcpi_segs_in, client.socket.tcpi_segs_out, client.socket.tcpi_snd_cwnd, client.socket.tcpi_snd_mss, client.socket.tcpi_snd_ssthresh, client.socket.tcpi_total_retrans, client.socket.testable_rate)
            main.vcl:5:18 unknown variable client.geo.ip_override (allowed here: client.geo.city, client.geo.continent_code, client.geo.country_code, client.geo.country_name, client.geo.latitude, client.geo.longitude, client.geo.metro_code, client.geo.postal_code, client.geo.region)
        "#]],
    );
}

#[test]
fn socket_settings_are_checked() {
    recv(
        "set client.socket.pace = -5;\nset client.socket.cwnd = 40;",
        expect![[r#"
        main.vcl:3:26 a pace cannot be negative (use 0 for no limit)
        main.vcl:4:5 warning: client.socket.cwnd cannot be set: each request logs a VCL_Error (Linux does not allow it; set the initial window with initcwnd on a route)
    "#]],
    );
}

#[test]
fn body_of_a_misnamed_subroutine_is_checked() {
    file(
        "sub vcl_fetch { set beresp.ttl = 5; set req.url = \"/\"; }\nsub vcl_recieve { set req.urll = \"/\"; }\nsub vcl_nonsense { set req.urll = \"/\"; }",
        expect![[r#"
            main.vcl:2:5 unknown subroutine vcl_fetch (use vcl_backend_response, with bereq in place of req)
            main.vcl:2:34 expected DURATION, found INT (a duration needs a unit: 5s)
            main.vcl:2:41 req.url cannot be set in vcl_backend_response (allowed in: client)
            main.vcl:3:5 unknown subroutine vcl_recieve (names that begin with vcl_ are reserved; did you mean vcl_recv?)
            main.vcl:3:23 unknown variable req.urll (did you mean req.url?)
            main.vcl:4:5 unknown subroutine vcl_nonsense (names that begin with vcl_ are reserved; allowed here: vcl_recv, vcl_hash, vcl_pipe, vcl_pass, vcl_hit, vcl_miss, vcl_purge, vcl_deliver, vcl_synth, vcl_backend_fetch, vcl_backend_response, vcl_backend_error, vcl_init, vcl_fini)
        "#]],
    );
}

/// A policy with syntax errors must still be checked as far as possible.
#[test]
fn semantic_faults_are_reported_with_syntax_faults() {
    recv(
        "set req.urll = \"/\";\nset x y;",
        expect![[r#"
        main.vcl:3:5 unknown variable req.urll (did you mean req.url?)
        main.vcl:4:7 expected =, +=, -=, *= or /=, found y
    "#]],
    );
    recv(
        "if (req.url ~ ) {\nset req.urll = \"/\";\n} else {\nset req.methodd = \"GET\"; }",
        expect![[r#"
            main.vcl:3:15 expected a value, found )
            main.vcl:4:5 unknown variable req.urll (did you mean req.url?)
            main.vcl:6:5 unknown variable req.methodd (did you mean req.method?)
        "#]],
    );
    file(
        "sub vcl_recv { if (true) {\nset req.urll = \"/\";",
        expect![[r#"
        main.vcl:3:5 unknown variable req.urll (did you mean req.url?)
        main.vcl:3:20 expected }, found the end of the file
    "#]],
    );
}
