//! Two policies published by operators, which must run unchanged.

use crate::common::{Bench, program, request};
use thalweg_policy::{Action, Sub};

#[test]
fn published_tcp_info_policy_runs() {
    let program = program(
        r#"vcl 4.1;

import tcp;

backend default {
    .host = "127.0.0.1";
    .port = "8081";
}

sub vcl_recv {
    tcp.dump_info();
    set req.http.x-tcp = tcp.congestion_algorithm("bbr");
}
"#,
    );
    let mut bench = Bench { req: request("GET / HTTP/1.1\nHost: a"), ..Bench::default() };
    assert_eq!(bench.run(&program, Sub::Recv), Ok(Action::Hash));
    assert_eq!(bench.wire.algorithm, "bbr");
    assert_eq!(bench.req.fields.get_str("x-tcp"), Some("0"));
    let lines: Vec<&str> = bench.log.iter().map(|line| line.text.as_str()).collect();
    assert_eq!(
        lines,
        [
            "tcpi: snd_mss=1448 rcv_mss=536 lost=1 retrans=2",
            "tcpi2: pmtu=1500 rtt=20500 rttvar=1014 snd_cwnd=10 advmss=1448 reordering=3",
            "getsockopt() returned: bbr",
        ]
    );
}

#[test]
fn published_bbr_by_host_policy_runs() {
    let program = program(
        r#"vcl 4.1;
backend default { .host = "127.0.0.1"; }
sub vcl_recv {
    if (req.http.x-original-host == "audio-fa-bbr.spotify.com" && client.requests == 1) {
        set client.socket.congestion_algorithm = "bbr";
    }
}
"#,
    );
    let mut bench = Bench {
        req: request("GET / HTTP/1.1\nHost: a\nX-Original-Host: audio-fa-bbr.spotify.com"),
        ..Bench::default()
    };
    assert_eq!(bench.run(&program, Sub::Recv), Ok(Action::Hash));
    assert_eq!(bench.wire.algorithm, "bbr");
    let mut bench = Bench { req: request("GET / HTTP/1.1\nHost: a"), ..Bench::default() };
    assert_eq!(bench.run(&program, Sub::Recv), Ok(Action::Hash));
    assert_eq!(bench.wire.algorithm, "cubic");
}
