//! `thalweg log`: a file that grows, is rotated and truncated; standard input; a running edge.
#![allow(clippy::unwrap_used, reason = "a test fails where something is not as it has to be")]

mod program;

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use expect_test::expect;
use rustix::process::Signal;

use program::{Directory, Running, thalweg};

/// How long what has to come may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often it is asked for.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A record as the edge writes it, told apart by its status.
fn record(status: u16) -> String {
    format!(
        r#"{{"v":1,"time":"2026-11-20T23:00:00.123Z","client":"127.0.0.1:50000","method":"GET","host":"a","path":"/b","status":{status},"bytes":1000,"ttfb_us":850,"duration_us":1900,"cache":"hit","protocol":"HTTP/1.1","complete":true}}"#
    ) + "\n"
}

/// Status codes of the next lines for people.
fn statuses(log: &mut Running, count: usize) -> Vec<String> {
    let status = |line: String| line.split_whitespace().nth(1).unwrap_or_default().to_owned();
    (0..count).map(|_| status(log.out_line())).collect()
}

#[test]
fn a_file_is_followed_over_rotation_and_truncation() {
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
    directory.append("log.json.1", &record(202)); // the writer has not noticed yet
    directory.write("log.json", &(record(203) + &record(204)));
    assert_eq!(statuses(&mut log, 3), ["202", "203", "204"]);

    directory.write("log.json", &record(205)); // truncates it
    assert_eq!(statuses(&mut log, 1), ["205"]);
}

#[test]
fn a_file_that_is_not_followed_is_printed_to_its_end() {
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
        TIME (UTC)   ST  CACHE      CONTENT    TTFB   TOTAL     GOODPUT CC        RTT     MIN  CWND    DELIVERY  RETR LOST CLIENT                REQUEST
        23:00:00.123 200 hit          1000B   850us  1.90ms  4.21Mbit/s -           -       -     -           -     -    - 127.0.0.1:50000       GET a/b
        23:00:00.123 404 hit          1000B   850us  1.90ms  4.21Mbit/s -           -       -     -           -     -    - 127.0.0.1:50000       GET a/b
        thalweg: not a response record: expected value at line 1 column 1
    "#]].assert_eq(&(out + &err));
    let (out, err) = run(&["log", "--json", "-"], &record(200));
    assert_eq!((out, err), (record(200), String::new()));
    let (out, _) = run(&["log", "--json", "-n", "1", "-"], &(record(200) + &record(404)));
    assert_eq!(out, record(404));
}

#[test]
fn an_expression_says_which_records_are_shown() {
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
        let said = [output.stdout, output.stderr].map(|said| String::from_utf8(said).unwrap()).concat();
        (output.status.code(), said)
    };
    let (code, said) = run(&["log", "-", "-q", "tcpi.rtt > 100ms and path ~ \"^/b$\""]);
    assert_eq!(code, Some(0));
    expect![[r#"
        TIME (UTC)   ST  CACHE      CONTENT    TTFB   TOTAL     GOODPUT CC        RTT     MIN  CWND    DELIVERY  RETR LOST CLIENT                REQUEST
        23:00:00.123 200 hit          1000B   850us  1.90ms  4.21Mbit/s bbr     120ms       -    10           -     0    0 127.0.0.1:50000       GET a/b [cubic to bbr by policy]
            VCL_Log   getsockopt() returned: bbr
        thalweg: not a response record: expected value at line 1 column 1
    "#]].assert_eq(&said);
    let (code, said) = run(&["log", "-", "--json", "--query", "vcl_log ~ \"returned: bbr\""]);
    assert_eq!(code, Some(0));
    assert_eq!(said, steered + "thalweg: not a response record: expected value at line 1 column 1\n");
    let (code, said) = run(&["log", "-", "-q", "tcpi.rt > 100ms"]);
    assert_eq!(code, Some(2));
    expect![[r#"
        error: invalid value 'tcpi.rt > 100ms' for '--query <EXPRESSION>': no field is named tcpi.rt; did you mean tcpi.rtt?
          tcpi.rt > 100ms
          ^^^^^^^
        fields:
          time client method host path status bytes ttfb duration goodput cache detail backend protocol
          complete cut tcp tcp.congestion_control tcp.congestion_control_start tcp.decider tcp.rtt
          tcp.min_rtt tcp.snd_cwnd tcp.delivery_rate tcp.retransmits tcp.lost tcp.pacing_rate steered
          steered.bundle steered.rule steered.holdout steered.experiment steered.arm steered.refused
          cmcd cmcd.sid cmcd.st cmcd.br_kbps cmcd.bl_ms cmcd.mtp_kbps cmcd.bs xid restarts lines vcl_log
          vcl_error vcl_acl timestamp fetcherror lines_lost v

        For more information, try '--help'.
    "#]].assert_eq(&said);
}

#[test]
fn the_help_of_the_log_teaches_expressions() {
    let output = thalweg(&["log", "--help"]).output().unwrap();
    expect![[r#"
        Follow the request log, with what the kernel said of each connection

        Usage: thalweg log [OPTIONS] [FILE|-]

        Arguments:
          [FILE|-]  A log file, or - for standard input; without it the edge is asked

        Options:
              --admin <ADDR:PORT>   The edge's admin address [default: 127.0.0.1:8082]
          -n, --lines <N>           How many last lines to begin with: 10 of a file, all of standard input
              --no-follow           End with the file's last line instead of waiting for more
          -q, --query <EXPRESSION>  Show only the records for which this holds
              --json                Print the records as they are, one JSON object a line
          -h, --help                Print help

        Examples:
          thalweg log                          what the edge on this machine does now
          thalweg log /var/log/thalweg.json    a log file's last lines and what is added, over rotations
          thalweg log --no-follow -n 50 /var/log/thalweg.json    its last 50 lines
          thalweg log - < thalweg.json         standard input, to its end
          thalweg log -q 'tcpi.rtt > 100ms and path ~ ".m4s$"'
          thalweg log -q 'not complete or status >= 500 or vcl_error'
          thalweg log --json | jq 'select(.ttfb_us > 50000)'

        An expression joins tests by and, or, not and parentheses. A test is a field, an operator, a value:
          text     == != and, for regular expressions, ~ !~   path ~ "^/live/"   cache == hit
          numbers  == != < <= > >=                            bytes > 100kB   tcpi.rtt > 50ms
          time     == != < <= > >= ~ !~                       time > 16:40   time > 10min ago
        A field alone holds where a record has it. Units: us ms s min h, B KiB MiB kB MB,
        kbit/s Mbit/s MB/s. Fields have the names of the JSON record, their units may be left out, and
        tcpi. is tcp. as well:
          time client method host path status bytes ttfb duration goodput cache detail backend protocol
          complete cut tcp tcp.congestion_control tcp.congestion_control_start tcp.decider tcp.rtt
          tcp.min_rtt tcp.snd_cwnd tcp.delivery_rate tcp.retransmits tcp.lost tcp.pacing_rate steered
          steered.bundle steered.rule steered.holdout steered.experiment steered.arm steered.refused
          cmcd cmcd.sid cmcd.st cmcd.br_kbps cmcd.bl_ms cmcd.mtp_kbps cmcd.bs xid restarts lines vcl_log
          vcl_error vcl_acl timestamp fetcherror lines_lost v
        lines are those that the policy and its modules logged; vcl_log, vcl_error, vcl_acl, timestamp and
        fetcherror are those of one tag. Any line may do. Capitals do not matter, and the columns that are
        printed are names too: CC == bbr.
    "#]]
    .assert_eq(&String::from_utf8(output.stdout).unwrap());
}

#[test]
fn no_edge_at_the_admin_address() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let output = thalweg(&["log", "--admin", &free]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap().replace(&free, "ADDR");
    expect![[r#"
        thalweg: no edge answers at ADDR; --admin says where, or name a log file: Connection refused (os error 111)
    "#]].assert_eq(&said);
}

/// An edge that answers by itself, its own address and its admin's.
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

/// Asks for `path` until a record of it is among the lines: whether the log follows by then nobody says.
fn ask_until_told(address: &str, path: &str, lines: &Receiver<String>) {
    let begun = Instant::now();
    loop {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        stream.read_to_end(&mut Vec::new()).unwrap();
        match lines.recv_timeout(LOOK_EVERY) {
            Ok(line) if line.contains(&format!("\"path\":\"{path}\"")) => return,
            Ok(_) | Err(RecvTimeoutError::Timeout) => {
                assert!(begun.elapsed() < PATIENCE, "no record of {path}");
            }
            Err(RecvTimeoutError::Disconnected) => panic!("the log has ended"),
        }
    }
}

#[test]
fn an_edge_that_comes_back_is_followed_again() {
    let directory = Directory::new();
    let (edge, address, admin) = answering(&directory, "127.0.0.1:0");
    let mut log = Running::start(thalweg(&["log", "--json", "--admin", &admin]));
    let lines = log.out_lines();
    ask_until_told(&address, "/before", &lines);
    edge.stop(Signal::TERM);
    assert_eq!(log.err_line(), format!("thalweg: the edge at {admin} has ended the stream; waiting for it"));
    let (edge, address, _) = answering(&directory, &admin);
    ask_until_told(&address, "/after", &lines);
    edge.stop(Signal::TERM);
    // Nothing else was said in between.
    assert_eq!(log.err_line(), format!("thalweg: the edge at {admin} has ended the stream; waiting for it"));
}

/// Answers the next request with `head` and `content`, and ends the connection.
fn answer(listener: &TcpListener, head: &str, content: &str) {
    let (mut stream, _) = listener.accept().unwrap();
    let mut asked = Vec::new();
    while !asked.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        asked.extend(byte);
    }
    write!(stream, "HTTP/1.1 200 OK\r\n{head}Connection: close\r\n\r\n{content}").unwrap();
}

const EVENTS: &str = "Content-Type: text/event-stream\r\n";

/// What has no records to give is asked ever less often, and that is told once.
#[test]
fn streams_that_end_at_once_are_told_once_until_a_record_comes() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let admin = listener.local_addr().unwrap().to_string();
    let mut log = Running::start(thalweg(&["log", "--json", "--admin", &admin]));
    let begun = Instant::now();
    answer(&listener, EVENTS, ": hello\n\n");
    answer(&listener, EVENTS, "");
    answer(&listener, EVENTS, "");
    answer(&listener, EVENTS, &format!("data: {}\n", record(200)));
    let pauses = [100, 200, 400].map(Duration::from_millis).iter().sum();
    assert!(begun.elapsed() >= pauses, "{:?}", begun.elapsed());
    assert_eq!(log.out_line() + "\n", record(200));
    // After it everything is as at the beginning.
    answer(&listener, EVENTS, "");
    drop(listener);
    let told = format!("thalweg: the edge at {admin} has ended the stream; waiting for it");
    assert_eq!([log.err_line(), log.err_line()], [told.clone(), told]);
    assert!(log.err_lines_until(Signal::TERM).is_empty());
}

#[test]
fn what_tells_no_events_is_no_edge() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let admin = listener.local_addr().unwrap().to_string();
    let log = thalweg(&["log", "--admin", &admin]).stderr(Stdio::piped()).spawn().unwrap();
    answer(&listener, "Content-Type: text/html\r\n", "welcome");
    let output = log.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap().replace(&admin, "ADDR");
    expect![[r#"
        thalweg: ADDR answered 200 OK to /records: it is not an edge's admin address
    "#]]
    .assert_eq(&said);
}

#[test]
fn who_waits_for_an_edge_ends_with_its_reader() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let admin = listener.local_addr().unwrap().to_string();
    let mut command = thalweg(&["log", "--admin", &admin]);
    let mut log = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    answer(&listener, EVENTS, "");
    drop(listener);
    drop(log.stdout.take());
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = log.try_wait().unwrap() {
            break status;
        }
        if begun.elapsed() > PATIENCE {
            log.kill().unwrap();
        }
        std::thread::sleep(LOOK_EVERY);
    };
    assert_eq!(status.code(), Some(0));
}
