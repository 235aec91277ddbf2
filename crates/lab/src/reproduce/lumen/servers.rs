//! What is measured, as processes on loopback: an edge and Debian's nginx, each as a caching proxy before a backend, and that
//! backend, a server of known content.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use super::{Bench, Cache, Needs};
use crate::load::serve::Server;
use crate::process::Running;

/// The largest number of connections of an edge or an nginx.
const CONNECTIONS_MAX: u64 = 19_000;
/// The memory of an edge.
const MEMORY: &str = "256MiB";
/// Where Debian has programs of servers, which is not in everybody's PATH.
const SERVERS: &str = "/usr/sbin";

/// Any free port of loopback.
pub(super) const ANY: &str = "127.0.0.1:0";

/// A directory that goes with this.
#[derive(Debug)]
pub(super) struct Scratch(PathBuf);

impl Scratch {
    pub(super) fn make() -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("thalweg-lab-{}", std::process::id()));
        fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The backend.
#[derive(Debug)]
pub(super) struct Backend(Server);

impl Backend {
    pub(super) fn start() -> anyhow::Result<Self> {
        Ok(Self(Server::start((Ipv4Addr::LOCALHOST, 0).into(), 1).context("the backend")?))
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.0.address()
    }
}

/// Starts a cache before a backend; its name tells its files from those of another.
pub(super) fn start(
    bench: &Bench<'_>,
    cache: Cache,
    backend: SocketAddr,
    name: &str,
) -> anyhow::Result<(Running, SocketAddr)> {
    match cache {
        Cache::Thalweg => edge(bench.needs, backend),
        Cache::Nginx => nginx(backend, &bench.scratch.path().join(name)),
    }
}

/// Starts an edge.
pub(super) fn edge(needs: &Needs, backend: SocketAddr) -> anyhow::Result<(Running, SocketAddr)> {
    let mut command = Command::new(&needs.thalweg);
    command.args(["edge", "--listen", ANY, "--admin", ANY, "--memory", MEMORY, "--state", "off"]);
    command.args(["--backend", &format!("http://{backend}")]);
    command.args(["--connections-max", &CONNECTIONS_MAX.to_string()]);
    Running::start(command).context("the edge")
}

/// Says which program is missing.
pub(super) fn check() -> anyhow::Result<()> {
    nginx_program()?;
    installed("setpriv")
        .context("`setpriv` is missing, which ends programs with this one: install util-linux")?;
    Ok(())
}

/// Debian's nginx.
fn nginx_program() -> anyhow::Result<PathBuf> {
    installed("nginx").context("`nginx` is missing, which is what is compared with: install nginx-light")
}

fn installed(name: &str) -> Option<PathBuf> {
    let in_path = std::env::var_os("PATH").unwrap_or_default();
    let mut directories = std::iter::once(PathBuf::from(SERVERS)).chain(std::env::split_paths(&in_path));
    directories.find_map(|directory| Some(directory.join(name)).filter(|file| file.is_file()))
}

fn nginx(backend: SocketAddr, directory: &Path) -> anyhow::Result<(Running, SocketAddr)> {
    let program = nginx_program()?;
    fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    // It takes no port 0.
    let address = TcpListener::bind(ANY).and_then(|free| free.local_addr()).context("a free port")?;
    let config = directory.join("nginx.conf");
    fs::write(&config, nginx_config(address, backend, directory))
        .with_context(|| config.display().to_string())?;
    let mut command = Command::new(program);
    command.arg("-p").arg(directory).arg("-c").arg(config).args(["-e", "stderr"]);
    Ok((Running::start_at(command, address).context("nginx")?, address))
}

/// As a cache whose joiners wait for its lock; all else is as it comes.
fn nginx_config(listen: SocketAddr, backend: SocketAddr, directory: &Path) -> String {
    let at = directory.display();
    format!(
        "daemon off; worker_processes 1; pid {at}/pid; user root; error_log stderr warn;
events {{ worker_connections {CONNECTIONS_MAX}; }}
http {{
  access_log off; sendfile on; tcp_nopush on; tcp_nodelay on;
  client_body_temp_path {at}/t; proxy_temp_path {at}/t; fastcgi_temp_path {at}/t; uwsgi_temp_path {at}/t; scgi_temp_path {at}/t;
  proxy_cache_path {at}/cache levels=1:2 keys_zone=store:8m use_temp_path=off;
  server {{
    listen {listen};
    location / {{
      proxy_pass http://{backend}; proxy_http_version 1.1; proxy_set_header Connection \"\";
      proxy_cache store; proxy_cache_lock on;
    }}
  }}
}}
"
    )
}
