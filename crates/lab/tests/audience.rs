//! End-to-end tests of `audience`: a real server outside the emulation, and viewers behind emulated
//! paths.
//!
//! They need root. The programs run in a network namespace created by the test, so this machine's
//! addresses and routes stay untouched.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};

const PROGRAM: &str = env!("CARGO_BIN_EXE_thalweg-lab");
const LIVE: &str = "http://127.0.0.1:8080/live/demo/manifest.mpd";
const ON_DEMAND: &str = "http://localhost:8080/vod/sample/master.m3u8";
/// Two paths, the second with a prefix other than the default.
const PATHS: &str = "[[path]]\nuse = 'fibre'\n[[path]]\nuse = 'long-haul'\nprefix4 = '198.19.7.0/24'\n";

/// Returns the path of a run's marker file.
fn note_file(child: &Child) -> PathBuf {
    Path::new("/run/thalweg-lab").join(child.id().to_string())
}

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Origin, live source and edge in one process and network namespace; ready once the channel is on
/// air.
struct Host {
    server: Child,
    directory: PathBuf,
    _exclusive: MutexGuard<'static, ()>,
}

impl Host {
    fn start() -> Self {
        let exclusive = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let program = Path::new(PROGRAM).with_file_name("thalweg");
        assert!(program.exists(), "build it first: cargo build -p thalweg");
        let directory = std::env::temp_dir().join(format!("thalweg-audience-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("paths.toml"), PATHS).unwrap();
        let assets = concat!(env!("CARGO_MANIFEST_DIR"), "/../../assets");
        let config = format!(
            "[origin]\nmedia = {assets:?}\n[edge]\nlog = {:?}\ncongestion_control = \"system\"\n\
             [[source]]\nchannel = \"demo\"\nmedia = \"{assets}/sample\"\n",
            directory.join("records")
        );
        fs::write(directory.join("config.toml"), config).unwrap();
        let mut server = Command::new("unshare")
            .args(["--net", "sh", "-c", "ip link set lo up && exec \"$@\"", "sh"])
            .arg(program)
            .args(["up", "--config"])
            .arg(directory.join("config.toml"))
            .env_remove("THALWEG_LOG")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(server.stderr.take().unwrap()).lines();
        let is_on_air = lines.by_ref().any(|line| line.unwrap().contains("epoch published"));
        let host = Self { server, directory, _exclusive: exclusive };
        assert!(is_on_air, "the server exited");
        // Keep draining the pipe, so that the server never blocks on it.
        thread::spawn(move || lines.for_each(drop));
        host
    }

    /// Creates a command that runs in the host's namespace.
    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.server.id())).arg(program).args(arguments);
        command.stdin(Stdio::null()).stderr(Stdio::piped()).stdout(Stdio::piped()).env_remove("THALWEG_LOG");
        command
    }

    fn audience(&self, arguments: &[&str]) -> Command {
        let scenario = self.directory.join("paths.toml");
        let mut command = self.command(PROGRAM, &["audience", "--scenario", scenario.to_str().unwrap()]);
        command.args(arguments);
        command
    }

    /// Starts an audience and waits until its viewers have started.
    fn watched(&self) -> Child {
        let mut child = self.audience(&["--viewers", "3", LIVE]).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "3 viewers behind 2 paths; press Ctrl-C to stop\n");
        assert!(self.addresses().contains("203.0.113.1") && note_file(&child).exists());
        child
    }

    /// Lists the host's addresses and routes.
    fn addresses(&self) -> String {
        let shown = |what: &[&str]| done(&mut self.command("ip", what)).1;
        shown(&["-o", "address"]) + &shown(&["route", "show", "table", "all"])
    }

    /// Checks that an audience has left nothing behind.
    fn assert_clean(&self) {
        let addresses = self.addresses();
        assert!(!addresses.contains("lab-") && !addresses.contains("198.1"), "{addresses}");
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        assert!(!mounts.contains("ns-left-") && !mounts.contains("/tmp/rattan"), "{mounts}");
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn done(command: &mut Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap_or(-1), text(stdout), text(stderr))
}

#[test]
fn viewers_of_every_prefix_play_and_appear_in_edge_records() {
    let host = Host::start();
    let arguments = ["--viewers", "5", "--duration", "15s", LIVE, ON_DEMAND];
    let (status, table, err) = done(&mut host.audience(&arguments));
    assert_eq!((status, err.lines().count()), (0, 1), "{err}");
    let rows: Vec<Vec<&str>> = table.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    let mut started = 0;
    for (row, path) in rows.iter().zip([["fibre", "198.18.1.0/24", "3"], ["long-haul", "198.19.7.0/24", "2"]])
    {
        let [viewers, playing, stalled] = [2, 3, 4].map(|column| row[column].parse::<u32>().unwrap());
        assert_eq!(row[..3], path, "{table}");
        // On a busy machine some viewers stall, and some still wait for their first frame.
        assert!(playing + stalled <= viewers, "{table}");
        started += playing + stalled;
    }
    assert!(rows.len() == 2 && started > 0, "{table}");
    host.assert_clean();
    let records = fs::read_to_string(host.directory.join("records")).unwrap();
    let (mut clients, mut players) = (BTreeMap::<String, usize>::new(), BTreeSet::new());
    for record in records.lines() {
        let record: serde_json::Value = serde_json::from_str(record).unwrap();
        let client: std::net::SocketAddr = record["client"].as_str().unwrap().parse().unwrap();
        // Before it starts, the audience checks from the host that the server is up.
        if client.ip().is_loopback() {
            continue;
        }
        *clients.entry(client.ip().to_string()).or_default() += 1;
        players.insert(record["cmcd"]["sid"].as_str().unwrap().to_owned());
        // All clients send the URL's host, so the cache stores one copy.
        assert!(["127.0.0.1:8080", "localhost:8080"].contains(&record["host"].as_str().unwrap()));
    }
    // The connectivity check comes from the first path's prefix and sends no request.
    let expected = ["198.18.1.1", "198.18.1.2", "198.18.1.3", "198.19.7.1", "198.19.7.2"];
    assert_eq!(clients.keys().collect::<Vec<_>>(), expected);
    assert_eq!(players.len(), 5, "one session id for each viewer");
    assert!(clients.values().all(|&requests| requests > 2), "{clients:?}");
}

#[test]
fn signal_ends_the_audience_and_nothing_is_left() {
    let host = Host::start();
    for signal in [Signal::INT, Signal::TERM] {
        let mut child = host.watched();
        kill_process(Pid::from_child(&child), signal).unwrap();
        let mut table = String::new();
        child.stdout.take().unwrap().read_to_string(&mut table).unwrap();
        assert_eq!((child.wait().unwrap().code(), table.lines().count()), (Some(0), 3), "{table}");
        assert!(!note_file(&child).exists());
        host.assert_clean();
    }
}

#[test]
fn next_run_removes_leftovers_of_a_killed_run() {
    let host = Host::start();
    let mut child = host.watched();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(note_file(&child).exists());
    let (status, _, err) = done(&mut host.audience(&["--check", LIVE]));
    assert_eq!((status, err.as_str()), (0, ""));
    assert!(!note_file(&child).exists());
    host.assert_clean();
}

#[test]
fn each_error_is_one_line() {
    let host = Host::start();
    let assert_fails = |command: &mut Command, words: &str| {
        let (status, out, err) = done(command);
        assert_eq!((status, out.as_str()), (2, ""), "{err}");
        assert!(err.contains(words) && err.lines().count() == 1, "{err}");
        host.assert_clean();
    };
    assert_fails(&mut host.audience(&["http://127.0.0.1:1/"]), "http://127.0.0.1:1/: cannot connect");
    assert_fails(&mut host.audience(&["http://127.0.0.1:8080/vod/none"]), "/vod/none: responded with 404");
    assert_fails(&mut host.audience(&["http://192.0.2.1/"]), "192.0.2.1 is not on this machine");
    assert_fails(&mut host.audience(&["127.0.0.1:8080/a"]), "not a URL");
    assert_fails(&mut host.audience(&[LIVE, "http://[::1]:8080/"]), "use hosts of one family");
    // The origin listens only on loopback.
    assert_fails(
        &mut host.audience(&["http://127.0.0.1:8081/catalog.json"]),
        "connection refused at 203.0.113.1:8081: make the server listen on 0.0.0.0:8081",
    );
    for right in ["net_admin", "net_raw", "sys_admin"] {
        let without = format!("-{right}");
        let mut command =
            host.command("setpriv", &["--bounding-set", &without, PROGRAM, "audience", "--check", LIVE]);
        assert_fails(&mut command, &format!("need root: CAP_{} is missing", right.to_uppercase()));
    }
    assert_eq!(done(&mut host.command("ip", &["route", "add", "198.19.0.0/16", "dev", "lo"])).0, 0);
    let (status, _, err) = done(&mut host.audience(&["--check", LIVE]));
    assert_eq!(status, 2);
    assert!(
        err.contains("198.19.7.0/24 is already routed on this machine (198.19.0.0/16 dev lo scope link)"),
        "{err}"
    );
}
