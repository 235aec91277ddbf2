//! The program's `paths` as people run it: on real namespaces, with real processes in them.
//!
//! As root, like the program. Each test makes and ends namespaces of its own; they run one at a time, so that no test keeps the
//! emulation of another waiting.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, UdpSocket};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use thalweg_lab::emulation::{Emulation, Side, Way};
use thalweg_lab::scenario::{self, Alteration, Loss};

const PROGRAM: &str = env!("CARGO_BIN_EXE_thalweg-lab");
const PATIENCE: Duration = Duration::from_secs(20);
/// A machine that has other work lets the emulation be late, and says so, or the programs that measure; then it is measured again.
const ATTEMPTS: usize = 4;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
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

/// What may not be there after a run.
fn left() -> Vec<String> {
    let mut left = Vec::new();
    // A run that somebody else has meanwhile is noted there as well.
    let is_others = |note: fs::DirEntry| {
        let name = note.file_name().into_string().unwrap();
        name != std::process::id().to_string() && Path::new("/proc").join(name).exists()
    };
    let notes = fs::read_dir("/run/thalweg-lab");
    if notes.is_ok_and(|mut notes| !notes.any(|note| note.is_ok_and(is_others))) {
        left.push("/run/thalweg-lab".to_owned());
    }
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    left.extend(
        mounts
            .lines()
            .filter(|line| line.contains("ns-left-") || line.contains("/tmp/rattan"))
            .map(str::to_owned),
    );
    let devices = fs::read_to_string("/proc/self/net/dev").unwrap();
    left.extend(devices.lines().filter(|line| line.trim_start().starts_with("vL")).map(str::to_owned));
    left
}

/// The number of the network namespace in which a process is.
fn namespace_of(pid: u32) -> Option<String> {
    fs::read_link(format!("/proc/{pid}/ns/net")).ok().map(|link| link.to_string_lossy().into_owned())
}

fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        thread::yield_now();
    }
}

/// A run whose command has said that it is there, with the command's own number.
fn started(command: &mut Command) -> (Child, u32) {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (child, line.trim().parse().unwrap())
}

#[test]
fn every_named_path_is_what_it_says() {
    let _alone = alone();
    let mut names: Vec<String> = Vec::new();
    for attempt in 1..=ATTEMPTS {
        let arguments: Vec<&str> =
            ["paths", "check"].into_iter().chain(names.iter().map(String::as_str)).collect();
        let (status, out, err) = done(&mut lab(&arguments));
        assert!(attempt > 1 || out.lines().count() == 1 + 7 * 2 * 5, "{out}{err}");
        let off: Vec<&str> = out.lines().filter(|line| line.ends_with("off")).collect();
        assert_eq!(status, i32::from(!off.is_empty()), "{out}{err}");
        let of = |line: &&str| line[..14].trim().to_owned();
        let is_late = |line: &&&str| ["late p99.9", "missed"].iter().any(|what| line.contains(what));
        let late: Vec<String> = off.iter().filter(is_late).map(of).collect();
        names = off.iter().map(of).collect();
        names.dedup();
        // What is off each time, while the emulation is on time, is not the machine's doing.
        let is_last = attempt == ATTEMPTS;
        assert!(!is_last || names.iter().all(|name| late.contains(name)), "{out}{err}");
        if names.is_empty() {
            break;
        }
    }
    if !names.is_empty() {
        assert!(names.len() < 7, "late on every path, as often as it was measured: {names:?}");
        eprintln!("this machine is too busy to tell whether these are what they say: {}", names.join(", "));
    }
    assert_eq!(left(), [""; 0]);
}

#[test]
fn every_address_of_a_prefix_reaches_the_server_by_its_path() {
    let _alone = alone();
    let text = "[[path]]\nname = 'a'\ndown.delay = '10ms'\n[[path]]\nname = 'b'\nup.delay = '30ms'\n";
    let scenario = scenario::read(text, &|_| unreachable!("it names no file")).unwrap();
    let emulation = Emulation::start(&scenario).unwrap();
    let server = emulation.on(Side::Server, || UdpSocket::bind("[::]:7")).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let is_over = &is_over;
        scope.spawn(move || echo(&server, is_over));
        for (from, least_ms) in [
            ("198.18.1.1", 10),
            ("198.18.1.200", 10),
            ("2001:db8:0:1ab::9", 10),
            ("198.18.2.3", 30),
            ("2001:db8:0:200::1", 30),
        ] {
            let from: IpAddr = from.parse().unwrap();
            let to: IpAddr = if from.is_ipv4() { scenario.server4.into() } else { scenario.server6.into() };
            let client = emulation.on(Side::Clients, || UdpSocket::bind((from, 0))).unwrap();
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            let begun = Instant::now();
            client.send_to(b"x", (to, 7)).unwrap();
            let answered = client.recv_from(&mut [0; 8]).unwrap();
            assert_eq!(answered.1.ip(), to);
            // By the other path it takes 10 or 30 ms as well, and a busy machine longer: what each carried is counted below.
            let took_ms = begun.elapsed().as_millis();
            assert!(took_ms >= least_ms, "{from}: {took_ms} ms");
        }
        let packets = |path: usize| emulation.ways(path).each_ref().map(Way::packets);
        assert_eq!((packets(0), packets(1)), ([3, 3], [2, 2]), "each by its own path");
        let [_, up] = emulation.ways(1);
        up.alter(&Alteration { loss: Some(Loss::random(1.0)), ..Alteration::default() }).unwrap();
        let client = emulation.on(Side::Clients, || UdpSocket::bind("198.18.2.3:0")).unwrap();
        client.send_to(b"x", (scenario.server4, 7)).unwrap();
        wait("lost", || up.line.counts().lost == 1);
        is_over.store(true, Relaxed);
    });
    drop(emulation);
    assert_eq!(left(), [""; 0]);
}

fn echo(server: &UdpSocket, is_over: &AtomicBool) {
    server.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let mut content = [0; 8];
    while !is_over.load(Relaxed) {
        if let Ok((length, from)) = server.recv_from(&mut content) {
            server.send_to(&content[..length], from).unwrap();
        }
    }
}

#[test]
fn the_status_is_the_commands_and_nothing_is_left() {
    let _alone = alone();
    let status = |script: &str| done(&mut lab(&["paths", "run", "fibre", "--", "sh", "-c", script])).0;
    assert_eq!(status("exit 0"), 0);
    assert_eq!(status("exit 7"), 7);
    assert_eq!(status("kill -SEGV $$"), 128 + 11);
    // What the command leaves behind in the background ends with it.
    assert_eq!(status("sleep 1000 & exit 3"), 3);
    assert_eq!(left(), [""; 0]);
}

#[test]
fn the_server_ends_with_the_command() {
    let _alone = alone();
    let server = "trap '' TERM; echo there >&3; sleep 1000";
    // The server says that it is there before the command looks.
    let script = "exec 3<>$LAB_FIFO; read line <&3; echo $line; echo $LAB_CLIENTS; exit 5";
    let fifo = std::env::temp_dir().join(format!("thalweg-lab-{}", std::process::id()));
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let server = format!("exec 3<>$LAB_FIFO; {server}");
    let (status, out, err) = done(
        lab(&["paths", "run", "fibre", "--server", &server, "--", "sh", "-c", script]).env("LAB_FIFO", &fifo),
    );
    fs::remove_file(&fifo).unwrap();
    assert_eq!((status, out.as_str()), (5, "there\nfibre=198.18.1.1,2001:db8:0:100::1\n"), "{err}");
    assert!(err.contains("fibre         down"), "{err}");
    assert_eq!(left(), [""; 0]);
}

#[test]
fn a_signal_reaches_the_command_and_ends_all() {
    let _alone = alone();
    for (signal, told) in
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
        assert_eq!(child.wait().unwrap().code(), Some(128 + told.as_raw()));
        assert_eq!(namespace_of(command), None);
        assert_eq!(left(), [""; 0]);
    }
}

#[test]
fn what_a_killed_run_left_is_ended_by_the_next() {
    let _alone = alone();
    let script = "echo $$; exec sleep 1000";
    let (mut child, command) = started(&mut lab(&["paths", "run", "fibre", "--", "sh", "-c", script]));
    let namespace = namespace_of(command);
    assert!(namespace.is_some() && namespace != namespace_of(child.id()));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(namespace_of(command), namespace, "it outlives the run");
    let (status, _, err) = done(&mut lab(&["paths", "run", "fibre", "--", "true"]));
    assert_eq!(status, 0, "{err}");
    assert!(err.contains("ended what a killed run had left processes=1"), "{err}");
    wait("ended", || namespace_of(command).is_none());
    assert_eq!(left(), [""; 0]);
}

#[test]
fn directories_that_a_killed_run_made_go_with_the_next() {
    let _alone = alone();
    // Where nothing else has made them: `/run` and `/tmp` of its own.
    let script = r#"
        set -e
        mount -t tmpfs tmpfs /run
        cp "$0" /run/lab
        mount -t tmpfs tmpfs /tmp
        rm -rf /run/mount # where mount has its own notes
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
fn directories_stay_as_long_as_another_run_is_there() {
    let _alone = alone();
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
fn what_waits_is_not_what_was_dropped() {
    let _alone = alone();
    let text = "[[path]]\nname = 'deep'\nup = { rate = '8kbit/s', queue = '1MB' }\n\
                [[path]]\nname = 'shallow'\nup = { rate = '8kbit/s', queue = '3kB' }\n";
    let scenario = scenario::read(text, &|_| unreachable!("it names no file")).unwrap();
    let emulation = Emulation::start(&scenario).unwrap();
    for path in &scenario.paths {
        let from = (path.client4(), 0);
        let client = emulation.on(Side::Clients, || UdpSocket::bind(from)).unwrap();
        for _ in 0..50 {
            client.send_to(&[0; 1000], (scenario.server4, 7)).unwrap();
        }
    }
    let [deep, shallow] = [0, 1].map(|path| &emulation.ways(path)[1]);
    wait("all came", || deep.packets() == 50 && shallow.packets() == 50);
    // A packet takes a second. What does not fit is dropped when the next one is sent.
    wait("dropped", || shallow.dropped() >= 40);
    assert!(shallow.under_way() <= 10);
    assert_eq!(deep.dropped(), 0);
    assert!((20..=50).contains(&deep.under_way()), "{}", deep.under_way());
}

#[test]
fn each_packet_came_or_was_missed() {
    const PACKETS: u64 = 50_000;
    let _alone = alone();
    let scenario = scenario::read("[[path]]\n", &|_| unreachable!("it names no file")).unwrap();
    let emulation = Emulation::start(&scenario).unwrap();
    let client = emulation.on(Side::Clients, || UdpSocket::bind("198.18.1.1:0")).unwrap();
    for _ in 0..PACKETS {
        client.send_to(&[0; 1400], (scenario.server4, 7)).unwrap();
    }
    let up = &emulation.ways(0)[1];
    wait("all are told", || {
        emulation.count_missed();
        up.packets() + up.missed() >= PACKETS
    });
    // A few are the system's own.
    assert!(up.packets() + up.missed() < PACKETS + 100, "{} and {}", up.packets(), up.missed());
}

#[test]
fn a_check_for_other_programs() {
    let _alone = alone();
    let (status, out, err) = done(&mut lab(&["paths", "check", "fibre", "--json"]));
    let document: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((document["version"].as_u64(), document["is_met"].as_bool()), (Some(1), Some(status == 0)));
    let rows = document["rows"].as_array().unwrap();
    let fields = |name: &str| rows.iter().map(|row| row[name].as_str().unwrap()).collect::<Vec<_>>();
    assert_eq!(fields("what"), ["delay", "loss", "rate", "late p99.9", "missed"].repeat(2));
    assert_eq!(fields("unit"), ["ms", "%", "Mbit/s", "ms", "%"].repeat(2));
    assert_eq!(fields("way"), [["down"; 5], ["up"; 5]].concat());
    assert!(rows.iter().all(|row| row["path"] == "fibre" && row["measured"].is_number()), "{out}{err}");
    assert_eq!(err, "", "no bar without a terminal");
}

#[test]
fn what_cannot_be_is_told_in_one_line() {
    let _alone = alone();
    let directory = std::env::temp_dir().join(format!("thalweg-lab-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let file = directory.join("bad.toml");
    fs::write(&file, "[[path]]\nuse = 'fiber'\n").unwrap();
    let told = |command: &mut Command, words: &str| {
        let (status, out, err) = done(command);
        assert_eq!((status, out.as_str()), (2, ""), "{err}");
        assert!(err.contains(words) && err.lines().count() == 1, "{err}");
        assert_eq!(left(), [""; 0]);
    };
    told(
        &mut lab(&["paths", "check", file.to_str().unwrap()]),
        "bad.toml: fiber: no path is called \"fiber\"",
    );
    told(&mut lab(&["paths", "run", "nowhere", "--", "true"]), "nowhere: neither a file nor a named path");
    told(&mut lab(&["paths", "run", "fibre", "--", "/no/such/program"]), "/no/such/program");
    told(&mut lab(&["paths", "show", "nowhere"]), "no path is called \"nowhere\"");
    // A copy that anyone may read: the build's directory may be root's alone.
    let program = directory.join("thalweg-lab");
    fs::copy(PROGRAM, &program).unwrap();
    let mut nobody = Command::new(&program);
    nobody.args(["paths", "check", "fibre"]).uid(65534).gid(65534);
    told(&mut nobody, "need root: CAP_NET_ADMIN is missing");
    fs::remove_dir_all(&directory).unwrap();
}
