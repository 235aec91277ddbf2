//! Cost per request of a 200-line policy (`video.vcl`) compared with the built-in policy, in CPU
//! time of this thread.
//!
//! `cargo bench -p thalweg-policy --bench request` prints ns per request. Each number is the median
//! of many short rounds. Rounds alternate between the two policies, so that background load affects
//! both alike. With the argument `parts`, the benchmark prints the cost of single statements
//! instead.

#[allow(dead_code, unreachable_pub, reason = "the benchmark uses only some of the fixture's items")]
#[path = "../tests/policy/common/mod.rs"]
mod common;

use common::{Bench, program, request, response};
use rustix::time::{ClockId, clock_gettime};
use thalweg_http::{RequestHead, ResponseHead};
use thalweg_policy::{Program, Sub};

const POLICY: &str = include_str!("video.vcl");
/// Number of requests per round; a round takes a few milliseconds.
const REQUESTS: u32 = 2_000;
const ROUNDS: usize = 101;

/// Returns the CPU time of this thread, in ns.
fn cpu_ns() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// A player's request and its response.
struct Messages {
    req: RequestHead,
    resp: ResponseHead,
}

impl Messages {
    fn new() -> Messages {
        Messages {
            req: request(
                "GET /live/ch4/video/1080p/seg-00001.m4s?token=abc&utm_source=mail HTTP/1.1\n\
                 Host: www.media.example:8080\n\
                 User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0 Safari/537.36\n\
                 Accept: */*\n\
                 Accept-Encoding: gzip, deflate, br\n\
                 Accept-Language: en-GB,en;q=0.8\n\
                 Cookie: session=0123456789abcdef; consent=1\n\
                 Origin: https://player.media.example\n\
                 Referer: https://player.media.example/watch/ch4\n\
                 X-Forwarded-For: 203.0.113.9\n\
                 Range: bytes=0-",
            ),
            resp: response(
                "HTTP/1.1 200 OK\nServer: origin/1.2\nContent-Type: video/mp4\nCache-Control: max-age=60\n\
                 ETag: \"0123456789abcdef\"\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\nX-Powered-By: packager\n\
                 Content-Length: 1000000",
            ),
        }
    }

    /// Resets the messages to their original state.
    fn reset(&self, bench: &mut Bench) {
        bench.req.fields.clone_from(&self.req.fields);
        bench.req.target.clone_from(&self.req.target);
        bench.req.authority.clone_from(&self.req.authority);
        bench.resp.fields.clone_from(&self.resp.fields);
        bench.beresp.fields.clone_from(&self.resp.fields);
        bench.client.hash_data.clear();
        bench.workspace.bytes_used = 0;
    }
}

/// Runs one round and returns the CPU time per request, in ns.
fn round(program: &Program, subs: &[Sub], messages: &Messages, bench: &mut Bench) -> f64 {
    let start = cpu_ns();
    for _ in 0..REQUESTS {
        messages.reset(bench);
        for sub in subs {
            std::hint::black_box(program.run(*sub, &mut bench.task())).expect("the run must succeed");
        }
    }
    (cpu_ns() - start) / f64::from(REQUESTS)
}

/// Measures both programs. Returns the median CPU time per request of each, and the median
/// difference between paired rounds, in ns.
fn compare(ours: &Program, other: &Program, subs: &[Sub]) -> [f64; 3] {
    let messages = Messages::new();
    let (mut with, mut without) = (Bench::default(), Bench::default());
    let mut rounds = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        let ns = round(ours, subs, &messages, &mut with);
        let other_ns = round(other, subs, &messages, &mut without);
        for (all, ns) in rounds.iter_mut().zip([ns, other_ns, ns - other_ns]) {
            all.push(ns);
        }
    }
    rounds.map(|mut all| *all.select_nth_unstable_by(ROUNDS / 2, f64::total_cmp).1)
}

/// Prints the cost of single statements in `vcl_recv`.
fn parts() {
    let wrap = |body: &str| {
        program(&format!(
            "vcl 4.1; backend b {{ .host = \"127.0.0.1\"; }} acl a {{ \"10.0.0.0\"/8; }} sub vcl_recv {{ {body} return (hash); }}"
        ))
    };
    let nothing = wrap("");
    for body in [
        "if (req.http.x-host-9 == \"video\") { return (pass); }",
        "if (req.http.host == \"media.example\") { return (pass); }",
        "if (client.requests == 7) { return (pass); }",
        "if (req.url ~ \"^/vod/7/.*[.]m4s\") { return (pass); }",
        "if (req.url ~ \"^/vod/7/\") { return (pass); }",
        "if (req.url ~ \"//\") { return (pass); }",
        "if (req.url ~ \"\\.(m4s|mp4|ts)$\") { return (pass); }",
        "if (req.http.user-agent ~ \"(?i)(iphone|ipad|android)\") { return (pass); }",
        "set req.http.x-out = \"v\";",
        "set req.http.x-out = \"v\" + client.requests + \"-\" + req.method;",
        "set req.http.host = \"media.example\";",
        "unset req.http.cookie;",
        "unset req.http.x-arm;",
        "set req.grace = 10s;",
        "if (client.ip ~ a) { return (pass); }",
        "set req.url = regsub(req.url, \"[?].*$\", \"\");",
        "set req.http.x-r = regsub(req.url, \"^/live/([^/]+)/.*$\", \"\\1\");",
    ] {
        println!("{:6.0} {body}", compare(&wrap(body), &nothing, &[Sub::Recv])[2]);
    }
}

fn main() {
    if std::env::args().any(|argument| argument == "parts") {
        return parts();
    }
    let (ours, builtin) = (program(POLICY), program("vcl 4.1; backend b { .host = \"127.0.0.1\"; }"));
    println!("policy of {} lines, ns of CPU time per request", POLICY.lines().count());
    for (name, subs) in [
        ("hit (recv, hash, hit, deliver)", &[Sub::Recv, Sub::Hash, Sub::Hit, Sub::Deliver][..]),
        ("fetch (backend_fetch, backend_response)", &[Sub::BackendFetch, Sub::BackendResponse]),
    ] {
        let [with, without, more] = compare(&ours, &builtin, subs);
        println!("{name}: {with:.0}, built-in {without:.0}, difference {more:.0}");
    }
}
