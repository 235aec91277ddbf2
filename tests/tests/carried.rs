//! Bundles over Kafka, with no HTTP between controller and edge: rules reach the edge, what it says comes back, through kills of the
//! agent between them; and what a hostile writer puts there changes nothing.
#![allow(clippy::unwrap_used, reason = "a test fails where something is not as it has to be")]

mod program;

use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use program::site::{self, Clients, backend, told};
use program::{Directory, PATIENCE, Port, Process, thalweg, until};
use serde_json::Value;
use thalweg_bundle::{Bundle, Content, FORMAT, Rule, Share};
use thalweg_controller::carried::{Acknowledged, Key};
use thalweg_telemetry::kafka::Cluster;
use thalweg_telemetry::keyed::{Found, Reader, Writer};
use thalweg_tests::services;

const TOPIC: &str = "thalweg.bundles";
const POP: &str = "here";
const EDGE: &str = "edge-1";
/// Tries to kill the agent while it writes a bundle: one has to be in time.
const TRIES_MAX: u64 = 40;
const LARGE_RULES: u64 = 5000;
/// Between two looks at what is there.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// A site whose bundles come over Kafka.
struct Carried {
    directory: Directory,
    kafka: services::Kafka,
    listen: Port,
    admin: Port,
}

impl Carried {
    fn file(&self) -> PathBuf {
        self.directory.0.join("bundle.json")
    }

    fn cluster(&self) -> Cluster {
        Cluster { brokers: self.kafka.brokers(), topic: TOPIC.into(), properties: Vec::new() }
    }

    fn controller(&self, listen: SocketAddr) -> Process {
        let mut command = site::controller(&self.directory, listen);
        command.args(["--kafka", &self.kafka.brokers(), "--kafka-bundles", TOPIC]);
        let process = Process::start(&mut command);
        process.said("controller listening");
        process
    }

    fn edge(&self, backend: SocketAddr) -> Process {
        let mut command = thalweg();
        command.args(["edge", "--memory", "16MiB", "--threads", "1", "--congestion-control", "cubic"]);
        command.args([
            "--listen",
            &self.listen.address().to_string(),
            "--admin",
            &self.admin.address().to_string(),
        ]);
        command.args(["--backend", &format!("http://{backend}")]);
        command.arg("--state").arg(self.directory.0.join("edge")).arg("--bundle").arg(self.file());
        let process = Process::start(&mut command);
        process.said("edge listening");
        process
    }

    fn agent(&self) -> Process {
        let mut command = thalweg();
        command.args(["agent", "--period", "200ms", "--pop", POP, "--host", EDGE]);
        command.args(["--edge", &self.admin.address().to_string()]);
        command.args(["--sockets", &format!("sport {}", self.listen.address().port())]);
        command.args(["--kafka", &self.kafka.brokers(), "--kafka-partitions", "2", "--kafka-bundles", TOPIC]);
        command.arg("--bundle-file").arg(self.file());
        command.args(["--spool", &format!("{}=64MiB", self.directory.0.join("spool").display())]);
        let process = Process::start(&mut command);
        process.said("following the responses of an edge");
        process
    }

    /// What the edge tells of its bundle.
    fn stats(&self) -> Value {
        told(self.admin.address(), "/stats")["bundle"].clone()
    }

    fn number(&self) -> u64 {
        self.stats()["number"].as_u64().unwrap_or(0)
    }

    /// What was last said of the edge in the topic.
    fn acknowledged(&self) -> Option<Acknowledged> {
        let mut reader = Reader::open(&self.cluster(), Some(POP)).unwrap();
        let own = Key::Acknowledged(POP.into(), EDGE.into()).to_string();
        let (begun, mut last) = (Instant::now(), None);
        loop {
            assert!(begun.elapsed() < PATIENCE, "the topic has no end");
            match reader.read().unwrap() {
                Found::Document(key, value) if key == own => last = value,
                Found::End => return last.and_then(|value| Acknowledged::decode(&value)),
                _ => {}
            }
        }
    }
}

/// Looks at the file all the while: it is a whole bundle whenever it is there, and its number does not go back.
struct Watch(Arc<AtomicBool>, thread::JoinHandle<u64>);

impl Watch {
    fn of(file: &Path) -> Self {
        let (is_over, file) = (Arc::new(AtomicBool::new(false)), file.to_owned());
        let ends = is_over.clone();
        let looking = thread::spawn(move || {
            let mut last = 0;
            while !ends.load(Relaxed) {
                if let Ok(document) = std::fs::read(&file) {
                    let number = Bundle::decode(&document).unwrap().content().number;
                    assert!(number >= last, "{number} after {last}");
                    last = number;
                }
                thread::sleep(LOOK_EVERY);
            }
            last
        });
        Self(is_over, looking)
    }

    /// The last number.
    fn end(self) -> u64 {
        self.0.store(true, Relaxed);
        self.1.join().unwrap()
    }
}

fn bundle(number: u64) -> Bundle {
    Bundle::new(Content { number, ..Content::default() }).unwrap()
}

/// One that takes some time to write.
fn large(number: u64) -> Bundle {
    let rule = |at: u64| Rule {
        prefix: format!("10.{}.{}.0/24", at >> 8, at & 255).parse().unwrap(),
        congestion_control: "reno".into(),
        size_bytes_min: None,
        salt: String::new(),
        holdout: Share::from_number(0.5).unwrap(),
        reason: "slow".into(),
    };
    let rules = (0..LARGE_RULES).map(rule).collect();
    Bundle::new(Content { number, rules, ..Content::default() }).unwrap()
}

fn now_unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

#[test]
fn bundles_go_over_kafka_and_what_edges_say_comes_back() {
    let site = Carried {
        directory: Directory::new(),
        kafka: services::Kafka::start(),
        listen: Port::new(),
        admin: Port::new(),
    };
    let port = Port::new();
    let mut deciding = site.controller(port.address());
    let backend = backend();
    let mut serving = site.edge(backend);
    let mut agent = site.agent();
    let clients = Clients::of(site.listen.address());
    let watch = Watch::of(&site.file());

    until("rules reach the edge", || site.stats()["rules"].as_u64().is_some_and(|rules| rules > 0));
    assert_eq!(site.stats()["source"], "file");
    let edges = || told(port.address(), &format!("/edges?pop={POP}"))["edges"].clone();
    until("the controller hears what the edge has", || {
        edges()[0]["name"] == EDGE && edges()[0]["bundle"].as_u64().is_some_and(|number| number > 0)
    });

    // An agent, and a controller, that are killed go on where they were.
    let is_heard_after = |unix_s: u64| {
        let edge = &edges()[0];
        edge["heard_unix_s"].as_u64() > Some(unix_s) && edge["bundle"].as_u64() == Some(site.number())
    };
    agent.kill();
    let killed_unix_s = now_unix_s();
    let mut agent = site.agent();
    until("what the edge has is heard again", || is_heard_after(killed_unix_s));
    deciding.kill();
    let killed_unix_s = now_unix_s();
    let deciding = site.controller(port.address());
    until("the controller hears the edge again", || is_heard_after(killed_unix_s));
    drop(clients);
    deciding.end();
    let last = site.number();

    let mut writer = Writer::of(site.cluster(), None);
    let (of_all, of_this) = (Key::Bundle(POP.into(), None), Key::Bundle(POP.into(), Some(EDGE.into())));
    let mut put = |key: &Key, document: Option<&str>| {
        writer.put(POP, &key.to_string(), document.map(str::as_bytes)).unwrap();
    };

    // It is killed while it writes: the file that takes the place of the other is there.
    let (mut next, mut is_caught) = (last, false);
    while !is_caught {
        next += 1;
        assert!(next < last + TRIES_MAX, "never killed while it writes");
        let before = std::fs::metadata(site.file()).unwrap().ino();
        put(&of_all, Some(&large(next).encode()));
        let passing = site.file().with_added_extension("new");
        let begun = Instant::now();
        while !passing.exists() && std::fs::metadata(site.file()).unwrap().ino() == before {
            assert!(begun.elapsed() < PATIENCE, "it is not written");
            std::hint::spin_loop();
        }
        agent.kill();
        is_caught = passing.exists();
        agent = site.agent();
        until("the next one is in force", || site.number() == next);
    }
    let last = watch.end();
    assert_eq!(last, next);

    // Now somebody else writes.
    put(&of_all, Some(&bundle(last + 100).encode()));
    until("another one is in force", || site.number() == last + 100);
    put(&of_this, Some(&bundle(last + 200).encode()));
    until("a canary's is in force", || site.number() == last + 200);
    put(&of_this, None);
    put(&of_all, Some(&bundle(last + 150).encode()));
    agent.said("a lower number");
    put(&of_all, Some(&bundle(last + 201).encode()));
    until("a higher one is in force", || site.number() == last + 201);
    let good = bundle(last + 201);
    let said = || site.acknowledged().unwrap();
    until("it is said", || said().in_force.as_deref() == Some(good.checksum()));
    assert_eq!(said().refused, None);

    // A hostile one: refused, and told why.
    let hostile =
        bundle(last + 300).encode().replace("\"rules\":[]", "\"rules\":[{\"prefix\":\"0.0.0.0/0\"}]");
    put(&of_all, Some(&hostile));
    until("it is refused", || said().refused.is_some());
    let Acknowledged { in_force, refused } = said();
    assert_eq!(in_force.as_deref(), Some(good.checksum()));
    let reason = refused.unwrap().reason;
    assert!(reason.contains("missing field"), "{reason}");
    assert_eq!(site.number(), last + 201);
    let of_the_future = format!("{{\"format\":{}}}", FORMAT + 1);
    put(&of_all, Some(&of_the_future));
    until("it is refused, too", || {
        said().refused.is_some_and(|refused| refused.reason.starts_with("/format: "))
    });

    // Neither the edge nor the agent begins with it.
    serving.kill();
    agent.end();
    let serving = site.edge(backend);
    assert_eq!((site.number(), &site.stats()["source"]), (last + 201, &"kept".into()));
    let agent = site.agent();
    put(&of_all, Some(&bundle(last + 400).encode()));
    until("a good one ends it", || site.number() == last + 400);
    let newest = bundle(last + 400);
    until("and is said", || {
        said() == Acknowledged { in_force: Some(newest.checksum().into()), refused: None }
    });
    agent.end();
    serving.end();
}
