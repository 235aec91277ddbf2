//! Processes of the program under test, their log lines, and the records that they store.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

pub mod site;
pub mod tables;
pub mod topic;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use socket2::{Domain, Socket, Type};

/// Time limit for waits: longer than any wait on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A process whose standard error is read, killed when dropped.
pub struct Process {
    child: Child,
    lines: Receiver<String>,
}

impl Process {
    pub fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                eprintln!("{line}");
                let _ = sender.send(line);
            }
        });
        Self { child, lines }
    }

    /// Waits for a line that contains `what`; returns the text after it.
    pub fn wait_for_log(&self, what: &str) -> String {
        let begun = Instant::now();
        loop {
            // Further output must not extend the wait forever.
            let left =
                PATIENCE.checked_sub(begun.elapsed()).unwrap_or_else(|| panic!("{what:?}: not logged"));
            let line = self.lines.recv_timeout(left).unwrap_or_else(|error| panic!("{what:?}: {error}"));
            if let Some((_, rest)) = line.split_once(what) {
                return rest.trim().to_owned();
            }
        }
    }

    /// Stops the process and returns all further lines that contain one of `words`.
    pub fn last_lines_with(self, words: &[&str]) -> Vec<String> {
        self.interrupt();
        self.lines.iter().filter(|line| words.iter().any(|word| line.contains(word))).collect()
    }

    pub fn stop(self) {
        self.interrupt();
        assert_eq!(self.exit_code(), Some(0));
    }

    /// Sends SIGINT.
    pub fn interrupt(&self) {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
    }

    /// Waits for the process to exit; returns the exit status.
    pub fn exit_code(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    /// Returns the process's command line, which every user can see.
    pub fn command_line(&self) -> String {
        std::fs::read_to_string(format!("/proc/{}/cmdline", self.child.id())).unwrap()
    }

    /// Sends SIGKILL and waits for the exit.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A directory removed on drop.
pub struct Directory(pub PathBuf);

impl Directory {
    pub fn new() -> Self {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let name = format!("thalweg-agent-{}-{}", std::process::id(), MADE.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Writes a file in the directory; returns the path.
    pub fn file(&self, name: &str, content: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, content).unwrap();
        path.display().to_string()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // Remove shared memory left by a killed edge.
        for file in std::fs::read_dir(self.0.join("edge")).into_iter().flatten() {
            let _ = std::fs::read_link(file.unwrap().path()).and_then(std::fs::remove_file);
        }
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn thalweg() -> Command {
    let test = std::env::current_exe().unwrap();
    Command::new(test.ancestors().nth(2).unwrap().join("thalweg"))
}

/// Returns the command for an edge with a backend.
pub fn edge(backend: SocketAddr) -> Command {
    let mut command = thalweg();
    command.args(["edge", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
    command.args(["--memory", "16MiB", "--threads", "1"]);
    command.arg("--backend").arg(format!("http://{backend}"));
    command
}

/// A port reserved for a service that may stop and restart. No other process gets it while this
/// value exists.
pub struct Port(Socket);

impl Port {
    pub fn new() -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        // The service can bind the same port, because it also sets SO_REUSEADDR and this socket
        // does not listen.
        socket.set_reuse_address(true).unwrap();
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
        Self(socket)
    }

    pub fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap().as_socket().unwrap()
    }

    pub fn listen(&self) -> TcpListener {
        TcpListener::bind(self.address()).unwrap()
    }
}

/// Returns all records in the JSON lines files.
pub fn records(directory: &Path) -> Vec<Value> {
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let texts = files.filter(|path| path.extension().is_some_and(|kind| kind == "jsonl"));
    let texts: Vec<String> = texts.map(|path| std::fs::read_to_string(path).unwrap()).collect();
    texts.iter().flat_map(|text| text.lines()).map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub fn query(database: &Path, arguments: &[&str]) -> Vec<Value> {
    let output =
        thalweg().arg("query").args(arguments).arg("--json").arg("--sqlite").arg(database).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

pub fn number(value: &Value, field: &str) -> u64 {
    value[field].as_u64().unwrap_or_else(|| panic!("{field} of {value}"))
}

/// Requests the metrics page of a role.
pub fn metrics(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// Requests an agent's metrics and returns their values, by name and labels.
pub fn metric_values(address: SocketAddr) -> HashMap<String, f64> {
    let text = metrics(address);
    let lines = text.lines().filter(|line| line.starts_with("thalweg_agent_"));
    let metric_values = lines.map(|line| line.rsplit_once(' ').unwrap());
    metric_values.map(|(name, value)| (name.to_owned(), value.parse().unwrap())).collect()
}

/// Stores the remaining records of a spool in these sinks. When an agent stops, records that its
/// sinks had no time to store stay in the spool.
pub fn drain(spool: &Path, sinks: &[(&str, &Path)]) {
    let mut agent = thalweg();
    agent.args(["agent", "--listen", "127.0.0.1:0", "--sockets", "sport 1", "--period", "1h", "--spool"]);
    agent.arg(format!("{}=64MiB", spool.display()));
    for (flag, path) in sinks {
        agent.arg(flag).arg(path);
    }
    let agent = Process::start(&mut agent);
    let metrics = agent.wait_for_log("agent listening").parse().unwrap();
    until("all is kept", || {
        let metric_values = metric_values(metrics);
        let lags: Vec<_> = metric_values
            .iter()
            .filter(|(name, _)| name.starts_with("thalweg_agent_sink_lag_records"))
            .collect();
        lags.len() == sinks.len() && lags.iter().all(|(_, lag)| **lag == 0.0)
    });
    agent.stop();
}

pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(20)); // no event to wait for: poll
    }
}
