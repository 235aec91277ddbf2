//! Accounting tests: every response of an edge must be stored once or counted as lost, even if the
//! agent is killed under load at seeded times, the edge is killed (`edges`), or every part from the
//! edge to ClickHouse is killed (`chain`). The same holds while a sink is unavailable and the spool
//! is full. An edge may also record only some clients (`sampled`).
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

#[path = "accounting/chain.rs"]
mod chain;
#[path = "accounting/edges.rs"]
mod edges;
mod program;
#[path = "accounting/sampled.rs"]
mod sampled;

use std::collections::HashSet;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use program::{Directory, PATIENCE, Process, drain, metric_values, number, records, site, thalweg, until};
use rusqlite::Connection;

const SEED: u64 = 0x7468_616c_7765_6721;
const CLIENTS: u64 = 4;
/// Number of agent kills under load, and requests between two kills.
const KILLS: u64 = 8;
const REQUESTS: u64 = 2_000;
/// Numbers of requests sent while no follower is connected: first, requests whose records the edge
/// drops; then, after more than [`KEPT`], requests whose records it still has when the agent
/// reconnects.
const REQUESTS_DROPPED: u64 = 1_000;
const REQUESTS_UNHEARD: u64 = 4_000;
/// How long an edge keeps records for followers in these tests.
const KEPT: Duration = Duration::from_secs(8);
/// Requests per round while the spool is full, and number of rounds.
const REQUESTS_TO_SPOOL: u64 = 1_000;
const ROUNDS_TO_SPOOL: u64 = 12;
const SPOOL_BYTES_MAX: f64 = 16.0 * 1024.0 * 1024.0;
/// Query length of these requests. Queries are random, so they compress by at most half.
const QUERY_BYTES: usize = 4_000;

/// Arguments for an agent without socket samples.
const NO_SOCKETS: [&str; 4] = ["--period", "1h", "--sockets", "sport 1"];
/// Number of agent starts during one connection, and maximum dumps per start.
const LIVES: u64 = 9;
const DUMPS_MAX: u64 = 5;

/// Log lines of an agent that has connected to an edge's stream, and of one whose stream has
/// closed.
const FOLLOWING: &str = "following edge records";
const AWAY: &str = "cannot follow edge records";

/// A deterministic random number generator (xorshift64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Returns an unused loopback address.
fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// URL of a backend that does not exist.
const NO_BACKEND: &str = "http://127.0.0.1:1";

/// Starts an edge that responds without a backend, and returns its address. Its state is stored in
/// `directory`.
fn edge(admin: SocketAddr, directory: &Path) -> (Process, SocketAddr) {
    edge_before(NO_BACKEND, admin, directory)
}

fn edge_before(backend: &str, admin: SocketAddr, directory: &Path) -> (Process, SocketAddr) {
    let mut command = thalweg();
    command.args(["edge", "--listen", "127.0.0.1:0", "--memory", "16MiB", "--backend", backend, "--state"]);
    command.arg(directory.join("edge"));
    command.args(["--records-kept", &format!("{}s", KEPT.as_secs())]);
    let edge = Process::start(command.args(["--admin", &admin.to_string()]));
    let address = edge.wait_for_log("edge listening").parse().unwrap();
    (edge, address)
}

/// Starts an agent that follows the edge and writes JSON lines, with further arguments; returns its
/// metrics address.
fn agent(edge: SocketAddr, directory: &Path, arguments: &[&str]) -> (Process, SocketAddr) {
    let mut command = thalweg();
    command.args(["agent", "--listen", "127.0.0.1:0", "--edge", &edge.to_string()]);
    command.arg("--json").arg(directory.join("files")).args(arguments);
    let agent = Process::start(&mut command);
    let metrics = agent.wait_for_log("agent listening").parse().unwrap();
    (agent, metrics)
}

/// Starts an agent that follows the edge and stores only responses, in a database.
fn sqlite_agent(edge: SocketAddr, directory: &Path, database: &Path) -> (Process, SocketAddr) {
    let spool = format!("{}=64MiB", directory.join("spool").display());
    let sinks = ["--spool", &spool, "--sqlite", &database.display().to_string()].map(str::to_owned);
    let arguments: Vec<_> = NO_SOCKETS.into_iter().chain(sinks.iter().map(String::as_str)).collect();
    agent(edge, directory, &arguments)
}

/// SQL expression for the number of responses that a database contains or counts as lost.
const STORED_OR_LOST: &str =
    "(SELECT count(*) FROM responses) + (SELECT coalesce(sum(records), 0) FROM losses)";

/// Returns the network of a client; each client has a separate network.
fn network_of(client: u64) -> u8 {
    1 + u8::try_from(client).unwrap()
}

/// Sends a total of `times` requests over several connections, each request with a unique path.
fn send_requests(edge: SocketAddr, times: u64, query_bytes: usize, answered: &AtomicU64) {
    let begun = answered.load(SeqCst);
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            scope.spawn(move || {
                let mut random = Random(SEED ^ (begun * CLIENTS + client + 1));
                let mut stream = BufReader::new(site::connect(edge, network_of(client)).unwrap());
                for at in 0..times / CLIENTS {
                    let mut query = String::new();
                    while query.len() < query_bytes {
                        query.push_str(&format!("{:016x}", random.next()));
                    }
                    let request = format!("TRACE /{begun}/{client}/{at}?{query} HTTP/1.1\r\nHost: a\r\n\r\n");
                    stream.get_mut().write_all(request.as_bytes()).unwrap();
                    read_response(&mut stream).unwrap();
                    answered.fetch_add(1, SeqCst);
                }
            });
        }
    });
    assert_eq!(answered.load(SeqCst), begun + times);
}

/// Reads a response to its end and returns its length in bytes.
fn read_response(stream: &mut BufReader<TcpStream>) -> io::Result<u64> {
    let (mut line, mut bytes, mut content_bytes) = (String::new(), 0, 0);
    while line != "\r\n" {
        line.clear();
        bytes += stream.read_line(&mut line)?;
        if line.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(length) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            content_bytes = length.trim().parse().unwrap();
        }
    }
    stream.read_exact(&mut vec![0; content_bytes])?;
    Ok((bytes + content_bytes) as u64)
}

fn count(database: &Path, of: &str) -> u64 {
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let database = Connection::open_with_flags(database, flags).unwrap();
    database.busy_timeout(PATIENCE).unwrap();
    database.query_row(&format!("SELECT {of}"), [], |row| row.get(0)).unwrap()
}

#[test]
fn every_response_is_kept_once_or_counted_as_lost() {
    let directory = Directory::new();
    let database = directory.0.join("telemetry.sqlite");
    let (admin, answered, mut random) = (free_address(), AtomicU64::new(0), Random(SEED));
    let start = || sqlite_agent(admin, &directory.0, &database);
    let wait_for_all = || {
        until("all responses are accounted for", || {
            count(&database, STORED_OR_LOST) == answered.load(SeqCst)
        });
    };
    let (running, mut address) = edge(admin, &directory.0);
    let mut following = start().0;
    following.wait_for_log(FOLLOWING);
    // Responses before the first one in the agent's spool are not accounted for, so wait until the
    // spool contains a response.
    send_requests(address, REQUESTS, 0, &answered);
    wait_for_all();

    // Kill the agent while it receives responses, and while it connects.
    for kill in 0..KILLS {
        let moment = answered.load(SeqCst) + random.next() % REQUESTS;
        thread::scope(|scope| {
            scope.spawn(|| send_requests(address, REQUESTS, 0, &answered));
            until("requests are under way", || answered.load(SeqCst) >= moment);
            following.kill();
            following = start().0;
        });
        if kill % 2 == 0 {
            following.wait_for_log(FOLLOWING);
        }
    }
    wait_for_all();
    assert_eq!(count(&database, "count(*) FROM losses"), 0, "no record may be lost yet");

    // Stop the edge while it is followed; its successor receives requests before the agent
    // reconnects. Then kill the successor once it has no records left to send.
    running.stop();
    following.wait_for_log(AWAY);
    let mut running;
    (running, address) = edge(admin, &directory.0);
    send_requests(address, REQUESTS, 0, &answered);
    wait_for_all();
    running.kill();
    let running;
    (running, address) = edge(admin, &directory.0);
    send_requests(address, REQUESTS, 0, &answered);
    wait_for_all();
    assert_eq!(count(&database, "count(*) FROM losses"), 0);

    // While no agent is connected, send requests for longer than the edge keeps their records.
    following.kill();
    send_requests(address, REQUESTS_DROPPED, 0, &answered);
    thread::sleep(KEPT + Duration::from_secs(1));
    send_requests(address, REQUESTS_UNHEARD, 0, &answered);
    let metrics;
    (following, metrics) = start();
    wait_for_all();
    running.stop();
    following.wait_for_log(AWAY);
    let lag = |sink| metric_values(metrics)[&format!("thalweg_agent_sink_lag_records{{sink=\"{sink}\"}}")];
    until("both sinks have stored everything", || lag("sqlite") == 0.0 && lag("file") == 0.0);
    following.stop();

    let records = records(&directory.0.join("files"));
    let mut numbers: Vec<u64> = records.iter().map(|record| number(record, "number")).collect();
    numbers.sort_unstable();
    assert!(numbers.iter().copied().eq(0..records.len() as u64), "each number must appear once");
    let paths: Vec<_> = records.iter().filter_map(|record| record["path"].as_str()).collect();
    assert_eq!(paths.iter().collect::<HashSet<_>>().len(), paths.len(), "no response may appear twice");
    let losses = records.iter().filter(|record| record["stage"].is_string());
    let lost: u64 = losses
        .map(|loss| {
            assert_eq!(loss["stage"], "follow");
            number(loss, "records")
        })
        .sum();
    assert_eq!(lost, REQUESTS_DROPPED, "only records older than the time kept are lost");
    assert_eq!(paths.len() as u64 + lost, answered.load(SeqCst), "sent = kept + counted losses");

    let all = "(SELECT number FROM responses UNION ALL SELECT number FROM losses)";
    let kept = records.len() as u64;
    assert_eq!(count(&database, &format!("count(*) FROM {all}")), kept);
    assert_eq!(count(&database, &format!("count(DISTINCT number) FROM {all}")), kept);
    assert_eq!(count(&database, &format!("max(number) + 1 FROM {all}")), kept);
    assert_eq!(count(&database, "count(DISTINCT path) FROM responses"), paths.len() as u64);
    assert_eq!(count(&database, "sum(responses) FROM responses_5m"), paths.len() as u64);
}

#[test]
fn full_spool_drops_and_counts_the_oldest_records() {
    let directory = Directory::new();
    let (admin, answered, nobody) = (free_address(), AtomicU64::new(0), free_address());
    let (running, address) = edge(admin, &directory.0);
    let spool = format!("{}=16MiB", directory.0.join("spool").display());
    let arguments = ["--spool", &spool, "--kafka", &nobody.to_string()].map(str::to_owned);
    let arguments: Vec<_> = NO_SOCKETS.into_iter().chain(arguments.iter().map(String::as_str)).collect();
    let (following, metrics) = agent(admin, &directory.0, &arguments);
    following.wait_for_log(FOLLOWING);
    let figure = |name: &str| metric_values(metrics)[&format!("thalweg_agent_{name}")];
    let of = |sink: &str, name: &str| figure(&format!("sink_{name}{{sink=\"{sink}\"}}"));
    for _ in 0..ROUNDS_TO_SPOOL {
        send_requests(address, REQUESTS_TO_SPOOL, QUERY_BYTES, &answered);
        let wait_for_all = || figure("spool_records_total") >= answered.load(SeqCst) as f64;
        until("the files contain all records", || wait_for_all() && of("file", "lag_records") == 0.0);
        assert!(figure("spool_bytes") <= SPOOL_BYTES_MAX);
    }
    let appended = figure("spool_records_total");
    assert_eq!(appended, answered.load(SeqCst) as f64);
    assert_eq!((of("file", "records_total"), of("file", "records_lost_total")), (appended, 0.0));
    let (lost, lag) = (of("kafka", "records_lost_total"), of("kafka", "lag_records"));
    assert!(of("kafka", "records_total") == 0.0 && lost > 0.0 && lag > 0.0);
    assert_eq!(lost + lag, appended, "appended = kept + lost + in the spool");

    running.stop();
    following.wait_for_log(AWAY);
    following.stop();
    let records = records(&directory.0.join("files"));
    let paths: HashSet<_> = records.iter().filter_map(|record| record["path"].as_str()).collect();
    assert_eq!((paths.len(), records.len() as f64), (answered.load(SeqCst) as usize, appended));
}

#[test]
fn connection_is_counted_once_across_agent_restarts() {
    let directory = Directory::new();
    let (admin, mut random) = (free_address(), Random(SEED));
    let (running, address) = edge(admin, &directory.0);
    let spool = format!("{}=64MiB", directory.0.join("spool").display());
    let filter = format!("sport {}", address.port());
    let start =
        || agent(admin, &directory.0, &["--period", "100ms", "--sockets", &filter, "--spool", &spool]);
    let dumps = |metrics| metric_values(metrics)["thalweg_agent_dumps_total"] as u64;

    let (mut following, mut metrics) = start();
    until("the first dump is done", || dumps(metrics) > 0);
    let mut stream = BufReader::new(TcpStream::connect(address).unwrap());
    let client = stream.get_ref().local_addr().unwrap().port();
    let mut received = 0;
    let mut send_requests = |times: u64| {
        for _ in 0..times {
            stream.get_mut().write_all(b"TRACE / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            received += read_response(&mut stream).unwrap();
        }
        received
    };
    for life in 0..LIVES {
        let end = dumps(metrics) + random.next() % DUMPS_MAX;
        while dumps(metrics) < end {
            send_requests(50);
        }
        send_requests(random.next() % 50);
        if life % 3 == 2 {
            following.stop();
        } else {
            following.kill();
        }
        send_requests(100);
        (following, metrics) = start();
    }
    until("the first dump is done", || dumps(metrics) > 0);
    let received = send_requests(100);
    following.stop();
    // A second agent stores the records that the first agent had no time to store before it
    // stopped.
    (following, metrics) = start();
    until("the files contain all records", || {
        metric_values(metrics)["thalweg_agent_sink_lag_records{sink=\"file\"}"] == 0.0
    });
    following.stop();
    running.stop();

    let records = records(&directory.0.join("files"));
    let of_client = records.iter().filter(|record| record["client_port"] == client);
    let counted = of_client.filter(|record| record["bytes_sent"].is_u64());
    let sent: u64 =
        counted.map(|record| number(record, "bytes_sent") - number(record, "bytes_retrans")).sum();
    assert_eq!(sent, received);
}

#[test]
fn edge_of_the_same_process_is_followed_completely() {
    let directory = Directory::new();
    let (answered, files) = (AtomicU64::new(0), directory.0.join("files"));
    let config = format!(
        "[edge]\nlisten = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\nmemory = '16MiB'\nbackends = ['{NO_BACKEND}']\n\
         [agent]\nperiod = '1h'\nsockets = 'sport 1'\nspool = '{}=64MiB'\njson = '{}'\n",
        directory.0.join("spool").display(),
        files.display(),
    );
    let path = directory.0.join("thalweg.toml");
    std::fs::write(&path, config).unwrap();
    for _ in 0..2 {
        let running = Process::start(thalweg().args(["up", "--config"]).arg(&path));
        send_requests(running.wait_for_log("edge listening").parse().unwrap(), REQUESTS, 0, &answered);
        running.stop();
    }
    drain(&directory.0.join("spool"), &[("--json", &files)]);
    let records = records(&files);
    let paths: HashSet<_> = records.iter().filter_map(|record| record["path"].as_str()).collect();
    assert_eq!(
        (paths.len(), records.len()),
        (answered.load(SeqCst) as usize, answered.load(SeqCst) as usize)
    );
}
