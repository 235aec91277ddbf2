//! The predefined queries must give the same results in SQLite and in ClickHouse on the same
//! records.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use thalweg_record::{
    Batch, Counters, Cut, Delivery, Entry, Gauges, LossRecord, Network, Protocol, Record, ResponseRecord,
    SocketRecord, Source, Stage, TcpState,
};
use thalweg_telemetry::clickhouse::Server;
use thalweg_telemetry::query::{By, Parameters, QUERIES};
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
    let file = std::env::temp_dir().join(format!("thalweg-queries-{}.sqlite", std::process::id()));
    let age = Duration::from_secs(1_000_000);
    let retention = Retention { records: age, aggregates: age, total_bytes: 1 << 30 };
    SqliteSink::open(&file, retention).unwrap().store(&batch).unwrap();

    for query in QUERIES {
        let kinds = if query.has_by() { &By::ALL[..] } else { &By::ALL[..1] };
        for &by in kinds {
            let parameters = Parameters { since, until: now + 300, by };
            let left = query.ask_sqlite(&file, &parameters).unwrap();
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
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{suffix}", file.display()));
    }
}
