//! What an edge is told: resolved values, checked by whoever made them.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use thalweg_cache::rules::Rules;
use thalweg_record::Prefix;
use thalweg_tcp::congestion::CongestionControl;

use crate::backend::BackendUrl;
use crate::bundle::BundleSource;

/// Configuration of an edge.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where clients connect.
    pub listen: SocketAddr,
    /// Where fetches go, at least one.
    pub backends: Vec<BackendUrl>,
    /// Hosts that are served; any if empty. Others get 421.
    pub hosts: Vec<String>,
    /// Bytes of content kept in memory.
    pub memory_bytes: u64,
    /// Where content is kept on disk as well, if it is.
    pub disk: Option<DiskPlace>,
    /// Where the edge keeps what it has to know after a kill, and its bundle; `None`: nowhere. The directory is made if it is not there.
    pub state: Option<PathBuf>,
    /// Worker threads; `None`: one for each core that this process may use.
    pub threads: Option<NonZeroUsize>,
    /// Congestion control of each client connection; `None`: the system's.
    pub congestion_control: Option<CongestionControl>,
    /// The least size of a response, in bytes, for which a steering rule or an experiment changes the congestion control;
    /// once so much has been sent on a connection, of any.
    pub steering_size_bytes_min: u64,
    /// Bytes that may wait unsent in the kernel for each client connection, at least 1; `None`: the system's.
    pub tcp_notsent_lowat_bytes: Option<u32>,
    /// What becomes of the kernel's slow start after idle.
    pub tcp_slow_start_after_idle: SlowStartAfterIdle,
    /// Clients that may purge, by their addresses.
    pub purge_from: Vec<Prefix>,
    /// Where the admin interface listens.
    pub admin: Option<SocketAddr>,
    /// Where the request log goes.
    pub log: LogTo,
    /// The policy that requests run through, if any: a file of VCL.
    pub policy: Option<PathBuf>,
    /// MaxMind databases, for what a policy asks of where clients are.
    pub geoip: Vec<PathBuf>,
    /// Where the bundle of steering rules and experiments comes from, if it does.
    pub bundle: Option<BundleSource>,
    /// What is stored, and for how long.
    pub rules: Rules,
    /// Bytes of the slices in which content is fetched that is too large to be stored whole, or that is asked for far from
    /// its start; 0: none.
    pub slice_bytes: u64,
    /// What becomes of a stored response that nobody reads any more while it arrives.
    pub abandoned_fills: AbandonedFills,
    /// How long anything may take.
    pub timeouts: Timeouts,
    /// What a head may take up, a request's and a response's.
    pub head: thalweg_http::Limits,
    /// Client connections at a time, of all workers; more are closed as they come.
    pub connections_max: usize,
    /// Connections in use to all backends, by each worker. A fetch beyond them waits for one as long as connecting
    /// may take, then fails.
    pub backend_connections_max: usize,
}

/// The disk tier's place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskPlace {
    /// The directory; it is made if it is not there.
    pub directory: PathBuf,
    /// The most that files in it may take.
    pub bytes_max: u64,
}

/// Where the request log goes. Who follows over the admin interface gets it in any case.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum LogTo {
    /// Nowhere.
    #[default]
    Off,
    /// Standard output.
    Stdout,
    /// Appended to a file.
    File(PathBuf),
}

/// What becomes of a stored response that nobody reads any more while it arrives. A refresh behind a stale response is
/// always finished.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AbandonedFills {
    /// It is fetched to its end.
    Finish,
    /// It is fetched to its end if half of it has come or little is missing; without a length, as long as little has
    /// come since the last reader left.
    #[default]
    Half,
    /// Its fetch ends.
    Cancel,
}

/// Whether the kernel lets a connection begin again from the initial window after a pause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SlowStartAfterIdle {
    /// As the system has it.
    #[default]
    Keep,
    /// No, for the whole network namespace; where this process may not say so, as the system has it.
    Off,
}

/// How long anything may take.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// Until a backend accepts a connection.
    pub connect: Duration,
    /// From a request's last byte to the end of the backend's head.
    pub first_byte: Duration,
    /// Between two reads of a backend's content.
    pub between_bytes: Duration,
    /// A client's connection without a request.
    pub idle: Duration,
    /// From the first byte of a request's head to its last.
    pub head: Duration,
    /// While a client takes nothing of what is sent to it, or sends nothing of its request's content.
    pub send_stall: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(2),
            first_byte: Duration::from_secs(15),
            between_bytes: Duration::from_secs(15),
            idle: Duration::from_secs(75),
            head: Duration::from_secs(10),
            send_stall: Duration::from_secs(60),
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: (Ipv4Addr::UNSPECIFIED, 8080).into(),
            backends: Vec::new(),
            hosts: Vec::new(),
            memory_bytes: 1 << 30,
            disk: None,
            state: None,
            threads: None,
            congestion_control: None,
            steering_size_bytes_min: 100_000,
            tcp_notsent_lowat_bytes: None,
            tcp_slow_start_after_idle: SlowStartAfterIdle::default(),
            purge_from: Prefix::LOOPBACK.into(),
            admin: Some((Ipv4Addr::LOCALHOST, 8082).into()),
            log: LogTo::Off,
            policy: None,
            geoip: Vec::new(),
            bundle: None,
            rules: Rules::default(),
            slice_bytes: 4 << 20,
            abandoned_fills: AbandonedFills::default(),
            timeouts: Timeouts::default(),
            head: thalweg_http::Limits::default(),
            connections_max: 16_000,
            backend_connections_max: 1000,
        }
    }
}
