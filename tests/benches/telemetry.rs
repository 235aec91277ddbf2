//! Records through the spool into each sink: how many a second, and what CPU time each takes, encoding and reading back included.
//!
//! Each case appends the same records in batches, as fast as the spool takes them, while one sink keeps them, and ends when the
//! last one is kept. Four of five records are samples of sockets, the others responses, of [`PREFIXES`] client networks over
//! half an hour: the aggregates of five minutes change all the time.

#[path = "telemetry/records.rs"]
mod records;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use rustix::time::{ClockId, clock_gettime};
use thalweg_record::{Network, Record};
use thalweg_telemetry::Sink;
use thalweg_telemetry::runner::Runner;
use thalweg_telemetry::sink::json::{JsonSink, Rotation};
use thalweg_telemetry::sink::parquet::{Gathering, ParquetSink};
use thalweg_telemetry::sink::sqlite::{Retention, SqliteSink};
use thalweg_telemetry::spool::{Limits, Spool};

/// Records of a case.
const RECORDS: u64 = 400_000;
/// Records of one append: a dump of a busy server.
const APPEND_RECORDS: u64 = 10_000;
/// Client networks.
const PREFIXES: u64 = 2_000;

/// What keeps the records of a case, in a directory of its own.
type Open = fn(&Path) -> anyhow::Result<Box<dyn Sink>>;

/// The sinks, each with what it has to do a second at least. Those that need a service begin it in `open`.
const SINKS: [(&str, Open, Option<f64>); 3] = [
    ("sqlite, with aggregates", sqlite, Some(50_000.0)),
    ("json lines", json, None),
    ("parquet", parquet, None),
];

fn main() -> anyhow::Result<()> {
    println!("{RECORDS} records of {PREFIXES} client networks, appended {APPEND_RECORDS} at a time");
    println!("{:<28} {:>12} {:>16} {:>16}", "", "records/s", "CPU us/record", "spool B/record");
    measure("spool alone", None)?;
    let mut below = Vec::new();
    for (name, open, least_per_s) in SINKS {
        let per_s = measure(name, Some(open))?;
        if least_per_s.is_some_and(|least| per_s < least) {
            below.push(name);
        }
    }
    ensure!(below.is_empty(), "slower than intended: {}", below.join(", "));
    Ok(())
}

/// Runs a case and prints its line; gives records per second.
fn measure(name: &str, open: Option<Open>) -> anyhow::Result<f64> {
    let dir = Dir::new()?;
    let spool = Spool::open(&dir.0.join("spool"), Limits { total_bytes: 1 << 30 }, "edge-1", "fra")?;
    let runner = open.map(|open| anyhow::Ok(Runner::start(&spool, open(&dir.0)?)?)).transpose()?;
    let appends: Vec<Vec<(Network, Record)>> = (0..RECORDS / APPEND_RECORDS)
        .map(|at| (at * APPEND_RECORDS..(at + 1) * APPEND_RECORDS).map(records::record).collect())
        .collect();
    let (begin, cpu) = (Instant::now(), cpu_time());
    let lost: u64 = appends.into_iter().map(|records| spool.append(records, records::TIME_US).lost).sum();
    let spool_bytes = spool.total_bytes();
    if let Some(runner) = runner {
        spool.close(Duration::from_secs(600));
        let state = Arc::clone(runner.state());
        runner.join();
        ensure!(state.kept() == RECORDS, "{name} kept {} of {RECORDS}: {:?}", state.kept(), state.error());
    }
    let (elapsed, cpu) = (begin.elapsed(), cpu_time() - cpu);
    ensure!(lost == 0, "{lost} records were lost");
    let per_s = RECORDS as f64 / elapsed.as_secs_f64();
    let cpu_us = cpu.as_secs_f64() * 1e6 / RECORDS as f64;
    let bytes =
        if open.is_none() { format!("{:.1}", spool_bytes as f64 / RECORDS as f64) } else { "-".into() };
    println!("{name:<28} {per_s:>12.0} {cpu_us:>16.2} {bytes:>16}");
    Ok(per_s)
}

fn sqlite(dir: &Path) -> anyhow::Result<Box<dyn Sink>> {
    let keep = Duration::from_secs(365 * 24 * 3600 * 10);
    let retention = Retention { records: keep, aggregates: keep, total_bytes: u64::MAX };
    Ok(Box::new(SqliteSink::open(&dir.join("telemetry.sqlite"), retention)?))
}

fn json(dir: &Path) -> anyhow::Result<Box<dyn Sink>> {
    let rotation = Rotation { file_bytes: 256 << 20, age: Duration::from_secs(3600), total_bytes: None };
    Ok(Box::new(JsonSink::open(&dir.join("lines"), rotation)?))
}

fn parquet(dir: &Path) -> anyhow::Result<Box<dyn Sink>> {
    let gathering =
        Gathering { rows: 100_000, bytes: 128 << 20, age: Duration::from_secs(60), total_bytes: None };
    Ok(Box::new(ParquetSink::open(&dir.join("parquet"), gathering)?))
}

/// CPU time of this process, of all threads.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A directory that goes with the case.
struct Dir(PathBuf);

impl Dir {
    fn new() -> anyhow::Result<Self> {
        let dir = std::env::temp_dir().join(format!("thalweg-bench-telemetry-{}", std::process::id()));
        std::fs::create_dir(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        Ok(Self(dir))
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
