//! What a newcomer from Fastly or from Varnish 3 is told: for each name that means nothing here, what there is instead.

mod common;

use common::{build, told};
use expect_test::{Expect, expect};

fn check(text: &str, expect: Expect) {
    expect.assert_eq(&told(build(text)));
}

/// Of statements, one a line from line 3, in `sub`.
fn within(sub: &str, statements: &str, expect: Expect) {
    check(&format!("vcl 4.1; backend b {{ .host = \"::1\"; }}\nsub {sub} {{\n{statements}\n}}"), expect);
}

#[test]
fn a_service_of_fastly() {
    check(
        r#"vcl 4.1;
table hosts { "a": "b", "c": "d" }
director d random { { .backend = F_origin; .weight = 1; } }
backend F_origin {
    .host = "media.example"; .port = "443"; .ssl = true; .ssl_sni_hostname = "media.example"; .share_key = "x"; .dynamic = true;
    .probe = { .dummy = true; }
}
sub vcl_recv {
    #FASTLY recv
    declare local var.x STRING;
    set var.x = if(req.http.a == "b", "c", "d"); set req.http.c = "e" if(req.http.a, "b", "c");
    set req.backend = F_origin;
    set req.http.a = req.http.Cookie:session;
    set req.http.Cookie:a = "b";
    if (fastly.ff.visits_this_service == 0 && req.url.ext == "m4s") { error 403 "No"; }
    log "syslog " req.service_id;
    add req.http.b = "c";
    return (lookup); # FASTLY here is a name
}
sub vcl_hash { set req.hash += req.url; #FASTLY hash
    return (hash); }
sub vcl_fetch { set beresp.stale_while_revalidate = 5s; }
sub vcl_error { synthetic {"x"}; return (deliver); }
sub vcl_deliver {
    set resp.http.a = subfield(req.http.b, "c", ";"); set resp.http.b = urlencode(req.url);
    set resp.http.a = digest.hash_sha256("a"); set resp.http.b = digest.base64("a");
    set resp.http.a = crypto.encrypt_hex("a"); set resp.http.b = time.add(now, 5s); set resp.http.c = time.elapsed.msec;
    set resp.http.a = table.lookup(hosts, "a"); set resp.http.b = std.itoa(5);
    switch (req.url) { case "/a": esi; break; }
    restart;
    return (deliver_stale);
}
sub vcl_log { }
"#,
        expect![[r#"
            main.vcl:2:1 table begins no declaration (there are no tables; write if and elseif)
            main.vcl:3:1 director begins no declaration (new NAME = directors.random(); in vcl_init makes one, NAME.add_backend(…) fills it)
            main.vcl:5:46 a backend has no .ssl (the edge asks backends in clear text; for TLS, name a proxy beside it)
            main.vcl:5:59 a backend has no .ssl_sni_hostname (the edge asks backends in clear text; for TLS, name a proxy beside it)
            main.vcl:5:96 a backend has no .share_key (leave it out: backends that are declared alike share health and connections)
            main.vcl:5:114 a backend has no .dynamic (leave it out: a name is looked up again and again)
            main.vcl:6:17 a probe has no .dummy (leave .probe out: a backend without one is healthy)
            main.vcl:9:5 warning: #FASTLY recv is a comment here (Fastly puts code there; here the built-in policy goes on where a subroutine returns nothing)
            main.vcl:10:5 declare is no statement (there are no local variables; use a header)
            main.vcl:11:9 unknown variable var.x (there are no local variables; use a header)
            main.vcl:11:17 unknown function if (there is no if(…) as a value: set it within if (…) { } else { })
            main.vcl:11:71 expected ;, found if (there is no if(…) as a value: set it within if (…) { } else { })
            main.vcl:12:9 unknown variable req.backend (it is req.backend_hint since VCL 4.0)
            main.vcl:13:22 req.http.Cookie:session is no variable (cookie.get(NAME) of the module cookie reads a cookie, regsub(TEXT, REGEX, "\1") any part)
            main.vcl:14:9 req.http.Cookie:a is no variable (cookie.get(NAME) of the module cookie reads a cookie, regsub(TEXT, REGEX, "\1") any part)
            main.vcl:15:9 unknown variable fastly.ff.visits_this_service (it is Fastly's own)
            main.vcl:15:47 unknown variable req.url.ext (match it: req.url ~ "\.m4s(\?|$)")
            main.vcl:15:71 error is no statement (it is return (synth(STATUS, REASON)); since VCL 4.0)
            main.vcl:16:5 log is no statement (it is std.log(TEXT);)
            main.vcl:17:5 add is no statement (header.append(resp.http.NAME, TEXT); of the module header adds one field more)
            main.vcl:18:13 lookup cannot be returned in vcl_recv (allowed in: vcl_hash; in vcl_recv it is hash since VCL 4.0)
            main.vcl:20:20 req.hash cannot be set (in vcl_hash it is hash_data(TEXT);)
            main.vcl:20:41 warning: #FASTLY hash is a comment here (Fastly puts code there; here the built-in policy goes on where a subroutine returns nothing)
            main.vcl:21:13 hash cannot be returned in vcl_hash (allowed in: vcl_recv)
            main.vcl:22:5 there is no vcl_fetch (it is vcl_backend_response, and in it req is bereq)
            main.vcl:22:21 unknown variable beresp.stale_while_revalidate (it is beresp.grace)
            main.vcl:23:5 there is no vcl_error (it is vcl_synth for what the policy answers, vcl_backend_error for a fetch that failed)
            main.vcl:23:17 synthetic is no statement (it has brackets since VCL 4.0: synthetic({"…"});)
            main.vcl:25:23 unknown function subfield (cookie.get(NAME) of the module cookie reads a cookie, regsub(TEXT, REGEX, "\1") any part)
            main.vcl:25:73 unknown function urlencode (it is blob.transcode(encoding = URL, encoded = TEXT))
            main.vcl:26:23 unknown module or object digest (there are no digests and signatures; check these before the edge)
            main.vcl:26:66 unknown module or object digest (it is blob.transcode(encoding = BASE64, encoded = TEXT))
            main.vcl:27:23 unknown module or object crypto (there are no ciphers)
            main.vcl:27:66 unknown module or object time (times are joined and compared as they are: now + 5s, now - req.time; std.time reads one)
            main.vcl:27:103 unknown variable time.elapsed.msec (it is now - req.time, and the record has ttfb_us and duration_us)
            main.vcl:28:23 unknown module or object table (there are no tables; write if and elseif)
            main.vcl:28:67 module std is not imported (write import std; at the top)
            main.vcl:29:5 switch is no statement (there is no switch; write if and elseif)
            main.vcl:30:5 restart is no statement (it is return (restart);)
            main.vcl:31:13 unknown action deliver_stale (what is stale is delivered in its grace, by itself)
            main.vcl:33:5 there is no vcl_log (thalweg log has a record of each response; std.log(…) in vcl_deliver adds lines to it)
        "#]],
    );
}

#[test]
fn a_policy_of_varnish_3() {
    within(
        "vcl_recv",
        "if (req.request == \"PURGE\") { purge; }\nremove req.http.a;\nesi;\nerror 403;\nset req.http.a = beresp.http.a;\nset req.http.b = req.backend.healthy;\nreturn (lookup);",
        expect![[r#"
            main.vcl:3:5 unknown variable req.request (it is req.method since VCL 4.0)
            main.vcl:3:31 purge is no statement (it is return (purge); in vcl_recv since VCL 4.0)
            main.vcl:4:1 remove is no statement (it is unset since VCL 4.0)
            main.vcl:5:1 esi is no statement (there is no ESI)
            main.vcl:6:1 error is no statement (it is return (synth(STATUS, REASON)); since VCL 4.0)
            main.vcl:7:18 beresp.http.a cannot be read in vcl_recv (allowed in: vcl_backend_response, vcl_backend_error)
            main.vcl:8:18 unknown variable req.backend.healthy (it is std.healthy(req.backend_hint))
            main.vcl:9:9 lookup cannot be returned in vcl_recv (allowed in: vcl_hash; in vcl_recv it is hash since VCL 4.0)
        "#]],
    );
    within(
        "vcl_deliver",
        "set obj.http.a = \"b\";\nset obj.response = \"c\";\nrollback;\nreturn (error);",
        expect![[r#"
            main.vcl:3:5 obj.http.a cannot be set (what goes out is resp.http.NAME, also in vcl_synth)
            main.vcl:4:5 unknown variable obj.response (what goes out is resp.reason, also in vcl_synth)
            main.vcl:5:1 rollback is no statement (it is std.rollback(req);)
            main.vcl:6:9 error cannot be returned in vcl_deliver (allowed in: vcl_backend_fetch, vcl_backend_response)
        "#]],
    );
    within(
        "vcl_backend_response",
        "return (hit_for_pass);",
        expect![[r#"
        main.vcl:3:9 unknown action hit_for_pass (it is pass(120s), in vcl_backend_response)
    "#]],
    );
    check(
        "vcl 4.1; import digest; import digset; backend b none;",
        expect![[r#"
        main.vcl:1:17 unknown module digest (there are no digests and signatures; check these before the edge)
        main.vcl:1:32 unknown module digset (allowed here: blob, cookie, directors, header, querystring, std, tcp, thalweg, xkey)
    "#]],
    );
}

/// What is wrong within a backend's braces may be what was meant for its host.
#[test]
fn a_backend_with_a_fault_is_not_told_to_need_a_host() {
    check(
        "vcl 4.1;\nbackend a { .host \"::1\"; }\nbackend b { .hots = \"::1\"; }\nbackend c { .port = \"80\"; }",
        expect![[r#"
            main.vcl:2:19 expected =, found a string
            main.vcl:3:9 warning: backend b is not used
            main.vcl:3:14 a backend has no .hots (did you mean host?)
            main.vcl:4:9 a backend needs .host or .path (or write backend NAME none; for one that always fails)
            main.vcl:4:9 warning: backend c is not used
        "#]],
    );
}

/// What the advice says is itself understood.
#[test]
fn what_there_is_instead() {
    check(
        r#"vcl 4.1; import std; import blob; import cookie; import header; import directors;
backend b { .host = "::1"; .host_header = "media.example"; }
sub vcl_init { new d = directors.random(); d.add_backend(b, 1.0); }
sub vcl_recv {
    set req.backend_hint = d.backend();
    if (!std.healthy(req.backend_hint) || req.url ~ "\.m4s(\?|$)" || std.random(0.0, 1.0) < 0.5) { std.rollback(req); }
    cookie.parse(req.http.Cookie);
    set req.http.a = cookie.get("a") + regsub(req.http.b, ".*c=([^;]*).*", "\1");
    set req.http.b = blob.transcode(encoding = URL, encoded = req.url) + blob.transcode(decoding = BASE64URL, encoded = "YQ");
    set req.http.c = std.real2integer(std.random(1, 6), 0) + std.strftime(now, "%Y") + std.querysort(req.url);
    set req.http.d = regsub(req.url, "\?.*", "") + regsub(req.url, "^[^?]*\??", "");
    set req.http.e = regsub(req.url, "^[^?]*/([^/?]*).*", "\1") + regsub(req.url, "^([^?]*)/.*", "\1");
    if (now + 5s < now || now - req.time > 5s) { return (purge); }
    std.log(req.xid + server.identity);
    return (hash);
}
sub vcl_backend_fetch { set bereq.http.Host = "media.example"; }
sub vcl_pipe { set bereq.http.Connection = "upgrade"; }
sub vcl_backend_response { set beresp.grace = 5s; set beresp.uncacheable = true; return (pass(120s)); }
sub vcl_deliver { header.append(resp.http.Set-Cookie, "a"); return (restart); }
sub vcl_synth { synthetic(blob.transcode(decoding = BASE64, encoded = "YQ==")); set resp.reason = "a"; return (deliver); }
"#,
        expect![[r#""#]],
    );
}
