//! Bundles over Kafka, with no HTTP between controller and edge: rules reach the edge, what it says comes back, through kills of the
//! agent between them; and what a hostile writer puts there changes nothing.
#![allow(clippy::unwrap_used, reason = "a test fails where something is not as it has to be")]

mod program;

use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use program::site::{self, Clients, backend, told};
use program::{Directory, PATIENCE, Port, Process, thalweg, until};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions};
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
    _turn: MutexGuard<'static, ()>,
}

/// One broker at a time: they are large.
static TURN: Mutex<()> = Mutex::new(());

impl Carried {
    fn new() -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let kafka = services::Kafka::start();
        Self { directory: Directory::new(), kafka, listen: Port::new(), admin: Port::new(), _turn: turn }
    }

    /// Somebody who writes into the topic, which is made if it is not there.
    fn hand(&self) -> Hand {
        Hand(Writer::of(self.cluster(), Some(2)))
    }

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
    fn said(&self) -> Acknowledged {
        let own = Key::Acknowledged(POP.into(), EDGE.into()).to_string();
        Acknowledged::decode(&self.in_topic(&own).unwrap_or_default()).unwrap_or_default()
    }

    /// The document of a key in the topic; none either while there is no topic.
    fn in_topic(&self, wanted: &str) -> Option<Vec<u8>> {
        let mut reader = Reader::open(&self.cluster(), Some(POP)).unwrap();
        let (begun, mut last) = (Instant::now(), None);
        loop {
            assert!(begun.elapsed() < PATIENCE, "the topic has no end");
            match reader.read().ok()? {
                Found::Document { key, document, .. } if key == wanted => last = document,
                Found::End(_) => return last,
                _ => {}
            }
        }
    }

    fn delete_topic(&self) {
        let mut config = ClientConfig::new();
        let admin: AdminClient<_> = config.set("bootstrap.servers", self.kafka.brokers()).create().unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let deleted = runtime.block_on(admin.delete_topics(&[TOPIC], &AdminOptions::new()));
        assert_eq!(deleted.unwrap(), [Ok(TOPIC.to_owned())]);
    }
}

/// What is said where a bundle is in force and none was refused since.
fn all_is_well(bundle: &Bundle) -> Acknowledged {
    let (in_force, number) = (Some(bundle.checksum().to_owned()), Some(bundle.content().number));
    Acknowledged { in_force, number, refused: None }
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
        tenant: String::new(),
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

/// Somebody who writes into the topic.
struct Hand(Writer);

impl Hand {
    fn put(&mut self, edge: Option<&str>, document: Option<&str>) {
        let key = Key::Bundle(POP.into(), edge.map(str::to_owned)).to_string();
        // A broker may not know yet of a topic that was made.
        until("it is written", || {
            let put = self.0.create().and_then(|()| self.0.put(POP, &key, document.map(str::as_bytes)));
            put.inspect_err(|error| eprintln!("{error}")).is_ok()
        });
    }

    fn put_for_all(&mut self, bundle: &Bundle) {
        self.put(None, Some(&bundle.encode()));
    }
}

#[test]
fn rules_reach_the_edge_and_what_it_says_comes_back() {
    let site = Carried::new();
    let port = Port::new();
    let mut deciding = site.controller(port.address());
    let _serving = site.edge(backend());
    let mut agent = site.agent();
    let clients = Clients::of(site.listen.address(), &["media.example"]);
    let watch = Watch::of(&site.file());

    until("rules reach the edge", || site.stats()["rules"].as_u64().is_some_and(|rules| rules > 0));
    assert_eq!(site.stats()["source"], "file");
    let edge = || told(port.address(), &format!("/edges?pop={POP}"))["edges"][0].clone();
    until("the controller hears what the edge has", || {
        edge()["name"] == EDGE && edge()["bundle"].as_u64().is_some_and(|number| number > 0)
    });

    // An agent, and a controller, that are killed go on where they were.
    let is_heard_after = |unix_s: u64| {
        let edge = edge();
        edge["heard_unix_s"].as_u64() > Some(unix_s) && edge["bundle"].as_u64() == Some(site.number())
    };
    agent.kill();
    let killed_unix_s = now_unix_s();
    let agent = site.agent();
    until("what the edge has is heard again", || is_heard_after(killed_unix_s));
    deciding.kill();
    let killed_unix_s = now_unix_s();
    let deciding = site.controller(port.address());
    until("the controller hears the edge again", || is_heard_after(killed_unix_s));

    // A topic that somebody deletes is made again, with what was in it.
    drop(clients);
    site.delete_topic();
    deciding.said("not all bundles are carried over Kafka");
    let of_all = Key::Bundle(POP.into(), None).to_string();
    until("the topic has the bundle again", || site.in_topic(&of_all).is_some());
    let deleted_unix_s = now_unix_s();
    until("what the edge has is heard again", || is_heard_after(deleted_unix_s));
    deciding.end();
    agent.end();
    let last = watch.end();
    until("the edge has the last one", || site.number() == last);
}

#[test]
fn an_agent_that_is_killed_while_it_writes_leaves_a_whole_bundle() {
    let site = Carried::new();
    let mut hand = site.hand();
    hand.put_for_all(&bundle(1));
    let _serving = site.edge(backend());
    let mut agent = site.agent();
    until("the first one is in force", || site.number() == 1);
    let watch = Watch::of(&site.file());
    // The file that takes the place of the other is there as it is killed.
    let (mut next, mut is_caught) = (1, false);
    while !is_caught {
        next += 1;
        assert!(next < TRIES_MAX, "never killed while it writes");
        let before = std::fs::metadata(site.file()).unwrap().ino();
        hand.put_for_all(&large(next));
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
    assert_eq!(watch.end(), next);
}

#[test]
fn what_anybody_writes_takes_nothing_back() {
    let mut site = Carried::new();
    let mut hand = site.hand();
    hand.put_for_all(&bundle(100));
    let backend = backend();
    let mut serving = site.edge(backend);
    let agent = site.agent();
    until("what was there is in force", || site.number() == 100);
    hand.put(Some(EDGE), Some(&bundle(200).encode()));
    until("a canary's is in force", || site.number() == 200);
    hand.put(Some(EDGE), None);
    hand.put_for_all(&bundle(150));
    agent.said("a lower number");
    hand.put_for_all(&bundle(201));
    until("a higher one is in force", || site.number() == 201);
    let good = bundle(201);
    until("it is said", || site.said() == all_is_well(&good));

    // A hostile one: refused, and told why.
    let hostile = bundle(300).encode().replace("\"rules\":[]", "\"rules\":[{\"prefix\":\"0.0.0.0/0\"}]");
    hand.put(None, Some(&hostile));
    until("it is refused", || site.said().refused.is_some());
    let Acknowledged { in_force, refused, .. } = site.said();
    assert_eq!(in_force.as_deref(), Some(good.checksum()));
    let reason = refused.unwrap().reason;
    assert!(reason.contains("missing field"), "{reason}");
    hand.put(None, Some(&format!("{{\"format\":{}}}", FORMAT + 1)));
    until("it is refused, too", || {
        site.said().refused.is_some_and(|refused| refused.reason.starts_with("/format: "))
    });
    assert_eq!(site.number(), 201);

    // Neither the edge nor the agent begins with it: it never came into the file.
    serving.kill();
    agent.end();
    let serving = site.edge(backend);
    assert_eq!((site.number(), &site.stats()["source"]), (201, &"file".into()));
    let agent = site.agent();
    hand.put_for_all(&bundle(150));
    agent.said("Kafka has a bundle of a lower number");
    assert_eq!(site.number(), 201, "also where it began with one that is none in the topic");
    hand.put_for_all(&bundle(400));
    until("a good one ends it", || site.number() == 400 && site.said() == all_is_well(&bundle(400)));

    // A broker that was away.
    site.kafka.kill();
    agent.said("bundles do not come over Kafka");
    site.kafka.restart();
    let mut hand = site.hand();
    hand.put_for_all(&bundle(500));
    until("the next one is in force", || site.number() == 500 && site.said() == all_is_well(&bundle(500)));
    agent.end();
    serving.end();
}
