//! Agent tests with independent servers under load: Debian's nginx, and an edge. The kernel's data
//! on every connection and the edge's record of every response must be stored once, in SQLite and
//! in files.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

#[path = "../../crates/tcp/tests/sockets/namespace.rs"]
mod namespace;
mod program;

use std::collections::{BTreeSet, HashMap};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;

use namespace::Namespace;
use program::{Directory, Port, Process, drain, edge, metric_values, number, query, records, thalweg, until};
use serde_json::Value;

const CONTENT_BYTES: usize = 200_000;
/// Load on nginx: concurrent clients, sequential connections per client, requests per connection.
const CLIENTS: usize = 4;
const CONNECTIONS: usize = 10;
const REQUESTS: usize = 5;
/// Number of requests to the edge.
const EDGE_REQUESTS: usize = 300;

/// Starts nginx with one file, `/content`.
fn nginx(directory: &Path, port: &Port) -> Process {
    std::fs::write(directory.join("content"), vec![7; CONTENT_BYTES]).unwrap();
    let address = port.address();
    let root = directory.display();
    let config = format!(
        "daemon off; worker_processes 1; pid {root}/pid; user root; error_log stderr notice;
         events {{ worker_connections 1024; }}
         http {{
             access_log off;
             client_body_temp_path {root}/body; proxy_temp_path {root}/proxy;
             fastcgi_temp_path {root}/fastcgi; uwsgi_temp_path {root}/uwsgi; scgi_temp_path {root}/scgi;
             server {{ listen {address}; root {root}; add_header Cache-Control max-age=60; }}
         }}"
    );
    let path = directory.join("nginx.conf");
    std::fs::write(&path, config).unwrap();
    let mut command = Command::new("/usr/sbin/nginx");
    let process =
        Process::start(command.arg("-p").arg(directory).arg("-c").arg(&path).args(["-e", "stderr"]));
    process.wait_for_log("start worker process ");
    process
}

/// Sends `times` requests on one connection and returns the client's address.
fn get(server: SocketAddr, times: usize) -> SocketAddr {
    let mut stream = TcpStream::connect(server).unwrap();
    for _ in 0..times {
        stream.write_all(b"GET /content HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let mut input = BufReader::new(&stream);
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            assert_ne!(input.read_line(&mut line).unwrap(), 0);
        }
        input.read_exact(&mut vec![0; CONTENT_BYTES]).unwrap();
    }
    stream.local_addr().unwrap()
}

/// Sends load to nginx from all clients in parallel. Returns the client addresses of their
/// connections.
fn load(server: SocketAddr) -> Vec<SocketAddr> {
    let one = move || (0..CONNECTIONS).map(|_| get(server, REQUESTS)).collect::<Vec<_>>();
    let clients: Vec<_> = (0..CLIENTS).map(|_| thread::spawn(one)).collect();
    clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
}

#[test]
fn sample_has_some_connections_and_states_its_ratio() {
    let directory = Directory::new();
    let port = Port::new();
    let (nginx, server) = (nginx(&directory.0, &port), port.address());
    let (files, spool) = (directory.0.join("files"), directory.0.join("spool"));
    let mut command = thalweg();
    command.args(["agent", "--period", "200ms", "--sample", "2", "--listen", "127.0.0.1:0"]);
    command.args(["--sockets", &format!("sport {}", server.port())]);
    command.arg("--json").arg(&files).args(["--spool", &format!("{}=64MiB", spool.display())]);
    let agent = Process::start(&mut command);
    let metrics = agent.wait_for_log("agent listening").parse().unwrap();
    until("the first dump is done", || metric_values(metrics)["thalweg_agent_dumps_total"] > 0.0);
    let clients = load(server);
    nginx.stop();
    until("socket ends are reported", || {
        metric_values(metrics)["thalweg_agent_sockets_destroyed_total"] > 0.0
    });
    agent.stop();
    drain(&spool, &[("--json", &files)]);
    let records = records(&files);
    assert!(records.iter().all(|record| record["sample_one_in"] == 2));
    let is_recorded = |client: &&SocketAddr| {
        records.iter().any(|record| record["client_port"].as_u64() == Some(client.port().into()))
    };
    // Each of the 40 connections is sampled with probability 1/2, so the chance that all or none of
    // them are sampled is 2^-39.
    let recorded = clients.iter().filter(is_recorded).count();
    assert!((1..CLIENTS * CONNECTIONS).contains(&recorded), "{recorded}");
}

#[test]
fn server_activity_is_recorded_once() {
    let directory = Directory::new();
    let (database, files) = (directory.0.join("telemetry.sqlite"), directory.0.join("files"));
    let (parquet, networks) = (directory.0.join("parquet"), directory.0.join("networks.csv"));
    std::fs::write(&networks, "127.0.0.0/8,64500,XX-T\n").unwrap();
    let port = Port::new();
    let (nginx, server) = (nginx(&directory.0, &port), port.address());
    let edge = Process::start(edge(server).args(["--state", "off"]));
    let edge_address: SocketAddr = edge.wait_for_log("edge listening").parse().unwrap();
    let admin = edge.wait_for_log("admin listening");
    let agent = Process::start(
        thalweg()
            .args(["agent", "--period", "200ms", "--pop", "here", "--edge", &admin])
            .args(["--listen", "127.0.0.1:0"])
            .args(["--sockets", &format!("sport {}", server.port())])
            .arg("--sqlite")
            .arg(&database)
            .arg("--json")
            .arg(&files)
            .arg("--parquet")
            .arg(&parquet)
            .arg("--networks")
            .arg(&networks)
            .args(["--spool", &format!("{}=64MiB", directory.0.join("spool").display())]),
    );
    let metrics = agent.wait_for_log("agent listening").parse().unwrap();
    agent.wait_for_log("following edge records");
    // Connections open at the first dump have no counters, so wait for it first.
    until("the first dump is done", || metric_values(metrics)["thalweg_agent_dumps_total"] > 0.0);

    let clients = load(server);
    get(edge_address, EDGE_REQUESTS);
    // A stopped edge has sent all its records. The kernel reports the end of a socket later, for
    // the clients' connections and the edge's own.
    edge.stop();
    agent.wait_for_log("cannot follow edge records");
    nginx.stop();
    let destroyed = || metric_values(metrics)["thalweg_agent_sockets_destroyed_total"];
    until("all socket ends are reported", || destroyed() > (CLIENTS * CONNECTIONS) as f64);
    agent.stop();
    let sinks = [("--sqlite", database.as_path()), ("--json", &files), ("--parquet", &parquet)];
    drain(&directory.0.join("spool"), &sinks);
    for table in ["sockets", "responses"] {
        let is_one = |name: &str| name.starts_with(&format!("{table}-")) && name.ends_with(".parquet");
        let mut found = std::fs::read_dir(&parquet).unwrap().map(|file| file.unwrap().file_name());
        assert!(found.any(|name| is_one(name.to_str().unwrap())), "{table}");
    }

    let records = records(&files);
    let mut numbers: Vec<u64> = records.iter().map(|record| number(record, "number")).collect();
    numbers.sort_unstable();
    assert!(numbers.iter().copied().eq(0..records.len() as u64), "each number must appear once: {numbers:?}");
    let is_known = |record: &Value| record["asn"] == 64_500 && record["region"] == "XX-T";
    assert!(records.iter().all(is_known), "each record must have its network's data");
    let responses: Vec<_> = records.iter().filter(|record| record.get("path").is_some()).collect();
    assert_eq!(responses.len(), EDGE_REQUESTS);
    assert!(responses.iter().all(|record| record["path"] == "/content" && record["pop"] == "here"));
    assert_eq!(
        responses.iter().map(|record| number(record, "bytes")).sum::<u64>(),
        (EDGE_REQUESTS * CONTENT_BYTES) as u64
    );

    let mut sent = HashMap::<u64, u64>::new();
    for record in records.iter().filter(|record| record["bytes_sent"].is_u64()) {
        let bytes = number(record, "bytes_sent") - number(record, "bytes_retrans");
        *sent.entry(number(record, "client_port")).or_default() += bytes;
    }
    for client in &clients {
        let sent = sent.get(&client.port().into()).copied().unwrap_or(0);
        let least = (REQUESTS * CONTENT_BYTES) as u64;
        assert!(
            (least..least + REQUESTS as u64 * 1000).contains(&sent),
            "{client}: sent {sent} bytes, expected {least} and response heads"
        );
    }

    let ttfb = query(&database, &["ttfb"]);
    assert_eq!(ttfb.iter().map(|row| number(row, "responses")).sum::<u64>(), EDGE_REQUESTS as u64);
    let goodput = query(&database, &["goodput", "--by", "prefix"]);
    assert_eq!(goodput.len(), 1, "{goodput:?}");
    assert_eq!(
        (goodput[0]["prefix"].as_str(), number(&goodput[0], "responses")),
        (Some("127.0.0.0/24"), EDGE_REQUESTS as u64)
    );
    assert_eq!(query(&database, &["losses"]), Vec::<Value>::new());
    assert!(!query(&database, &["delivery_rate", "--by", "congestion_control"]).is_empty());
    // Whether a network has enough samples depends on timing, but the query must succeed.
    let slowest = query(&database, &["slowest_prefixes"]);
    assert!(slowest.iter().all(|row| row["prefix"] == "127.0.0.0/24"), "{slowest:?}");
}

#[test]
fn namespaces_are_dumped_and_named() {
    let (directory, other) = (Directory::new(), Namespace::with_loopback());
    let files = directory.0.join("files");
    let names = ["/proc/self/ns/net".to_owned(), other.path().display().to_string()];
    let connection = || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (listener.accept().unwrap().0, client)
    };
    let servers = [connection(), other.on_thread(connection)];
    let port = |server: &TcpStream| server.local_addr().unwrap().port();
    let [here, there] = [port(&servers[0].0), port(&servers[1].0)];
    let spool = directory.0.join("spool");
    let agent = Process::start(
        thalweg()
            .args(["agent", "--period", "1h", "--listen", "127.0.0.1:0"])
            .args(["--sockets", &format!("sport {here},{there}")])
            .args(["--namespace", &names[0], "--namespace", &names[1]])
            .args(["--spool", &format!("{}=64MiB", spool.display())])
            .arg("--json")
            .arg(&files),
    );
    let metrics = agent.wait_for_log("agent listening").parse().unwrap();
    until("both are stored", || {
        metric_values(metrics)["thalweg_agent_sink_records_total{sink=\"file\"}"] >= 2.0
    });
    agent.stop();

    let recorded: BTreeSet<_> = records(&files)
        .iter()
        .map(|record| (record["namespace"].as_str().unwrap().to_owned(), number(record, "local_port")))
        .collect();
    let [own, others] = names;
    assert_eq!(recorded, BTreeSet::from([(own, here.into()), (others, there.into())]));
}
