//! The roles in one process: everything is loaded and bound first, then started, and ended by one signal.
//!
//! **Invariant:** a fault of the settings, a file that cannot be pushed or a port that is taken ends the process before
//! any role has begun, as one line that names the setting's place.

use std::io::{Write, stdout};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::time::Duration;

use anyhow::{Context, anyhow};
use hyper::Uri;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use thalweg_controller::Controller;
use thalweg_edge::{BackendUrl, BindError, BundleSource, DiskPlace, Edge, LogTo, Rules, Timeouts};
use thalweg_origin::Origin;
use tokio::net::TcpListener;
use tokio::task::{JoinError, JoinSet};

use crate::advice::{self, Addresses};
use crate::agent::Agent;
use crate::config::{self, Config, Congestion, Fault, Faults, LogTarget, Place, Set, StateDirectory};
use crate::console::{self, EdgeAddress};
use crate::consumer::Consumer;
use crate::controller;
use crate::shutdown::{self, Signals};
use crate::source::Source;
use thalweg_record::Prefix;
use thalweg_record::units::Size;

/// How long the roles have to end once they are asked; what is under way then is cut.
const STOP_MAX: Duration = Duration::from_millis(2800);

/// Runs every role of `config` until SIGINT or SIGTERM. With `advise`, says on standard output what to try,
/// unless that is where the request log goes.
///
/// # Errors
/// [`Faults`] before anything has begun; later, the failure of a role.
pub(crate) fn run(config: &Config, advise: bool) -> anyhow::Result<()> {
    let sources = load_sources(config)?;
    raise_open_files(config);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
    let outcome = runtime.block_on(async {
        let roles = Roles::bind(config, sources).map_err(|fault| Faults::new(&config.file, vec![fault]))?;
        // Signals are caught from before the first line says that a role is ready.
        let signals = Signals::catch().context("cannot catch signals")?;
        roles.announce();
        let log_is_stdout = config.edge.as_ref().is_some_and(|edge| edge.log.value == LogTarget::Stdout);
        if advise && !log_is_stdout {
            let _ = stdout().write_all(advice::text(&roles.addresses(config).await).as_bytes()); // nobody may read it
        }
        roles.run(signals).await
    });
    runtime.shutdown_background();
    outcome
}

/// Checks what a config names and its text does not show: the tracks of sources. The rest is in [`Config`]'s
/// making.
///
/// # Errors
/// Every fault there is.
pub(crate) fn check(config: &Config) -> Result<(), Faults> {
    load_sources(config).map(drop)
}

/// Every role with its sockets bound, none begun.
struct Roles {
    origin: Option<Origin>,
    edge: Option<Edge>,
    console: Option<Console>,
    agent: Option<Agent>,
    consumer: Option<Consumer>,
    controller: Option<Controller>,
    sources: Vec<(Source, Uri)>,
}

struct Console {
    listener: TcpListener,
    addr: SocketAddr,
    edge: Option<EdgeAddress>,
}

impl Roles {
    /// Binds everything, or nothing: what was bound before a fault is let go.
    fn bind(config: &Config, sources: Vec<Source>) -> Result<Self, Fault> {
        let origin = config.origin.as_ref().map(bind_origin).transpose()?;
        let origin_addr = origin.as_ref().map(|origin| console::reachable(origin.local_addr()));
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
        // What the agent writes to Kafka the controller may read there, and need not be brought.
        let writes = config.agent.as_ref().is_some_and(|agent| agent.kafka.is_some());
        let reads = config.controller.as_ref().is_some_and(|controller| controller.kafka.is_some());
        let brought_to = controller_addr.filter(|_| !(writes && reads));
        let own_admin = edge.as_ref().and_then(Edge::admin_addr);
        let agent =
            config.agent.as_ref().map(|agent| Agent::bind(agent, brought_to, own_admin)).transpose()?;
        let consumer = config.consumer.as_ref().map(Consumer::bind).transpose()?;
        let targets = config.sources.iter().map(|source| ingest_uri(source, origin_addr));
        let sources = sources.into_iter().zip(targets).collect();
        Ok(Self { origin, edge, console, agent, consumer, controller, sources })
    }

    /// One line on standard error for each socket.
    fn announce(&self) {
        let admin = self.edge.as_ref().and_then(Edge::admin_addr);
        let listening = [
            ("origin", self.origin.as_ref().map(Origin::local_addr)),
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
            Some(origin) => origin.a_presentation().await,
            None => None,
        };
        let channels = config.sources.iter().filter_map(|source| source.channel.as_ref());
        Addresses {
            console: self.console.as_ref().map(|console| console::reachable(console.addr)),
            edge: self.edge.as_ref().map(|edge| console::reachable(edge.local_addr())),
            admin: self.edge.as_ref().and_then(Edge::admin_addr),
            origin: self.origin.as_ref().map(|origin| console::reachable(origin.local_addr())),
            presentation,
            channels: channels.map(|channel| channel.value.0.clone()).collect(),
        }
    }

    /// Starts every role, and ends all of them on a signal or when one fails.
    async fn run(self, mut signals: Signals) -> anyhow::Result<()> {
        let (trigger, shutdown) = shutdown::channel();
        let asked = || shutdown.clone().asked();
        let mut running = JoinSet::new();
        let records = self.edge.as_ref().map(Edge::records);
        let database = self.agent.as_ref().and_then(Agent::database);
        if let Some(agent) = self.agent {
            // From before the edge runs: it counts its responses from the first.
            let own = records.clone().map(|records| (records.clone(), records.follow()));
            let stop = shutdown.clone();
            let is_alone = self.edge.is_none() && self.origin.is_none();
            running.spawn(async move {
                let ended = agent.run(own, stop.clone().asked()).await;
                if let (Err(error), false) = (&ended, is_alone) {
                    tracing::error!(%error, "the agent has ended; everything else goes on");
                    stop.asked().await;
                    return ("agent", Ok(()));
                }
                ("agent", ended)
            });
        }
        if let Some(origin) = self.origin {
            let stop = asked();
            running.spawn(async { ("origin", origin.run(stop).await) });
        }
        if let Some(edge) = self.edge {
            let stop = asked();
            running.spawn(async { ("edge", edge.run(stop).await) });
        }
        let looks = self.controller.as_ref().map(Controller::looks);
        if let Some(console) = self.console {
            let shown = console::Shown { edge: console.edge.zip(records), database, controller: looks };
            let served = console::serve(console.listener, shown, asked());
            running.spawn(async { ("console", served.await) });
        }
        if let Some(consumer) = self.consumer {
            let stop = asked();
            running.spawn(async { ("consumer", consumer.run(stop).await) });
        }
        if let Some(controller) = self.controller {
            let stop = asked();
            running.spawn(async { ("controller", controller.run(stop).await) });
        }
        for (source, to) in self.sources {
            let pushed = source.run(to, shutdown.clone());
            running.spawn(async {
                pushed.await;
                ("source", Ok(()))
            });
        }
        let failure = tokio::select! {
            () = signals.next() => None,
            ended = running.join_next() => ended.map(role_ended),
        };
        trigger.ask();
        let all_ended = async { while running.join_next().await.is_some() {} };
        tokio::select! {
            () = all_ended => {}
            () = tokio::time::sleep(STOP_MAX) => tracing::warn!(limit = ?STOP_MAX, "stopped with work under way"),
            () = signals.next() => {} // asked a second time: at once
        }
        failure.map_or(Ok(()), Err)
    }
}

/// A role ends by the signal alone: before it, its end is a failure.
fn role_ended(ended: Result<(&'static str, std::io::Result<()>), JoinError>) -> anyhow::Error {
    match ended {
        Ok((role, Ok(()))) => anyhow!("the {role} ended by itself"),
        Ok((role, Err(failure))) => anyhow::Error::new(failure).context(format!("the {role} failed")),
        Err(panic) => anyhow::Error::new(panic).context("a role failed"),
    }
}

/// Each connection is an open file, and the soft limit of a shell or of systemd is often 1,024: it is raised
/// to the hard limit, which is what the process may have anyway.
fn raise_open_files(config: &Config) {
    let limit = getrlimit(Resource::Nofile);
    if let Err(failure) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::warn!(%failure, "cannot raise the limit of open files");
    }
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    if let Some(edge) = &config.edge
        && edge.connections_max.value.0 as u64 > files
    {
        let connections_max = edge.connections_max.value.0;
        tracing::warn!(
            connections_max,
            files,
            "connections_max is above the open files that this process may have"
        );
    }
}

/// Reads the tracks of every source.
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

/// Where a source pushes; the config has checked that it says so.
fn ingest_uri(source: &config::Source, origin: Option<SocketAddr>) -> Uri {
    match (&source.to, &source.channel, origin) {
        (Some(to), _, _) => to.value.uri.clone(),
        (None, Some(channel), Some(origin)) => format!("http://{origin}/ingest/{}", channel.value.0)
            .parse()
            .expect("a channel's name needs no escape"),
        _ => unreachable!("a source without a place to push to is a fault of the config"),
    }
}

fn bind_origin(origin: &config::Origin) -> Result<Origin, Fault> {
    use thalweg_origin::BindError;

    Origin::bind(origin_config(origin)).map_err(|failure| match (&failure, &origin.media) {
        (BindError::Listen(addr, cause), _) => origin.listen.fault(cannot_listen(*addr, cause)),
        (BindError::Media(..), Some(media)) => media.fault(failure.to_string()),
        (BindError::Media(..) | BindError::Memory(..), _) => origin.live_memory.fault(failure.to_string()),
    })
}

fn origin_config(origin: &config::Origin) -> thalweg_origin::Config {
    thalweg_origin::Config {
        listen: origin.listen.value,
        media: origin.media.as_ref().map(|media| media.value.clone()),
        window: origin.window.value.duration,
        segment_target: origin.segment_target.value.duration,
        listing_max_age: origin.listing_max_age.value.duration,
        live_memory_bytes: origin.live_memory.value.bytes,
        channels_max: origin.channels_max.value.0,
        connections_max: origin.connections_max.value.0,
        head_bytes_max: bytes(&origin.head_max),
        uploads: thalweg_origin::UploadLimits::default(),
    }
}

/// A size that its declaration bounds to what fits in memory.
fn bytes(size: &Set<Size>) -> usize {
    usize::try_from(size.value.bytes).expect("bounded by its declaration")
}

/// Where the controller of this process has the bundle for the site, and the machine, that the agent names.
fn own_bundle(
    addr: SocketAddr,
    controller: &config::Controller,
    agent: Option<&config::Agent>,
) -> Result<BundleSource, Fault> {
    let pop = agent.and_then(|agent| agent.pop.as_ref()).map_or("", |pop| &pop.value.0);
    let host = agent.and_then(|agent| agent.host.as_ref());
    let edge = host.map_or_else(String::new, |host| format!("&edge={}", host.value.0));
    let source = format!("http://{addr}/bundle?pop={pop}{edge}").parse::<BundleSource>();
    let source = source.expect("names need no escape").of_this_machine();
    source.map_err(|fault| controller.listen.fault(fault.to_string()))
}

fn bind_edge(
    edge: &config::Edge,
    origin: Option<SocketAddr>,
    bundle: Option<BundleSource>,
) -> Result<Edge, Fault> {
    let config = edge_config(edge, origin, bundle);
    let bound = match Edge::bind(config.clone()) {
        // A second edge on this machine. Nobody asked for this port by name, and no client needs it.
        Err(BindError::Admin(addr, cause)) if edge.admin.place == Place::Default => {
            tracing::warn!(%addr, %cause, "no admin interface: its default address is taken, set another");
            Edge::bind(thalweg_edge::Config { admin: None, ..config })
        }
        bound => bound,
    };
    bound.map_err(|failure| match &failure {
        BindError::Listen(addr, cause) => edge.listen.fault(cannot_listen(*addr, cause)),
        BindError::Admin(addr, cause) => edge.admin.fault(cannot_listen(*addr, cause)),
        BindError::Log(..) => edge.log.fault(failure.to_string()),
        BindError::Memory(..) => edge.memory.fault(failure.to_string()),
        BindError::Disk(..) => edge.disk.as_ref().expect("it is what was opened").fault(failure.to_string()),
        BindError::Geo(_) => edge.geoip.as_ref().expect("it is what was read").fault(failure.to_string()),
        BindError::Policy(_) => {
            edge.policy.as_ref().expect("it is what was loaded").fault(failure.to_string())
        }
        BindError::CongestionControl(_) => edge.congestion_control.fault(failure.to_string()),
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
        disk: edge.disk.as_ref().map(|disk| DiskPlace {
            directory: disk.value.directory.clone(),
            bytes_max: disk.value.size.bytes,
        }),
        state: match &edge.state.value {
            StateDirectory::Off => None,
            StateDirectory::At(path) => Some(path.clone()),
        },
        policy: edge.policy.as_ref().map(|policy| policy.value.clone()),
        geoip: edge.geoip.as_ref().map(|files| files.value.clone()).unwrap_or_default(),
        bundle: edge.bundle.as_ref().map(|bundle| bundle.value.clone()).or(own_bundle),
        threads: edge.threads.as_ref().and_then(|threads| NonZeroUsize::new(threads.value.0)),
        congestion_control: match edge.congestion_control.value {
            Congestion::System => None,
            Congestion::Named(name) => Some(name),
        },
        steering_size_bytes_min: edge.steering_size_min.value.bytes,
        tcp_notsent_lowat_bytes: edge
            .tcp_notsent_lowat
            .as_ref()
            .map(|lowat| u32::try_from(lowat.value.bytes).expect("bounded by its declaration")),
        tcp_slow_start_after_idle: edge.tcp_slow_start_after_idle.value.0,
        purge_from: match &edge.purge_from {
            Some(from) => from.value.iter().filter_map(|from| from.0).collect(),
            None => Prefix::LOOPBACK.into(),
        },
        admin: Some(edge.admin.value),
        log: match &edge.log.value {
            LogTarget::Off => LogTo::Off,
            LogTarget::Stdout => LogTo::Stdout,
            LogTarget::File(path) => LogTo::File(path.clone()),
        },
        slice_bytes: edge.slice.value.bytes,
        rules: Rules {
            heuristic_percent: edge.heuristic_percent.value.0 as u64,
            heuristic_max_s: edge.heuristic_max.value.duration.as_secs(),
            negative_s: edge.negative.value.duration.as_secs(),
            negative_max_s: edge.negative_max.value.duration.as_secs(),
            grace_s: edge.grace.value.duration.as_secs(),
            stale_if_error_s: edge.stale_if_error.value.duration.as_secs(),
            surrogate_control: edge.surrogate_control.value.0,
            request_directives: edge.request_directives.value.0,
        },
        abandoned_fills: edge.abandoned_fills.value.0,
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
        connections_max: edge.connections_max.value.0,
        backend_connections_max: edge.backend_connections_max.value.0,
    }
}

fn bind_console(console: &config::Console, edge: Option<SocketAddr>) -> Result<Console, Fault> {
    let listen = &console.listen;
    let failed = |cause: std::io::Error| listen.fault(cannot_listen(listen.value, &cause));
    let listener = std::net::TcpListener::bind(listen.value).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let listener = TcpListener::from_std(listener).map_err(failed)?;
    let addr = listener.local_addr().map_err(failed)?;
    let edge = edge.map(|edge| match &console.edge {
        Some(url) => EdgeAddress::Url(url.value.url.clone()),
        None => EdgeAddress::Port(edge.port()),
    });
    Ok(Console { listener, addr, edge })
}
