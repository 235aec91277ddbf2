//! Measures the path of records through the spool into each sink: records per second, and this
//! process's CPU time per record, including encoding and reading back.
//!
//! ```text
//! make bench-telemetry
//! make bench-telemetry CASES=kafka
//! ```
//!
//! Each case appends the same records in batches, as fast as the spool accepts them, while one sink
//! stores them. The case ends when the last record is stored. Four of five records are socket
//! samples, the others are responses. The records come from [`FEW`] or [`MANY`] client networks
//! over half an hour, so the five-minute aggregates change constantly. Kafka and ClickHouse are
//! real services on the same cores. They limit the rate, but their CPU time is not counted.

#[path = "telemetry/sinks.rs"]
mod sinks;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, ensure};
use rustix::time::{ClockId, clock_gettime};
use thalweg_record::{Network, Record};
use thalweg_telemetry::Sink;
use thalweg_telemetry::runner::Runner;
use thalweg_telemetry::spool::{Limits, Spool};
use thalweg_tests::records;
use thalweg_tests::services::{ClickHouse, Kafka};

/// Records per case.
const RECORDS: u64 = 400_000;
/// Time between two records; all records together span half an hour.
const STEP_US: u64 = 1_800_000_000 / RECORDS;
/// Records per append, as in a dump of a busy server.
const APPEND_RECORDS: u64 = 10_000;
/// Numbers of client networks: one as large as a site serves at a time, the other too large for the
/// SQLite sink to keep all aggregates in memory.
const FEW: u64 = 1_000;
const MANY: u64 = 50_000;
/// Maximum time for a service to store the records of a case.
const KEPT_AFTER_MAX: Duration = Duration::from_secs(600);
/// Minimum number of records per second.
const SQLITE_PER_S_MIN: f64 = 50_000.0;
const KAFKA_PER_S_MIN: f64 = 100_000.0;

fn main() -> anyhow::Result<()> {
    // Cargo passes `--bench`.
    let selected: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let is_selected = |group: &str| selected.is_empty() || selected.iter().any(|word| word == group);
    println!("{RECORDS} records, appended {APPEND_RECORDS} at a time");
    println!("{:<36} {:>12} {:>12} {:>16}", "", "records/s", "at least", "CPU us/record");
    let mut report = Report::default();
    if is_selected("files") {
        files(&mut report)?;
    }
    if is_selected("kafka") {
        kafka(&mut report)?;
    }
    if is_selected("clickhouse") {
        let server = ClickHouse::start();
        let open = |_: &Path| sinks::clickhouse(&server);
        report.row("clickhouse", None, &through_spool(FEW, Some(&open))?);
    }
    ensure!(report.below.is_empty(), "slower than intended: {}", report.below.join(", "));
    Ok(())
}

/// Runs the cases that need no service.
fn files(report: &mut Report) -> anyhow::Result<()> {
    let alone = through_spool(FEW, None)?;
    report.row("spool alone", None, &alone);
    let sqlite = |prefixes| through_spool(prefixes, Some(&sinks::sqlite));
    report.row("sqlite, 1,000 networks", Some(SQLITE_PER_S_MIN), &sqlite(FEW)?);
    report.row("sqlite, 50,000 networks", Some(SQLITE_PER_S_MIN), &sqlite(MANY)?);
    report.row("json lines", None, &through_spool(FEW, Some(&sinks::json))?);
    report.row("parquet", None, &through_spool(FEW, Some(&sinks::parquet))?);
    println!("{:.1} bytes a record in the spool", alone.spool_bytes as f64 / RECORDS as f64);
    Ok(())
}

/// Runs the cases that write to Kafka and, from there, to ClickHouse.
fn kafka(report: &mut Report) -> anyhow::Result<()> {
    let kafka = Kafka::start();
    // Warm up the broker first: on few cores, its JIT compilation slows down the first records.
    let warm = |_: &Path| Ok(sinks::kafka(&kafka, "warm"));
    through_spool(FEW, Some(&warm))?;
    for (name, topic, prefixes) in
        [("kafka, 1,000 networks", "few", FEW), ("kafka, 50,000 networks", "many", MANY)]
    {
        let open = |_: &Path| Ok(sinks::kafka(&kafka, topic));
        report.row(name, Some(KAFKA_PER_S_MIN), &through_spool(prefixes, Some(&open))?);
    }
    for (name, topic) in [("consumer, 1,000 networks", "few"), ("consumer, 50,000 networks", "many")] {
        let server = ClickHouse::start();
        let mut consumer = sinks::Consuming::of(&kafka, topic, &server)?;
        report.row(name, None, &timed(|| consumer.until(RECORDS, KEPT_AFTER_MAX))?);
    }
    Ok(())
}

/// The cost of a case.
struct Took {
    elapsed: Duration,
    cpu: Duration,
    /// Size of the spool at the end.
    spool_bytes: u64,
}

/// Prints the rows, and collects the names of cases below their minimum.
#[derive(Default)]
struct Report {
    below: Vec<&'static str>,
}

impl Report {
    fn row(&mut self, name: &'static str, per_s_min: Option<f64>, took: &Took) {
        let per_s = RECORDS as f64 / took.elapsed.as_secs_f64();
        let cpu_us = took.cpu.as_secs_f64() * 1e6 / RECORDS as f64;
        let least = per_s_min.map_or("-".into(), |least| format!("{least:.0}"));
        println!("{name:<36} {per_s:>12.0} {least:>12} {cpu_us:>16.2}");
        if per_s_min.is_some_and(|least| per_s < least) {
            self.below.push(name);
        }
    }
}

/// A function that opens a case's sink, with its files in the given directory.
type Open<'a> = &'a dyn Fn(&Path) -> anyhow::Result<Box<dyn Sink>>;

/// Appends the records to a spool while a sink, if any, stores them.
fn through_spool(prefixes: u64, open: Option<Open<'_>>) -> anyhow::Result<Took> {
    let dir = Dir::new()?;
    let begin_us = u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros())?;
    let spool = Spool::open(&dir.0.join("spool"), Limits { total_bytes: 1 << 30 }, "edge-1", "fra")?;
    let runner = open.map(|open| anyhow::Ok(Runner::start(&spool, open(&dir.0)?)?)).transpose()?;
    let record = |number| records::record(number, prefixes, begin_us + number * STEP_US);
    let appends: Vec<Vec<(Network, Record)>> = (0..RECORDS / APPEND_RECORDS)
        .map(|at| (at * APPEND_RECORDS..(at + 1) * APPEND_RECORDS).map(record).collect())
        .collect();
    let mut spool_bytes = 0;
    let mut took = timed(|| {
        let lost: u64 = appends.into_iter().map(|records| spool.append(records, begin_us).lost).sum();
        ensure!(lost == 0, "{lost} records were lost");
        spool_bytes = spool.total_bytes();
        let Some(runner) = runner else { return Ok(()) };
        spool.close(KEPT_AFTER_MAX);
        let state = Arc::clone(runner.state());
        runner.join();
        let (kept, error) = (state.stored(), state.error());
        ensure!(kept == RECORDS, "{} stored {kept} of {RECORDS} records: {error:?}", state.name());
        Ok(())
    })?;
    took.spool_bytes = spool_bytes;
    Ok(took)
}

fn timed(work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<Took> {
    let (begin, cpu) = (Instant::now(), cpu_time());
    work()?;
    Ok(Took { elapsed: begin.elapsed(), cpu: cpu_time() - cpu, spool_bytes: 0 })
}

/// Returns the CPU time of all threads of this process.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A directory removed on drop.
struct Dir(PathBuf);

impl Dir {
    fn new() -> anyhow::Result<Self> {
        let dir = std::env::temp_dir().join(format!("thalweg-bench-telemetry-{}", std::process::id()));
        std::fs::create_dir(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        Ok(Self(dir))
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
