//! The consumer as a role: from its settings to a running one, once the topic is there, with its figures told.

mod metrics;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use thalweg_telemetry::clickhouse::Server;
use thalweg_telemetry::kafka::Cluster;
use thalweg_telemetry::{consumer, kafka};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::agent::{cluster, with_causes};
use crate::config::{self, Fault};

/// How often it is asked whether the topic is there, and how often meanwhile whether to end.
const ASK_PERIOD: Duration = Duration::from_secs(1);
const STOP_PERIOD: Duration = Duration::from_millis(100);

/// A consumer with everything open that it needs, not begun.
pub(crate) struct Consumer {
    member: consumer::Consumer,
    cluster: Cluster,
    topic_wait: Duration,
    listener: Option<TcpListener>,
}

impl Consumer {
    /// Opens what the settings name.
    ///
    /// # Errors
    /// The setting whose value cannot be used.
    pub(crate) fn bind(settings: &config::Consumer) -> Result<Self, Fault> {
        let url = &settings.clickhouse;
        let server = Server::at(&url.value.0).map_err(|error| url.fault(with_causes(&error)))?;
        let cluster =
            cluster(&settings.kafka.value, &settings.kafka_topic.value, settings.kafka_set.as_ref());
        let rows_max = settings.block_rows.value.0 as u64;
        let limits = consumer::Limits { rows_max, wait_max: settings.block_wait.value.duration };
        let member =
            consumer::Consumer::join(&cluster, &settings.group.value.0, server, limits).map_err(|error| {
                match &settings.kafka_set {
                    Some(set) => set.fault(with_causes(&error)),
                    None => settings.kafka.fault(with_causes(&error)),
                }
            })?;
        let listener = settings.listen.as_ref().map(|listen| {
            TcpListener::bind(listen.value)
                .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
                .map_err(|cause| listen.fault(format!("cannot listen on {}: {cause}", listen.value)))
        });
        let topic_wait = settings.topic_wait.value.duration;
        Ok(Self { member, cluster, topic_wait, listener: listener.transpose()? })
    }

    /// Where its figures are to be had.
    pub(crate) fn metrics_addr(&self) -> Option<SocketAddr> {
        self.listener.as_ref()?.local_addr().ok()
    }

    /// Reads and inserts until `stop` resolves. What was read and not inserted is read again by whoever comes next.
    ///
    /// # Errors
    /// When the topic does not come, or its thread ends before it was asked to.
    pub(crate) async fn run(self, stop: impl Future<Output = ()>) -> io::Result<()> {
        let Self { mut member, cluster, topic_wait, listener } = self;
        let mut tasks = JoinSet::new();
        if let Some(listener) = listener {
            let figures = metrics::Told(Arc::clone(member.figures()));
            tasks.spawn(crate::metrics::serve(tokio::net::TcpListener::from_std(listener)?, figures));
        }
        let is_asked = Arc::new(AtomicBool::new(false));
        let (end, mut ended) = oneshot::channel();
        let is_over = Arc::clone(&is_asked);
        thread::Builder::new().name("consumer".into()).spawn(move || {
            let outcome = await_topic(&cluster, topic_wait, &is_over);
            if outcome.is_ok() {
                member.run(&is_over);
            }
            let _ = end.send(outcome);
        })?;
        let panicked = |_| io::Error::other("its thread has panicked");
        tokio::select! {
            () = stop => {
                is_asked.store(true, Relaxed);
                ended.await.map_err(panicked)?
            }
            outcome = &mut ended => {
                outcome.map_err(panicked)??;
                Err(io::Error::other("its thread has ended"))
            }
        }
    }
}

/// Waits until the topic is there, or the end is asked for.
fn await_topic(cluster: &Cluster, topic_wait: Duration, is_over: &AtomicBool) -> io::Result<()> {
    let topic = &cluster.topic;
    let mut missing_since: Option<Instant> = None;
    let mut told = None;
    while !is_over.load(Relaxed) {
        match cluster.has_topic() {
            Ok(true) => {
                tracing::info!(topic, "reading");
                return Ok(());
            }
            Ok(false) => {
                let since = *missing_since.get_or_insert_with(|| {
                    tracing::warn!(topic, wait = ?topic_wait, "there is no such topic yet, waiting for it");
                    Instant::now()
                });
                if since.elapsed() >= topic_wait {
                    return Err(io::Error::other(missing(cluster)));
                }
            }
            Err(error) => {
                let text = with_causes(&error);
                if told.as_ref() != Some(&text) {
                    tracing::warn!(topic, error = text, "cannot ask for the topic, trying again");
                    told = Some(text);
                }
            }
        }
        let next = Instant::now() + ASK_PERIOD.min(topic_wait);
        while Instant::now() < next && !is_over.load(Relaxed) {
            thread::sleep(STOP_PERIOD);
        }
    }
    Ok(())
}

fn missing(cluster: &Cluster) -> String {
    let kafka::Cluster { topic, brokers, .. } = cluster;
    format!(
        "Kafka at {brokers} has no topic {topic:?}: start an agent that writes to it, which makes it, or make it \
         with kafka-topics.sh --create --topic {topic} --partitions 12"
    )
}
