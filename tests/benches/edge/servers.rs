//! The servers that are compared: ours and Debian's nginx, Varnish and Traffic Server, each as a caching proxy before
//! the same backend, each configured as its documentation advises for such content.
//!
//! All have one core, one thread that serves (Varnish: one pool of threads, for it has one for each request), a store of
//! the same size, keep-alive on both sides, no log, and connections that may idle for long.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::backend::CONTENT_BYTES_MAX;
use crate::support::{self, Scratch, Server};

const NGINX: &str = "/usr/sbin/nginx";
const VARNISH: &str = "/usr/sbin/varnishd";
const TRAFFIC_SERVER: &str = "/usr/bin/traffic_server";
/// The store for content, in memory and on disk.
const MEMORY_MIB: u64 = 512;
const DISK_MIB: u64 = 2048;
/// Our memory before a disk: far less than the content of the case, so that it is the disk that is measured, and no less
/// than four times its longest response, for a response may take a quarter.
const MEMORY_BEFORE_DISK_MIB: u64 = 24;
/// What its log has for each request, left out: the others have no log either.
const VARNISH_SILENT: &str = "vsl_mask=-Begin,-End,-Link,-SessOpen,-SessClose,-ReqStart,-ReqMethod,-ReqURL,-ReqProtocol,\
    -ReqHeader,-ReqUnset,-RespProtocol,-RespStatus,-RespReason,-RespHeader,-RespUnset,-VCL_call,-VCL_return,-Hit,\
    -Timestamp,-ReqAcct,-BereqMethod,-BereqURL,-BereqProtocol,-BereqHeader,-BereqUnset,-BerespProtocol,-BerespStatus,\
    -BerespReason,-BerespHeader,-BerespUnset,-BereqAcct,-BackendOpen,-BackendClose,-Storage,-Fetch_Body,-TTL,-Length";
const CONNECTIONS_MAX: usize = 16_000;
const IDLE_S: u64 = 600;

/// A program under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Thalweg,
    Nginx,
    /// nginx with the content as files of its own: no proxy, no cache. What it costs to send, and the floor of the peers.
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

/// Where content is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Store {
    Memory,
    Disk,
}

/// What all servers stand before, and where their files lie.
pub(crate) struct Site {
    pub(crate) backend: SocketAddr,
    /// In a tmpfs.
    pub(crate) memory: Scratch,
    pub(crate) disk: Scratch,
}

/// A running server.
pub(crate) struct Peer {
    pub(crate) kind: Kind,
    pub(crate) server: Server,
}

impl Peer {
    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address
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

    /// Starts a server. What it has stored on disk outlives it.
    pub(crate) fn start(&self, kind: Kind, store: Store) -> Result<Peer> {
        let directory = match store {
            Store::Memory => self.memory.0.join(kind.name().replace(' ', "-")),
            Store::Disk => self.disk.0.join(kind.name()),
        };
        std::fs::create_dir_all(&directory)?;
        let server = match kind {
            Kind::Thalweg => thalweg(store, self.backend, &directory),
            Kind::Nginx | Kind::NginxFiles => nginx(kind, store, self.backend, &directory),
            Kind::Varnish => varnish(store, self.backend, &directory, &self.memory.0.join("varnish-work")),
            Kind::TrafficServer => traffic_server(store, self.backend, &directory),
        };
        Ok(Peer { kind, server: server.with_context(|| kind.name())? })
    }

    pub(crate) fn start_all(&self, kinds: &[Kind], store: Store) -> Result<Peers> {
        kinds.iter().map(|kind| self.start(*kind, store)).collect::<Result<_>>().map(Peers)
    }
}

/// Servers that run at the same time.
pub(crate) struct Peers(pub(crate) Vec<Peer>);

impl Peers {
    pub(crate) fn get(&self, kind: Kind) -> &Peer {
        self.0.iter().find(|peer| peer.kind == kind).expect("a server that was started")
    }
}

fn thalweg(store: Store, backend: SocketAddr, directory: &Path) -> Result<Server> {
    let idle = format!("{IDLE_S}s");
    let disk = format!("{}={DISK_MIB}MiB", directory.display());
    let memory_mib = if store == Store::Disk { MEMORY_BEFORE_DISK_MIB } else { MEMORY_MIB };
    let memory = format!("{memory_mib}MiB");
    let mut more = vec!["--memory", &memory, "--idle-timeout", &idle];
    if store == Store::Disk {
        more.extend(["--disk", &disk]);
    }
    support::start_edge(backend, &more)
}

/// Its cache is files: in a tmpfs, or on the disk.
///
/// tcp_nopush is worth a quarter of the CPU time from 1 MB up and at 1 KB. At 100 KB it has it wait 40 ms for a delayed
/// acknowledgement, and is worth nothing.
fn nginx(kind: Kind, store: Store, backend: SocketAddr, directory: &Path) -> Result<Server> {
    let address = support::free_address()?;
    let at = directory.display();
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
           access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000000; keepalive_timeout {IDLE_S};
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
    support::start_other(NGINX, &arguments, address, &directory.join("said"))
}

/// The backend's `/bytes/N/…` as files.
fn files(directory: &Path) -> Result<()> {
    let content: Vec<u8> = (0..CONTENT_BYTES_MAX).map(|at| (at ^ (at >> 8)) as u8).collect();
    for (_, length) in crate::cases::SIZES {
        let parent = directory.join("bytes").join(length.to_string());
        std::fs::create_dir_all(&parent)?;
        std::fs::write(parent.join("0"), &content[..length])?;
    }
    Ok(())
}

/// Threads for all connections that are served at a time are there from the start.
///
/// Its working directory, with the memory of its log, is in a tmpfs as it advises.
fn varnish(store: Store, backend: SocketAddr, directory: &Path, work: &Path) -> Result<Server> {
    let address = support::free_address()?;
    let storage = match store {
        Store::Memory => format!("malloc,{MEMORY_MIB}m"),
        Store::Disk => format!("file,{}/store,{DISK_MIB}m", directory.display()),
    };
    let idle = format!("timeout_idle={IDLE_S}");
    let parameters = [
        "thread_pools=1",
        "thread_pool_min=1200",
        "thread_pool_max=5000",
        "thread_pool_add_delay=0",
        "listen_depth=4096",
        // One response may take the room of many small ones.
        "nuke_limit=10000",
        "http_gzip_support=off",
        VARNISH_SILENT,
        &idle,
    ];
    let mut arguments: Vec<String> = vec!["-F".into(), "-j".into(), "none".into(), "-n".into()];
    arguments.push(work.display().to_string());
    arguments.extend(["-a".into(), address.to_string(), "-b".into(), backend.to_string()]);
    arguments.extend(["-s".into(), storage]);
    arguments.extend(parameters.iter().flat_map(|parameter| ["-p".into(), (*parameter).to_owned()]));
    support::start_other(VARNISH, &arguments, address, &directory.join("said"))
}

/// Its store is one file; what is hot is also kept in memory, except where the disk is measured.
fn traffic_server(store: Store, backend: SocketAddr, directory: &Path) -> Result<Server> {
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
    std::fs::write(etc.join("records.config"), records(address, memory_bytes))?;
    std::fs::write(etc.join("storage.config"), format!("{at}/cache {store_mib}M\n"))?;
    std::fs::write(etc.join("remap.config"), format!("map / http://{backend}/\n"))?;
    let allow = "ip_allow:\n  - apply: in\n    ip_addrs: 127.0.0.1\n    action: allow\n    methods: ALL\n";
    std::fs::write(etc.join("ip_allow.yaml"), allow)?;
    let arguments = [format!("--run-root={}", runroot.display())];
    support::start_other(TRAFFIC_SERVER, &arguments, address, &directory.join("said"))
}

/// One thread for the network; a fill in progress is served to others, as "reducing origin requests" of its manual says.
fn records(address: SocketAddr, memory_bytes: u64) -> String {
    let mut text = String::new();
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
        ("log.logging_enabled", "INT", "0"),
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

/// Whether the edge can store on a disk.
pub(crate) fn has_disk() -> Result<bool> {
    let help = Command::new(support::thalweg()?).args(["edge", "--help"]).output()?;
    Ok(String::from_utf8_lossy(&help.stdout).contains("--disk"))
}

/// What the peers say of themselves.
pub(crate) fn versions() -> Result<String> {
    let mut versions = Vec::new();
    for (program, argument) in [(NGINX, "-v"), (VARNISH, "-V"), (TRAFFIC_SERVER, "--version")] {
        let said = Command::new(program).arg(argument).output();
        let said = said.with_context(|| format!("{program}: tools/setup bench installs it"))?;
        let text = [said.stdout, said.stderr].concat();
        let line = String::from_utf8_lossy(&text).lines().next().unwrap_or_default().to_owned();
        versions.push(line);
    }
    Ok(versions.join("; "))
}
