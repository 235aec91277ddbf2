//! `thalweg consumer`: from Kafka to ClickHouse until it is told to stop, with its figures for Prometheus at `/metrics`.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use anyhow::Context;
use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use thalweg_telemetry::clickhouse::Server;
use thalweg_telemetry::consumer::{Consumer, Figures, Limits};
use thalweg_telemetry::kafka::Cluster;
use tokio::net::TcpListener;

use crate::cli::ConsumerFlags;
use crate::shutdown::Signals;

/// Runs until a signal. What was read and not inserted is read again by whoever comes next.
///
/// # Errors
/// When an address cannot be bound, or a URL or a property is wrong.
pub(crate) fn run(flags: ConsumerFlags) -> anyhow::Result<()> {
    let server = Server::at(&flags.clickhouse)?;
    let cluster = Cluster { brokers: flags.kafka, topic: flags.topic, properties: flags.kafka_set };
    let limits = Limits { rows_max: flags.block_rows, wait_max: flags.block_wait.duration };
    let mut consumer = Consumer::join(&cluster, &flags.group, server, limits)?;
    let figures = Arc::clone(consumer.figures());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut signals, listener) = runtime.block_on(async {
        let listener = match flags.metrics {
            Some(addr) => Some(bind(addr).await?),
            None => None,
        };
        anyhow::Ok((Signals::catch()?, listener))
    })?;
    let stop = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&stop);
    let thread = thread::Builder::new().name("consumer".into()).spawn(move || consumer.run(&asked))?;
    tracing::info!(topic = cluster.topic, group = flags.group, "reading");
    let served = runtime.block_on(async {
        tokio::select! {
            served = serve(listener, figures) => served,
            () = signals.next() => Ok(()),
        }
    });
    stop.store(true, Relaxed);
    thread.join().map_err(|_| anyhow::anyhow!("the consumer's thread has panicked"))?;
    Ok(served?)
}

async fn bind(addr: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(addr).await.with_context(|| format!("cannot listen on {addr}, for metrics"))
}

async fn serve(listener: Option<TcpListener>, figures: Arc<Figures>) -> std::io::Result<()> {
    let Some(listener) = listener else { return std::future::pending().await };
    let answer = move || std::future::ready(([(CONTENT_TYPE, "text/plain; version=0.0.4")], text(&figures)));
    axum::serve(listener, Router::new().route("/metrics", get(answer))).await
}

/// The figures as Prometheus reads them.
fn text(figures: &Figures) -> String {
    let rows = [
        ("records_total", "counter", "Records inserted into ClickHouse.", &figures.records),
        (
            "refused_messages_total",
            "counter",
            "Messages that could not be read, kept whole.",
            &figures.refused,
        ),
        ("blocks_total", "counter", "Blocks inserted.", &figures.blocks),
        (
            "failures_total",
            "counter",
            "Failed attempts at reading, committing, inserting.",
            &figures.failures,
        ),
        ("lag_messages", "gauge", "Messages that wait in the assigned partitions.", &figures.lag_messages),
    ];
    let mut text = String::new();
    for (name, kind, help, value) in rows {
        let name = format!("thalweg_consumer_{name}");
        let value = value.load(Relaxed);
        write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n")
            .expect("a String takes every write");
    }
    text
}
