//! The predefined queries must give the same results in SQLite and in ClickHouse on the same
//! records, and from a sample of the clients the same as from all, within the sampling error.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use thalweg_record::{
    Batch, Counters, Cut, Delivery, Entry, Gauges, LossRecord, Network, Protocol, Record, ResponseRecord,
    SocketRecord, Source, Stage, TcpState,
};
use thalweg_telemetry::clickhouse::Server;
use thalweg_telemetry::query::{Answer, By, Parameters, QUERIES};
use thalweg_telemetry::schema;
use thalweg_telemetry::sink::sqlite::{Retention, SqliteSink};
use thalweg_telemetry::{ClickHouseSink, Sink};
use thalweg_tests::services;

const SEED: u64 = 0x7468_616c_7765_6721;
const RECORDS: u64 = 20_000;
/// Maximum relative difference between two percentiles. Each comes from a sketch that may be off by
/// 1 % in either direction.
const DIFFERENCE_MAX: f64 = 0.025;

/// A deterministic random number generator (xorshift64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    fn below_u32(&mut self, end: u32) -> u32 {
        u32::try_from(self.below(end.into())).unwrap()
    }

    /// Returns `value` half of the time.
    fn maybe<T>(&mut self, value: T) -> Option<T> {
        (self.below(2) == 0).then_some(value)
    }
}

fn entry(number: u64, since: u64, random: &mut Random) -> Entry {
    let time_unix_us = since * 1_000_000 + random.below(900_000_000);
    // Give some networks few records, so that the rank chosen for a percentile matters.
    let network = if number < 100 { 100 + number / 10 } else { random.below(5) };
    let client = format!("10.0.{network}.{}:443", random.below(200)).parse().unwrap();
    let record = match random.below(10) {
        0 => Record::Loss(LossRecord { time_unix_us, stage: Stage::Edge, records: random.below(50) }),
        1..5 => Record::Response(Arc::new(response(client, time_unix_us, random))),
        _ => Record::Socket(Box::new(socket(client, time_unix_us, random))),
    };
    let asn = random.below_u32(3);
    let network = Network { asn: random.maybe(64_500 + asn), region: random.maybe(Arc::from("DE")) };
    Entry { number, network, record }
}

fn socket(client: std::net::SocketAddr, time_unix_us: u64, random: &mut Random) -> SocketRecord {
    let gauges = Gauges {
        rtt_us: 5_000 + random.below_u32(50_000),
        min_rtt_us: Some(5_000),
        delivery_rate_bytes_per_s: Some(1_000_000 + random.below(50_000_000)),
        delivery_rate_app_limited: random.below(4) == 0,
        ..Gauges::default()
    };
    let counters = Counters {
        bytes_acked: random.below(1_000_000),
        segs_out: 1_000,
        retransmits: random.below_u32(50),
        ..Counters::default()
    };
    let congestion_control = random.maybe("bbr".to_owned());
    SocketRecord {
        cookie: 1,
        congestion_control,
        gauges: Some(gauges),
        counters: random.maybe(counters),
        ..SocketRecord::new(time_unix_us, client, "192.0.2.1:80".parse().unwrap())
    }
}

fn response(client: std::net::SocketAddr, time_unix_us: u64, random: &mut Random) -> ResponseRecord {
    let ttfb_us = 500 + random.below(20_000);
    let has_reached_hd = random.below(3) > 0;
    let delivery = Delivery {
        reached_hd: random.maybe(has_reached_hd),
        ..Delivery::complete(90_000 + random.below(100_000), 90_000 + random.below(20_000))
    };
    let min_rtt_us = random.below_u32(50_000);
    let tcp = TcpState {
        congestion_control: "bbr".to_owned(),
        min_rtt_us: random.maybe(min_rtt_us),
        ..TcpState::default()
    };
    ResponseRecord {
        host: "media.example".into(),
        path: "/a".into(),
        status: if random.below(10) == 0 { 503 } else { 200 },
        bytes: 90_000 + random.below(100_000),
        ttfb_us: random.maybe(ttfb_us),
        written_us: 90_000 + random.below(20_000),
        delivery: Some(delivery),
        protocol: Protocol::ALL[0],
        cut: random.maybe(Cut::ALL[0]),
        tcp: random.maybe(tcp),
        sample_one_in: NonZeroU32::new(random.below_u32(5)),
        ..ResponseRecord::new(time_unix_us, client)
    }
}

/// Returns whether two cells agree: percentiles approximately, everything else exactly.
fn agree(column: &str, left: &Value, right: &Value) -> bool {
    match (left.as_f64(), right.as_f64()) {
        (Some(left), Some(right)) if column.starts_with('p') => {
            (left - right).abs() <= DIFFERENCE_MAX * left.max(right)
        }
        (Some(left), Some(right)) => (left - right).abs() < 1e-6 * left.abs().max(1.0),
        _ => left == right,
    }
}

/// A SQLite file, removed at the end of the test.
struct Database(PathBuf);

impl Database {
    fn of(batch: &Batch, name: &str) -> Self {
        let file = format!("thalweg-queries-{name}-{}.sqlite", std::process::id());
        let it = Self(std::env::temp_dir().join(file));
        let age = Duration::from_secs(1_000_000);
        let retention = Retention { records: age, aggregates: age, total_bytes: 1 << 30 };
        SqliteSink::open(&it.0, retention).unwrap().store(batch).unwrap();
        it
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        for suffix in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{suffix}", self.0.display()));
        }
    }
}

#[test]
fn queries_agree_between_sqlite_and_clickhouse() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let since = now / 300 * 300 - 1_200;
    let mut random = Random(SEED);
    let entries = (0..RECORDS).map(|number| entry(number, since, &mut random)).collect();
    let batch = Batch { source: Source { host: "alpha".into(), pop: "fra".into(), epoch: 1 }, entries };

    let clickhouse = services::ClickHouse::start();
    let server = Server::at(&clickhouse.url()).unwrap();
    schema::apply(&server).unwrap();
    ClickHouseSink::at(&clickhouse.url()).unwrap().store(&batch).unwrap();
    let file = Database::of(&batch, "agree");

    for query in QUERIES {
        let kinds = if query.has_by() { &By::ALL[..] } else { &By::ALL[..1] };
        for &by in kinds {
            let parameters = Parameters { since, until: now + 300, by };
            let left = query.ask_sqlite(&file.0, &parameters).unwrap();
            let right = query.ask_clickhouse(&server, &parameters).unwrap();
            assert_eq!(left.columns, right.columns, "{} by {by:?}", query.name);
            assert!(!left.rows.is_empty(), "{} must have rows", query.name);
            assert_eq!(left.rows.len(), right.rows.len(), "{} by {by:?}: {left:?} {right:?}", query.name);
            let order_is_by_percentile = query.name == "slowest_prefixes";
            let sorted = |mut rows: Vec<Vec<Value>>| {
                if order_is_by_percentile {
                    rows.sort_by_key(|row| row[0].to_string());
                }
                rows
            };
            for (left_row, right_row) in sorted(left.rows).iter().zip(&sorted(right.rows)) {
                for ((column, left), right) in left.columns.iter().zip(left_row).zip(right_row) {
                    assert!(
                        agree(column, left, right),
                        "{} by {by:?}: {left_row:?} {right_row:?}",
                        query.name
                    );
                }
            }
        }
    }
}

const SAMPLE_ONE_IN: u32 = 10;
const SAMPLED_NETWORKS: u8 = 12;
const CLIENTS_PER_NETWORK: u8 = 250;

/// Responses of one client, and whether it is in the sample.
struct Client {
    network: u8,
    is_sampled: bool,
    responses: Vec<ResponseRecord>,
}

/// Creates clients whose numbers of responses and TTFBs differ much from each other.
fn clients(time_unix_us: u64, random: &mut Random) -> Vec<Client> {
    let networks =
        (0..SAMPLED_NETWORKS).flat_map(|network| (0..CLIENTS_PER_NETWORK).map(move |host| (network, host)));
    let mut one = |(network, host): (u8, u8)| {
        let scale = 1 + random.below(20);
        let mut response = || ResponseRecord {
            ttfb_us: Some(1_000 * scale + random.below(1_000)),
            ..response(([10, 1, network, host], 443).into(), time_unix_us, random)
        };
        let responses = (0..scale).map(|_| ResponseRecord { sample_one_in: None, ..response() }).collect();
        Client { network, is_sampled: random.below(SAMPLE_ONE_IN.into()) == 0, responses }
    };
    networks.map(&mut one).collect()
}

/// Checks an estimate from the sample. Its variance is that of a Bernoulli sample of clients, of
/// which each adds one of `parts` to the total.
fn check_estimate(what: &str, estimate: f64, parts: &[f64]) {
    let total: f64 = parts.iter().sum();
    let variance = f64::from(SAMPLE_ONE_IN - 1) * parts.iter().map(|part| part * part).sum::<f64>();
    let errors = (estimate - total) / variance.sqrt();
    assert!(errors.abs() < 4.0, "{what}: {estimate} instead of {total}, {errors:.1} standard errors");
}

/// Responses and bytes by network, and percentiles of TTFB, from all clients and from a sample.
#[test]
fn weighted_sums_match_those_of_all_clients() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let since = now / 300 * 300 - 600;
    let clients = clients(since * 1_000_000, &mut Random(SEED));
    let one_in = NonZeroU32::new(SAMPLE_ONE_IN);
    let sampled = clients.iter().filter(|client| client.is_sampled).flat_map(|client| &client.responses);
    let entries = sampled.zip(0..).map(|(response, number)| {
        let response = ResponseRecord { sample_one_in: one_in, ..response.clone() };
        Entry { number, network: Network::default(), record: Record::Response(Arc::new(response)) }
    });
    let entries: Vec<_> = entries.collect();
    let all = clients.iter().map(|client| client.responses.len()).sum::<usize>();
    assert!((all / 20..all / 5).contains(&entries.len()), "{} of {all}", entries.len());
    let batch = Batch { source: Source { host: "alpha".into(), pop: "fra".into(), epoch: 1 }, entries };
    let file = Database::of(&batch, "sampled");
    let clickhouse = services::ClickHouse::start();
    let server = Server::at(&clickhouse.url()).unwrap();
    schema::apply(&server).unwrap();
    ClickHouseSink::at(&clickhouse.url()).unwrap().store(&batch).unwrap();

    let parameters = Parameters { since, until: now, by: By::Prefix };
    let named = |name: &str| QUERIES.into_iter().find(|query| query.name == name).unwrap();
    let from_sqlite = |name: &str| named(name).ask_sqlite(&file.0, &parameters).unwrap();
    let from_clickhouse = |name: &str| named(name).ask_clickhouse(&server, &parameters).unwrap();
    for ask in [&from_sqlite as &dyn Fn(&str) -> Answer, &from_clickhouse] {
        check_networks(&clients, &ask("goodput"));
        check_ttfb(&clients, &ask("ttfb"));
    }
}

/// Checks the responses and bytes of each network.
fn check_networks(clients: &[Client], answer: &Answer) {
    assert_eq!(&answer.columns[..3], ["prefix", "responses", "bytes"]);
    let rows: HashMap<_, _> = answer.rows.iter().map(|row| (row[0].as_str().unwrap(), row)).collect();
    assert_eq!(rows.len(), usize::from(SAMPLED_NETWORKS));
    for network in 0..SAMPLED_NETWORKS {
        let row = rows[format!("10.1.{network}.0/24").as_str()];
        let of_network = || clients.iter().filter(|client| client.network == network);
        let responses: Vec<_> = of_network().map(|client| client.responses.len() as f64).collect();
        check_estimate("responses", row[1].as_f64().unwrap(), &responses);
        let bytes = |client: &Client| client.responses.iter().map(|it| it.bytes as f64).sum();
        let bytes: Vec<f64> = of_network().map(bytes).collect();
        check_estimate("bytes", row[2].as_f64().unwrap(), &bytes);
    }
}

/// Checks the rank, among all responses, of each percentile of the sample.
fn check_ttfb(clients: &[Client], answer: &Answer) {
    assert_eq!(answer.columns, ["window", "responses", "p50_us", "p95_us", "p99_us"]);
    assert_eq!(answer.rows.len(), 1);
    for (value, q) in answer.rows[0][2..].iter().zip([0.5, 0.95, 0.99]) {
        let value = value.as_f64().unwrap();
        // The percentile itself may be off by 1 %.
        let excess = |bound: f64| -> Vec<f64> {
            let below = |client: &Client| {
                let ttfbs = client.responses.iter().filter_map(|it| it.ttfb_us);
                ttfbs.map(|ttfb_us| f64::from(u8::from((ttfb_us as f64) < bound)) - q).sum()
            };
            clients.iter().map(below).collect()
        };
        let (low, high) = (excess(value * 0.98), excess(value * 1.02));
        let errors = |parts: &[f64]| {
            let variance = f64::from(SAMPLE_ONE_IN - 1) * parts.iter().map(|part| part * part).sum::<f64>();
            parts.iter().sum::<f64>() / variance.sqrt()
        };
        assert!(errors(&low) < 4.0 && errors(&high) > -4.0, "p{}: {value}", 100.0 * q);
    }
}
