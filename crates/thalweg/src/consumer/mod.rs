//! Consumer role: waits for the topic, runs the consumer thread and serves its metrics.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use thalweg_kafka::Cluster;
use thalweg_telemetry::clickhouse::Server;
use thalweg_telemetry::consumer;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::agent::cluster;
use crate::config::{self, Fault, Set};

/// Interval between topic look-ups.
const LOOKUP_PERIOD: Duration = Duration::from_secs(1);
/// Interval between checks of the stop flag while waiting for the topic.
const STOP_PERIOD: Duration = Duration::from_millis(100);

/// A consumer with all its resources open, not yet started.
pub(crate) struct Consumer {
    member: consumer::Consumer,
    cluster: Cluster,
    topic_wait: Duration,
    listener: Option<TcpListener>,
}

impl Consumer {
    /// Opens the configured resources.
    ///
    /// # Errors
    ///
    /// Returns a fault located at the setting if its value is unusable.
    pub(crate) fn bind(settings: &config::Consumer) -> Result<Self, Fault> {
        let url = &settings.clickhouse;
        let server = Server::at(&url.value.0).map_err(|error| url.unusable(error))?;
        let cluster =
            cluster(&settings.kafka.value, &settings.kafka_topic.value, settings.kafka_set.as_ref());
        let rows_max = settings.block_rows.value as u64;
        let limits = consumer::Limits { rows_max, wait_max: settings.block_wait.value.duration };
        let member =
            consumer::Consumer::join(&cluster, &settings.group.value.0, server, limits).map_err(|error| {
                match &settings.kafka_set {
                    Some(set) => set.unusable(error),
                    None => settings.kafka.unusable(error),
                }
            })?;
        let listener = settings.listen.as_ref().map(Set::bind);
        let topic_wait = settings.topic_wait.value.duration;
        Ok(Self { member, cluster, topic_wait, listener: listener.transpose()? })
    }

    /// Returns the address of the metrics listener, if configured.
    pub(crate) fn metrics_addr(&self) -> Option<SocketAddr> {
        self.listener.as_ref()?.local_addr().ok()
    }

    /// Moves messages to ClickHouse until `stop` resolves. Messages read but not yet inserted are
    /// read again by another member of the consumer group.
    ///
    /// # Errors
    ///
    /// Returns an error if the topic stays missing, or if the consumer thread cannot be started or
    /// exits early.
    pub(crate) async fn run(self, stop: impl Future<Output = ()>) -> io::Result<()> {
        let Self { mut member, cluster, topic_wait, listener } = self;
        let mut tasks = JoinSet::new();
        if let Some(listener) = listener {
            tasks.spawn(thalweg_surface::serve_vitals(listener, member.figures().registry()));
        }
        let stop_requested = Arc::new(AtomicBool::new(false));
        let (end, mut ended) = oneshot::channel();
        let is_stopping = Arc::clone(&stop_requested);
        thread::Builder::new().name("consumer".into()).spawn(move || {
            let outcome = await_topic(&cluster, topic_wait, &is_stopping);
            if outcome.is_ok() {
                member.run(&is_stopping);
            }
            let _ = end.send(outcome);
        })?;
        let panicked = |_| io::Error::other("the consumer thread panicked");
        tokio::select! {
            () = stop => {
                stop_requested.store(true, Relaxed);
                ended.await.map_err(panicked)?
            }
            outcome = &mut ended => {
                outcome.map_err(panicked)??;
                Err(io::Error::other("the consumer thread exited unexpectedly"))
            }
        }
    }
}

/// Waits until the topic exists or a stop is requested. Returns an error if the topic is missing
/// for `topic_wait`.
fn await_topic(cluster: &Cluster, topic_wait: Duration, is_stopping: &AtomicBool) -> io::Result<()> {
    let topic = &cluster.topic;
    let mut missing_since: Option<Instant> = None;
    let mut last_error = None;
    while !is_stopping.load(Relaxed) {
        match cluster.has_topic() {
            Ok(true) => {
                tracing::info!(topic, "reading");
                return Ok(());
            }
            Ok(false) => {
                let since = *missing_since.get_or_insert_with(|| {
                    tracing::warn!(topic, wait = ?topic_wait, "topic missing, waiting for it");
                    Instant::now()
                });
                if since.elapsed() >= topic_wait {
                    return Err(io::Error::other(missing(cluster)));
                }
            }
            Err(error) => {
                let text = format!("{:#}", anyhow!(error));
                if last_error.as_ref() != Some(&text) {
                    tracing::warn!(topic, error = text, "cannot look up topic, retrying");
                    last_error = Some(text);
                }
            }
        }
        let next = Instant::now() + LOOKUP_PERIOD.min(topic_wait);
        while Instant::now() < next && !is_stopping.load(Relaxed) {
            thread::sleep(STOP_PERIOD);
        }
    }
    Ok(())
}

fn missing(cluster: &Cluster) -> String {
    let Cluster { topic, brokers, .. } = cluster;
    format!(
        "Kafka at {brokers} has no topic {topic:?}: start an agent, which creates it, or create it \
         with kafka-topics.sh --create --topic {topic} --partitions 12"
    )
}
