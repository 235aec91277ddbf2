//! `thalweg log` tests: on a growing, rotated and truncated file, standard input, and a running
//! edge.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use expect_test::expect;
use rustix::process::Signal;

use crate::program::{Directory, Running, thalweg};

/// Maximum wait for an expected event.
const PATIENCE: Duration = Duration::from_secs(20);
/// Interval between checks for an expected event.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Returns a record as the edge writes it, identified by its status.
fn record(status: u16) -> String {
    format!(
        r#"{{"v":2,"time":"2026-11-20T23:00:00.123Z","client":"127.0.0.1:50000","method":"GET","host":"a","path":"/b","status":{status},"bytes":1000,"ttfb_us":850,"written_us":1900,"cache":"hit","protocol":"HTTP/1.1","complete":true}}"#
    ) + "\n"
}

/// Returns the status codes of the next human-readable lines.
fn statuses(log: &mut Running, count: usize) -> Vec<String> {
    let status = |line: String| line.split_whitespace().nth(1).unwrap_or_default().to_owned();
    (0..count).map(|_| status(log.out_line())).collect()
}

#[test]
fn file_is_followed_across_rotation_and_truncation() {
    let directory = Directory::new();
    let path = directory.write("log.json", &(100..120).map(record).collect::<String>());
    let mut log = Running::start(thalweg(&["log", "--lines", "2", path.to_str().unwrap()]));
    assert!(log.out_line().starts_with("TIME (UTC)"));
    assert_eq!(statuses(&mut log, 2), ["118", "119"]);

    let whole = record(201);
    let (half, rest) = whole.split_at(30);
    directory.append("log.json", &format!("{}{half}", record(200)));
    assert_eq!(statuses(&mut log, 1), ["200"]);
    directory.append("log.json", rest);
    assert_eq!(statuses(&mut log, 1), ["201"]);

    fs::rename(&path, directory.path().join("log.json.1")).unwrap();
    directory.append("log.json.1", &record(202)); // the writer still has the old file open
    directory.write("log.json", &(record(203) + &record(204)));
    assert_eq!(statuses(&mut log, 3), ["202", "203", "204"]);

    directory.write("log.json", &record(205)); // truncates the file
    assert_eq!(statuses(&mut log, 1), ["205"]);
}

#[test]
fn no_follow_prints_the_file_to_its_end() {
    let directory = Directory::new();
    let text: String = (100..120).map(record).collect();
    let path = directory.write("log.json", text.trim_end());
    for (lines, count) in [(&["-n", "2"][..], 3), (&[], 11)] {
        let args = [&["log", "--json", "--no-follow", path.to_str().unwrap()], lines].concat();
        let output = thalweg(&args).output().unwrap();
        assert!(output.status.success());
        let out = String::from_utf8(output.stdout).unwrap();
        assert!(out.lines().count() == count && out.ends_with(&record(119)), "{out}");
    }
}

#[test]
fn query_searches_the_whole_file() {
    let directory = Directory::new();
    let text: String = [404].into_iter().chain(100..120).map(record).collect();
    let path = directory.write("log.json", &text);
    let args = ["log", "--json", "--no-follow", "-q", "status == 404", path.to_str().unwrap()];
    let output = thalweg(&args).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), record(404));
}

#[test]
fn file_flags_require_a_file() {
    for flags in [&["--no-follow"][..], &["-n", "3"]] {
        let output = thalweg(&[&["log"][..], flags].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let report = String::from_utf8(output.stderr).unwrap();
        assert!(report.contains("apply to a log file: name one"), "{report}");
    }
}

#[test]
fn standard_input_is_read_to_its_end() {
    let run = |args: &[&str], input: &str| {
        let mut command = thalweg(args);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (out, err) = run(&["log", "-"], &format!("{}oops\n{}", record(200), record(404)));
    expect![[r#"
        TIME (UTC)   ST  CACHE      CONTENT    TTFB WRITTEN     GOODPUT CC        RTT     MIN  CWND    DELIVERY  RETR LOST CLIENT                REQUEST
        23:00:00.123 200 hit          1000B   850us  1.90ms           - -           -       -     -           -     -    - 127.0.0.1:50000       GET a/b
        23:00:00.123 404 hit          1000B   850us  1.90ms           - -           -       -     -           -     -    - 127.0.0.1:50000       GET a/b
        thalweg: not a response record: expected value at line 1 column 1
    "#]]
    .assert_eq(&(out + &err));
    let (out, err) = run(&["log", "--json", "-"], &record(200));
    assert_eq!((out, err), (record(200), String::new()));
    let (out, _) = run(&["log", "--json", "-n", "1", "-"], &(record(200) + &record(404)));
    assert_eq!(out, record(404));
}

#[test]
fn query_selects_the_records_shown() {
    let steered = record(200).replace("\"complete\"", concat!(
        r#""tcp":{"congestion_control":"bbr","congestion_control_start":"cubic","decider":"policy","rtt_us":120000,"#,
        r#""snd_cwnd":10,"retransmits":0,"lost":0},"lines":[{"tag":"VCL_Log","text":"getsockopt() returned: bbr"}],"complete""#,
    ));
    let input = format!("{}{steered}oops\n{}", record(200), record(404));
    let run = |args: &[&str]| {
        let mut child = thalweg(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        let report = [output.stdout, output.stderr].map(|report| String::from_utf8(report).unwrap()).concat();
        (output.status.code(), report)
    };
    let (code, report) = run(&["log", "-", "-q", "tcpi.rtt > 100ms and path ~ \"^/b$\""]);
    assert_eq!(code, Some(0));
    expect![[r#"
        TIME (UTC)   ST  CACHE      CONTENT    TTFB WRITTEN     GOODPUT CC        RTT     MIN  CWND    DELIVERY  RETR LOST CLIENT                REQUEST
        23:00:00.123 200 hit          1000B   850us  1.90ms           - bbr     120ms       -    10           -     0    0 127.0.0.1:50000       GET a/b [cubic to bbr by policy]
            VCL_Log   getsockopt() returned: bbr
        thalweg: not a response record: expected value at line 1 column 1
    "#]]
    .assert_eq(&report);
    let (code, report) = run(&["log", "-", "--json", "--query", "vcl_log ~ \"returned: bbr\""]);
    assert_eq!(code, Some(0));
    assert_eq!(report, steered + "thalweg: not a response record: expected value at line 1 column 1\n");
    let (code, report) = run(&["log", "-", "-q", "tcpi.rt > 100ms"]);
    assert_eq!(code, Some(2));
    expect![[r#"
        error: invalid value 'tcpi.rt > 100ms' for '--query <EXPRESSION>': unknown field tcpi.rt; did you mean tcpi.rtt?
          tcpi.rt > 100ms
          ^^^^^^^

        For more information, try '--help'.
    "#]].assert_eq(&report);
}

#[test]
fn log_help_explains_expressions() {
    let output = thalweg(&["log", "--help"]).output().unwrap();
    expect![[r#"
        Follow the request log, with the kernel's view of each connection

        Usage: thalweg log [OPTIONS] [FILE|-]

        Arguments:
          [FILE|-]  Log file, or - for standard input; if omitted, a running edge

        Options:
              --admin <ADDR:PORT>   The edge's admin address [default: 127.0.0.1:8082]
          -n, --lines <N>           Start with the last N lines [default: 10 of a file, all with -q or
                                    standard input]
              --no-follow           Stop at the end of the file instead of waiting for more
          -q, --query <EXPRESSION>  Show only the records that match
              --json                Print the records unchanged, one JSON object per line
          -h, --help                Print help

        Examples:
          thalweg log                          the edge on this machine, live
          thalweg log /var/log/thalweg.json    a log file's last lines and new ones, across rotations
          thalweg log --no-follow -n 50 /var/log/thalweg.json    its last 50 lines
          thalweg log - < thalweg.json         standard input, to its end
          thalweg log -q 'tcpi.rtt > 100ms and path ~ ".m4s$"'
          thalweg log -q 'not complete or status >= 500 or vcl_error'
          thalweg log --json | jq 'select(.ttfb_us > 50000)'

        An expression combines tests with and, or, not and parentheses. A test is FIELD OPERATOR VALUE:
          text     == != and, for regular expressions, ~ !~   path ~ "^/live/"   cache == hit
          numbers  == != < <= > >=                            bytes > 100kB   tcpi.rtt > 50ms
          time     == != < <= > >= ~ !~                       time > 16:40   time > 10min ago
        A field alone matches if the record has it. Units: us ms s min h, B KiB MiB kB MB,
        kbit/s Mbit/s MB/s. Fields are named as in the JSON record. Their units may be omitted, and tcpi. is
        an alias of tcp.:
          time client method host path status bytes ttfb written goodput cache detail backend protocol
          complete cut tcp tcp.congestion_control tcp.congestion_control_start tcp.decider tcp.rtt
          tcp.min_rtt tcp.snd_cwnd tcp.delivery_rate tcp.retransmits tcp.lost tcp.pacing_rate
          tcp.delivery_rate_app_limited steered steered.bundle steered.rule steered.holdout
          steered.experiment steered.arm steered.refused steered.draw_period cmcd cmcd.sid cmcd.st
          cmcd.br_kbps cmcd.bl_ms cmcd.mtp_kbps cmcd.bs xid restarts lines vcl_log vcl_error vcl_acl
          timestamp fetcherror lines_lost delivery delivery.acked_bytes delivery.acked delivery.busy
          delivery.testable delivery.reached_hd delivery.source_limited delivery.rwnd_limited
          sample_one_in v
        lines are those logged by the policy and its modules; vcl_log, vcl_error, vcl_acl, timestamp and
        fetcherror are the lines with that tag. A test matches if any line matches. Case is ignored, and
        column names work too: CC == bbr.
    "#]]
    .assert_eq(&String::from_utf8(output.stdout).unwrap());
}

#[test]
fn missing_edge_is_reported() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let output = thalweg(&["log", "--admin", &free]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let report = String::from_utf8(output.stderr).unwrap().replace(&free, "ADDR");
    expect![[r#"
        thalweg: no edge answers at ADDR; set --admin, or name a log file: cannot read records from ADDR: cannot reach http://ADDR/records: tcp connect error: Connection refused (os error 111)
    "#]].assert_eq(&report);
}

/// Starts an edge that answers all requests itself; also returns its address and its admin address.
fn answering(directory: &Directory, admin: &str) -> (Running, String, String) {
    let text = "vcl 4.1;\nbackend b none;\nsub vcl_recv { return (synth(204)); }\n";
    let policy = directory.write("a.vcl", text);
    let flags =
        ["--listen", "127.0.0.1:0", "--admin", admin, "--state", "off", "--policy", policy.to_str().unwrap()];
    let mut edge = Running::start(thalweg(&[&["edge"][..], &flags].concat()));
    let address = edge.listening("edge");
    let admin = edge.listening("admin");
    (edge, address, admin)
}

/// Requests `path` until the log shows its record: nothing else indicates that the log is
/// connected.
fn request_until_logged(address: &str, path: &str, lines: &Receiver<String>) {
    let start = Instant::now();
    loop {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        stream.read_to_end(&mut Vec::new()).unwrap();
        match lines.recv_timeout(LOOK_EVERY) {
            Ok(line) if line.contains(&format!("\"path\":\"{path}\"")) => return,
            Ok(_) | Err(RecvTimeoutError::Timeout) => {
                assert!(start.elapsed() < PATIENCE, "no record of {path}");
            }
            Err(RecvTimeoutError::Disconnected) => panic!("the log exited"),
        }
    }
}

#[test]
fn restarted_edge_is_followed_again() {
    let directory = Directory::new();
    let (edge, address, admin) = answering(&directory, "127.0.0.1:0");
    let mut log = Running::start(thalweg(&["log", "--json", "--admin", &admin]));
    let lines = log.out_lines();
    request_until_logged(&address, "/before", &lines);
    edge.stop(Signal::TERM);
    assert_eq!(log.err_line(), format!("thalweg: the edge at {admin} has ended the stream; reconnecting"));
    let (edge, address, _) = answering(&directory, &admin);
    request_until_logged(&address, "/after", &lines);
    edge.stop(Signal::TERM);
    // No other message may come in between.
    assert_eq!(log.err_line(), format!("thalweg: the edge at {admin} has ended the stream; reconnecting"));
}

/// Sends `head` and `content` in response to the next request, and closes the connection.
fn answer(listener: &TcpListener, head: &str, content: &str) {
    let (mut stream, _) = listener.accept().unwrap();
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        request.extend(byte);
    }
    write!(stream, "HTTP/1.1 200 OK\r\n{head}Connection: close\r\n\r\n{content}").unwrap();
}

const EVENTS: &str = "Content-Type: text/event-stream\r\n";

/// Reconnecting after streams without records must back off and print a single message.
#[test]
fn repeated_empty_streams_are_reported_once_until_a_record_arrives() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let admin = listener.local_addr().unwrap().to_string();
    let mut log = Running::start(thalweg(&["log", "--json", "--admin", &admin]));
    let start = Instant::now();
    answer(&listener, EVENTS, ": hello\n\n");
    answer(&listener, EVENTS, "");
    answer(&listener, EVENTS, "");
    answer(&listener, EVENTS, &format!("data: {}\n", record(200)));
    let pauses = [100, 200, 400].map(Duration::from_millis).iter().sum();
    assert!(start.elapsed() >= pauses, "{:?}", start.elapsed());
    assert_eq!(log.out_line() + "\n", record(200));
    // A record must reset the pause and the message.
    answer(&listener, EVENTS, "");
    drop(listener);
    let message = format!("thalweg: the edge at {admin} has ended the stream; reconnecting");
    assert_eq!([log.err_line(), log.err_line()], [message.clone(), message]);
    assert!(log.err_lines_until(Signal::TERM).is_empty());
}

#[test]
fn non_event_stream_is_rejected() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let admin = listener.local_addr().unwrap().to_string();
    let log = thalweg(&["log", "--admin", &admin]).stderr(Stdio::piped()).spawn().unwrap();
    answer(&listener, "Content-Type: text/html\r\n", "welcome");
    let output = log.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let report = String::from_utf8(output.stderr).unwrap().replace(&admin, "ADDR");
    expect![[r#"
        thalweg: ADDR answered 200 OK to /records: it is not an edge's admin address
    "#]]
    .assert_eq(&report);
}

#[test]
fn waiting_log_ends_when_its_reader_closes() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let admin = listener.local_addr().unwrap().to_string();
    let mut command = thalweg(&["log", "--admin", &admin]);
    let mut log = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    answer(&listener, EVENTS, "");
    drop(listener);
    drop(log.stdout.take());
    let start = Instant::now();
    let status = loop {
        if let Some(status) = log.try_wait().unwrap() {
            break status;
        }
        if start.elapsed() > PATIENCE {
            log.kill().unwrap();
        }
        std::thread::sleep(LOOK_EVERY);
    };
    assert_eq!(status.code(), Some(0));
}
