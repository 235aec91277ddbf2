//! Controller tests with real parts: an edge and an agent, or Kafka. Client traffic must lead to
//! rounds and bundles, the edge must apply the bundles, and reports on a network must match its
//! traffic. This must hold even if the controller and the edge are killed, and despite other
//! [`faults`].
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

#[path = "controller/faults.rs"]
mod faults;
mod program;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use program::site::{Clients, NETWORKS, backend, get_json, http_get};
use program::{Directory, Port, Process, records, site, thalweg, until};
use serde_json::Value;
use thalweg_kafka::Cluster;
use thalweg_record::{Batch, Counters, Entry, Gauges, Network, Record, SocketRecord, Source};
use thalweg_telemetry::KafkaSink;
use thalweg_telemetry::Sink;
use thalweg_tests::services;

/// The edge's name, used by its agent and in bundle requests.
const HOST: &str = "edge-1";

/// Returns the numbers of outcomes of a network's treated and held-out clients.
fn arms(controller: SocketAddr, network: u8) -> (u64, u64) {
    let entry = &get_json(controller, &format!("/explain?pop=here&prefix=127.0.{network}.0/24"))["entry"];
    (entry["treated"].as_u64().unwrap_or(0), entry["held_out"].as_u64().unwrap_or(0))
}

fn controller(directory: &Directory, listen: SocketAddr) -> Process {
    let process = Process::start(&mut site::controller(directory, listen));
    process.wait_for_log("controller listening");
    process
}

fn edge(
    directory: &Directory,
    listen: SocketAddr,
    admin: SocketAddr,
    backend: SocketAddr,
    bundle: &str,
) -> Process {
    let mut command = thalweg();
    command.args(["edge", "--memory", "16MiB", "--congestion-control", "cubic", "--bundle", bundle]);
    command.args(["--listen", &listen.to_string(), "--admin", &admin.to_string()]);
    command.args(["--backend", &format!("http://{backend}")]).arg("--state").arg(directory.0.join("edge"));
    let process = Process::start(&mut command);
    process.wait_for_log("edge listening");
    process
}

fn agent(directory: &Directory, control: SocketAddr, listen: SocketAddr, admin: SocketAddr) -> Process {
    let process = Process::start(&mut agent_command(directory, control, listen, admin));
    process.wait_for_log("following edge records");
    process
}

fn agent_command(
    directory: &Directory,
    control: SocketAddr,
    listen: SocketAddr,
    admin: SocketAddr,
) -> Command {
    let mut command = thalweg();
    command.args(["agent", "--period", "200ms", "--pop", "here", "--host", HOST]);
    command.args(["--edge", &admin.to_string(), "--controller", &format!("http://{control}")]);
    command.args(["--sockets", &format!("sport {}", listen.port())]);
    command.arg("--json").arg(directory.0.join("files"));
    command.args(["--spool", &format!("{}=64MiB", directory.0.join("spool").display())]);
    command
}

#[test]
fn client_traffic_becomes_rules_that_the_edge_applies() {
    let directory = Directory::new();
    let ports = [Port::new(), Port::new(), Port::new()];
    let [control, listen, admin] = ports.each_ref().map(Port::address);
    let backend = backend();
    let mut deciding = controller(&directory, control);
    let bundle = format!("http://{control}/bundle?pop=here&edge={HOST}");
    let mut serving = edge(&directory, listen, admin, backend, &bundle);
    let agent = agent(&directory, control, listen, admin);
    let clients = Clients::of(listen, &["media.example"]);

    until("both arms of every network have outcomes", || {
        (1..=NETWORKS).all(|network| {
            let (treated, held_out) = arms(control, network);
            treated >= 10 && held_out >= 10
        })
    });
    let edges = get_json(control, "/edges?pop=here");
    assert!(edges["edges"][0]["bundle"].is_u64(), "{edges}");
    let rounds = get_json(control, "/rounds?pop=here");
    let rounds = rounds["rounds"].as_array().unwrap();
    for arm in ["all", "steered", "held_out"] {
        let has_arm = |round: &Value| round["goodput"][arm]["p10"].as_f64().is_some_and(|rate| rate > 0.0);
        assert!(rounds.iter().any(has_arm), "{arm}: {rounds:?}");
    }

    // Without a controller, the edge must continue with its bundle, even after a restart.
    let before: Vec<_> = (1..=NETWORKS).map(|network| arms(control, network)).collect();
    deciding.kill();
    serving.kill();
    let _serving = edge(&directory, listen, admin, backend, &bundle);
    agent.wait_for_log("following edge records");
    let _deciding = controller(&directory, control);
    // The controller's state must survive: counts of a network must not decrease unless it has
    // left.
    for (network, before) in (1..=NETWORKS).zip(&before) {
        let now = arms(control, network);
        let has_left = now == (0, 0);
        assert!(has_left || now.0 >= before.0 && now.1 >= before.1, "{network}: {before:?}, {now:?}");
    }
    let (_, etag, _) = http_get(control, "/bundle?pop=here", "");
    let (status, ..) = http_get(control, "/bundle?pop=here", &format!("If-None-Match: {etag}\r\n"));
    assert!(status == 304 || status == 200, "{status}: must be 304, or 200 if the bundle has changed");
    until("counts continue from the restored state", || {
        // Some networks may leave in the meantime, because they are no longer slow.
        (1..=NETWORKS).zip(&before).any(|(network, before)| {
            let now = arms(control, network);
            now.0 > before.0 && now.1 > before.1
        })
    });
    drop(clients);
    agent.stop();

    let records = records(&directory.0.join("files"));
    let steered: Vec<_> = records.iter().filter(|record| record["rule"].is_string()).collect();
    assert!(steered.len() > 100, "{} steered of {}: {}", steered.len(), records.len(), records[0]);
    let text = |record: &Value, name: &str| record[name].as_str().unwrap_or_default().to_owned();
    for record in steered {
        let held_out = record["is_holdout"].as_bool().unwrap();
        let ran = text(record, "congestion_control");
        assert_eq!(ran, if held_out { "cubic" } else { "reno" }, "{record}");
    }
}

/// A site in one process. Without the tenant, no network is steered, because all round-trip times
/// are below the default minimum; the tenant sets a lower minimum.
const TENANT: &str = r#"
[edge]
listen = "127.0.0.1:0"
admin = "127.0.0.1:0"
backends = ["BACKEND"]
memory = "16MiB"
congestion_control = "cubic"
state = "edge"
[agent]
pop = "here"
period = "200ms"
json = "files"
[controller]
listen = "CONTROLLER"
window = "2s"
late = "1s"
measure = "goodput"
min_rtt_min = "10s"
exploring_max = 0
connections_min = 1
observed_windows_min = 1
evidence_connections_min = 1000000
trial_windows_max = 100000
effect_min = 0
congestion_control = "reno"
[[tenant]]
hosts = ["news.example", "sport.example"]
min_rtt_min = "0ms"
exploring_max = 5
"#;

#[test]
fn tenant_is_steered_by_its_own_responses_only() {
    let directory = Directory::new();
    let (port, backend) = (Port::new(), backend());
    let control = port.address();
    let file = directory.0.join("thalweg.toml");
    let text = TENANT.replace("BACKEND", &format!("http://{backend}"));
    std::fs::write(&file, text.replace("CONTROLLER", &control.to_string())).unwrap();
    let process = Process::start(thalweg().args(["up", "--config"]).arg(&file).current_dir(&directory.0));
    let listen = process.wait_for_log("edge listening").parse().unwrap();
    let clients = Clients::of(listen, &["media.example", "news.example", "Sport.example:80"]);
    let of_tenant = |network: u8| {
        let target = format!("/explain?pop=here&tenant=news.example&prefix=127.0.{network}.0/24");
        let (status, _, content) = http_get(control, &target, "");
        if status != 200 {
            return 0;
        }
        let explanation: Value = serde_json::from_str(&content).unwrap();
        explanation["entry"]["treated"].as_u64().unwrap_or(0)
    };
    until("a network of the tenant has connections", || (1..=NETWORKS).any(|it| of_tenant(it) >= 10));
    let status = thalweg().args(["controller", "status", "--controller", &control.to_string()]).output();
    let status = String::from_utf8(status.unwrap().stdout).unwrap();
    let tenants: Vec<_> = status.lines().skip(1).map_while(|line| line.split_whitespace().nth(1)).collect();
    assert_eq!(tenants, ["-", "news.example"], "{status}");
    let said = |tenant: &[&str]| {
        let mut command = thalweg();
        command.args(["controller", "explain", "127.0.1.1", "--controller", &control.to_string()]);
        String::from_utf8(command.args(tenant).output().unwrap().stdout).unwrap()
    };
    assert!(said(&[]).starts_with("127.0.1.0/24: low_rtt"), "{}", said(&[]));
    assert!(!said(&["--tenant", "News.example"]).starts_with("127.0.1.0/24: low_rtt"));
    drop(clients);
    process.stop();

    let records = records(&directory.0.join("files"));
    let (mut own, mut others) = (0, 0);
    for record in records.iter().filter(|record| record["request_host"].is_string()) {
        let is_steered = record["rule"].is_string();
        match record["request_host"].as_str().unwrap() {
            "media.example" => {
                assert!(!is_steered, "{record}");
                others += 1;
            }
            _ => own += usize::from(is_steered),
        }
    }
    assert!(own > 20 && others > 100, "{own} of the tenant, {others} of others");
}

const KAFKA_WINDOW_S: u64 = 4;
/// Maximum lateness of records: longer than it takes to send them on a busy machine.
const KAFKA_LATE_S: u64 = 16;
const BATCHES: u64 = 60;
const BATCH_RECORDS: u64 = 200;
/// Number of controller starts while records arrive; before each but the first, the controller is
/// killed. One more start follows once all records have arrived.
const STARTS: u64 = 4;

const HOUR_US: u64 = 3_600_000_000;

/// Returns `batch` with another source host.
fn warming(batch: Batch) -> Batch {
    Batch { source: Source { host: "edge-0".into(), ..batch.source }, ..batch }
}

/// Creates a batch of socket samples from the last [`KAFKA_WINDOW_S`] before `now_unix_us`.
fn batch(index: u64, now_unix_us: u64) -> Batch {
    let source = Source { host: "edge-1".into(), pop: "here".into(), epoch: 1 };
    let numbers = index * BATCH_RECORDS..(index + 1) * BATCH_RECORDS;
    let back_us = KAFKA_WINDOW_S * 1_000_000 / (BATCHES * BATCH_RECORDS);
    let entry = |number: u64| {
        let time_unix_us = now_unix_us - number * back_us;
        let socket = SocketRecord {
            cookie: number,
            interval_us: Some(1_000_000),
            congestion_control: Some("cubic".into()),
            gauges: Some(Gauges { delivery_rate_bytes_per_s: Some(number + 1), ..Gauges::default() }),
            counters: Some(Counters::default()),
            ..SocketRecord::new(
                time_unix_us,
                format!("10.0.{}.{}:{}", number % 20, number % 200, 1024 + number).parse().unwrap(),
                "192.0.2.1:80".parse().unwrap(),
            )
        };
        Entry { number, network: Network::default(), record: Record::Socket(Box::new(socket)) }
    };
    Batch { source, entries: numbers.map(entry).collect() }
}

fn kafka_controller(directory: &Directory, brokers: &str) -> (Process, SocketAddr) {
    let mut command = thalweg();
    command.args(["controller", "run", "--listen", "127.0.0.1:0", "--kafka", brokers]);
    command.args(["--window", &format!("{KAFKA_WINDOW_S}s"), "--late", &format!("{KAFKA_LATE_S}s")]);
    command.arg("--database").arg(directory.0.join("control.sqlite"));
    let process = Process::start(&mut command);
    let address = process.wait_for_log("controller listening").parse().unwrap();
    (process, address)
}

#[test]
fn killed_controller_rebuilds_its_windows_from_kafka() {
    let mut kafka = services::Kafka::start();
    let directory = Directory::new();
    let cluster =
        Cluster { brokers: kafka.brokers(), topic: "thalweg.telemetry".into(), properties: Vec::new() };
    let mut sink = KafkaSink::new(cluster, Some(3));
    // The first batch creates the topic, which takes a while. Its records are too old to be
    // counted.
    sink.store(&warming(batch(0, HOUR_US))).unwrap();
    let mut now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let mut sent = BTreeMap::<u64, u64>::new();
    let mut running = None;
    for index in 0..BATCHES {
        if index == BATCHES / 2 {
            // Kill the broker while the controller reads. Messages written before the kill must
            // survive.
            kafka.kill();
            kafka.restart();
            now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        }
        let batch = batch(index, u64::try_from(now.as_micros()).unwrap());
        for entry in &batch.entries {
            let Record::Socket(socket) = &entry.record else { unreachable!() };
            *sent.entry(socket.time_unix_us / 1_000_000 / KAFKA_WINDOW_S).or_default() += 1;
        }
        sink.store(&batch).unwrap();
        if index % (BATCHES / STARTS) == BATCHES / STARTS / 2 {
            // The killed controller loses everything that it has read.
            drop(running.take());
            running = Some(kafka_controller(&directory, &kafka.brokers()));
        }
    }
    // Send a batch again, like a sink that does not know whether the batch has arrived.
    sink.store(&batch(BATCHES - 1, u64::try_from(now.as_micros()).unwrap())).unwrap();
    // Stop the controller, so that none is running when the windows close.
    drop(running.take());
    let closed_s = now.as_secs() + KAFKA_WINDOW_S + KAFKA_LATE_S;
    until("the windows have ended", || {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() > closed_s
    });
    let (_process, controller) = kafka_controller(&directory, &kafka.brokers());
    let rounds =
        || get_json(controller, "/rounds?pop=here")["rounds"].as_array().cloned().unwrap_or_default();
    until("every window is decided", || rounds().len() >= sent.len());
    let decided: BTreeMap<u64, u64> = rounds()
        .iter()
        .map(|round| (round["window"].as_u64().unwrap(), round["records"].as_u64().unwrap()))
        .collect();
    assert_eq!(decided, sent);
}
