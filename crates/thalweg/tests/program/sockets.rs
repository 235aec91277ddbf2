//! `thalweg sockets` tests: on real sockets, on captures, and live.

use std::io::{Read, Write};
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};

use expect_test::{Expect, expect};

use crate::namespace::Namespace;
use crate::program::{Directory, thalweg};

/// Capture of sockets in many states, from Linux 6.18.
const CAPTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tcp/tests/captures/linux-6.18.bin");

fn sockets(args: &[&str]) -> Output {
    thalweg(&[&["sockets"], args].concat()).output().unwrap()
}

/// Runs the command successfully and returns its standard output.
fn printed(args: &[&str]) -> String {
    let output = sockets(args);
    assert!(output.status.success() && output.stderr.is_empty(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs the command, which must fail, and compares status and standard error.
fn refused(args: &[&str], expected: Expect) {
    let output = sockets(args);
    let report = String::from_utf8(output.stderr).unwrap();
    expected.assert_eq(&format!("status {}\n{report}", output.status.code().unwrap()));
}

/// Returns a listener and both ends of a connection to it; the server sees the IPv4 client as an
/// IPv4-mapped address.
fn connection() -> (TcpListener, TcpStream, TcpStream) {
    let listener = TcpListener::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0))).unwrap();
    let client = TcpStream::connect(("127.0.0.1", listener.local_addr().unwrap().port())).unwrap();
    let (server, _) = listener.accept().unwrap();
    (listener, client, server)
}

#[test]
fn capture_is_printed_as_a_table() {
    expect![[r#"
        STATE       PORT CC        RTT     MIN  CWND     DELIVERY      PACING   RETR  LOST    ACKED    BUSY RWND SNDB    SENDQ CLIENT
        LISTEN       443 bbr       0us     0us    10      0bit/s            -      0     0       0B     0us    -    -      0/8 0.0.0.0:0
        LISTEN         9 bbr       0us     0us    10      0bit/s            -      0     0       0B     0us    -    -      1/0 0.0.0.0:0
        ESTAB      59108 bbr      18us     3us    11  87.4Gbit/s*   356Gbit/s      0     0       7B     0us    -    -       0B 127.0.0.1:443
        TIME-WAIT  59124 -           -       -     -           -            -      -     -        -       -    -    -       0B 127.0.0.1:443
        ESTAB      43312 bbr       6us     6us    10      0bit/s*  1.25Tbit/s      0     0       1B     0us    -    -       0B 127.0.0.1:8443
        ESTAB          9 bbr       5us     5us    10      0bit/s*  1.50Tbit/s      0     0       0B     0us    -    -       0B 127.0.0.1:42650
        ESTAB      42650 bbr       4us     4us    10      0bit/s*  1.87Tbit/s      0     0       1B     0us    -    -       0B 127.0.0.1:9
        SYN-SENT   42656 bbr       0us       -    10      0bit/s*           -      0     0       0B     0us    -    -       1B 127.0.0.1:9
        SYN-SENT   42668 bbr       0us       -    10      0bit/s*           -      0     0       0B     0us    -    -       1B 127.0.0.1:9
        ESTAB        443 bbr      27us     3us    18   175Gbit/s    535Gbit/s      0     0   293KiB     0us    -    -       0B 127.0.0.1:59108
        LISTEN      8443 bbr       0us     0us    10      0bit/s            -      0     0       0B     0us    -    -      0/8 [::]:0
        ESTAB       8443 cubic     9us     4us    10   108Gbit/s*   930Gbit/s      0     0  4.88KiB     0us    -    -       0B [::1]:44380
        CLOSE-WAIT  8443 bbr       6us     6us    10      0bit/s*  1.25Tbit/s      0     0       0B     0us    -    -       0B [::1]:44390
        ESTAB      44380 bbr      13us    13us    10      0bit/s*   576Gbit/s      0     0       1B     0us    -    -       0B [::1]:8443
        FIN-WAIT-2 44390 bbr     226us     6us    11   148Mbit/s*  1.25Tbit/s      0     0       2B  4.00ms   0%   0%       0B [::1]:8443
        ESTAB       8443 reno      7us     7us    10      0bit/s*  1.07Tbit/s      0     0       0B     0us    -    -       0B 127.0.0.1:43312
    "#]].assert_eq(&printed(&["--decode", CAPTURE]));
    let chosen =
        ["--decode", CAPTURE, "--sort", "acked", "--limit", "2", "state", "established", "sport = :443,8443"];
    expect![[r#"
        STATE       PORT CC        RTT     MIN  CWND     DELIVERY      PACING   RETR  LOST    ACKED    BUSY RWND SNDB    SENDQ CLIENT
        ESTAB        443 bbr      27us     3us    18   175Gbit/s    535Gbit/s      0     0   293KiB     0us    -    -       0B 127.0.0.1:59108
        ESTAB       8443 cubic     9us     4us    10   108Gbit/s*   930Gbit/s      0     0  4.88KiB     0us    -    -       0B [::1]:44380
    "#]].assert_eq(&printed(&chosen));
}

#[test]
fn capture_is_printed_as_json() {
    expect![[r#"
        {"client":"::1","client_port":44380,"client_prefix":"::/56","local":"::1","local_port":8443,"cookie":24021,"family":"ipv6","state":"ESTAB","rqueue_bytes":0,"wqueue_bytes":0,"uid":0,"inode":39846761,"mark":0,"cgroup_id":1,"class_id":0,"tos":0,"tclass":0,"shutdown":0,"congestion_control":"cubic","tcp":{"state":1,"ca_state":0,"retransmits":0,"rto_us":204000,"snd_mss_bytes":53760,"rcv_mss_bytes":536,"unacked":0,"sacked":0,"lost":0,"retrans":0,"last_data_sent_ms":312,"last_data_recv_ms":312,"last_ack_recv_ms":312,"pmtu_bytes":65536,"rcv_ssthresh_bytes":65464,"rtt_us":9,"rttvar_us":5,"snd_ssthresh":2147483647,"snd_cwnd":10,"advmss_bytes":65464,"reordering":3,"rcv_rtt_us":0,"rcv_space_bytes":65464,"total_retrans":0,"pacing_rate_bytes_per_s":116237837837,"bytes_acked":5000,"bytes_received":0,"segs_out":1,"segs_in":3,"notsent_bytes":0,"min_rtt_us":4,"data_segs_in":0,"data_segs_out":1,"delivery_rate_bytes_per_s":13440000000,"busy_time_us":0,"rwnd_limited_us":0,"sndbuf_limited_us":0,"delivered":2,"delivered_ce":0,"bytes_sent":5000,"bytes_retrans":0,"dsack_dups":0,"reord_seen":0,"rcv_ooopack":0,"snd_wnd_bytes":107520,"rcv_wnd_bytes":65536,"rehash":0,"total_rto":0,"total_rto_recoveries":0,"total_rto_time_ms":0,"received_ce":0,"delivered_e1_bytes":0,"delivered_e0_bytes":0,"delivered_ce_bytes":0,"received_e1_bytes":0,"received_e0_bytes":0,"received_ce_bytes":0,"delivery_rate_app_limited":true},"memory":{"rmem_alloc_bytes":0,"rcvbuf_bytes":131072,"wmem_alloc_bytes":0,"sndbuf_bytes":3939840,"fwd_alloc_bytes":0,"wmem_queued_bytes":0,"optmem_bytes":0,"backlog_bytes":0,"drops":0}}
    "#]].assert_eq(&printed(&[
        "--decode",
        CAPTURE,
        "--json",
        "dst ::/0 state established sport 8443",
    ]));
    for line in printed(&["--decode", CAPTURE, "--json"]).lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
}

#[test]
fn live_connection_has_its_counters() {
    let (_listener, mut client, mut server) = connection();
    server.write_all(&[7; 50_000]).unwrap();
    client.read_exact(&mut [0; 50_000]).unwrap();
    client.write_all(b"got it").unwrap();
    server.read_exact(&mut [0; 6]).unwrap();
    let port = server.local_addr().unwrap().port();
    let printed = printed(&["sport", "=", &format!(":{port}"), "--json"]);
    let socket: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(socket["client"], "127.0.0.1");
    assert_eq!(socket["client_prefix"], "127.0.0.0/24");
    assert_eq!(socket["client_port"], client.local_addr().unwrap().port());
    assert_eq!((&socket["local_port"], &socket["state"]), (&port.into(), &"ESTAB".into()));
    assert_eq!(socket["tcp"]["bytes_acked"], 50_000);
}

#[test]
fn saved_capture_is_decoded_by_thalweg_and_ss() {
    let (_listener, _client, server) = connection();
    let port = server.local_addr().unwrap().port();
    let (directory, filter) = (Directory::new(), format!("sport {port} state all"));
    let file = directory.path().join("dump.bin");
    let file = file.to_str().unwrap();
    let saved = printed(&[&filter, "--json", "--save", file]);
    assert_eq!(saved.lines().count(), 2, "the capture must have the connection and the listener: {saved}");
    assert_eq!(printed(&["--json", "--decode", file]), saved);
    let ss = Command::new("ss").args(["-tanH"]).env("TCPDIAG_FILE", file).output().unwrap();
    let text = String::from_utf8(ss.stdout).unwrap();
    assert!(ss.status.success() && ss.stderr.is_empty() && text.lines().count() == 2, "{text}");

    let theirs = directory.path().join("ss.bin");
    let theirs = theirs.to_str().unwrap();
    let ss = Command::new("ss").args(["-tinD", theirs, "sport", "=", &format!(":{port}")]).status().unwrap();
    assert!(ss.success());
    assert!(printed(&["--decode", theirs, &format!("sport {port}")]).contains("127.0.0.1:"));

    let mut cut = thalweg(&["sockets", "--json", "--decode", "-"]);
    let mut cut = cut.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let bytes = std::fs::read(file).unwrap();
    cut.stdin.take().unwrap().write_all(&bytes[..bytes.len() - 100]).unwrap();
    let output = cut.wait_with_output().unwrap();
    let report = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        (output.status.code(), output.stdout.iter().filter(|byte| **byte == b'\n').count()),
        (Some(1), 1)
    );
    assert!(
        report.starts_with("thalweg: - is truncated or not a capture: malformed message at byte "),
        "{report}"
    );
}

#[test]
fn wrong_use_is_reported() {
    refused(
        &["sprt", "443"],
        expect![[r#"
        status 2
        thalweg: unknown term sprt (did you mean sport?); expected one of state, sport, dport, src, dst
          sprt 443
          ^^^^
    "#]],
    );
    refused(
        &["top", "state", "estab1ished"],
        expect![[r#"
        status 2
        thalweg: unknown state estab1ished (did you mean established?); expected one of all, connected, established, syn-sent, syn-recv, fin-wait-1, fin-wait-2, time-wait, closed, close-wait, last-ack, listening, closing, new-syn-recv, bound-inactive
          state estab1ished
                ^^^^^^^^^^^
    "#]],
    );
    refused(
        &["--namespace", "there-is-none"],
        expect![[r#"
        status 1
        thalweg: cannot enter network namespace /run/netns/there-is-none: No such file or directory (os error 2)
    "#]],
    );
    refused(
        &["--decode", "/there-is-none"],
        expect![[r#"
        status 1
        thalweg: cannot read /there-is-none: No such file or directory (os error 2)
    "#]],
    );
    refused(
        &["top", "--period", "1ms"],
        expect![[r#"
        status 2
        error: invalid value '1ms' for '--period <DURATION>': must be at least 100ms

        For more information, try '--help'.
    "#]],
    );
}

#[test]
fn namespaces_are_queried_and_named() {
    let inside = Namespace::new();
    let (_listener, _client, server) = connection();
    let filter = format!("sport {}", server.local_addr().unwrap().port());
    let (own, other) = ("/proc/self/ns/net", format!("/proc/{}/ns/net", inside.pid()));
    assert_eq!(printed(&["--json", "--namespace", &other, "state all"]), "");
    let both = printed(&["--json", "--namespace", &other, "--namespace", own, &filter]);
    assert!(both.starts_with(r#"{"namespace":"/proc/self/ns/net","client":"127.0.0.1""#), "{both}");
    assert_eq!(both.lines().count(), 1);
}

#[test]
fn live_output_off_a_terminal_has_one_block_per_dump() {
    let (_listener, _client, server) = connection();
    let port = server.local_addr().unwrap().port().to_string();
    let printed = printed(&["top", "sport", &port, "--period", "100ms", "--count", "2"]);
    let blocks: Vec<_> = printed.split_terminator("\n\n").collect();
    assert_eq!(blocks.len(), 2, "{printed}");
    for block in blocks {
        assert_eq!(block.lines().count(), 3, "{block}");
        assert!(block.starts_with("1 sockets  ") && block.contains("sorted by sending"), "{block}");
    }
}

#[test]
fn live_terminal_handles_keys_and_is_restored() {
    let program = thalweg(&[]).get_program().to_str().unwrap().to_owned();
    // `script` provides a terminal and passes its own input on as key presses.
    let command = format!("stty rows 20 cols 200; {program} sockets top --period 1h; stty -a");
    let mut script = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut keys, mut output) = (script.stdin.take().unwrap(), script.stdout.take().unwrap());
    let mut terminal = vt100::Parser::new(20, 200, 0);
    let mut until = |typed: &[u8], is_so: &dyn Fn(&vt100::Screen) -> bool| {
        keys.write_all(typed).unwrap();
        let mut bytes = [0; 4096];
        while !is_so(terminal.screen()) {
            let length = output.read(&mut bytes).unwrap();
            assert!(length > 0, "{typed:?}: {}", terminal.screen().contents());
            terminal.process(&bytes[..length]);
        }
    };
    let shows = |text: &'static str| move |screen: &vt100::Screen| screen.contents().contains(text);
    until(b"", &shows("sorted by sending"));
    until(b"s", &shows("sorted by rtt"));
    until(b"p", &shows("sorted by rtt  paused"));
    until(b"/sprt 1\r", &shows("unknown term sprt (did you mean sport?)"));
    until(
        b"\x15sport 65535 dst 192.0.2.1\r",
        &shows("sorted by rtt  paused  filter sport 65535 dst 192.0.2.1"),
    );
    until(b"", &shows("0 sockets  "));
    until(b"/7", &shows("filter: sport 65535 dst 192.0.2.17"));
    until(b"\x1b", &|screen| !screen.contents().contains("filter: "));
    until(b"?", &shows("edit the filter: Enter applies it"));
    until(b" s", &shows("sorted by min-rtt  paused  filter sport 65535 dst 192.0.2.1\n"));
    until(b"", &|screen| screen.alternate_screen());
    until(b"q", &|screen| {
        let report = screen.contents();
        !screen.alternate_screen()
            && !screen.hide_cursor()
            && report.contains(" icanon")
            && report.contains(" echo ")
    });
    assert!(script.wait().unwrap().success());
}
