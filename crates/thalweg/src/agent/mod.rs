//! The agent as a role: from its settings to a running one, with the responses of edges going in and its figures told.

mod bundles;
mod follow;
mod metrics;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use thalweg_edge::{Follower, Records};
use thalweg_record::is_name;
use thalweg_telemetry::collect::Place;
use thalweg_telemetry::kafka::Cluster;
use thalweg_telemetry::sink::json::{JsonSink, Rotation};
use thalweg_telemetry::sink::parquet::{Gathering, ParquetSink};
use thalweg_telemetry::sink::sqlite::{Retention, SqliteSink};
use thalweg_telemetry::sink::{ClickHouseSink, ControllerSink, KafkaSink};
use thalweg_telemetry::{Sink, agent};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::config::{self, Broker, ChannelName, Fault, KafkaProperty, Set};
use bundles::{Bundles, Carrying};
use follow::{Ear, OWN};

/// Where records are kept when no sink is named: beside the spool.
const SQLITE_FILE: &str = "thalweg-telemetry.sqlite";

/// When a file of JSON lines ends.
const JSON_FILE_BYTES_MAX: u64 = 256 << 20;
const JSON_FILE_AGE_MAX: Duration = Duration::from_secs(3600);
/// Or when it has this part of what all may take.
const JSON_FILES_MIN: u64 = 4;

/// When a Parquet file is written.
const PARQUET_ROWS_MAX: usize = 50_000;
const PARQUET_MEMORY_BYTES_MAX: usize = 64 << 20;
const PARQUET_AGE_MAX: Duration = Duration::from_secs(60);

/// An agent with everything open that it needs, not begun.
pub(crate) struct Agent {
    agent: agent::Agent,
    sinks: Vec<Box<dyn Sink>>,
    database: Option<PathBuf>,
    edges: Vec<SocketAddr>,
    bundles: Option<Bundles>,
    listener: Option<TcpListener>,
}

impl Agent {
    /// Opens what the settings name; records go to the controller of the same process, too, if they name no other. Bundles over
    /// Kafka are also for the edge of the same process, by its admin address.
    ///
    /// # Errors
    /// The setting whose value cannot be used.
    pub(crate) fn bind(
        settings: &config::Agent,
        controller: Option<SocketAddr>,
        own_admin: Option<SocketAddr>,
    ) -> Result<Self, Fault> {
        let fault = |error: &dyn std::error::Error| settings.spool.fault(with_causes(error));
        let config = agent_config(settings);
        let host = config.host.clone();
        let agent = agent::Agent::open(config).map_err(|error| fault(&error))?;
        let listener = settings.listen.as_ref().map(|listen| {
            TcpListener::bind(listen.value)
                .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
                .map_err(|cause| listen.fault(format!("cannot listen on {}: {cause}", listen.value)))
        });
        let edges: Vec<_> = settings.edges.iter().flat_map(|edges| edges.value.clone()).collect();
        let admins = edges.iter().copied().chain(own_admin).collect();
        let bundles = bundles(settings, host, admins).transpose()?;
        let database = database(settings);
        let mut sinks = sinks(settings, database.as_deref())?;
        sinks.extend(controller_sink(settings, controller)?);
        Ok(Self { agent, sinks, database, edges, bundles, listener: listener.transpose()? })
    }

    /// The SQLite database, if it keeps one.
    pub(crate) fn database(&self) -> Option<PathBuf> {
        self.database.clone()
    }

    /// Where its figures are to be had.
    pub(crate) fn metrics_addr(&self) -> Option<SocketAddr> {
        self.listener.as_ref()?.local_addr().ok()
    }

    /// Collects, with the responses of the edge in this process if there is one, until `stop` resolves. Its follower is to be from
    /// before the first response.
    ///
    /// # Errors
    /// When a thread cannot be started, or one ends before it was told to.
    pub(crate) async fn run(
        self,
        own: Option<(Records, Follower)>,
        stop: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let running = self.agent.start(self.sinks).map_err(io::Error::other)?;
        let mut tasks = JoinSet::new();
        let elsewhere = self.edges.iter().map(|edge| edge.to_string().into());
        let names: Vec<Arc<str>> = elsewhere.chain([OWN.into()]).collect();
        let mut heard = running.heard(&names);
        let heard_own = heard.pop().flatten();
        for ((edge, name), heard) in self.edges.into_iter().zip(names).zip(heard) {
            tasks.spawn(follow::over_http(edge, Ear::new(name, running.intake(), heard)));
        }
        if let Some(listener) = self.listener {
            let figures = metrics::Told(running.figures());
            tasks.spawn(crate::metrics::serve(tokio::net::TcpListener::from_std(listener)?, figures));
        }
        let carries = self.bundles.is_some();
        let (ended, carrying_ended) = oneshot::channel();
        let _carrying = self.bundles.map(|bundles| Carrying::start(bundles, ended)).transpose()?;
        let intake = running.intake();
        let own = tokio::spawn(async move {
            if let Some((records, follower)) = own {
                follow::within(records, follower, intake, heard_own).await;
            }
        });
        let early_end = tokio::select! {
            () = stop => None,
            () = running.early_end() => Some("a thread of the agent ended by itself"),
            _ = carrying_ended, if carries => Some("the thread that carries bundles ended by itself"),
            Some(_) = tasks.join_next() => Some("a task of the agent ended by itself"),
        };
        let ended = own.abort_handle();
        if early_end.is_none() {
            // The edge in this process ends now: its last records come until it has.
            let _ = tokio::time::timeout(LAST_RECORDS_MAX, own).await;
        }
        ended.abort();
        tasks.shutdown().await;
        tokio::task::spawn_blocking(|| running.stop()).await.map_err(io::Error::other)?;
        early_end.map_or(Ok(()), |why| Err(io::Error::other(why)))
    }
}

/// How long the last records of the edge in the same process are waited for: it ends what is under way within a second.
const LAST_RECORDS_MAX: Duration = Duration::from_millis(1400);

fn agent_config(settings: &config::Agent) -> agent::Config {
    let host = settings.host.as_ref().map(|host| host.value.0.clone());
    let places = settings.namespaces.iter().flat_map(|namespaces| &namespaces.value);
    agent::Config {
        host: host.unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned()),
        pop: settings.pop.as_ref().map(|pop| pop.value.0.clone()).unwrap_or_default(),
        period: settings.period.value.duration,
        filter: settings.sockets.as_ref().map(|sockets| sockets.value.0.clone()).unwrap_or_default(),
        one_in: u32::try_from(settings.sample.value.0)
            .ok()
            .and_then(NonZeroU32::new)
            .expect("bounded by its declaration"),
        namespaces: places
            .map(|place| Place { name: place.name.clone(), path: place.path.clone() })
            .collect(),
        geoip: settings.geoip.as_ref().map(|geoip| geoip.value.clone()).unwrap_or_default(),
        networks: settings.networks.as_ref().map(|networks| networks.value.clone()),
        spool: settings.spool.value.directory.clone(),
        spool_bytes_max: settings.spool.value.size.bytes,
    }
}

/// What brings bundles over Kafka, if they come that way.
fn bundles(
    settings: &config::Agent,
    edge: String,
    admins: Vec<SocketAddr>,
) -> Option<Result<Bundles, Fault>> {
    let topic = settings.kafka_bundles.as_ref()?;
    let (brokers, pop, file) =
        (settings.kafka.as_ref()?, settings.pop.as_ref()?, settings.bundle_file.as_ref()?);
    if !is_name(&edge) {
        // Where host is set, its form was checked.
        let message = format!("this machine's name, {edge:?}, is none for a key: set host");
        return Some(Err(topic.fault(message)));
    }
    let config = bundles::Config {
        cluster: cluster(&brokers.value, &topic.value, settings.kafka_set.as_ref()),
        pop: pop.value.0.clone(),
        edge,
        file: file.value.clone(),
        admins,
    };
    Some(Bundles::open(config).map_err(|error| topic.fault(format!("{error:#}"))))
}

/// The SQLite database: as named, or beside the spool if there is no other sink.
fn database(settings: &config::Agent) -> Option<PathBuf> {
    if let Some(path) = &settings.sqlite {
        return Some(path.value.clone());
    }
    settings.keeps_sqlite().then(|| settings.spool.value.directory.with_file_name(SQLITE_FILE))
}

/// Every sink that is named, and the database.
fn sinks(settings: &config::Agent, database: Option<&Path>) -> Result<Vec<Box<dyn Sink>>, Fault> {
    let mut sinks: Vec<Box<dyn Sink>> = Vec::new();
    if let Some(directory) = &settings.json {
        let sink = JsonSink::open(&directory.value, rotation(settings));
        sinks.push(Box::new(sink.map_err(|error| directory.fault(with_causes(&error)))?));
    }
    if let Some(directory) = &settings.parquet {
        let sink = ParquetSink::open(&directory.value, gathering(settings));
        sinks.push(Box::new(sink.map_err(|error| directory.fault(with_causes(&error)))?));
    }
    if let Some(brokers) = &settings.kafka {
        let partitions =
            u16::try_from(settings.kafka_partitions.value.0).expect("bounded by its declaration");
        let cluster = cluster(&brokers.value, &settings.kafka_topic.value, settings.kafka_set.as_ref());
        let sink = KafkaSink::of(cluster, (partitions > 0).then_some(partitions));
        sinks.push(Box::new(sink));
    }
    if let Some(url) = &settings.clickhouse {
        let sink = ClickHouseSink::at(&url.value.0).map_err(|error| url.fault(with_causes(&error)));
        sinks.push(Box::new(sink?));
    }
    if let Some(path) = database {
        let sink = SqliteSink::open(path, retention(settings)).map_err(|error| {
            let message = with_causes(&error);
            match &settings.sqlite {
                Some(set) => set.fault(message),
                None => settings.spool.fault(message),
            }
        });
        sinks.push(Box::new(sink?));
    }
    Ok(sinks)
}

/// The controller that is named, or that of the same process.
fn controller_sink(
    settings: &config::Agent,
    own: Option<SocketAddr>,
) -> Result<Option<Box<dyn Sink>>, Fault> {
    let (url, place) = match (&settings.controller, own) {
        (Some(set), _) => (set.value.0.clone(), Some(set)),
        (None, Some(addr)) => (format!("http://{addr}"), None),
        (None, None) => return Ok(None),
    };
    let sink = ControllerSink::at(&url).map_err(|error| {
        let message = with_causes(&error);
        place.map_or_else(|| settings.spool.fault(message.clone()), |set| set.fault(message.clone()))
    });
    Ok(Some(Box::new(sink?)))
}

/// A cluster as the settings of a role name it.
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

/// An error and what it came from, on one line.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
