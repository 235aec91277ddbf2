//! The program's `audience` as people run it: a real server outside the emulation, viewers behind emulated paths of it.
//!
//! As root. What is the host for both programs is a network namespace of the test's own, so that this machine's addresses and
//! routes are left alone.
#![allow(clippy::unwrap_used, reason = "a test fails where something is not as it has to be")]

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
/// Two prefixes, one of them none that the program would take by itself.
const PATHS: &str = "[[path]]\nuse = 'fibre'\n[[path]]\nuse = 'long-haul'\nprefix4 = '198.19.7.0/24'\n";

/// The note of a run.
fn note(child: &Child) -> PathBuf {
    Path::new("/run/thalweg-lab").join(child.id().to_string())
}

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Origin, live source and edge in one process, once the channel is on air, in a network namespace of its own.
struct Host {
    server: Child,
    directory: PathBuf,
    _alone: MutexGuard<'static, ()>,
}

impl Host {
    fn start() -> Self {
        let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
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
        let host = Self { server, directory, _alone: alone };
        assert!(is_on_air, "the server has ended");
        // Read on, so that it never waits for us.
        thread::spawn(move || lines.for_each(drop));
        host
    }

    /// A command there.
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

    /// An audience whose viewers have begun.
    fn watched(&self) -> Child {
        let mut child = self.audience(&["--viewers", "3", LIVE]).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "3 viewers behind 2 paths; Ctrl-C ends them\n");
        assert!(self.addresses().contains("203.0.113.1") && note(&child).exists());
        child
    }

    /// Addresses and routes of the host.
    fn addresses(&self) -> String {
        let shown = |what: &[&str]| done(&mut self.command("ip", what)).1;
        shown(&["-o", "address"]) + &shown(&["route", "show", "table", "all"])
    }

    /// Nothing of an audience is there.
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
fn viewers_of_every_prefix_play_and_the_edge_knows_them() {
    let host = Host::start();
    let orders = ["--viewers", "5", "--duration", "15s", LIVE, ON_DEMAND];
    let (status, table, err) = done(&mut host.audience(&orders));
    assert_eq!((status, err.lines().count()), (0, 1), "{err}");
    let rows: Vec<Vec<&str>> = table.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    let mut begun = 0;
    for (row, path) in rows.iter().zip([["fibre", "198.18.1.0/24", "3"], ["long-haul", "198.19.7.0/24", "2"]])
    {
        let [viewers, playing, stalled] = [2, 3, 4].map(|column| row[column].parse::<u32>().unwrap());
        assert_eq!(row[..3], path, "{table}");
        // On a busy machine some stall, and some still wait for their first frame.
        assert!(playing + stalled <= viewers, "{table}");
        begun += playing + stalled;
    }
    assert!(rows.len() == 2 && begun > 0, "{table}");
    host.assert_clean();
    let records = fs::read_to_string(host.directory.join("records")).unwrap();
    let (mut clients, mut players) = (BTreeMap::<String, usize>::new(), BTreeSet::new());
    for record in records.lines() {
        let record: serde_json::Value = serde_json::from_str(record).unwrap();
        let client: std::net::SocketAddr = record["client"].as_str().unwrap().parse().unwrap();
        // The audience has seen first whether the server is there.
        if client.ip().is_loopback() {
            continue;
        }
        *clients.entry(client.ip().to_string()).or_default() += 1;
        players.insert(record["cmcd"]["sid"].as_str().unwrap().to_owned());
        // One copy for all, whoever asks: as the URL names it.
        assert!(["127.0.0.1:8080", "localhost:8080"].contains(&record["host"].as_str().unwrap()));
    }
    // A connection is tried from the first path before viewers begin; it asks for nothing.
    let expected = ["198.18.1.1", "198.18.1.2", "198.18.1.3", "198.19.7.1", "198.19.7.2"];
    assert_eq!(clients.keys().collect::<Vec<_>>(), expected);
    assert_eq!(players.len(), 5, "each says who it is");
    assert!(clients.values().all(|&requests| requests > 2), "{clients:?}");
}

#[test]
fn it_ends_at_a_signal_and_leaves_nothing() {
    let host = Host::start();
    for signal in [Signal::INT, Signal::TERM] {
        let mut child = host.watched();
        kill_process(Pid::from_child(&child), signal).unwrap();
        let mut table = String::new();
        child.stdout.take().unwrap().read_to_string(&mut table).unwrap();
        assert_eq!((child.wait().unwrap().code(), table.lines().count()), (Some(0), 3), "{table}");
        assert!(!note(&child).exists());
        host.assert_clean();
    }
}

#[test]
fn what_a_killed_one_left_is_gone_after_the_next() {
    let host = Host::start();
    let mut child = host.watched();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(note(&child).exists());
    let (status, _, err) = done(&mut host.audience(&["--check", LIVE]));
    assert_eq!((status, err.as_str()), (0, ""));
    assert!(!note(&child).exists());
    host.assert_clean();
}

#[test]
fn what_cannot_be_is_told_in_one_line() {
    let host = Host::start();
    let told = |command: &mut Command, words: &str| {
        let (status, out, err) = done(command);
        assert_eq!((status, out.as_str()), (2, ""), "{err}");
        assert!(err.contains(words) && err.lines().count() == 1, "{err}");
        host.assert_clean();
    };
    told(&mut host.audience(&["http://127.0.0.1:1/"]), "http://127.0.0.1:1/: cannot connect");
    told(&mut host.audience(&["http://127.0.0.1:8080/vod/none"]), "/vod/none: answered with 404");
    told(&mut host.audience(&["http://192.0.2.1/"]), "192.0.2.1 is another machine");
    told(&mut host.audience(&["127.0.0.1:8080/a"]), "not a URL");
    told(&mut host.audience(&[LIVE, "http://[::1]:8080/"]), "hosts of one family");
    // The origin listens at loopback alone.
    told(
        &mut host.audience(&["http://127.0.0.1:8081/catalog.json"]),
        "nobody listens at 203.0.113.1:8081: have the server listen at 0.0.0.0:8081",
    );
    for right in ["net_admin", "net_raw", "sys_admin"] {
        let without = format!("-{right}");
        let mut command =
            host.command("setpriv", &["--bounding-set", &without, PROGRAM, "audience", "--check", LIVE]);
        told(&mut command, &format!("need root: CAP_{} is missing", right.to_uppercase()));
    }
    assert_eq!(done(&mut host.command("ip", &["route", "add", "198.19.0.0/16", "dev", "lo"])).0, 0);
    let (status, _, err) = done(&mut host.audience(&["--check", LIVE]));
    assert_eq!(status, 2);
    assert!(
        err.contains("198.19.7.0/24 is routed on this machine already (198.19.0.0/16 dev lo scope link)"),
        "{err}"
    );
}
