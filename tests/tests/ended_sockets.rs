//! Records of connections that end between two dumps: short downloads from an edge over an emulated
//! path, with an agent that follows the edge. The record of each destroyed socket must have a
//! delivery rate and a congestion control, and the rate must be that of the path rather than of
//! the FIN.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod program;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::thread;

use program::{Directory, Process, drain, metric_values, number, records, thalweg, until};
use serde_json::Value;
use thalweg_netem::emulation::{Emulation, Side};
use thalweg_netem::scenario;

/// Emulated path: 20 Mbit/s, or 2.5 MB/s, with an RTT of 20 ms.
const PATH: &str = "[[path]]\nname = 'home'\n[path.down]\ndelay = '10ms'\nrate = '20Mbit/s'\nqueue = '100KiB'
    [path.up]\ndelay = '10ms'\n";
const PATH_BYTES_PER_S: u64 = 2_500_000;
/// Maximum rate of a FIN sent alone: one TCP segment per RTT.
const FIN_BYTES_PER_S: u64 = 1460 * 50;
/// Number of parallel clients, and of sequential connections of each client.
const CLIENTS: usize = 4;
const CONNECTIONS: usize = 15;
/// Minimum number of bytes sent for a connection to be counted.
const BYTES_MIN: u64 = 10_000;
/// Minimum share of the counted sockets with each value.
const SHARE_MIN: f64 = 0.95;

/// Starts a backend in the server's namespace. The request path states the content length.
fn backend(emulation: &Emulation) -> SocketAddr {
    let listener = emulation.on(Side::Server, || TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || serve(stream));
        }
    });
    address
}

fn serve(mut stream: TcpStream) {
    let mut input = BufReader::new(stream.try_clone().unwrap());
    let (mut line, mut bytes) = (String::new(), 0);
    while input.read_line(&mut line).is_ok_and(|read| read > 0) {
        if let Some(path) = line.strip_prefix("GET /") {
            bytes = path.split(' ').next().unwrap().parse().unwrap();
        } else if line == "\r\n" {
            let head =
                format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nContent-Length: {bytes}\r\n\r\n");
            if stream.write_all(&[head.as_bytes(), &vec![7; bytes]].concat()).is_err() {
                return;
            }
        }
        line.clear();
    }
}

/// Starts the program in the server's namespace.
fn start(emulation: &Emulation, args: &[&str]) -> Process {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net={}", emulation.namespace_path(Side::Server))).arg("--");
    Process::start(command.arg(thalweg().get_program()).args(args))
}

/// Requests contents of these sizes on one connection. Lets the edge close it if `is_last_closing`,
/// and otherwise closes it after the last response.
fn get(emulation: &Emulation, edge: SocketAddr, sizes: &[usize], is_last_closing: bool) {
    let mut stream = emulation.on(Side::Clients, || TcpStream::connect(edge)).unwrap();
    let mut input = BufReader::new(stream.try_clone().unwrap());
    for (at, size) in sizes.iter().enumerate() {
        let close = if is_last_closing && at + 1 == sizes.len() { "Connection: close\r\n" } else { "" };
        write!(stream, "GET /{size} HTTP/1.1\r\nHost: a\r\n{close}\r\n").unwrap();
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            assert_ne!(input.read_line(&mut line).unwrap(), 0);
        }
        input.read_exact(&mut vec![0; *size]).unwrap();
    }
    if is_last_closing {
        assert_eq!(input.read(&mut [0]).unwrap(), 0);
    }
}

#[test]
fn destroyed_sockets_have_a_rate_and_a_congestion_control() {
    let directory = Directory::new();
    let (files, spool) = (directory.0.join("files"), directory.0.join("spool"));
    let emulation = Emulation::start(&scenario::read(PATH, &|_| unreachable!()).unwrap()).unwrap();
    let backend = format!("http://{}", backend(&emulation));
    let listen = format!("{}:0", emulation.scenario().server4);
    let edge = start(
        &emulation,
        &[
            "edge",
            "--listen",
            &listen,
            "--admin",
            "127.0.0.1:0",
            "--memory",
            "64MiB",
            "--state",
            "off",
            "--backend",
            &backend,
        ],
    );
    let address: SocketAddr = edge.wait_for_log("edge listening").parse().unwrap();
    let admin = edge.wait_for_log("admin listening");
    let agent = start(
        &emulation,
        &[
            "agent",
            "--period",
            "1h",
            "--edge",
            &admin,
            "--listen",
            "127.0.0.1:0",
            "--sockets",
            &format!("sport {}", address.port()),
            "--spool",
            &format!("{}=64MiB", spool.display()),
            "--json",
            files.to_str().unwrap(),
        ],
    );
    let metrics = agent.wait_for_log("agent listening").parse().unwrap();
    agent.wait_for_log("following edge records");
    let metric = |name: &str| emulation.on(Side::Server, || Ok(metric_values(metrics)[name])).unwrap();
    until("the first dump is done", || metric("thalweg_agent_dumps_total") > 0.0);

    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let emulation = &emulation;
            scope.spawn(move || {
                for number in 0..CONNECTIONS {
                    let size = 12_000 + 7_000 * number;
                    let sizes = [size, 30_000][..1 + client % 2].to_vec();
                    get(emulation, address, &sizes, number.is_multiple_of(2));
                }
            });
        }
    });
    let ended = (CLIENTS * CONNECTIONS) as f64;
    until("socket ends are reported", || metric("thalweg_agent_sockets_destroyed_total") >= ended);
    agent.stop();
    edge.stop();
    drain(&spool, &[("--json", &files)]);
    check(&records(&files), address);
}

fn check(records: &[Value], edge: SocketAddr) {
    let is_counted = |record: &&Value| {
        record["cause"] == "destroy"
            && record["local_port"] == edge.port()
            && number(record, "bytes_sent") >= BYTES_MIN
    };
    let ended: Vec<&Value> = records.iter().filter(is_counted).collect();
    assert_eq!(ended.len(), CLIENTS * CONNECTIONS);
    let share = |has: &dyn Fn(&Value) -> bool| {
        ended.iter().filter(|record| has(record)).count() as f64 / ended.len() as f64
    };
    let rate = |record: &Value| record["delivery_rate_bytes_per_s"].as_u64();
    let algorithms: HashMap<_, _> = records
        .iter()
        .filter(|record| record.get("path").is_some())
        .map(|record| (record["client_port"].clone(), record["congestion_control"].clone()))
        .collect();
    let with_rate = share(&|record| rate(record).is_some());
    let of_path = share(&|record| {
        rate(record).is_some_and(|rate| (2 * FIN_BYTES_PER_S..2 * PATH_BYTES_PER_S).contains(&rate))
    });
    let with_algorithm = share(&|record| {
        let name = &record["congestion_control"];
        name.is_string() && algorithms.get(&record["client_port"]) == Some(name)
    });
    let with_goodput = share(&|record| {
        record["acked_goodput_bytes_per_s"].as_u64().is_some_and(|rate| rate < 2 * PATH_BYTES_PER_S)
    });
    for share in [with_rate, of_path, with_algorithm, with_goodput] {
        assert!(
            share > SHARE_MIN,
            "rate {with_rate}, of the path {of_path}, algorithm {with_algorithm}, goodput {with_goodput}: {ended:#?}"
        );
    }
}
