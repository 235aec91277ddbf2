//! Servers to measure, as processes on loopback: an edge and Debian's nginx, both caching proxies
//! in front of a backend.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use super::{Bench, Cache, Requirements};
use crate::process::{ChildProcess, installed};

/// Maximum connections of an edge or nginx.
const CONNECTIONS_MAX: u64 = 19_000;
/// Memory limit of an edge.
const MEMORY: &str = "256MiB";

/// Any free loopback port.
pub(super) const ANY: &str = "127.0.0.1:0";

/// A temporary directory, removed on drop.
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

/// Starts a cache in front of a backend. File names include `name`, which must be unique.
pub(super) fn start(
    bench: &Bench<'_>,
    cache: Cache,
    backend: SocketAddr,
    name: &str,
) -> anyhow::Result<(ChildProcess, SocketAddr)> {
    match cache {
        Cache::Thalweg => edge(bench.requirements, backend),
        Cache::Nginx => nginx(backend, &bench.scratch.path().join(name)),
    }
}

pub(super) fn edge(
    requirements: &Requirements,
    backend: SocketAddr,
) -> anyhow::Result<(ChildProcess, SocketAddr)> {
    let mut command = Command::new(&requirements.thalweg);
    command.args(["edge", "--listen", ANY, "--admin", ANY, "--memory", MEMORY, "--state", "off"]);
    command.args(["--backend", &format!("http://{backend}")]);
    command.args(["--connections-max", &CONNECTIONS_MAX.to_string()]);
    ChildProcess::start(command).context("cannot start the edge")
}

/// Finds a loopback address that is currently free.
pub(super) fn free_address() -> anyhow::Result<SocketAddr> {
    TcpListener::bind(ANY).and_then(|free| free.local_addr()).context("cannot find a free port")
}

/// Checks that the required programs are installed.
pub(super) fn check() -> anyhow::Result<()> {
    nginx_program()?;
    installed("setpriv")
        .context("`setpriv` not found, needed to kill child processes with the lab: install util-linux")?;
    Ok(())
}

/// Returns the path of Debian's nginx.
fn nginx_program() -> anyhow::Result<PathBuf> {
    installed("nginx").context("`nginx` not found, needed for the comparison: install nginx-light")
}

fn nginx(backend: SocketAddr, directory: &Path) -> anyhow::Result<(ChildProcess, SocketAddr)> {
    let program = nginx_program()?;
    fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    // nginx does not support port 0.
    let address = free_address()?;
    let config = directory.join("nginx.conf");
    fs::write(&config, nginx_config(address, backend, directory))
        .with_context(|| config.display().to_string())?;
    let mut command = Command::new(program);
    command.arg("-p").arg(directory).arg("-c").arg(config).args(["-e", "stderr"]);
    Ok((ChildProcess::start_at(command, address).context("nginx")?, address))
}

/// Returns a configuration in which joiners wait for the cache lock. Most other settings are
/// defaults.
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
