//! The three caches as processes on loopback, each with its own backend. Each is configured as a
//! careful operator would configure it, and identically where possible:
//!
//! - None serves a stale response unless the response allows it. nginx's `proxy_cache_use_stale` is
//!   not set, so that the response's fields decide; with `updating`, nginx would serve any stale
//!   response, however old. Varnish's `default_grace` is 0.
//! - Each keeps stale responses for validation: `proxy_cache_revalidate`, `default_keep`.
//! - nginx does not handle `Authorization`, so such requests bypass its cache, as its documentation
//!   recommends.
//! - Each stores a 404 or 410 without an explicit lifetime for a while: `negative`,
//!   `proxy_cache_valid`, `default_ttl`.

use std::fs::File;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::backend::Backend;
use crate::sequence::Sequence;

/// Time limit for a server to accept connections, including compiling its policy.
const START_MAX: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy)]
pub(crate) enum Proxy {
    Thalweg,
    Nginx,
    Varnish,
}

/// A proxy and its backend. On drop, the process is killed and its files are removed.
pub(crate) struct Server {
    child: Child,
    directory: PathBuf,
    pub(crate) address: SocketAddr,
    pub(crate) backend: Backend,
}

impl Server {
    /// Starts a proxy, with `policy` if given. The VCL version and the backends are added to the
    /// policy.
    pub(crate) fn start(proxy: Proxy, sequences: &[Sequence], policy: Option<&str>) -> Result<Self> {
        let backend = Backend::start(sequences)?;
        let address = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?;
        let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(
            format!("differential-{proxy:?}-{}-{}", policy.is_some(), std::process::id()).to_lowercase(),
        );
        std::fs::create_dir_all(&directory)?;
        let at = backend.address;
        let named =
            |name| format!("backend {name} {{ .host = \"{}\"; .port = \"{}\"; }}", at.ip(), at.port());
        // Varnish rejects unused backends, so declare the second backend, which the policy's
        // directors use, only with a policy.
        let text = policy.map_or_else(String::new, |policy| format!("{}\n{policy}", named("twin")));
        let file = directory.join("policy.vcl");
        std::fs::write(&file, format!("vcl 4.1;\n{}\n{text}", named("scripted")))?;
        let mut command = match proxy {
            Proxy::Thalweg => thalweg(address, backend.address, policy.map(|_| &*file))?,
            Proxy::Nginx => nginx(&directory, address, backend.address)?,
            Proxy::Varnish => varnish(&directory, address, &file),
        };
        let log = directory.join("log");
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .spawn()
            .with_context(|| format!("{command:?}; tools/setup test installs nginx and varnish"))?;
        let mut server = Self { child, directory, address, backend };
        let begun = Instant::now();
        while TcpStream::connect(address).is_err() {
            if server.child.try_wait()?.is_some() || begun.elapsed() > START_MAX {
                bail!("{proxy:?} did not start: {}", std::fs::read_to_string(log)?);
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn thalweg(listen: SocketAddr, backend: SocketAddr, policy: Option<&Path>) -> Result<Command> {
    let test = std::env::current_exe()?;
    let target = test.ancestors().nth(2).context("test executable must be in the target directory")?;
    let program = target.join("thalweg");
    if !program.exists() {
        bail!("{} is not built: cargo test --workspace builds it", program.display());
    }
    let mut command = Command::new(program);
    command.args(["edge", "--listen", &listen.to_string(), "--admin", "127.0.0.1:0"]).args([
        "--state",
        "off",
        "--memory",
        "64MiB",
        "--threads",
        "1",
        "--negative",
        "60s",
        // By default, the other two serve no stale responses on errors.
        "--stale-if-error",
        "0s",
    ]);
    match policy {
        Some(policy) => command.arg("--policy").arg(policy),
        None => command.args(["--backend", &format!("http://{backend}")]),
    };
    Ok(command)
}

/// Returns the command for nginx. It has a single worker process, so that a request sent after a
/// response sees all effects of that response.
fn nginx(directory: &Path, listen: SocketAddr, backend: SocketAddr) -> Result<Command> {
    let path = directory.join("nginx.conf");
    let directory = directory.display();
    let config = format!(
        "daemon off; worker_processes 1; pid {directory}/pid; user root;
         events {{ worker_connections 1024; }}
         http {{
             access_log off;
             client_body_temp_path {directory}/body;
             proxy_temp_path {directory}/proxy;
             fastcgi_temp_path {directory}/fastcgi;
             uwsgi_temp_path {directory}/uwsgi;
             scgi_temp_path {directory}/scgi;
             proxy_cache_path {directory}/cache keys_zone=all:1m use_temp_path=off;
             server {{
                 listen {listen};
                 location / {{
                     proxy_pass http://{backend};
                     proxy_http_version 1.1;
                     proxy_set_header Connection '';
                     proxy_set_header Host $host;
                     proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
                     proxy_cache all;
                     proxy_cache_lock on;
                     proxy_cache_revalidate on;
                     proxy_cache_background_update on;
                     proxy_cache_valid 404 410 1m;
                     proxy_cache_bypass $http_authorization;
                     proxy_no_cache $http_authorization;
                 }}
             }}
         }}"
    );
    std::fs::write(&path, config)?;
    let mut command = Command::new("/usr/sbin/nginx");
    command.arg("-p").arg(path.parent().context("policy path has no parent directory")?).arg("-c").arg(&path);
    command.args(["-e", "stderr"]);
    Ok(command)
}

fn varnish(directory: &Path, listen: SocketAddr, policy: &Path) -> Command {
    let mut command = Command::new("/usr/sbin/varnishd");
    command.args(["-F", "-j", "none", "-T", "none"]);
    command.arg("-n").arg(directory.join("varnish")).arg("-f").arg(policy);
    command.args(["-a", &listen.to_string(), "-s", "malloc,32m"]);
    for parameter in ["default_grace=0", "default_keep=60", "thread_pools=1", "thread_pool_min=20"] {
        command.args(["-p", parameter]);
    }
    command
}
