//! Measures the controller's intake of one window's records, from a site with [`PREFIXES`] client
//! networks and [`CONNECTIONS`] connections. The records are first added to windows directly, where
//! the window is then closed and decided, and then sent to a controller by `POST /records`.
//!
//! ```text
//! make bench-intake
//! ```
//!
//! Each connection has [`SAMPLES`] samples of its socket and one response, which is steered, held
//! out or neither. The first rows show this process's CPU time, excluding the generation of
//! records. The last row shows the controller's CPU time, including the reading of records from the
//! network. Memory is the increase in resident memory.

#[path = "support/mod.rs"]
mod support;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, ensure};
use rustix::time::{ClockId, clock_gettime};
use support::Scratch;
use thalweg_control::{Collector, Moment, Settings, State, decide};
use thalweg_record::{
    Batch, Counters, Decider, Delivery, Entry, Gauges, Network, Record, ResponseRecord, SocketRecord, Source,
    Steered, TcpState,
};
use thalweg_telemetry::ControllerSink;
use thalweg_telemetry::Sink;

const PREFIXES: u32 = 50_000;
const CONNECTIONS: u64 = 500_000;
/// Samples per connection: one per minute of the window.
const SAMPLES: u64 = 5;
/// Records per connection.
const EACH: u64 = SAMPLES + 1;
const RECORDS: u64 = CONNECTIONS * EACH;
/// Duration of a response: one second, so that its size in bytes is also its goodput.
const RESPONSE_US: u64 = 1_000_000;
/// Records per batch, as in a dump of a busy server.
const BATCH_RECORDS: u64 = 10_000;
/// Minimum number of records per second: ten times the rate at which the window fills.
const PER_S_MIN: f64 = 10.0 * RECORDS as f64 / 300.0;

fn main() -> anyhow::Result<()> {
    println!(
        "{RECORDS} records, {CONNECTIONS} connections, {PREFIXES} client networks; at least {PER_S_MIN:.0} records/s"
    );
    println!("{:<24} {:>12} {:>16} {:>10}", "", "records/s", "CPU us/record", "MB");
    let alone = into_windows();
    let posted = into_controller()?;
    ensure!(alone >= PER_S_MIN && posted >= PER_S_MIN, "intake is slower than {PER_S_MIN:.0} records/s");
    Ok(())
}

/// Adds the records to windows and returns the number of records per second of CPU time.
fn into_windows() -> f64 {
    let settings = Settings::default();
    let now_unix_s = 1_800_000_000;
    let before_bytes = support::own_rss_bytes();
    let mut collector = Collector::new(settings.clone(), 1);
    let mut took = Duration::ZERO;
    for number in (0..RECORDS).step_by(BATCH_RECORDS as usize) {
        let batch = batch(number, now_unix_s * 1_000_000);
        took += timed(|| {
            for entry in &batch.entries {
                collector.add(&batch.source, entry, now_unix_s);
            }
        });
    }
    let per_s = row("windows", took, support::own_rss_bytes().saturating_sub(before_bytes));
    assert_eq!(collector.counts(), Default::default(), "all records must be accepted");
    let later_unix_s = now_unix_s + settings.window_s + settings.late_s;
    let mut closed = Vec::new();
    let closing = timed(|| closed = collector.close(later_unix_s));
    row("windows, with closing", took + closing, support::own_rss_bytes().saturating_sub(before_bytes));
    let closed = closed.pop().expect("the window has ended, so the collector closes it");
    let (_, window) = &closed.windows[0];
    assert_eq!((window.prefixes.len(), window.records), (PREFIXES as usize, RECORDS));
    let moment = Moment { now_unix_s: later_unix_s, seed: 1, acknowledged_bundle: 0 };
    let mut ranked = 0;
    let deciding = timed(|| ranked = decide(&settings, &State::default(), window, moment).1.ranked);
    assert_eq!(ranked, PREFIXES as usize);
    println!(
        "closing takes {:.2} s of CPU time, the first decision {:.2} s",
        closing.as_secs_f64(),
        deciding.as_secs_f64()
    );
    per_s
}

/// Sends the records to a controller and returns the number of records per second of controller CPU
/// time.
fn into_controller() -> anyhow::Result<f64> {
    let directory = Scratch::new(&std::env::temp_dir(), "intake")?;
    let database = directory.0.join("control.sqlite");
    let database = database.to_str().context("database path is not UTF-8")?;
    let controller =
        support::start_thalweg(&["controller", "run", "--listen", "127.0.0.1:0", "--database", database])?;
    let mut sink = ControllerSink::at(&format!("http://{}", controller.address), None, None)?;
    let (before_ns, before_bytes) = (controller.cpu_ns(), controller.rss_bytes());
    for number in (0..RECORDS).step_by(BATCH_RECORDS as usize) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
        sink.store(&batch(number, u64::try_from(now.as_micros())?))?;
    }
    let took = Duration::from_nanos(controller.cpu_ns() - before_ns);
    Ok(row("POST /records", took, controller.rss_bytes().saturating_sub(before_bytes)))
}

fn row(name: &str, took: Duration, bytes: u64) -> f64 {
    let per_s = RECORDS as f64 / took.as_secs_f64();
    println!("{name:<24} {per_s:>12.0} {:>16.2} {:>10}", 1e6 / per_s, bytes >> 20);
    per_s
}

/// Runs `work` and returns the CPU time spent on it by this thread.
fn timed(work: impl FnOnce()) -> Duration {
    let now =
        || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).expect("the CPU clock is monotonic");
    let start = now();
    work();
    now() - start
}

/// Creates a batch of the records from number `first` on, all with the same timestamp. Each
/// connection has one record before any connection has its next one.
fn batch(first: u64, time_unix_us: u64) -> Batch {
    let record = |number: u64| {
        let (round, connection) = (number / CONNECTIONS, number % CONNECTIONS);
        let prefix = (connection % u64::from(PREFIXES)) as u32;
        let port = 1024 + (connection / u64::from(PREFIXES)) as u16;
        let client = SocketAddr::from((Ipv4Addr::from_bits(0x6400_0007 + (prefix << 8)), port));
        let rate = 100_000 + (connection * 7_919 + round * 104_729) % 4_000_000;
        let record = if round < SAMPLES {
            Record::Socket(Box::new(socket(time_unix_us, client, rate)))
        } else {
            Record::Response(Arc::new(response(time_unix_us, client, rate, connection % 3)))
        };
        Entry { number, network: Network::default(), record }
    };
    let source = Source { host: "edge-1".into(), pop: "fra1".into(), epoch: 1 };
    Batch { source, entries: (first..first + BATCH_RECORDS).map(record).collect() }
}

fn socket(time_unix_us: u64, client: SocketAddr, rate: u64) -> SocketRecord {
    SocketRecord {
        cookie: rate,
        state: "ESTAB".to_owned(),
        interval_us: Some(60_000_000),
        congestion_control: Some("cubic".to_owned()),
        gauges: Some(Gauges {
            rtt_us: 40_000,
            min_rtt_us: Some(30_000),
            snd_cwnd: 40,
            delivery_rate_bytes_per_s: Some(rate),
            ..Gauges::default()
        }),
        counters: Some(Counters { bytes_sent: rate, bytes_retrans: rate / 100, ..Counters::default() }),
        ..SocketRecord::new(time_unix_us, client, ([192, 0, 2, 1], 443).into())
    }
}

/// Creates a response. `arm` is 0 if steered, 1 if held out, 2 if neither.
fn response(end_unix_us: u64, client: SocketAddr, rate: u64, arm: u64) -> ResponseRecord {
    let steered = Steered {
        bundle: 7,
        rule: Some("100.0.0.0/24".to_owned()),
        is_holdout: arm == 1,
        ..Steered::default()
    };
    ResponseRecord {
        host: "media.example".to_owned(),
        path: "/live/channel-1/v3/1.m4s".to_owned(),
        bytes: rate,
        ttfb_us: Some(1_000),
        written_us: RESPONSE_US,
        delivery: Some(Delivery::complete(rate, RESPONSE_US)),
        tcp: Some(TcpState {
            congestion_control: "cubic".to_owned(),
            decider: Some(if arm == 0 { Decider::Rule } else { Decider::Default }),
            rtt_us: 40_000,
            min_rtt_us: Some(30_000),
            snd_cwnd: 40,
            ..TcpState::default()
        }),
        steered: (arm < 2).then_some(steered),
        ..ResponseRecord::new(end_unix_us - RESPONSE_US, client)
    }
}
