//! `thalweg consumer` as an operator runs it: without its topic, then with it, secrets in files, its figures, and how it ends.
#![allow(clippy::unwrap_used, reason = "a test fails where something is not as it has to be")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use thalweg_record::{Batch, Entry, LossRecord, Network, Record, Source, Stage};
use thalweg_telemetry::clickhouse::Server;
use thalweg_telemetry::kafka::Cluster;
use thalweg_telemetry::schema;
use thalweg_telemetry::sink::{KafkaSink, Sink};
use thalweg_tests::services;

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const RECORDS: u64 = 50;

/// A process that is killed with the test, and whose lines on standard error are read.
struct Program {
    child: Child,
    lines: Receiver<String>,
}

impl Program {
    fn start(args: &[&str]) -> Self {
        let test = std::env::current_exe().unwrap();
        let program = test.ancestors().nth(2).unwrap().join("thalweg");
        let mut command = Command::new(program);
        let mut child = command.args(args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
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

    /// Waits for a line that has `what` in it, and gives what follows.
    fn said(&self, what: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(PATIENCE).unwrap_or_else(|error| panic!("{what:?}: {error}"));
            if let Some((_, rest)) = line.split_once(what) {
                return rest.trim().to_owned();
            }
        }
    }

    /// Its exit status.
    fn ended(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A directory that goes with the test.
struct Directory(PathBuf);

impl Directory {
    fn file(&self, name: &str, content: &str) -> String {
        let path = self.0.join(name);
        fs::write(&path, content).unwrap();
        path.display().to_string()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn batch() -> Batch {
    let record =
        Record::Loss(LossRecord { time_unix_us: 1_800_000_000_000_000, stage: Stage::Edge, records: 2 });
    let entry = |number| Entry { number, network: Network::default(), record: record.clone() };
    let source = Source { host: "alpha".into(), pop: "fra".into(), epoch: 7 };
    Batch { source, entries: (0..RECORDS).map(entry).collect() }
}

/// What Prometheus gets.
fn figures(address: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn directory() -> Directory {
    let path = std::env::temp_dir().join(format!("thalweg-consumer-{}", std::process::id()));
    fs::create_dir_all(&path).unwrap();
    Directory(path)
}

/// What the kernel shows of a process to everybody.
fn command_line(child: &Child) -> String {
    fs::read_to_string(Path::new("/proc").join(child.id().to_string()).join("cmdline")).unwrap()
}

#[test]
fn a_consumer_tells_what_it_lacks_and_brings_what_there_is() {
    let (kafka, clickhouse) = (services::Kafka::start(), services::ClickHouse::start());
    let server = Server::at(&clickhouse.url()).unwrap();
    schema::apply(&server).unwrap();
    let directory = directory();
    let brokers = kafka.brokers();

    let url = format!("@{}", directory.file("url", &format!("{}\n", clickhouse.url())));
    let missing = Program::start(&[
        "consumer",
        "--kafka",
        &brokers,
        "--clickhouse",
        &url,
        "--kafka-topic",
        "absent",
        "--topic-wait",
        "1s",
    ]);
    assert!(missing.said("has no topic \"absent\"").contains("kafka-topics.sh --create --topic absent"));
    assert_eq!(missing.ended(), Some(1));

    // A property whose value is in a file, and a topic that comes later.
    let client = directory.file("client", "secret-client\n");
    let file = directory.file(
        "thalweg.toml",
        &format!(
            "[consumer]\nkafka = \"{brokers}\"\nclickhouse = \"@url\"\nkafka_set = \"client.id=@{client}\"\n\
             listen = \"127.0.0.1:0\"\nblock_wait = \"100ms\"\n"
        ),
    );
    let consumer = Program::start(&["up", "--config", &file]);
    let address = consumer.said("consumer listening");
    consumer.said("no such topic yet");
    assert!(!command_line(&consumer.child).contains("secret"));
    let topic = thalweg_telemetry::kafka::TOPIC.to_owned();
    let mut sink = KafkaSink::of(Cluster { brokers, topic, properties: Vec::new() }, Some(2));
    let until = Instant::now() + PATIENCE;
    while let Err(error) = sink.keep(&batch()) {
        assert!(Instant::now() < until, "{error}: {}", error.cause);
        thread::sleep(Duration::from_millis(100)); // a broker that starts is asked again
    }
    consumer.said("reading");
    let told = format!("thalweg_consumer_records_total {RECORDS}");
    while !figures(&address).contains(&told) {
        assert!(Instant::now() < until, "{}", figures(&address));
        thread::sleep(Duration::from_millis(100)); // another process inserts: only asking tells
    }
    let figures = figures(&address);
    assert!(figures.contains("# TYPE thalweg_consumer_lag_messages gauge"), "{figures}");
    assert!(figures.trim_end().ends_with("# EOF"), "{figures}");
    let rows = server.query("SELECT count() FROM losses", "TSV").unwrap();
    assert_eq!(String::from_utf8_lossy(&rows).trim(), RECORDS.to_string());
    kill_process(Pid::from_child(&consumer.child), Signal::TERM).unwrap();
    assert_eq!(consumer.ended(), Some(0));
}
