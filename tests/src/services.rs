//! Real services for tests: a Kafka broker and ClickHouse's engine, installed by `make
//! setup-services`. Each service has its own directory and loopback port, which it keeps when it is
//! killed and restarted. A service is ready once it has responded to a request.
//!
//! **Invariant:** a service is killed at the end of the test that started it, and no other process
//! is killed.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

/// The broker's heap size: enough for a test, and small enough to run two brokers during a build.
const KAFKA_HEAP: &str = "-Xmx512m";

/// A ClickHouse user who may insert and select, but not create, alter or drop.
pub const INSERT_ONLY: &str = "insert_only";

/// A service's process, killed on drop.
#[derive(Debug)]
struct Process(Child);

impl Process {
    /// Starts a program and appends its standard error to a file.
    fn start(command: &mut Command, errors: &Path) -> Self {
        let errors =
            fs::OpenOptions::new().create(true).append(true).open(errors).expect("log file must open");
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors).spawn();
        Self(child.unwrap_or_else(|error| panic!("{command:?}: {error}; run make setup-services")))
    }

    /// Waits for the first matching line on standard output and returns it. Further output is
    /// discarded.
    fn line(&mut self, matches: impl Fn(&str) -> bool) -> Option<String> {
        let mut output = BufReader::new(self.0.stdout.take()?);
        loop {
            let mut line = String::new();
            if output.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if matches(&line) {
                thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
                return Some(line);
            }
        }
    }

    /// Sends SIGKILL and waits for the exit.
    fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A directory removed on drop.
#[derive(Debug)]
struct Dir(PathBuf);

impl Dir {
    fn make(name: &str, port: u16) -> Self {
        let path = std::env::temp_dir().join(format!("thalweg-{name}-{}-{port}", std::process::id()));
        fs::create_dir_all(&path).expect("temporary directory must be writable");
        Self(path)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A Kafka broker, which is also its own controller.
#[derive(Debug)]
pub struct Kafka {
    process: Process,
    dir: Dir,
    port: u16,
}

impl Kafka {
    /// Formats a storage directory and starts a broker in it.
    ///
    /// # Panics
    ///
    /// Panics if the service does not start.
    pub fn start() -> Self {
        let (port, controller_port) = (free_port(), free_port());
        let dir = Dir::make("kafka", port);
        let common = fs::read_to_string(root().join("tests/services/kafka/server.properties"))
            .expect("server.properties must be readable");
        let own = format!(
            "listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}\n\
             advertised.listeners=PLAINTEXT://127.0.0.1:{port}\n\
             controller.quorum.voters=1@127.0.0.1:{controller_port}\nlog.dirs={}\n",
            dir.0.join("data").display()
        );
        fs::write(dir.0.join("server.properties"), common + &own)
            .expect("storage directory must be writable");
        let formatted = java()
            .args(["kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAA", "-c"])
            .arg(dir.0.join("server.properties"))
            .output()
            .expect("java must run; make setup-services installs it");
        assert!(formatted.status.success(), "{}", String::from_utf8_lossy(&formatted.stderr));
        let process = Self::launch(&dir, port);
        Self { process, dir, port }
    }

    /// Returns the broker's `host:port`.
    pub fn brokers(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Kills the service with SIGKILL.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Restarts the service after a kill, with the same directory and port.
    ///
    /// # Panics
    ///
    /// Panics if the service does not start.
    pub fn restart(&mut self) {
        self.process = Self::launch(&self.dir, self.port);
    }

    fn launch(dir: &Dir, port: u16) -> Process {
        let mut command = java();
        command.args(["-Dorg.slf4j.simpleLogger.logFile=System.out", "kafka.Kafka"]);
        command.arg(dir.0.join("server.properties"));
        let log = dir.0.join("log");
        let mut process = Process::start(&mut command, &log);
        let started = process.line(|line| line.contains("Kafka Server started"));
        assert!(started.is_some(), "Kafka: {}", fs::read_to_string(&log).unwrap_or_default());
        assert!(answers(port), "Kafka must respond to requests");
        process
    }
}

fn java() -> Command {
    let mut command = Command::new("java");
    command.args([KAFKA_HEAP, "-cp"]).arg(root().join("target/services/kafka/*"));
    command
}

/// Returns whether the broker responds to a request for its API versions (`ApiVersions`, version
/// 0).
fn answers(port: u16) -> bool {
    let request_versions = || -> std::io::Result<()> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.write_all(&[0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 0xff, 0xff])?;
        stream.read_exact(&mut [0; 8])
    };
    request_versions().is_ok()
}

/// ClickHouse's engine behind its HTTP interface.
#[derive(Debug)]
pub struct ClickHouse {
    process: Process,
    dir: Dir,
    port: u16,
}

impl ClickHouse {
    /// Starts an empty server.
    ///
    /// # Panics
    ///
    /// Panics if the service does not start.
    pub fn start() -> Self {
        let port = free_port();
        let dir = Dir::make("clickhouse", port);
        let process = Self::launch(&dir, port);
        Self { process, dir, port }
    }

    /// Returns the server's URL.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Kills the service with SIGKILL.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Restarts the service after a kill, with the same directory and port.
    ///
    /// # Panics
    ///
    /// Panics if the service does not start.
    pub fn restart(&mut self) {
        self.process = Self::launch(&self.dir, self.port);
    }

    fn launch(dir: &Dir, port: u16) -> Process {
        let mut command = Command::new(root().join("target/services/clickhouse/bin/python"));
        command.arg(root().join("tests/services/clickhouse.py"));
        command.arg("--path").arg(dir.0.join("data")).args(["--port", &port.to_string()]);
        let log = dir.0.join("log");
        let mut process = Process::start(&mut command, &log);
        // The server prints its port after the engine has run a first query.
        let started = process.line(|line| line.trim() == port.to_string());
        assert!(started.is_some(), "ClickHouse: {}", fs::read_to_string(&log).unwrap_or_default());
        process
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns an unused port.
fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback must have a free port");
    listener.local_addr().expect("a bound listener has an address").port()
}
