//! All roles of the process: loaded and bound first, then started, and stopped together.
//!
//! **Invariant:** an invalid setting, an unusable source or a port in use ends the process before
//! any role starts, with a message that locates the setting.

use std::io::{Write, stdout};
use std::net::{SocketAddr, TcpListener};
use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use anyhow::{Context, anyhow};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use thalweg_cli::Signals;
use thalweg_controller::Controller;
use thalweg_edge::{BackendUrl, BindError, BundleSource, Edge, LogDestination, Rules, Timeouts};
use thalweg_origin::{IngestToken, Origin, PublishingPoint, Source};
use tokio::task::{JoinError, JoinSet};

use crate::advice::{self, Addresses};
use crate::agent::Agent;
use crate::config::{self, Config, Fault, Faults, Place, Set};
use crate::console::{self, EdgeAddress};
use crate::consumer::Consumer;
use crate::controller;
use crate::shutdown;
use thalweg_record::Prefix;
use thalweg_units::Size;

/// Maximum time for the roles to stop after a signal; roles still running afterwards are aborted.
const STOP_MAX: Duration = Duration::from_millis(2800);

/// Runs every role of `config` until SIGINT or SIGTERM. With `advise`, prints example commands on
/// standard output, unless the request log is written there.
///
/// # Errors
///
/// Returns [`Faults`] if the config is unusable, before any role starts. Returns an error if a role
/// fails later.
pub(crate) fn run(config: &Config, advise: bool) -> anyhow::Result<()> {
    let sources = load_sources(config)?;
    raise_open_files(config);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
    let outcome = runtime.block_on(async {
        let roles = Roles::bind(config, sources).map_err(|fault| Faults::new(&config.file, vec![fault]))?;
        // Catch signals before the roles are announced, because a reader of these lines may send a
        // signal at once.
        let signals = Signals::catch().context("cannot catch signals")?;
        roles.announce();
        let log_is_stdout = config.edge.as_ref().is_some_and(|edge| edge.log.value == LogDestination::Stdout);
        if advise && !log_is_stdout {
            let advice = advice::text(&roles.addresses(config).await);
            let _ = stdout().write_all(advice.as_bytes()); // stdout may be closed
        }
        roles.run(signals).await
    });
    runtime.shutdown_background();
    outcome
}

/// Checks the media files of live sources. Everything else was checked when the [`Config`] was
/// built.
///
/// # Errors
///
/// Returns [`Faults`] if a source is unusable.
pub(crate) fn check(config: &Config) -> Result<(), Faults> {
    load_sources(config).map(drop)
}

/// All roles, with their sockets bound but not yet started.
struct Roles {
    origin: Option<Origin>,
    edge: Option<Edge>,
    console: Option<Console>,
    agent: Option<Agent>,
    consumer: Option<Consumer>,
    controller: Option<Controller>,
    sources: Vec<(Source, PublishingPoint)>,
}

struct Console {
    listener: TcpListener,
    addr: SocketAddr,
    edge: Option<EdgeAddress>,
}

impl Roles {
    /// Binds all sockets or none: sockets bound before a fault are closed.
    fn bind(config: &Config, sources: Vec<Source>) -> Result<Self, Fault> {
        let has_channels = config.sources.iter().any(|source| source.channel.is_some());
        let origin = config.origin.as_ref().map(|origin| bind_origin(origin, has_channels)).transpose()?;
        let origin_addr = origin.as_ref().map(|origin| console::reachable(origin.local_addr()));
        let ingest = origin.as_ref().and_then(|origin| own_ingest(origin, config.origin.as_ref()?));
        let controller = config.controller.as_ref();
        let controller = controller.map(|it| controller::bind(it, &config.tenants)).transpose()?;
        let controller_addr =
            controller.as_ref().map(|controller| console::reachable(controller.local_addr()));
        let bundle = match (controller_addr, &config.controller) {
            (Some(addr), Some(controller)) => Some(own_bundle(addr, controller, config.agent.as_ref())?),
            _ => None,
        };
        let edge = config.edge.as_ref().map(|edge| bind_edge(edge, origin_addr, bundle)).transpose()?;
        let edge_addr = edge.as_ref().map(Edge::local_addr);
        let console = config.console.as_ref().map(|console| bind_console(console, edge_addr)).transpose()?;
        // If the agent writes to Kafka and the controller reads from Kafka, the agent must not also
        // send its records directly: the controller would count them twice.
        let writes = config.agent.as_ref().is_some_and(|agent| agent.kafka.is_some());
        let reads = config.controller.as_ref().is_some_and(|controller| controller.kafka.is_some());
        let send_to = controller_addr.filter(|_| !(writes && reads));
        let agent = config.agent.as_ref().map(|agent| Agent::bind(agent, send_to)).transpose()?;
        let consumer = config.consumer.as_ref().map(Consumer::bind).transpose()?;
        let targets = config.sources.iter().map(|source| publishing_point(source, ingest.as_ref()));
        let sources = sources.into_iter().zip(targets).collect();
        Ok(Self { origin, edge, console, agent, consumer, controller, sources })
    }

    /// Prints each listener's role and address on standard error.
    fn announce(&self) {
        let admin = self.edge.as_ref().and_then(Edge::admin_addr);
        let listening = [
            ("origin", self.origin.as_ref().map(Origin::local_addr)),
            ("ingest", self.origin.as_ref().and_then(Origin::ingest_addr)),
            ("origin-admin", self.origin.as_ref().and_then(Origin::admin_addr)),
            ("edge", self.edge.as_ref().map(Edge::local_addr)),
            ("admin", admin),
            ("console", self.console.as_ref().map(|console| console.addr)),
            ("agent", self.agent.as_ref().and_then(Agent::metrics_addr)),
            ("consumer", self.consumer.as_ref().and_then(Consumer::metrics_addr)),
            ("controller", self.controller.as_ref().map(Controller::local_addr)),
        ];
        for (role, addr) in listening {
            if let Some(addr) = addr {
                eprintln!("{role} listening {addr}");
            }
        }
    }

    async fn addresses(&self, config: &Config) -> Addresses {
        let presentation = match &self.origin {
            Some(origin) => origin.first_servable_presentation().await,
            None => None,
        };
        let channels = config.sources.iter().filter_map(|source| source.channel.as_ref());
        Addresses {
            console: self.console.as_ref().map(|console| console::reachable(console.addr)),
            edge: self.edge.as_ref().map(|edge| console::reachable(edge.local_addr())),
            admin: self.edge.as_ref().and_then(Edge::admin_addr),
            origin: self.origin.as_ref().map(|origin| console::reachable(origin.local_addr())),
            ingest: self.origin.as_ref().and_then(Origin::ingest_addr).map(console::reachable),
            presentation,
            channels: channels.map(|channel| channel.value.0.clone()).collect(),
        }
    }

    /// Starts all roles, and stops all of them on a signal or when a role fails. A failure of the
    /// agent is only logged if the process also runs an edge or an origin.
    async fn run(self, mut signals: Signals) -> anyhow::Result<()> {
        let (trigger, shutdown) = shutdown::channel();
        let requested = || shutdown.clone().requested();
        let mut running = JoinSet::new();
        let records = self.edge.as_ref().map(Edge::records);
        let database = self.agent.as_ref().and_then(Agent::database);
        if let Some(agent) = self.agent {
            // Follow the edge before it starts, so that no response is missed.
            let own = records.clone().map(|records| (records.clone(), records.follow()));
            let stop = shutdown.clone();
            let is_alone = self.edge.is_none() && self.origin.is_none();
            running.spawn(async move {
                let ended = agent.run(own, stop.clone().requested()).await;
                if let (Err(error), false) = (&ended, is_alone) {
                    tracing::error!(%error, "agent failed, other roles continue");
                    stop.requested().await;
                    return ("agent", Ok(()));
                }
                ("agent", ended)
            });
        }
        if let Some(origin) = self.origin {
            let stop = requested();
            running.spawn(async { ("origin", origin.run(stop).await) });
        }
        if let Some(edge) = self.edge {
            let stop = requested();
            running.spawn(async { ("edge", edge.run(stop).await) });
        }
        let control_routes = self.controller.as_ref().map(Controller::inspection_routes);
        if let Some(console) = self.console {
            let sources =
                console::Sources { edge: console.edge.zip(records), database, controller: control_routes };
            let served = console::serve(console.listener, sources, requested());
            running.spawn(async { ("console", served.await) });
        }
        if let Some(consumer) = self.consumer {
            let stop = requested();
            running.spawn(async { ("consumer", consumer.run(stop).await) });
        }
        if let Some(controller) = self.controller {
            let stop = requested();
            running.spawn(async { ("controller", controller.run(stop).await) });
        }
        for (source, to) in self.sources {
            let pushed = source.run(to, requested());
            running.spawn(async {
                pushed.await;
                ("source", Ok(()))
            });
        }
        let failure = tokio::select! {
            () = signals.next() => None,
            ended = running.join_next() => ended.map(role_ended),
        };
        trigger.request();
        let all_ended = async { while running.join_next().await.is_some() {} };
        tokio::select! {
            () = all_ended => {}
            () = tokio::time::sleep(STOP_MAX) => tracing::warn!(limit = ?STOP_MAX, "shutdown time limit reached, aborting roles"),
            () = signals.next() => {} // a second signal stops at once
        }
        failure.map_or(Ok(()), Err)
    }
}

/// Returns the error for a role that exited early. Roles must run until a signal, so even an exit
/// without an error is a failure.
fn role_ended(ended: Result<(&'static str, std::io::Result<()>), JoinError>) -> anyhow::Error {
    match ended {
        Ok((role, Ok(()))) => anyhow!("{role} exited unexpectedly"),
        Ok((role, Err(failure))) => anyhow::Error::new(failure).context(format!("{role} failed")),
        Err(panic) => anyhow::Error::new(panic).context("a role panicked"),
    }
}

/// Raises the soft limit on open files to the hard limit: each connection is an open file, and
/// shells and systemd often set a soft limit of 1,024.
fn raise_open_files(config: &Config) {
    let limit = getrlimit(Resource::Nofile);
    if let Err(failure) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::warn!(%failure, "cannot raise the limit on open files");
    }
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    if let Some(edge) = &config.edge
        && edge.connections_max.value as u64 > files
    {
        let connections_max = edge.connections_max.value;
        tracing::warn!(connections_max, files, "connections_max exceeds the limit on open files");
    }
}

/// Loads the tracks of every source.
fn load_sources(config: &Config) -> Result<Vec<Source>, Faults> {
    let mut faults = Vec::new();
    let mut sources = Vec::new();
    for config::Source { media, .. } in &config.sources {
        match Source::load(&media.value) {
            Ok(source) => sources.push(source),
            Err(fault) => faults.push(media.fault(fault.to_string())),
        }
    }
    if faults.is_empty() { Ok(sources) } else { Err(Faults::new(&config.file, faults)) }
}

/// Returns the address of this process's ingest listener and the token that it requires, if any.
fn own_ingest(origin: &Origin, settings: &config::Origin) -> Option<(SocketAddr, Option<IngestToken>)> {
    let token = settings.ingest_token.as_ref().map(|token| token.value.clone());
    Some((console::reachable(origin.ingest_addr()?), token))
}

/// Returns the publishing point of a source. The config check ensures that every source has one.
fn publishing_point(
    source: &config::Source,
    own: Option<&(SocketAddr, Option<IngestToken>)>,
) -> PublishingPoint {
    match (&source.to, &source.channel, own) {
        (Some(to), _, _) => PublishingPoint {
            uri: to.value.clone(),
            token: source.token.as_ref().map(|token| token.value.clone()),
        },
        (None, Some(channel), Some((ingest, token))) => PublishingPoint {
            uri: format!("http://{ingest}/ingest/{}", channel.value.0)
                .parse()
                .expect("channel names need no escaping in a URL"),
            token: token.clone(),
        },
        _ => unreachable!("the config check rejects a source without a destination"),
    }
}

/// Binds the origin. `needs_ingest` means that sources in the same file push to it, so failing to
/// bind the default ingest address is a fault.
fn bind_origin(origin: &config::Origin, needs_ingest: bool) -> Result<Origin, Fault> {
    use thalweg_origin::BindError;

    let mut config = origin_config(origin);
    // If another origin runs on this machine, the default addresses are in use. That must not be
    // fatal.
    let bound = loop {
        match Origin::bind(config.clone()) {
            Err(BindError::Ingest(addr, cause)) if origin.ingest.place == Place::Default && !needs_ingest => {
                tracing::warn!(%addr, %cause, "ingest disabled: default address in use, set another");
                config.ingest = None;
            }
            Err(BindError::Admin(addr, cause)) if origin.admin.place == Place::Default => {
                tracing::warn!(%addr, %cause, "admin interface disabled: default address in use, set another");
                config.admin = None;
            }
            bound => break bound,
        }
    };
    bound.map_err(|failure| {
        let message = failure.to_string();
        match (failure, &origin.media) {
            (BindError::Listen(..), _) => origin.listen.fault(message),
            (BindError::Ingest(..), _) => origin.ingest.fault(message),
            (BindError::Admin(..), _) => origin.admin.fault(message),
            (BindError::Media(..), Some(media)) => media.fault(message),
            (BindError::Media(..) | BindError::Memory(..), _) => origin.live_memory.fault(message),
        }
    })
}

fn origin_config(origin: &config::Origin) -> thalweg_origin::Config {
    thalweg_origin::Config {
        listen: origin.listen.value,
        ingest: Some(origin.ingest().expect("the config check accepted the address")),
        admin: Some(origin.admin.value),
        media: origin.media.as_ref().map(|media| media.value.clone()).unwrap_or_default(),
        storage: storage_options(origin),
        window: origin.window.value.duration,
        segment_target: origin.segment_target.value.duration,
        listing_max_age: origin.listing_max_age.value.duration,
        remote_listing_max_age: origin.remote_listing_max_age.value.duration,
        live_memory_bytes: origin.live_memory.value.bytes,
        channels_max: origin.channels_max.value,
        connections_max: origin.connections_max.value,
        head_bytes_max: bytes(&origin.head_max),
        uploads: thalweg_origin::UploadLimits::default(),
    }
}

fn storage_options(origin: &config::Origin) -> thalweg_origin::StorageOptions {
    thalweg_origin::StorageOptions {
        idle: origin.storage_idle.value.duration,
        connections_max: origin.storage_connections_max.value,
        slot_timeout: origin.storage_slot_timeout.value.duration,
        connect_timeout: origin.storage_connect_timeout.value.duration,
        first_byte_timeout: origin.storage_first_byte_timeout.value.duration,
        between_bytes_timeout: origin.storage_between_bytes_timeout.value.duration,
        ca: origin.storage_ca.as_ref().map(|ca| ca.value.clone()),
        s3: thalweg_origin::S3Options {
            endpoint: origin.s3_endpoint.as_ref().map(|endpoint| endpoint.value.0.clone()),
            is_path_style: origin.s3_path_style.value,
            region: origin.s3_region.as_ref().map(|region| region.value.0.clone()),
            is_anonymous: origin.s3_anonymous.value,
        },
    }
}

/// Returns a size in bytes. Its declared bounds guarantee that it fits in a `usize`.
fn bytes(size: &Set<Size>) -> usize {
    usize::try_from(size.value.bytes).expect("the declared bounds fit in a usize")
}

/// Returns the URL at which this process's controller serves the bundle for the agent's PoP and
/// host.
fn own_bundle(
    addr: SocketAddr,
    controller: &config::Controller,
    agent: Option<&config::Agent>,
) -> Result<BundleSource, Fault> {
    let pop = agent.and_then(|agent| agent.pop.as_ref()).map_or("", |pop| &pop.value.0);
    let host = agent.and_then(|agent| agent.host.as_ref());
    let edge = host.map_or_else(String::new, |host| format!("&edge={}", host.value.0));
    let source = format!("http://{addr}/bundle?pop={pop}{edge}").parse::<BundleSource>();
    let source = source.expect("names need no escaping in a URL").of_this_machine();
    source.map_err(|fault| controller.listen.fault(fault.to_string()))
}

fn bind_edge(
    edge: &config::Edge,
    origin: Option<SocketAddr>,
    bundle: Option<BundleSource>,
) -> Result<Edge, Fault> {
    let bundle_tls = edge.client_tls()?;
    let config = thalweg_edge::Config { bundle_tls, ..edge_config(edge, origin, bundle) };
    let bound = match Edge::bind(config.clone()) {
        // If another edge runs on this machine, the default admin port is in use. This edge then
        // runs without an admin interface, which clients do not need.
        Err(BindError::Admin(addr, cause)) if edge.admin.place == Place::Default => {
            tracing::warn!(%addr, %cause, "admin interface disabled: default address in use, set another");
            Edge::bind(thalweg_edge::Config { admin: None, ..config })
        }
        bound => bound,
    };
    bound.map_err(|failure| {
        let message = failure.to_string();
        match failure {
            BindError::Listen(..) => edge.listen.fault(message),
            BindError::Admin(addr, cause) => edge.admin.fault(cannot_listen(addr, &cause)),
            BindError::Log(..) => edge.log.fault(message),
            BindError::Memory(..) => edge.memory.fault(message),
            BindError::Disk(..) => edge.disk.as_ref().expect("a disk is configured").fault(message),
            BindError::Geo(_) => edge.geoip.as_ref().expect("a database is configured").fault(message),
            BindError::Policy(_) => edge.policy.as_ref().expect("a policy is configured").fault(message),
            BindError::CongestionControl(_) => edge.congestion_control.fault(message),
        }
    })
}

fn cannot_listen(addr: SocketAddr, cause: &std::io::Error) -> String {
    format!("cannot listen on {addr}: {cause}")
}

fn edge_config(
    edge: &config::Edge,
    origin: Option<SocketAddr>,
    own_bundle: Option<BundleSource>,
) -> thalweg_edge::Config {
    let backends = match &edge.backends {
        Some(backends) => backends.value.clone(),
        None => origin.map(BackendUrl::at).into_iter().collect(),
    };
    thalweg_edge::Config {
        listen: edge.listen.value,
        backends,
        hosts: edge.hosts.iter().flat_map(|hosts| &hosts.value).map(|host| host.0.clone()).collect(),
        memory_bytes: edge.memory.value.bytes,
        disk: edge.disk.as_ref().map(|disk| disk.value.clone()),
        state: edge.state.value.clone(),
        policy: edge.policy.as_ref().map(|policy| policy.value.clone()),
        geoip: edge.geoip.as_ref().map(|files| files.value.clone()).unwrap_or_default(),
        bundle: edge.bundle.as_ref().map(|bundle| bundle.value.clone()).or(own_bundle),
        bundle_token: edge.bundle_token_file.as_ref().map(|token| token.value.clone()),
        bundle_tls: None,
        threads: edge.threads.as_ref().and_then(|threads| NonZeroUsize::new(threads.value)),
        congestion_control: edge.congestion_control.value,
        steering_size_bytes_min: edge.steering_size_min.value.bytes,
        delivery_bytes_min: edge.delivery_min.value.bytes,
        records_kept: edge.records_kept.value.duration,
        records_kept_bytes_max: edge.records_kept_max.value.bytes,
        records_sample: u32::try_from(edge.records_sample.value)
            .ok()
            .and_then(NonZeroU32::new)
            .expect("the declared bounds are positive and fit in a u32"),
        records_sample_salt: edge
            .records_sample_salt
            .as_ref()
            .map_or_else(String::new, |salt| salt.value.clone()),
        tcp_notsent_lowat_bytes: edge
            .tcp_notsent_lowat
            .as_ref()
            .map(|lowat| u32::try_from(lowat.value.bytes).expect("the declared bounds fit in a u32")),
        tcp_slow_start_after_idle: edge.tcp_slow_start_after_idle.value,
        forwards_ingest: edge.forward_ingest.value,
        purge_from: match &edge.purge_from {
            Some(from) => from.value.iter().flatten().copied().collect(),
            None => Prefix::LOOPBACK.into(),
        },
        admin: Some(edge.admin.value),
        log: edge.log.value.clone(),
        slice_bytes: edge.slice.value.bytes,
        rules: Rules {
            heuristic_percent: edge.heuristic_percent.value as u64,
            heuristic_max_s: edge.heuristic_max.value.duration.as_secs(),
            negative_s: edge.negative.value.duration.as_secs(),
            negative_max_s: edge.negative_max.value.duration.as_secs(),
            grace_s: edge.grace.value.duration.as_secs(),
            stale_if_error_s: edge.stale_if_error.value.duration.as_secs(),
            surrogate_control: edge.surrogate_control.value,
            request_directives: edge.request_directives.value,
        },
        abandoned_fills: edge.abandoned_fills.value,
        timeouts: Timeouts {
            connect: edge.connect_timeout.value.duration,
            first_byte: edge.first_byte_timeout.value.duration,
            between_bytes: edge.between_bytes_timeout.value.duration,
            idle: edge.idle_timeout.value.duration,
            head: edge.head_timeout.value.duration,
            send_stall: edge.send_timeout.value.duration,
        },
        head: thalweg_http::Limits {
            head_bytes_max: bytes(&edge.head_max),
            ..thalweg_http::Limits::default()
        },
        connections_max: edge.connections_max.value,
        backend_connections_max: edge.backend_connections_max.value,
    }
}

fn bind_console(console: &config::Console, edge: Option<SocketAddr>) -> Result<Console, Fault> {
    let listen = &console.listen;
    let failed = |cause: std::io::Error| listen.fault(cannot_listen(listen.value, &cause));
    let listener = listen.bind()?;
    let addr = listener.local_addr().map_err(failed)?;
    let edge = edge.map(|edge| match &console.edge {
        Some(url) => EdgeAddress::Url(url.value.0.clone()),
        None => EdgeAddress::Port(edge.port()),
    });
    Ok(Console { listener, addr, edge })
}
