//! The compared servers: Thalweg and Debian's nginx, Varnish and Traffic Server. Each is a caching
//! proxy for the same backend, configured as its documentation recommends for such content.
//!
//! All have one core, one serving thread (Varnish: one thread pool, with a thread per request), a
//! store of the same size, keep-alive on both sides, and long idle timeouts. Unless a case disables
//! it, all write a log with one JSON line per response, as in production. Like Thalweg's, nginx's
//! lines include the kernel's view of the connection, which Varnish and Traffic Server cannot
//! report.

use std::cell::Cell;
use std::fmt::Write as _;
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::backend::CONTENT_BYTES_MAX;
use crate::support::{self, Scratch, Server};

const NGINX: &str = "/usr/sbin/nginx";
const VARNISH: &str = "/usr/sbin/varnishd";
const VARNISH_LOGGER: &str = "/usr/bin/varnishncsa";
const TRAFFIC_SERVER: &str = "/usr/bin/traffic_server";
/// Store sizes, in memory and on disk.
const MEMORY_MIB: u64 = 512;
const DISK_MIB: u64 = 2048;
/// Size of Thalweg's memory store in the disk case. It is far smaller than the case's content, so
/// that the disk is measured, and at least four times the longest response, because a response may
/// use at most a quarter of the memory.
const MEMORY_BEFORE_DISK_MIB: u64 = 24;
/// Disables Varnish's shared memory log of requests, for comparisons without logs.
const VARNISH_SILENT: &str = "vsl_mask=-Begin,-End,-Link,-SessOpen,-SessClose,-ReqStart,-ReqMethod,-ReqURL,-ReqProtocol,\
    -ReqHeader,-ReqUnset,-RespProtocol,-RespStatus,-RespReason,-RespHeader,-RespUnset,-VCL_call,-VCL_return,-Hit,\
    -Timestamp,-ReqAcct,-BereqMethod,-BereqURL,-BereqProtocol,-BereqHeader,-BereqUnset,-BerespProtocol,-BerespStatus,\
    -BerespReason,-BerespHeader,-BerespUnset,-BereqAcct,-BackendOpen,-BackendClose,-Storage,-Fetch_Body,-TTL,-Length";
/// Log formats of the peers, with the fields of Thalweg's record that each peer supports.
const NGINX_RECORD: &str = r#"{"time":"$time_iso8601","client":"$remote_addr:$remote_port","method":"$request_method","host":"$http_host","path":"$request_uri","status":$status,"bytes":$body_bytes_sent,"duration_s":$request_time,"cache":"$upstream_cache_status","protocol":"$server_protocol","rtt_us":"$tcpinfo_rtt","snd_cwnd":"$tcpinfo_snd_cwnd"}"#;
const VARNISH_RECORD: &str = r#"{"time":"%{%FT%TZ}t","client":"%h","method":"%m","host":"%{Host}i","path":"%U%q","status":%s,"bytes":%b,"ttfb_s":%{Varnish:time_firstbyte}x,"duration_us":%D,"cache":"%{Varnish:hitmiss}x","protocol":"%H"}"#;
const TRAFFIC_SERVER_RECORD: &str = r#"{"time":"%<cqtq>","client":"%<chi>:%<chp>","method":"%<cqhm>","host":"%<{Host}cqh>","path":"%<cqup>","status":%<pssc>,"bytes":%<pscl>,"duration_ms":%<ttms>,"cache":"%<crc>","protocol":"%<cqpv>"}"#;
/// Maximum time for a peer to write its buffered log.
const LOG_TIME_MAX: Duration = Duration::from_secs(15);
const CONNECTIONS_MAX: usize = 16_000;
const IDLE_S: u64 = 600;

/// A program under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Thalweg,
    Nginx,
    /// nginx serving plain files, without proxy or cache. All of its cost is the cost of sending, a
    /// lower bound for the other servers.
    NginxFiles,
    Varnish,
    TrafficServer,
}

impl Kind {
    pub(crate) const PROXIES: [Self; 4] = [Self::Thalweg, Self::Nginx, Self::Varnish, Self::TrafficServer];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Thalweg => "thalweg",
            Self::Nginx => "nginx",
            Self::NginxFiles => "nginx files",
            Self::Varnish => "varnish",
            Self::TrafficServer => "trafficserver",
        }
    }
}

/// Where a server stores content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Store {
    Memory,
    Disk,
}

/// Whether a server logs a record of each response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Records {
    On,
    Off,
}

/// The backend and file locations of all servers.
pub(crate) struct Site {
    pub(crate) backend: SocketAddr,
    /// Directory in a tmpfs.
    pub(crate) memory: Scratch,
    pub(crate) disk: Scratch,
}

/// A running server.
pub(crate) struct Peer {
    pub(crate) kind: Kind,
    server: Server,
    /// The process that writes the log, if it is separate from the server.
    logger: Option<Server>,
    /// Log file, if any.
    log: Option<PathBuf>,
    logged_bytes: Cell<u64>,
}

impl Peer {
    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address
    }

    pub(crate) fn admin(&self) -> Option<SocketAddr> {
        self.server.admin
    }

    fn processes(&self) -> impl Iterator<Item = &Server> {
        std::iter::once(&self.server).chain(&self.logger)
    }

    /// Returns the CPU time of all processes of the server, in nanoseconds.
    pub(crate) fn cpu_ns(&self) -> u64 {
        self.processes().map(Server::cpu_ns).sum()
    }

    /// Returns the CPU time of all threads whose names start with `name`, in nanoseconds.
    pub(crate) fn threads_cpu_ns(&self, name: &str) -> u64 {
        self.server.threads_cpu_ns(name)
    }

    /// Returns the resident memory of all processes of the server, in bytes.
    pub(crate) fn rss_bytes(&self) -> u64 {
        self.processes().map(Server::rss_bytes).sum()
    }

    /// Truncates the log, which is stored in memory and would grow by several GB per run.
    pub(crate) fn empty_log(&self) -> Result<()> {
        if let Some(log) = self.log.as_ref().filter(|log| log.exists()) {
            let file = File::options().write(true).open(log)?;
            self.logged_bytes.set(self.logged_bytes.get() + file.metadata()?.len());
            file.set_len(0)?;
        }
        Ok(())
    }

    /// Returns an error if the log is empty, because then the cost of logging was not measured.
    pub(crate) fn check_log(&self) -> Result<()> {
        let deadline = Instant::now() + LOG_TIME_MAX;
        while self.log.is_some() && self.logged_bytes.get() == 0 {
            ensure!(Instant::now() < deadline, "{} has written no log", self.kind.name());
            self.empty_log()?;
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }
}

impl Site {
    pub(crate) fn new(backend: SocketAddr) -> Result<Self> {
        Ok(Self {
            backend,
            memory: Scratch::new(Path::new("/dev/shm"), "bench-edge")?,
            disk: Scratch::new(&std::env::temp_dir(), "bench-edge")?,
        })
    }

    /// Starts a server that logs records. Its disk store survives when the server stops.
    pub(crate) fn start(&self, kind: Kind, store: Store) -> Result<Peer> {
        self.start_with(kind, store, Records::On)
    }

    pub(crate) fn start_with(&self, kind: Kind, store: Store, records: Records) -> Result<Peer> {
        let name = kind.name().replace(' ', "-");
        let name = if records == Records::Off { format!("{name}-without") } else { name };
        let directory = match store {
            Store::Memory => self.memory.0.join(&name),
            Store::Disk => self.disk.0.join(&name),
        };
        let logs = self.memory.0.join("logs");
        std::fs::create_dir_all(&directory)?;
        std::fs::create_dir_all(&logs)?;
        let log = (records == Records::On).then(|| match kind {
            Kind::TrafficServer => directory.join("log/records.log"),
            _ => logs.join(&name),
        });
        let (at, log_to) = (&*directory, log.as_deref());
        let started = match kind {
            Kind::Thalweg => thalweg(store, self.backend, at, log_to).map(|server| (server, None)),
            Kind::Nginx | Kind::NginxFiles => {
                nginx(kind, store, self.backend, at, log_to).map(|server| (server, None))
            }
            Kind::Varnish => {
                varnish(store, self.backend, at, &self.memory.0.join(format!("{name}-work")), log_to)
            }
            Kind::TrafficServer => {
                traffic_server(store, self.backend, at, log_to).map(|server| (server, None))
            }
        };
        let (server, logger) = started.with_context(|| kind.name())?;
        Ok(Peer { kind, server, logger, log, logged_bytes: Cell::new(0) })
    }

    pub(crate) fn start_all(&self, kinds: &[Kind], store: Store) -> Result<Peers> {
        self.start_all_with(kinds, store, Records::On)
    }

    pub(crate) fn start_all_with(&self, kinds: &[Kind], store: Store, records: Records) -> Result<Peers> {
        kinds.iter().map(|kind| self.start_with(*kind, store, records)).collect::<Result<_>>().map(Peers)
    }
}

/// Servers running at the same time.
pub(crate) struct Peers(pub(crate) Vec<Peer>);

impl Peers {
    pub(crate) fn get(&self, kind: Kind) -> &Peer {
        self.0.iter().find(|peer| peer.kind == kind).expect("every compared server is started")
    }
}

fn thalweg(store: Store, backend: SocketAddr, directory: &Path, log: Option<&Path>) -> Result<Server> {
    let log = log.map(|path| path.display().to_string());
    let idle = format!("{IDLE_S}s");
    let disk = format!("{}={DISK_MIB}MiB", directory.display());
    let memory_mib = if store == Store::Disk { MEMORY_BEFORE_DISK_MIB } else { MEMORY_MIB };
    let memory = format!("{memory_mib}MiB");
    let mut more = vec!["--memory", &memory, "--idle-timeout", &idle];
    if store == Store::Disk {
        more.extend(["--disk", &disk]);
    }
    if let Some(log) = &log {
        more.extend(["--log", log]);
    }
    support::start_edge(backend, &more)
}

/// Starts nginx with a file cache, in a tmpfs or on disk.
///
/// `tcp_nopush` saves a quarter of the CPU time at 1 KB and from 1 MB up. At 100 KB it saves
/// nothing and makes nginx wait 40 ms for a delayed acknowledgement.
fn nginx(
    kind: Kind,
    store: Store,
    backend: SocketAddr,
    directory: &Path,
    log: Option<&Path>,
) -> Result<Server> {
    let address = support::free_address()?;
    let at = directory.display();
    let log = log.map_or_else(
        || "access_log off;".to_owned(),
        |log| {
            let log = log.display();
            format!("log_format records escape=json '{NGINX_RECORD}'; access_log {log} records buffer=64k flush=1s;")
        },
    );
    let content = match kind {
        Kind::NginxFiles => {
            files(directory)?;
            format!("root {at}; etag on; add_header Cache-Control max-age=3600;")
        }
        _ => "proxy_pass http://backend; proxy_http_version 1.1; proxy_set_header Connection \"\"; proxy_cache store;
              proxy_buffer_size 16k; proxy_buffers 16 32k; proxy_busy_buffers_size 128k;
              proxy_cache_lock on; proxy_cache_lock_timeout 60s; proxy_cache_lock_age 60s;"
            .to_owned(),
    };
    let config = format!(
        "daemon off; worker_processes 1; pid {at}/nginx.pid; user root; error_log stderr;
         events {{ worker_connections {CONNECTIONS_MAX}; multi_accept on; }}
         http {{
           {log} sendfile on; tcp_nopush on; keepalive_requests 1000000000; keepalive_timeout {IDLE_S};
           open_file_cache max=10000 inactive=600s;
           client_body_temp_path {at}/t; proxy_temp_path {at}/t; fastcgi_temp_path {at}/t; uwsgi_temp_path {at}/t;
           scgi_temp_path {at}/t;
           proxy_cache_path {at}/cache levels=1:2 keys_zone=store:64m max_size={max_mib}m inactive=1h use_temp_path=off;
           upstream backend {{ server {backend}; keepalive 64; keepalive_requests 1000000000; }}
           server {{
             listen {address} backlog=4096;
             location / {{ {content} }}
             location /bytes/100000/ {{ tcp_nopush off; {content} }}
           }}
         }}",
        max_mib = if store == Store::Memory { MEMORY_MIB } else { DISK_MIB },
    );
    let path = directory.join("nginx.conf");
    std::fs::write(&path, config)?;
    let text = |path: &Path| path.display().to_string();
    let arguments = ["-p".into(), text(directory), "-c".into(), text(&path), "-e".into(), "stderr".into()];
    support::start_other(NGINX, &arguments, address, &directory.join("output"))
}

/// Writes the content of the backend's `/bytes/N/…` responses to files.
fn files(directory: &Path) -> Result<()> {
    let content: Vec<u8> = (0..CONTENT_BYTES_MAX).map(|at| (at ^ (at >> 8)) as u8).collect();
    for (_, length) in crate::cases::SIZES {
        let parent = directory.join("bytes").join(length.to_string());
        std::fs::create_dir_all(&parent)?;
        std::fs::write(parent.join("0"), &content[..length])?;
    }
    Ok(())
}

/// Starts Varnish with enough threads for all connections served concurrently.
///
/// The working directory, with its shared memory log, is in a tmpfs, as Varnish's documentation
/// recommends.
fn varnish(
    store: Store,
    backend: SocketAddr,
    directory: &Path,
    work: &Path,
    log: Option<&Path>,
) -> Result<(Server, Option<Server>)> {
    let address = support::free_address()?;
    let storage = match store {
        Store::Memory => format!("malloc,{MEMORY_MIB}m"),
        Store::Disk => format!("file,{}/store,{DISK_MIB}m", directory.display()),
    };
    let idle = format!("timeout_idle={IDLE_S}");
    let mut parameters = vec![
        "thread_pools=1",
        "thread_pool_min=1200",
        "thread_pool_max=5000",
        "thread_pool_add_delay=0",
        "listen_depth=4096",
        // One large response may evict many small responses.
        "nuke_limit=10000",
        "http_gzip_support=off",
        &idle,
    ];
    if log.is_none() {
        parameters.push(VARNISH_SILENT);
    }
    let mut arguments: Vec<String> = vec!["-F".into(), "-j".into(), "none".into(), "-n".into()];
    arguments.push(work.display().to_string());
    arguments.extend(["-a".into(), address.to_string(), "-b".into(), backend.to_string()]);
    arguments.extend(["-s".into(), storage]);
    arguments.extend(parameters.iter().flat_map(|parameter| ["-p".into(), (*parameter).to_owned()]));
    let server = support::start_other(VARNISH, &arguments, address, &directory.join("output"))?;
    let logger = log.map(|log| {
        let (work, log) = (work.display().to_string(), log.display().to_string());
        let arguments = ["-n", &work, "-a", "-w", &log, "-j", "-F", VARNISH_RECORD].map(str::to_owned);
        support::start_other(VARNISH_LOGGER, &arguments, address, &directory.join("logger-output"))
    });
    Ok((server, logger.transpose()?))
}

/// Starts Traffic Server with a single-file store. Hot content is also kept in memory, unless the
/// disk is measured.
fn traffic_server(store: Store, backend: SocketAddr, directory: &Path, log: Option<&Path>) -> Result<Server> {
    let address = support::free_address()?;
    let at = directory.display();
    let mut root = String::new();
    for (name, path) in [
        ("prefix", ""),
        ("exec_prefix", ""),
        ("sysconfdir", "/etc"),
        ("datadir", ""),
        ("includedir", ""),
        ("localstatedir", "/run"),
        ("runtimedir", "/run"),
        ("logdir", "/log"),
        ("cachedir", "/cache"),
    ] {
        std::fs::create_dir_all(format!("{at}{path}"))?;
        writeln!(root, "{name}: {at}{path}")?;
    }
    root += "bindir: /usr/bin\nsbindir: /usr/bin\nlibdir: /usr/lib/trafficserver\n\
             libexecdir: /usr/lib/trafficserver/modules\n";
    let runroot = directory.join("runroot.yaml");
    std::fs::write(&runroot, root)?;
    let (store_mib, memory_bytes) = match store {
        Store::Memory => (MEMORY_MIB, MEMORY_MIB << 20),
        Store::Disk => (DISK_MIB, 0),
    };
    let etc = directory.join("etc");
    std::fs::write(etc.join("records.config"), settings(address, memory_bytes, log.is_some()))?;
    let logging = format!(
        "logging:\n  formats:\n    - name: records\n      format: '{TRAFFIC_SERVER_RECORD}'\n  \
         logs:\n    - filename: records\n      format: records\n      mode: ascii\n"
    );
    std::fs::write(etc.join("logging.yaml"), logging)?;
    std::fs::write(etc.join("storage.config"), format!("{at}/cache {store_mib}M\n"))?;
    std::fs::write(etc.join("remap.config"), format!("map / http://{backend}/\n"))?;
    let allow = "ip_allow:\n  - apply: in\n    ip_addrs: 127.0.0.1\n    action: allow\n    methods: ALL\n";
    std::fs::write(etc.join("ip_allow.yaml"), allow)?;
    let arguments = [format!("--run-root={}", runroot.display())];
    support::start_other(TRAFFIC_SERVER, &arguments, address, &directory.join("output"))
}

/// Returns Traffic Server's settings: a single network thread, and shared fills as described in its
/// manual under "reducing origin requests".
fn settings(address: SocketAddr, memory_bytes: u64, has_log: bool) -> String {
    let mut text = String::new();
    // 2 logs transactions, but writes no separate error log.
    let logging = if has_log { "2" } else { "0" };
    let ports = format!("{}:ip-in={}", address.port(), address.ip());
    for (name, kind, value) in [
        ("admin.user_id", "STRING", "#-1"),
        ("crash_log_helper", "STRING", "NULL"),
        ("http.server_ports", "STRING", &*ports),
        ("exec_thread.autoconfig", "INT", "0"),
        ("exec_thread.limit", "INT", "1"),
        ("exec_thread.affinity", "INT", "0"),
        ("accept_threads", "INT", "0"),
        ("task_threads", "INT", "1"),
        ("log.logging_enabled", "INT", logging),
        ("log.rolling_enabled", "INT", "0"),
        ("url_remap.remap_required", "INT", "1"),
        ("http.wait_for_cache", "INT", "1"),
        ("http.cache.required_headers", "INT", "0"),
        ("http.keep_alive_no_activity_timeout_in", "INT", &IDLE_S.to_string()),
        ("http.transaction_no_activity_timeout_in", "INT", &IDLE_S.to_string()),
        ("http.server_session_sharing.pool", "STRING", "thread"),
        ("http.background_fill_active_timeout", "INT", "0"),
        ("http.background_fill_completed_threshold", "FLOAT", "0.0"),
        ("http.cache.max_open_read_retries", "INT", "100"),
        ("http.cache.open_read_retry_time", "INT", "10"),
        ("http.cache.open_write_fail_action", "INT", "5"),
        ("cache.enable_read_while_writer", "INT", "1"),
        ("cache.read_while_writer.max_retries", "INT", "10"),
        ("cache.read_while_writer_retry.delay", "INT", "50"),
        ("cache.max_doc_size", "INT", "0"),
        ("cache.agg_write_backlog", "INT", "134217728"),
        ("cache.ram_cache.size", "INT", &memory_bytes.to_string()),
        ("cache.ram_cache_cutoff", "INT", "16777216"),
        ("net.connections_throttle", "INT", "30000"),
    ] {
        text += &format!("CONFIG proxy.config.{name} {kind} {value}\n");
    }
    text
}

/// Returns whether the edge supports a disk store.
pub(crate) fn has_disk() -> Result<bool> {
    let help = Command::new(support::thalweg()?).args(["edge", "--help"]).output()?;
    Ok(String::from_utf8_lossy(&help.stdout).contains("--disk"))
}

/// Returns the version strings of the peers.
pub(crate) fn versions() -> Result<String> {
    let mut versions = Vec::new();
    for (program, argument) in [(NGINX, "-v"), (VARNISH, "-V"), (TRAFFIC_SERVER, "--version")] {
        let output = Command::new(program).arg(argument).output();
        let output = output.with_context(|| format!("{program}: tools/setup bench installs it"))?;
        let text = [output.stdout, output.stderr].concat();
        let line = String::from_utf8_lossy(&text).lines().next().unwrap_or_default().to_owned();
        versions.push(line);
    }
    Ok(versions.join("; "))
}
