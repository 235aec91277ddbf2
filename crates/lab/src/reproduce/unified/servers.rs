//! The origin in front of the storage, and Debian's nginx as a proxy in front of it, as processes
//! on the near side of the path.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;

use anyhow::Context;

use super::storage::{ACCESS_KEY, PRESENTATION, REGION, SECRET_KEY, Storage};
use super::{Arm, Format, Lab, NEAR};
use crate::process::{ChildProcess, installed};

/// Any free port. Only the processes of this emulation can reach it.
const ANY: &str = "127.0.0.1:0";
/// Port of nginx.
const NGINX_PORT: u16 = 8080;
/// Maximum connections of the origin and of a worker of nginx.
const CONNECTIONS_MAX: usize = 4_096;
/// Connections that nginx keeps open to the storage per worker: more than clients.
const NGINX_KEEPS: usize = 128;

/// Checks that the required programs are installed.
pub(super) fn check() -> anyhow::Result<()> {
    installed("nginx").context("`nginx` not found, needed for the comparison: install nginx-light")?;
    Ok(())
}

/// A running server.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) process: ChildProcess,
    pub(super) address: SocketAddr,
}

/// Starts the origin of one arm.
pub(super) fn origin(lab: &Lab<'_>, storage: &Storage, arm: Arm) -> anyhow::Result<Server> {
    let mut command = Command::new(lab.thalweg);
    command.args(["origin", "--listen", ANY, "--admin", ANY, "--ingest", ANY]);
    command.args(["--media", &storage.library(), "--s3-path-style"]);
    command.args(["--s3-endpoint", &format!("http://{}", storage.address)]);
    command.args(["--connections-max", &CONNECTIONS_MAX.to_string()]);
    if arm == Arm::Fresh {
        command.args(["--storage-idle", "0s"]);
    }
    command.env("AWS_ACCESS_KEY_ID", ACCESS_KEY).env("AWS_SECRET_ACCESS_KEY", SECRET_KEY);
    command.env("AWS_REGION", REGION).env_remove("THALWEG_LOG").env_remove("AWS_SESSION_TOKEN");
    let started = ChildProcess::start_on(lab.emulation, NEAR, command);
    let (process, address) =
        started.with_context(|| format!("cannot start the origin of {}", lab.thalweg.display()))?;
    Ok(Server { process, address })
}

/// Returns the path of the film's manifest.
pub(super) fn manifest(format: Format) -> String {
    let name = match format {
        Format::Hls => "master.m3u8",
        Format::Dash => "manifest.mpd",
    };
    format!("/vod/{PRESENTATION}/{name}")
}

/// Starts nginx as a proxy with keep-alive and without a cache.
pub(super) fn nginx(lab: &Lab<'_>, storage: &Storage) -> anyhow::Result<Server> {
    let program = installed("nginx").context("nginx")?;
    let directory = lab.emulation.scratch().join("nginx");
    fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, NGINX_PORT));
    let config = directory.join("nginx.conf");
    fs::write(&config, nginx_config(address, storage.address, &directory.display().to_string()))
        .with_context(|| config.display().to_string())?;
    let mut command = Command::new(program);
    command.arg("-p").arg(&directory).arg("-c").arg(&config).args(["-e", "stderr"]);
    let process = ChildProcess::start_on_at(lab.emulation, NEAR, command, address).context("nginx")?;
    Ok(Server { process, address })
}

fn nginx_config(listen: SocketAddr, storage: SocketAddr, at: &str) -> String {
    format!(
        "daemon off; worker_processes auto; pid {at}/pid; user root; error_log stderr warn;
events {{ worker_connections {CONNECTIONS_MAX}; }}
http {{
  access_log off; sendfile on; tcp_nopush on; tcp_nodelay on; keepalive_requests 1000000;
  client_body_temp_path {at}/t; proxy_temp_path {at}/t; fastcgi_temp_path {at}/t; uwsgi_temp_path {at}/t; scgi_temp_path {at}/t;
  upstream storage {{ server {storage}; keepalive {NGINX_KEEPS}; keepalive_requests 1000000; }}
  server {{
    listen {listen};
    location / {{
      proxy_pass http://storage; proxy_http_version 1.1;
      proxy_set_header Connection \"\"; proxy_set_header Host {storage};
      proxy_buffers 16 64k; proxy_max_temp_file_size 0;
    }}
  }}
}}
"
    )
}
