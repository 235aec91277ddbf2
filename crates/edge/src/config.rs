//! Edge configuration: resolved values, already validated by the caller.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use thalweg_cache::rules::Rules;
use thalweg_record::Prefix;
use thalweg_tcp::congestion::CongestionControl;

use crate::backend::url::BackendUrl;
use thalweg_surface::{ClientTls, TokenFile};

use crate::bundle::BundleSource;

/// Configuration of an edge.
#[derive(Debug, Clone)]
pub struct Config {
    /// Address where clients connect.
    pub listen: SocketAddr,
    /// Backends to fetch from; at least one unless a policy declares its own.
    pub backends: Vec<BackendUrl>,
    /// Hosts to serve; empty for any. Requests for other hosts get 421.
    pub hosts: Vec<String>,
    /// Memory for content, in bytes.
    pub memory_bytes: u64,
    /// The disk tier; `None` for a cache in memory only.
    pub disk: Option<DiskPlace>,
    /// Directory for the last good bundle and the response counts, which then survive a crash;
    /// created if missing. `None` stores neither.
    pub state: Option<PathBuf>,
    /// Number of worker threads; `None` for one per core available to this process.
    pub threads: Option<NonZeroUsize>,
    /// Congestion control of client connections; `None` for the system's default.
    pub congestion_control: Option<CongestionControl>,
    /// Minimum response size, in bytes, at which a steering rule or experiment changes the
    /// congestion control. On a connection that has already sent this many bytes, any response
    /// qualifies.
    pub steering_size_bytes_min: u64,
    /// Limit on unsent bytes in the kernel per client connection, at least 1; `None` for the
    /// system's default.
    pub tcp_notsent_lowat_bytes: Option<u32>,
    /// Minimum size, in bytes, of a response whose delivery to the client is measured.
    pub delivery_bytes_min: u64,
    /// Whether to turn off the kernel's slow start after idle.
    pub tcp_slow_start_after_idle: SlowStartAfterIdle,
    /// Whether publish requests (unsafe methods below `/ingest/`) are forwarded.
    pub forwards_ingest: bool,
    /// Client addresses that may purge.
    pub purge_from: Vec<Prefix>,
    /// Address of the admin interface, if enabled.
    pub admin: Option<SocketAddr>,
    /// Destination of the request log.
    pub log: LogDestination,
    /// How long response records are kept for followers that lag or reconnect.
    pub records_kept: Duration,
    /// Approximate memory limit for the records kept, in bytes.
    pub records_kept_bytes_max: u64,
    /// Responses of one client in this many are recorded; 1 for all clients.
    pub records_sample: NonZeroU32,
    /// Salt of the draw that samples clients: edges with the same salt sample the same clients.
    pub records_sample_salt: String,
    /// VCL file of the initial policy, if configured.
    pub policy: Option<PathBuf>,
    /// MaxMind databases for client geolocation in policies.
    pub geoip: Vec<PathBuf>,
    /// Source of the bundle (steering rules and experiments), if configured.
    pub bundle: Option<BundleSource>,
    /// Token presented to the bundle server, if it requires one.
    pub bundle_token: Option<TokenFile>,
    /// TLS to the bundle server, for an `https` URL.
    pub bundle_tls: Option<ClientTls>,
    /// Rules that decide which responses are stored, and for how long.
    pub rules: Rules,
    /// Slice size in bytes; 0 disables slicing. Content is sliced if it is too large to store as
    /// one response, or if a requested range starts far from its beginning.
    pub slice_bytes: u64,
    /// Whether a fill continues after its last reader leaves.
    pub abandoned_fills: AbandonedFills,
    /// All timeouts.
    pub timeouts: Timeouts,
    /// Size limits for request and response heads.
    pub head: thalweg_http::Limits,
    /// Maximum number of open client connections across all workers; further connections are closed
    /// immediately.
    pub connections_max: usize,
    /// Maximum number of backend connections in use per worker, across all backends. Above the
    /// limit, a fetch waits up to the connect timeout for a connection, then fails.
    pub backend_connections_max: usize,
}

/// Location and size of the disk tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskPlace {
    /// Directory of the disk tier; created if missing.
    pub directory: PathBuf,
    /// Maximum total size of the files in `directory`, in bytes.
    pub bytes_max: u64,
}

/// Destination of the request log. Followers on the admin interface receive records regardless.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum LogDestination {
    /// No log.
    #[default]
    Off,
    /// Standard output.
    Stdout,
    /// A file, to which records are appended.
    File(PathBuf),
}

/// Whether a fill continues after its last reader leaves. Background revalidation always finishes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AbandonedFills {
    /// Fetch the rest.
    Finish,
    /// Fetch the rest if half of the content has arrived or little is missing. If the length is
    /// unknown, fetch a limited number of further bytes.
    #[default]
    Half,
    /// Cancel the fetch.
    Cancel,
}

/// Whether the kernel restarts a connection from the initial window after an idle period.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SlowStartAfterIdle {
    /// Keep the system's setting.
    #[default]
    Keep,
    /// Turn slow start after idle off for the whole network namespace. Without permission, keep the
    /// system's setting.
    Off,
}

/// Timeouts of an edge.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// Maximum time until a backend accepts a connection.
    pub connect: Duration,
    /// Maximum time from the last byte of the request to the end of the response head.
    pub first_byte: Duration,
    /// Maximum time between two reads of a backend's content.
    pub between_bytes: Duration,
    /// Maximum time for which a client connection stays open without a request.
    pub idle: Duration,
    /// Maximum time from the first to the last byte of a request head.
    pub head: Duration,
    /// Maximum time for which a client may neither read its response nor send request content.
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
            delivery_bytes_min: 10_000,
            tcp_slow_start_after_idle: SlowStartAfterIdle::default(),
            forwards_ingest: false,
            purge_from: Prefix::LOOPBACK.into(),
            admin: Some((Ipv4Addr::LOCALHOST, 8082).into()),
            log: LogDestination::Off,
            records_kept: Duration::from_secs(60),
            records_kept_bytes_max: 128 << 20,
            records_sample: NonZeroU32::MIN,
            records_sample_salt: String::new(),
            policy: None,
            geoip: Vec::new(),
            bundle: None,
            bundle_token: None,
            bundle_tls: None,
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
