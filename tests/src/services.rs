//! Real services for tests: a Kafka broker and ClickHouse's engine, installed by `make
//! setup-services`. Each service has its own directory and loopback port, which it keeps when it is
//! killed and restarted. A service is ready once it has responded to a request. A secure service
//! requires TLS, with a certificate of its own, and [`USER`] with [`PASSWORD`].
//!
//! **Invariant:** a service is killed at the end of the test that started it, and no other process
//! is killed.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

/// The broker's heap size: enough for a test, and small enough to run two brokers during a build.
const KAFKA_HEAP: &str = "-Xmx512m";

/// A ClickHouse user who may insert and select, but not create, alter or drop.
pub const INSERT_ONLY: &str = "insert_only";
/// User name for secure services.
pub const USER: &str = "thalweg";
/// Password of [`USER`].
pub const PASSWORD: &str = "correct-horse";

/// Number of days for which a test's certificate is valid.
const CERTIFICATE_DAYS: &str = "2";

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

    /// Returns the CPU time used so far, in seconds (fields 14 and 15 of /proc/PID/stat, proc(5)).
    fn cpu_seconds(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0.id())).expect("the service must run");
        let (_, fields) = stat.rsplit_once(')').expect("the name must be in parentheses");
        let ticks = fields.split_whitespace().skip(11).take(2).map(|field| field.parse().unwrap_or(0.0));
        ticks.sum::<f64>() / rustix::param::clock_ticks_per_second() as f64
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
        // In another PID namespace, another process may have the same ID.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let path = std::env::temp_dir().join(format!("thalweg-{name}-{now}-{port}"));
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
    /// Port of the listener with TLS and SCRAM.
    secure_port: Option<u16>,
}

impl Kafka {
    /// Formats a storage directory and starts a broker in it.
    ///
    /// # Panics
    ///
    /// Panics if the service does not start.
    pub fn start() -> Self {
        Self::start_at(free_port())
    }

    /// Like [`Self::start`], on a given port.
    ///
    /// # Panics
    ///
    /// Panics if the service does not start.
    pub fn start_at(port: u16) -> Self {
        Self::format_and_launch(Dir::make("kafka", port), port, None)
    }

    /// Starts a broker with a second listener, [`Self::secure_brokers`], for clients with TLS and
    /// SCRAM-SHA-512.
    ///
    /// # Panics
    ///
    /// Panics if the service does not start.
    pub fn start_secure() -> Self {
        let port = free_port();
        let dir = Dir::make("kafka", port);
        make_certificate(&dir.0);
        Self::format_and_launch(dir, port, Some(free_port()))
    }

    fn format_and_launch(dir: Dir, port: u16, secure_port: Option<u16>) -> Self {
        let common = fs::read_to_string(root().join("tests/services/kafka/server.properties"))
            .expect("server.properties must be readable");
        fs::write(dir.0.join("server.properties"), common + &own_properties(&dir.0, port, secure_port))
            .expect("storage directory must be writable");
        let mut format = java();
        format.args(["kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAA", "-c"]);
        format.arg(dir.0.join("server.properties"));
        if secure_port.is_some() {
            let login = format!("SCRAM-SHA-512=[name={USER},password={PASSWORD}]");
            format.args(["--add-scram", &login]);
        }
        let formatted = format.output().expect("java must run; make setup-services installs it");
        assert!(formatted.status.success(), "{}", String::from_utf8_lossy(&formatted.stderr));
        let process = Self::launch(&dir, port);
        Self { process, dir, port, secure_port }
    }

    /// Returns the broker's `host:port`.
    pub fn brokers(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Returns `host:port` of the listener with TLS and SCRAM.
    ///
    /// # Panics
    ///
    /// Panics if the broker was not started with [`Self::start_secure`].
    pub fn secure_brokers(&self) -> String {
        format!("127.0.0.1:{}", self.secure_port.expect("start_secure must have started the broker"))
    }

    /// Returns the broker's CPU time, in seconds.
    pub fn cpu_seconds(&self) -> f64 {
        self.process.cpu_seconds()
    }

    /// Returns the size of a topic's segments on disk, in bytes.
    pub fn topic_bytes(&self, topic: &str) -> u64 {
        let entries = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
        let partitions = entries(&self.dir.0.join("data"))
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(&format!("{topic}-")));
        let files = partitions.flat_map(|partition| entries(&partition.path()));
        let logs = files.filter(|file| file.path().extension().is_some_and(|kind| kind == "log"));
        logs.filter_map(|log| log.metadata().ok()).map(|log| log.len()).sum()
    }

    /// Returns the file with the certificate that the broker presents.
    pub fn certificate(&self) -> PathBuf {
        self.dir.0.join(CERTIFICATE)
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

/// Returns the properties of one broker: its ports, directory and, if it is secure, its listener
/// with TLS and SCRAM.
fn own_properties(dir: &Path, port: u16, secure_port: Option<u16>) -> String {
    let controller_port = free_port();
    let secure = secure_port.map(|port| format!(",SECURE://127.0.0.1:{port}")).unwrap_or_default();
    let mut own = format!(
        "listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}{secure}\n\
         advertised.listeners=PLAINTEXT://127.0.0.1:{port}{secure}\n\
         controller.quorum.voters=1@127.0.0.1:{controller_port}\nlog.dirs={}\n",
        dir.join("data").display()
    );
    if secure_port.is_some() {
        own += &format!(
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL\n\
             listener.name.secure.sasl.enabled.mechanisms=SCRAM-SHA-512\n\
             listener.name.secure.scram-sha-512.sasl.jaas.config=\
             org.apache.kafka.common.security.scram.ScramLoginModule required;\n\
             ssl.keystore.type=PEM\nssl.keystore.location={}\n",
            dir.join(KEY_AND_CERTIFICATE).display()
        );
    }
    own
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
    is_secure: bool,
}

impl ClickHouse {
    /// Starts an empty server.
    ///
    /// # Panics
    ///
    /// Panics if the service does not start.
    pub fn start() -> Self {
        Self::start_at(free_port())
    }

    /// Like [`Self::start`], on a given port.
    ///
    /// # Panics
    ///
    /// Panics if the service does not start.
    pub fn start_at(port: u16) -> Self {
        let dir = Dir::make("clickhouse", port);
        let process = Self::launch(&dir, port, false);
        Self { process, dir, port, is_secure: false }
    }

    /// Starts an empty server that requires TLS and the password.
    ///
    /// # Panics
    ///
    /// Panics if the service does not start.
    pub fn start_secure() -> Self {
        let port = free_port();
        let dir = Dir::make("clickhouse", port);
        make_certificate(&dir.0);
        let process = Self::launch(&dir, port, true);
        Self { process, dir, port, is_secure: true }
    }

    /// Returns the server's URL. If the server is secure, the URL includes user and password.
    pub fn url(&self) -> String {
        if self.is_secure {
            format!("https://{USER}:{PASSWORD}@127.0.0.1:{}", self.port)
        } else {
            format!("http://127.0.0.1:{}", self.port)
        }
    }

    /// Returns the server's CPU time, in seconds.
    pub fn cpu_seconds(&self) -> f64 {
        self.process.cpu_seconds()
    }

    /// Returns the file with the certificate that a secure server presents.
    pub fn certificate(&self) -> PathBuf {
        self.dir.0.join(CERTIFICATE)
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
        self.process = Self::launch(&self.dir, self.port, self.is_secure);
    }

    fn launch(dir: &Dir, port: u16, is_secure: bool) -> Process {
        let mut command = Command::new(root().join("target/services/clickhouse/bin/python"));
        command.arg(root().join("tests/services/clickhouse.py"));
        command.arg("--path").arg(dir.0.join("data")).args(["--port", &port.to_string()]);
        if is_secure {
            command.arg("--certificate").arg(dir.0.join(KEY_AND_CERTIFICATE)).args(["--password", PASSWORD]);
        }
        let log = dir.0.join("log");
        let mut process = Process::start(&mut command, &log);
        // The server prints its port after the engine has run a first query.
        let started = process.line(|line| line.trim() == port.to_string());
        assert!(started.is_some(), "ClickHouse: {}", fs::read_to_string(&log).unwrap_or_default());
        process
    }
}

/// File with a secure service's certificate.
const CERTIFICATE: &str = "certificate.pem";
/// File with a secure service's key, followed by its certificate.
const KEY_AND_CERTIFICATE: &str = "key-and-certificate.pem";

/// Makes a key and a self-signed certificate for 127.0.0.1 in a directory.
fn make_certificate(dir: &Path) {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"])
        .args(["-subj", "/CN=thalweg test", "-days", CERTIFICATE_DAYS])
        .args(["-addext", "basicConstraints=critical,CA:FALSE", "-addext", "subjectAltName=IP:127.0.0.1"])
        .args(["-keyout", "key.pem", "-out", CERTIFICATE])
        .current_dir(dir)
        .output()
        .expect("openssl must run; tools/setup test installs it");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let read = |name: &str| fs::read(dir.join(name)).expect("openssl must have written the file");
    let both = [read("key.pem"), read(CERTIFICATE)].concat();
    fs::write(dir.join(KEY_AND_CERTIFICATE), both).expect("storage directory must be writable");
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns an unused port.
fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback must have a free port");
    listener.local_addr().expect("a bound listener has an address").port()
}
