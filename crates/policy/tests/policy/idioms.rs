//! Advice for users of Fastly or Varnish 3: the replacement for each unsupported name.

use crate::common::{build, report_text};
use expect_test::{Expect, expect};

fn check(text: &str, expect: Expect) {
    expect.assert_eq(&report_text(build(text)));
}

/// Checks statements in `sub`, one per line from line 3.
fn within(sub: &str, statements: &str, expect: Expect) {
    check(&format!("vcl 4.1; backend b {{ .host = \"::1\"; }}\nsub {sub} {{\n{statements}\n}}"), expect);
}

#[test]
fn fastly_service_gets_advice() {
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
            main.vcl:2:1 table does not start a declaration (there are no tables; use if and elseif)
            main.vcl:3:1 director does not start a declaration (create one in vcl_init with new NAME = directors.random(); and fill it with NAME.add_backend(…))
            main.vcl:5:46 a backend has no .ssl (the edge connects to backends without TLS; use a TLS proxy next to the edge as the backend)
            main.vcl:5:59 a backend has no .ssl_sni_hostname (the edge connects to backends without TLS; use a TLS proxy next to the edge as the backend)
            main.vcl:5:96 a backend has no .share_key (remove it: identical backends share health and connections)
            main.vcl:5:114 a backend has no .dynamic (remove it: names are resolved repeatedly)
            main.vcl:6:17 a probe has no .dummy (remove .probe: a backend without one is healthy)
            main.vcl:9:5 warning: #FASTLY recv is a comment here (Fastly inserts code there; here the built-in policy follows a subroutine that does not return)
            main.vcl:10:5 declare is not a statement (there are no local variables; use a header)
            main.vcl:11:9 unknown variable var.x (there are no local variables; use a header)
            main.vcl:11:17 unknown function if (there is no if(…) expression; assign within if (…) { } else { })
            main.vcl:11:71 expected ;, found if (there is no if(…) expression; assign within if (…) { } else { })
            main.vcl:12:9 unknown variable req.backend (since VCL 4.0, use req.backend_hint)
            main.vcl:13:22 req.http.Cookie:session is not a variable (use cookie.get(NAME) of the module cookie for cookies, regsub(TEXT, REGEX, "\1") for others)
            main.vcl:14:9 req.http.Cookie:a is not a variable (use cookie.get(NAME) of the module cookie for cookies, regsub(TEXT, REGEX, "\1") for others)
            main.vcl:15:9 unknown variable fastly.ff.visits_this_service (specific to Fastly)
            main.vcl:15:47 unknown variable req.url.ext (match it with req.url ~ "\.m4s(\?|$)")
            main.vcl:15:71 error is not a statement (since VCL 4.0, use return (synth(STATUS, REASON));)
            main.vcl:16:5 log is not a statement (use std.log(TEXT);)
            main.vcl:17:5 add is not a statement (use header.append(resp.http.NAME, TEXT); of the module header)
            main.vcl:18:13 lookup cannot be returned in vcl_recv (allowed in: vcl_hash; since VCL 4.0, use hash in vcl_recv)
            main.vcl:20:20 req.hash cannot be set (in vcl_hash, use hash_data(TEXT);)
            main.vcl:20:41 warning: #FASTLY hash is a comment here (Fastly inserts code there; here the built-in policy follows a subroutine that does not return)
            main.vcl:21:13 hash cannot be returned in vcl_hash (allowed in: vcl_recv)
            main.vcl:22:5 unknown subroutine vcl_fetch (use vcl_backend_response, with bereq in place of req)
            main.vcl:22:21 unknown variable beresp.stale_while_revalidate (use beresp.grace)
            main.vcl:23:5 unknown subroutine vcl_error (use vcl_synth for the policy's own responses, vcl_backend_error for failed fetches)
            main.vcl:23:17 synthetic is not a statement (since VCL 4.0, write parentheses: synthetic({"…"});)
            main.vcl:25:23 unknown function subfield (use cookie.get(NAME) of the module cookie for cookies, regsub(TEXT, REGEX, "\1") for others)
            main.vcl:25:73 unknown function urlencode (use blob.transcode(encoding = URL, encoded = TEXT))
            main.vcl:26:23 unknown module or object digest (there are no digests or signatures; verify them in front of the edge)
            main.vcl:26:66 unknown module or object digest (use blob.transcode(encoding = BASE64, encoded = TEXT))
            main.vcl:27:23 unknown module or object crypto (there are no ciphers)
            main.vcl:27:66 unknown module or object time (use operators: now + 5s, now - req.time; std.time parses a time)
            main.vcl:27:103 unknown variable time.elapsed.msec (use now - req.time; the record has ttfb_us and written_us)
            main.vcl:28:23 unknown module or object table (there are no tables; use if and elseif)
            main.vcl:28:67 module std is not imported (add import std; at the top)
            main.vcl:29:5 switch is not a statement (there is no switch; use if and elseif)
            main.vcl:30:5 restart is not a statement (use return (restart);)
            main.vcl:31:13 unknown action deliver_stale (stale responses are delivered automatically during their grace)
            main.vcl:33:5 unknown subroutine vcl_log (thalweg log has a record of each response; std.log(…) in vcl_deliver adds lines to it)
        "#]],
    );
}

#[test]
fn varnish_3_policy_gets_advice() {
    within(
        "vcl_recv",
        "if (req.request == \"PURGE\") { purge; }\nremove req.http.a;\nesi;\nerror 403;\nset req.http.a = beresp.http.a;\nset req.http.b = req.backend.healthy;\nreturn (lookup);",
        expect![[r#"
            main.vcl:3:5 unknown variable req.request (since VCL 4.0, use req.method)
            main.vcl:3:31 purge is not a statement (since VCL 4.0, use return (purge); in vcl_recv)
            main.vcl:4:1 remove is not a statement (since VCL 4.0, use unset)
            main.vcl:5:1 esi is not a statement (there is no ESI)
            main.vcl:6:1 error is not a statement (since VCL 4.0, use return (synth(STATUS, REASON));)
            main.vcl:7:18 beresp.http.a cannot be read in vcl_recv (allowed in: vcl_backend_response, vcl_backend_error)
            main.vcl:8:18 unknown variable req.backend.healthy (use std.healthy(req.backend_hint))
            main.vcl:9:9 lookup cannot be returned in vcl_recv (allowed in: vcl_hash; since VCL 4.0, use hash in vcl_recv)
        "#]],
    );
    within(
        "vcl_deliver",
        "set obj.http.a = \"b\";\nset obj.response = \"c\";\nrollback;\nreturn (error);",
        expect![[r#"
            main.vcl:3:5 obj.http.a cannot be set (use resp.http.NAME, also in vcl_synth)
            main.vcl:4:5 unknown variable obj.response (use resp.reason, also in vcl_synth)
            main.vcl:5:1 rollback is not a statement (use std.rollback(req);)
            main.vcl:6:9 error cannot be returned in vcl_deliver (allowed in: vcl_backend_fetch, vcl_backend_response)
        "#]],
    );
    within(
        "vcl_backend_response",
        "return (hit_for_pass);",
        expect![[r#"
        main.vcl:3:9 unknown action hit_for_pass (use pass(120s) in vcl_backend_response)
    "#]],
    );
    check(
        "vcl 4.1; import digest; import digset; backend b none;",
        expect![[r#"
        main.vcl:1:17 unknown module digest (there are no digests or signatures; verify them in front of the edge)
        main.vcl:1:32 unknown module digset (allowed here: blob, cookie, directors, header, querystring, std, tcp, thalweg, xkey)
    "#]],
    );
}

/// A missing host must not be reported after another fault in the backend's declaration, because
/// that fault may be a misspelt `.host`.
#[test]
fn missing_host_is_not_reported_after_another_fault() {
    check(
        "vcl 4.1;\nbackend a { .host \"::1\"; }\nbackend b { .hots = \"::1\"; }\nbackend c { .port = \"80\"; }",
        expect![[r#"
            main.vcl:2:19 expected =, found a string
            main.vcl:3:9 warning: backend b is not used
            main.vcl:3:14 a backend has no .hots (did you mean host?)
            main.vcl:4:9 a backend needs .host or .path (or write backend NAME none; for a backend that always fails)
            main.vcl:4:9 warning: backend c is not used
        "#]],
    );
}

/// The constructs named in the advice must compile.
#[test]
fn advised_constructs_compile() {
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

/// Policies in guides are run by the tests of the guides; policies in explanations are compiled
/// here.
#[test]
fn policies_in_explanations_compile() {
    let pages = [include_str!("../../../../docs/explanation/congestion-control.md")];
    for example in pages.iter().flat_map(|page| page.split("```vcl\n").skip(1)) {
        let body = example.split("```").next().unwrap();
        crate::common::program(&format!("vcl 4.1; backend b {{ .host = \"::1\"; }}\n{body}"));
    }
}
