//! End-to-end tests of `paths`, with real namespaces and processes.
//!
//! They need root, as `paths` does. Each test creates and removes its own namespaces. Tests run one
//! at a time, so that none slows down another's emulation.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

#[path = "../../netem/tests/left/mod.rs"]
mod left;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use left::left;
use rustix::process::{Pid, Signal, kill_process};

const PROGRAM: &str = env!("CARGO_BIN_EXE_thalweg-lab");
const PATIENCE: Duration = Duration::from_secs(20);
/// Maximum p99.9 lateness in these tests; up to 27 ms was observed on two busy processors. It does
/// not affect a path's delay, which is the median across packets.
const LATE_MS_MAX: f64 = 50.0;
/// Maximum loss by the emulator itself in these tests; up to 1.9 % was observed on two busy
/// processors. It does not count as path loss.
const MISSED_PERCENT_MAX: f64 = 5.0;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn exclusive() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

fn lab(arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).stdin(Stdio::null()).env_remove("THALWEG_LOG");
    command
}

fn done(command: &mut Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap_or(-1), text(stdout), text(stderr))
}

/// Returns the identity of a process's network namespace.
fn namespace_of(pid: u32) -> Option<String> {
    fs::read_link(format!("/proc/{pid}/ns/net")).ok().map(|link| link.to_string_lossy().into_owned())
}

fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < PATIENCE, "timed out waiting until {what}");
        thread::yield_now();
    }
}

/// Starts a run and waits until its command prints a process id. Returns the run and the process
/// id.
fn started(command: &mut Command) -> (Child, u32) {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (child, line.trim().parse().unwrap())
}

/// Delay, loss and rate must match even on a busy machine: delay is a median, and rate is measured
/// over more than a second. Lateness and missed packets have wider limits, because a busy machine
/// delays the slowest packets.
#[test]
fn named_paths_match_their_description() {
    let _exclusive = exclusive();
    let (status, out, err) = done(&mut lab(&["paths", "check", "--json"]));
    let document: serde_json::Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{err}"));
    let rows = document["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 7 * 2 * 5, "{out}{err}");
    let off: Vec<_> = rows.iter().filter(|row| row["is_met"] == false).collect();
    assert_eq!(status, i32::from(!off.is_empty()), "{out}{err}");
    let (busy, wrong): (Vec<_>, Vec<_>) =
        off.into_iter().partition(|row| ["late p99.9", "missed"].contains(&row["what"].as_str().unwrap()));
    let most = |row: &serde_json::Value| if row["unit"] == "ms" { LATE_MS_MAX } else { MISSED_PERCENT_MAX };
    let too_busy: Vec<_> =
        busy.into_iter().filter(|row| row["measured"].as_f64().unwrap() > most(row)).collect();
    assert!(too_busy.is_empty(), "this machine is too busy for the emulation: {too_busy:#?}");
    assert!(wrong.is_empty(), "paths differ from their description: {wrong:#?}");
    assert_eq!(left(), [""; 0]);
}

#[test]
fn run_exits_with_the_commands_status_and_leaves_nothing() {
    let _exclusive = exclusive();
    let status = |script: &str| done(&mut lab(&["paths", "run", "fibre", "--", "sh", "-c", script])).0;
    assert_eq!(status("exit 0"), 0);
    assert_eq!(status("exit 7"), 7);
    assert_eq!(status("kill -SEGV $$"), 128 + 11);
    // The command's background processes are killed when it exits.
    assert_eq!(status("sleep 1000 & exit 3"), 3);
    assert_eq!(left(), [""; 0]);
}

#[test]
fn server_ends_with_the_command() {
    let _exclusive = exclusive();
    let server = "trap '' TERM; echo there >&3; sleep 1000";
    // The command waits for the server's message on the FIFO.
    let script = "exec 3<>$LAB_FIFO; read line <&3; echo $line; echo $LAB_CLIENTS; exit 5";
    let fifo = std::env::temp_dir().join(format!("thalweg-lab-{}", std::process::id()));
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let server = format!("exec 3<>$LAB_FIFO; {server}");
    let (status, out, err) = done(
        lab(&["paths", "run", "fibre", "--server", &server, "--", "sh", "-c", script]).env("LAB_FIFO", &fifo),
    );
    fs::remove_file(&fifo).unwrap();
    assert_eq!((status, out.as_str()), (5, "there\nfibre=198.18.1.1,2001:db8:0:100::1\n"), "{err}");
    assert!(err.contains("fibre  down"), "{err}");
    assert_eq!(left(), [""; 0]);
}

#[test]
fn signals_are_forwarded_and_end_everything() {
    let _exclusive = exclusive();
    for (signal, forwarded) in
        [(Signal::TERM, Signal::TERM), (Signal::INT, Signal::INT), (Signal::HUP, Signal::TERM)]
    {
        let (mut child, command) = started(&mut lab(&[
            "paths",
            "run",
            "fibre",
            "--",
            "perl",
            "-e",
            "$| = 1; print qq($$\n); sleep 1000",
        ]));
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(128 + forwarded.as_raw()));
        assert_eq!(namespace_of(command), None);
        assert_eq!(left(), [""; 0]);
    }
}

#[test]
fn next_run_ends_processes_of_a_killed_run() {
    let _exclusive = exclusive();
    let script = "echo $$; exec sleep 1000";
    let (mut child, command) = started(&mut lab(&["paths", "run", "fibre", "--", "sh", "-c", script]));
    let namespace = namespace_of(command);
    assert!(namespace.is_some() && namespace != namespace_of(child.id()));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(namespace_of(command), namespace, "the command outlives the run");
    let (status, _, err) = done(&mut lab(&["paths", "run", "fibre", "--", "true"]));
    assert_eq!(status, 0, "{err}");
    assert!(err.contains("killed processes left by an earlier run processes=1"), "{err}");
    wait("the command is killed", || namespace_of(command).is_none());
    assert_eq!(left(), [""; 0]);
}

#[test]
fn next_run_removes_directories_of_a_killed_run() {
    let _exclusive = exclusive();
    // Mount an empty `/run` and `/tmp`, so that nothing else can have created these directories.
    let script = r#"
        set -e
        mount -t tmpfs tmpfs /run
        cp "$0" /run/lab
        mount -t tmpfs tmpfs /tmp
        rm -rf /run/mount # mount keeps its state there
        /run/lab paths run fibre -- sh -c 'kill -9 $PPID; exec sleep 1000' || true
        ls -d /run/netns /tmp/rattan /run/thalweg-lab
        /run/lab paths run fibre -- true
        ls -A /run /tmp
    "#;
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, PROGRAM]).stdin(Stdio::null());
    let (status, out, err) = done(&mut command);
    assert_eq!(status, 0, "{err}");
    assert_eq!(out, "/run/netns\n/run/thalweg-lab\n/tmp/rattan\n/run:\nlab\n\n/tmp:\n", "{err}");
}

#[test]
fn directories_stay_while_another_run_is_active() {
    let _exclusive = exclusive();
    let script = r#"
        set -e
        mount -t tmpfs tmpfs /run
        cp "$0" /run/lab
        mkfifo /run/there /run/over /run/gone
        { /run/lab paths run fibre -- sh -c 'echo >/run/there; read _ </run/over'; echo >/run/gone; } &
        read _ </run/there
        /run/lab paths run fibre -- sh -c 'echo >/run/over; read _ </run/gone; test -e $LAB_NETNS_SERVER'
        rm /run/there /run/over /run/gone
        ls -A /run
    "#;
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, PROGRAM]).stdin(Stdio::null());
    let (status, out, err) = done(&mut command);
    assert_eq!((status, out.as_str()), (0, "lab\n"), "{err}");
}

#[test]
fn check_prints_json() {
    let _exclusive = exclusive();
    let (status, out, err) = done(&mut lab(&["paths", "check", "fibre", "--json"]));
    let document: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((document["version"].as_u64(), document["is_met"].as_bool()), (Some(1), Some(status == 0)));
    let rows = document["rows"].as_array().unwrap();
    let fields = |name: &str| rows.iter().map(|row| row[name].as_str().unwrap()).collect::<Vec<_>>();
    assert_eq!(fields("what"), ["delay", "loss", "rate", "late p99.9", "missed"].repeat(2));
    assert_eq!(fields("unit"), ["ms", "%", "Mbit/s", "ms", "%"].repeat(2));
    assert_eq!(fields("way"), [["down"; 5], ["up"; 5]].concat());
    assert!(rows.iter().all(|row| row["path"] == "fibre" && row["measured"].is_number()), "{out}{err}");
    assert_eq!(err, "", "no progress bar without a terminal");
}

#[test]
fn each_error_is_one_line() {
    let _exclusive = exclusive();
    let directory = std::env::temp_dir().join(format!("thalweg-lab-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let file = directory.join("bad.toml");
    fs::write(&file, "[[path]]\nuse = 'fiber'\n").unwrap();
    let assert_fails = |command: &mut Command, words: &str| {
        let (status, out, err) = done(command);
        assert_eq!((status, out.as_str()), (2, ""), "{err}");
        assert!(err.contains(words) && err.lines().count() == 1, "{err}");
        assert_eq!(left(), [""; 0]);
    };
    assert_fails(
        &mut lab(&["paths", "check", file.to_str().unwrap()]),
        "bad.toml: fiber: unknown path \"fiber\"",
    );
    assert_fails(
        &mut lab(&["paths", "run", "nowhere", "--", "true"]),
        "nowhere: neither a file nor a named path",
    );
    assert_fails(&mut lab(&["paths", "run", "fibre", "--", "/no/such/program"]), "/no/such/program");
    assert_fails(&mut lab(&["paths", "show", "nowhere"]), "unknown path \"nowhere\"");
    // Run a world-readable copy: the build directory may be accessible only to root.
    let program = directory.join("thalweg-lab");
    fs::copy(PROGRAM, &program).unwrap();
    let mut nobody = Command::new(&program);
    nobody.args(["paths", "check", "fibre"]).uid(65534).gid(65534);
    assert_fails(&mut nobody, "need root: CAP_NET_ADMIN is missing");
    fs::remove_dir_all(&directory).unwrap();
}
