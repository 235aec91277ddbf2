//! Agent role: opens the configured resources, follows edges and serves the agent's metrics.

mod own_edge;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use thalweg_edge::{Follower, Records};
use thalweg_kafka::Cluster;
use thalweg_telemetry::follow::EdgeFollower;
use thalweg_telemetry::sink::json::{JsonSink, Rotation};
use thalweg_telemetry::sink::parquet::{Gathering, ParquetSink};
use thalweg_telemetry::sink::sqlite::{Retention, SqliteSink};
use thalweg_telemetry::{ClickHouseSink, ControllerSink, KafkaSink, Sink, agent};
use tokio::task::JoinSet;

use crate::config::{self, Broker, ChannelName, Fault, KafkaProperty, Set};
use own_edge::OWN;

/// File name of the default database, created beside the spool if no sink is configured.
const SQLITE_FILE: &str = "thalweg-telemetry.sqlite";

/// Size and age at which a JSON lines file is closed.
const JSON_FILE_BYTES_MAX: u64 = 256 << 20;
const JSON_FILE_AGE_MAX: Duration = Duration::from_secs(3600);
/// Number of JSON lines files that must fit into the total size limit. With a small limit, files
/// are therefore closed before they reach [`JSON_FILE_BYTES_MAX`].
const JSON_FILES_MIN: u64 = 4;

/// Limits on the rows gathered for a Parquet file: their number, memory and age. The file is
/// written as soon as one limit is reached.
const PARQUET_ROWS_MAX: usize = 50_000;
const PARQUET_MEMORY_BYTES_MAX: usize = 64 << 20;
const PARQUET_AGE_MAX: Duration = Duration::from_secs(60);

/// An agent with all its resources open, not yet started.
pub(crate) struct Agent {
    agent: agent::Agent,
    sinks: Vec<Box<dyn Sink>>,
    database: Option<PathBuf>,
    edges: Vec<SocketAddr>,
    listener: Option<TcpListener>,
}

impl Agent {
    /// Opens the configured resources. If the settings name no controller, records are sent to
    /// `controller`, the address of this process's controller.
    ///
    /// # Errors
    ///
    /// Returns a fault located at the setting if its value is unusable.
    pub(crate) fn bind(settings: &config::Agent, controller: Option<SocketAddr>) -> Result<Self, Fault> {
        let config = agent_config(settings);
        let agent = agent::Agent::open(config).map_err(|error| settings.spool.unusable(error))?;
        let listener = settings.listen.as_ref().map(Set::bind);
        let edges: Vec<_> = settings.edges.iter().flat_map(|edges| edges.value.clone()).collect();
        let database = database(settings);
        let mut sinks = sinks(settings, database.as_deref())?;
        sinks.extend(controller_sink(settings, controller)?);
        Ok(Self { agent, sinks, database, edges, listener: listener.transpose()? })
    }

    /// Returns the path of the SQLite database, if the agent writes one.
    pub(crate) fn database(&self) -> Option<PathBuf> {
        self.database.clone()
    }

    /// Returns the address of the metrics listener, if configured.
    pub(crate) fn metrics_addr(&self) -> Option<SocketAddr> {
        self.listener.as_ref()?.local_addr().ok()
    }

    /// Collects records until `stop` resolves. `own` follows the edge in this process and must be
    /// created before that edge starts, or its first responses are missed.
    ///
    /// # Errors
    ///
    /// Returns an error if a thread cannot be started, or if a thread or task exits early.
    pub(crate) async fn run(
        self,
        own: Option<(Records, Follower)>,
        stop: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let running = self.agent.start(self.sinks).map_err(io::Error::other)?;
        let mut tasks = JoinSet::new();
        let elsewhere = self.edges.iter().map(|edge| edge.to_string().into());
        let names: Vec<Arc<str>> = elsewhere.chain([OWN.into()]).collect();
        let mut positions = running.edge_positions(&names);
        let own_position = positions.pop().flatten();
        for ((edge, name), position) in self.edges.into_iter().zip(names).zip(positions) {
            tasks.spawn(EdgeFollower::new(name, running.intake(), position).run(edge));
        }
        if let Some(listener) = self.listener {
            tasks.spawn(thalweg_surface::serve_vitals(listener, running.figures().registry()));
        }
        let intake = running.intake();
        let own = tokio::spawn(async move {
            if let Some((records, follower)) = own {
                own_edge::follow(records, follower, intake, own_position).await;
            }
        });
        let early_end = tokio::select! {
            () = stop => None,
            () = running.early_end() => Some("an agent thread exited unexpectedly"),
            Some(_) = tasks.join_next() => Some("an agent task exited unexpectedly"),
        };
        let ended = own.abort_handle();
        if early_end.is_none() {
            // The edge in this process is also stopping: wait for its last records.
            let _ = tokio::time::timeout(LAST_RECORDS_MAX, own).await;
        }
        ended.abort();
        tasks.shutdown().await;
        tokio::task::spawn_blocking(|| running.stop()).await.map_err(io::Error::other)?;
        early_end.map_or(Ok(()), |why| Err(io::Error::other(why)))
    }
}

/// Maximum wait for the last records of the edge in this process, which stops within a second.
const LAST_RECORDS_MAX: Duration = Duration::from_millis(1400);

fn agent_config(settings: &config::Agent) -> agent::Config {
    let host = settings.host.as_ref().map(|host| host.value.0.clone());
    let places = settings.namespaces.iter().flat_map(|namespaces| &namespaces.value);
    agent::Config {
        host: host.unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned()),
        pop: settings.pop.as_ref().map(|pop| pop.value.0.clone()).unwrap_or_default(),
        period: settings.period.value.duration,
        filter: settings.sockets.as_ref().map(|sockets| sockets.value.clone()).unwrap_or_default(),
        one_in: u32::try_from(settings.sample.value)
            .ok()
            .and_then(NonZeroU32::new)
            .expect("the declared bounds are positive and fit in a u32"),
        namespaces: places.cloned().collect(),
        geoip: settings.geoip.as_ref().map(|geoip| geoip.value.clone()).unwrap_or_default(),
        networks: settings.networks.as_ref().map(|networks| networks.value.clone()),
        spool: settings.spool.value.directory.clone(),
        spool_bytes_max: settings.spool.value.bytes_max,
    }
}

/// Returns the path of the SQLite database: the configured path, or a file beside the spool if no
/// other sink is configured.
fn database(settings: &config::Agent) -> Option<PathBuf> {
    if let Some(path) = &settings.sqlite {
        return Some(path.value.clone());
    }
    settings.keeps_sqlite().then(|| settings.spool.value.directory.with_file_name(SQLITE_FILE))
}

/// Opens the configured sinks, including the database but not the controller.
fn sinks(settings: &config::Agent, database: Option<&Path>) -> Result<Vec<Box<dyn Sink>>, Fault> {
    let mut sinks: Vec<Box<dyn Sink>> = Vec::new();
    if let Some(directory) = &settings.json {
        let sink = JsonSink::open(&directory.value, rotation(settings));
        sinks.push(Box::new(sink.map_err(|error| directory.unusable(error))?));
    }
    if let Some(directory) = &settings.parquet {
        let sink = ParquetSink::open(&directory.value, gathering(settings));
        sinks.push(Box::new(sink.map_err(|error| directory.unusable(error))?));
    }
    if let Some(brokers) = &settings.kafka {
        let partitions =
            u16::try_from(settings.kafka_partitions.value).expect("the declared bounds fit in a u16");
        let cluster = cluster(&brokers.value, &settings.kafka_topic.value, settings.kafka_set.as_ref());
        let sink = KafkaSink::new(cluster, (partitions > 0).then_some(partitions));
        sinks.push(Box::new(sink));
    }
    if let Some(url) = &settings.clickhouse {
        let sink = ClickHouseSink::at(&url.value.0).map_err(|error| url.unusable(error));
        sinks.push(Box::new(sink?));
    }
    if let Some(path) = database {
        let sink = SqliteSink::open(path, retention(settings)).map_err(|error| match &settings.sqlite {
            Some(set) => set.unusable(error),
            None => settings.spool.unusable(error),
        });
        sinks.push(Box::new(sink?));
    }
    Ok(sinks)
}

/// Creates the sink for the configured controller or, by default, for this process's controller.
fn controller_sink(
    settings: &config::Agent,
    own: Option<SocketAddr>,
) -> Result<Option<Box<dyn Sink>>, Fault> {
    let (url, place) = match (&settings.controller, own) {
        (Some(set), _) => (set.value.0.clone(), Some(set)),
        (None, Some(addr)) => (format!("http://{addr}"), None),
        (None, None) => return Ok(None),
    };
    let token = settings.controller_token_file.as_ref().map(|token| token.value.clone());
    let sink = ControllerSink::at(&url, token, settings.client_tls()?).map_err(|error| match place {
        Some(set) => set.unusable(error),
        None => settings.spool.unusable(error),
    });
    Ok(Some(Box::new(sink?)))
}

/// Builds a role's Kafka connection parameters from its settings.
pub(crate) fn cluster(
    brokers: &[Broker],
    topic: &ChannelName,
    properties: Option<&Set<Vec<KafkaProperty>>>,
) -> Cluster {
    let properties = properties.iter().flat_map(|properties| properties.value.clone());
    Cluster {
        brokers: brokers.iter().map(|broker| broker.0.as_str()).collect::<Vec<_>>().join(","),
        topic: topic.0.clone(),
        properties: properties.map(|property| (property.key, property.value)).collect(),
    }
}

fn rotation(settings: &config::Agent) -> Rotation {
    let total_bytes = settings.json_max.as_ref().map(|max| max.value.bytes);
    let part_bytes = total_bytes.map_or(u64::MAX, |total_bytes| total_bytes / JSON_FILES_MIN);
    Rotation { file_bytes: JSON_FILE_BYTES_MAX.min(part_bytes), age: JSON_FILE_AGE_MAX, total_bytes }
}

fn gathering(settings: &config::Agent) -> Gathering {
    Gathering {
        rows: PARQUET_ROWS_MAX,
        bytes: PARQUET_MEMORY_BYTES_MAX,
        age: PARQUET_AGE_MAX,
        total_bytes: settings.parquet_max.as_ref().map(|max| max.value.bytes),
    }
}

fn retention(settings: &config::Agent) -> Retention {
    Retention {
        records: settings.keep.value.duration,
        aggregates: settings.keep_aggregates.value.duration,
        total_bytes: settings.sqlite_max.value.bytes,
    }
}
