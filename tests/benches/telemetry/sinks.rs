//! The measured sinks, with the defaults of `thalweg agent` and `thalweg consumer` where they
//! matter.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::ensure;
use thalweg_kafka::Cluster;
use thalweg_telemetry::Sink;
use thalweg_telemetry::clickhouse::Server;
use thalweg_telemetry::consumer::{Consumer, Limits};
use thalweg_telemetry::schema;
use thalweg_telemetry::sink::json::{JsonSink, Rotation};
use thalweg_telemetry::sink::parquet::{Gathering, ParquetSink};
use thalweg_telemetry::sink::sqlite::{Retention, SqliteSink};
use thalweg_telemetry::{ClickHouseSink, KafkaSink};
use thalweg_tests::services::{ClickHouse, Kafka};

/// Partitions of a topic created by the agent.
const PARTITIONS: u16 = 12;
/// Interval between checks of the consumer's progress.
const LOOK: Duration = Duration::from_millis(5);

pub(crate) fn sqlite(dir: &Path) -> anyhow::Result<Box<dyn Sink>> {
    let keep = Duration::from_secs(365 * 24 * 3600 * 10);
    let retention = Retention { records: keep, aggregates: keep, total_bytes: u64::MAX };
    Ok(Box::new(SqliteSink::open(&dir.join("telemetry.sqlite"), retention)?))
}

pub(crate) fn json(dir: &Path) -> anyhow::Result<Box<dyn Sink>> {
    let rotation = Rotation { file_bytes: 256 << 20, age: Duration::from_secs(3600), total_bytes: None };
    Ok(Box::new(JsonSink::open(&dir.join("lines"), rotation)?))
}

pub(crate) fn parquet(dir: &Path) -> anyhow::Result<Box<dyn Sink>> {
    let gathering =
        Gathering { rows: 100_000, bytes: 128 << 20, age: Duration::from_secs(60), total_bytes: None };
    Ok(Box::new(ParquetSink::open(&dir.join("parquet"), gathering)?))
}

pub(crate) fn kafka(kafka: &Kafka, topic: &str) -> Box<dyn Sink> {
    Box::new(KafkaSink::new(cluster(kafka, topic), Some(PARTITIONS)))
}

pub(crate) fn clickhouse(server: &ClickHouse) -> anyhow::Result<Box<dyn Sink>> {
    schema::apply(&Server::at(&server.url())?)?;
    Ok(Box::new(ClickHouseSink::at(&server.url())?))
}

fn cluster(kafka: &Kafka, topic: &str) -> Cluster {
    Cluster { brokers: kafka.brokers(), topic: topic.into(), properties: Vec::new() }
}

/// A consumer that has joined its group.
pub(crate) struct Consuming {
    consumer: Consumer,
}

impl Consuming {
    pub(crate) fn of(kafka: &Kafka, topic: &str, server: &ClickHouse) -> anyhow::Result<Self> {
        let server = Server::at(&server.url())?;
        schema::apply(&server)?;
        let limits = Limits { rows_max: 200_000, wait_max: Duration::from_secs(1) };
        Ok(Self { consumer: Consumer::join(&cluster(kafka, topic), "bench", server, limits)? })
    }

    /// Runs the consumer until the tables contain `records` records.
    pub(crate) fn until(&mut self, records: u64, within: Duration) -> anyhow::Result<()> {
        let figures = Arc::clone(self.consumer.figures());
        let (stop, end) = (AtomicBool::new(false), Instant::now() + within);
        thread::scope(|scope| {
            scope.spawn(|| self.consumer.run(&stop));
            while figures.records.get() < records && Instant::now() < end {
                thread::sleep(LOOK);
            }
            stop.store(true, Relaxed);
        });
        let (kept, failures) = (figures.records.get(), figures.failures.get());
        ensure!(kept == records, "the consumer stored {kept} of {records} records, with {failures} failures");
        Ok(())
    }
}
