//! What a policy of 200 lines costs a request over the built-in one, in CPU time of this thread.
//!
//! `cargo bench -p thalweg-policy`; prints ns per request for `vcl_recv`, and for `recv`, `hash`, `hit`, `deliver`.

#[path = "../tests/common/mod.rs"]
mod common;

use std::fmt::Write as _;

use common::{Bench, program, request};
use thalweg_policy::{Program, Sub};

const RUNS: u32 = 50_000;
const ROUNDS: usize = 20;

/// Some 200 lines, of which a request executes some 60 statements.
fn policy() -> String {
    let mut text = String::from(
        "vcl 4.1;\nbackend b { .host = \"127.0.0.1\"; }\nbackend vod { .host = \"127.0.0.2\"; }\n",
    );
    text.push_str("acl inside { \"10.0.0.0\"/8; \"192.168.0.0\"/16; \"2001:db8::\"/32; }\nsub vcl_recv {\n");
    for number in 0..20 {
        let _ = write!(
            text,
            "    if (req.http.x-host-{number} == \"video-{number}.example\" && client.requests == {number}) {{\n        \
             set req.http.x-arm = \"{number}\";\n    }}\n"
        );
    }
    for number in 0..12 {
        let _ = write!(
            text,
            "    if (req.url ~ \"^/live/{number}/.*[.]m4s\") {{\n        set req.http.x-kind = \"live-{number}\";\n    }}\n"
        );
    }
    for number in 0..8 {
        let _ = writeln!(
            text,
            "    set req.http.x-out-{number} = \"v{number}-\" + client.requests + \"-\" + req.method;"
        );
    }
    text.push_str("    unset req.http.cookie;\n    set req.grace = 10s;\n    set req.backend_hint = vod;\n");
    text.push_str("    if (client.ip ~ inside) {\n        set req.http.x-inside = \"1\";\n    }\n");
    text.push_str("    set req.url = regsub(req.url, \"[?].*$\", \"\");\n}\n");
    text.push_str("sub vcl_deliver {\n");
    for number in 0..8 {
        let _ = writeln!(text, "    unset resp.http.x-internal-{number};");
    }
    text.push_str(
        "    if (obj.hits > 0) {\n        set resp.http.x-cache = \"hit \" + obj.hits;\n    } else {\n",
    );
    text.push_str("        set resp.http.x-cache = \"miss\";\n    }\n}\n");
    text
}

/// CPU time of this thread.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("linux tells it");
    text.split(' ').next().and_then(|first| first.parse().ok()).expect("its first number")
}

fn ns_per_request(program: &Program, subs: &[Sub]) -> f64 {
    let head = request(
        "GET /live/4/seg-00001.m4s?token=abc HTTP/1.1\nHost: media.example\nUser-Agent: player/1.0\nAccept: */*\nCookie: a=b\nRange: bytes=0-\nX-Host-3: video-4.example",
    );
    let mut bench = Bench::default();
    let mut best = f64::MAX;
    let resp = bench.resp.clone();
    for _ in 0..ROUNDS {
        let start = cpu_ns();
        for _ in 0..RUNS {
            bench.req.fields.clone_from(&head.fields);
            bench.req.target.set(head.target.as_str()).expect("a target");
            bench.resp.fields.clone_from(&resp.fields);
            bench.client.hash_data.clear();
            bench.workspace.bytes_used = 0;
            for sub in subs {
                std::hint::black_box(program.run(*sub, &mut bench.task())).expect("a right policy");
            }
        }
        best = best.min((cpu_ns() - start) as f64 / f64::from(RUNS));
    }
    best
}

fn parts() {
    let wrap = |body: &str| {
        program(&format!(
            "vcl 4.1; backend b {{ .host = \"127.0.0.1\"; }} acl a {{ \"10.0.0.0\"/8; }} sub vcl_recv {{ {body} return (hash); }}"
        ))
    };
    for body in [
        "",
        "if (req.http.x-host-9 == \"video\") { return (pass); }",
        "if (client.requests == 7) { return (pass); }",
        "if (req.url ~ \"^/live/7/.*[.]m4s\") { return (pass); }",
        "if (req.url ~ \"^/live/7/\") { return (pass); }",
        "set req.http.x-out = \"v\";",
        "set req.http.x-out = \"v\" + client.requests + \"-\" + req.method;",
        "unset req.http.cookie;",
        "set req.grace = 10s;",
        "if (client.ip ~ a) { return (pass); }",
        "set req.url = regsub(req.url, \"[?].*$\", \"\");",
    ] {
        println!("{:6.0} {body}", ns_per_request(&wrap(body), &[Sub::Recv]));
    }
}

fn main() {
    if std::env::args().any(|argument| argument == "parts") {
        return parts();
    }
    let text = policy();
    let ours = program(&text);
    let builtin = program("vcl 4.1; backend b { .host = \"127.0.0.1\"; }");
    println!("policy of {} lines", text.lines().count());
    for (name, subs) in [
        ("recv", &[Sub::Recv][..]),
        ("recv hash hit deliver", &[Sub::Recv, Sub::Hash, Sub::Hit, Sub::Deliver]),
    ] {
        let (with, without) = (ns_per_request(&ours, subs), ns_per_request(&builtin, subs));
        println!("{name}: {with:.0} ns, built-in {without:.0} ns, more {:.0} ns", with - without);
    }
}
