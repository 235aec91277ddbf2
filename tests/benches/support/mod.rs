//! What the benchmarks share: the servers under test as real processes, their CPU time and memory, and the cores.
#![allow(dead_code, unreachable_pub)]

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// The core of the server under test, and the one that everything else runs on.
pub const SERVER_CORE: usize = 0;
pub const CLIENT_CORE: usize = 1;

/// How long a server may take to accept, and to end once it is asked to.
const START_TIME_MAX: Duration = Duration::from_secs(20);
const END_TIME_MAX: Duration = Duration::from_secs(5);
const POLL_TIME: Duration = Duration::from_millis(5);

/// A server that ends with its value.
pub struct Server {
    child: Child,
    pub address: SocketAddr,
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(pid) = Pid::from_raw(self.child.id().cast_signed()) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let deadline = Instant::now() + END_TIME_MAX;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                let _ = self.child.kill();
            }
            thread::sleep(POLL_TIME);
        }
    }
}

/// Where this benchmark was built: `target`.
pub fn target_directory() -> Result<PathBuf> {
    let bench = std::env::current_exe()?;
    Ok(bench.ancestors().nth(3).context("a benchmark lies in the target directory")?.to_owned())
}

/// The release build of the program.
pub fn thalweg() -> Result<PathBuf> {
    let program = target_directory()?.join("release/thalweg");
    if !program.exists() {
        bail!("{} is not built: cargo build --release -p thalweg", program.display());
    }
    Ok(program)
}

/// Starts a program on the server's core and waits until it says where it listens.
pub fn start_thalweg(arguments: &[&str]) -> Result<Server> {
    let mut child = on_server_core(&thalweg()?)
        .args(arguments)
        .env("THALWEG_LOG", "warn")
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("thalweg does not start")?;
    let mut lines = BufReader::new(child.stderr.take().context("stderr is piped")?).lines();
    let mut said = String::new();
    for line in lines.by_ref() {
        let line = line?;
        if let Some((_, address)) = line.split_once("listening ") {
            let address = address.trim().parse()?;
            // Whatever else it says must not fill the pipe.
            let lines = lines.map_while(Result::ok).filter(|line| !line.contains(" listening "));
            thread::spawn(move || lines.for_each(|line| eprintln!("{line}")));
            return Ok(Server { child, address });
        }
        said += &line;
    }
    bail!("thalweg {arguments:?} ended: {said}")
}

/// An edge of one thread before the server at `backend`, without a log; `more` are further arguments.
pub fn start_edge(backend: SocketAddr, more: &[&str]) -> Result<Server> {
    let backend = format!("http://{backend}");
    let listen = ["edge", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--backend", &backend];
    // What every edge does is measured, also that it counts in its state directory.
    let state = ["--state", concat!(env!("CARGO_TARGET_TMPDIR"), "/edge")];
    start_thalweg(&[&listen[..], &state, &["--threads", "1"], more].concat())
}

/// Starts another program on the server's core, in the foreground, and waits until it accepts on `address`. What it
/// says goes to the file `said`.
pub fn start_other(program: &str, arguments: &[String], address: SocketAddr, said: &Path) -> Result<Server> {
    let out = File::create(said)?;
    let child = on_server_core(Path::new(program))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(out)
        .spawn()
        .with_context(|| format!("{program} does not start: tools/setup bench installs it"))?;
    let mut server = Server { child, address };
    let deadline = Instant::now() + START_TIME_MAX;
    while std::net::TcpStream::connect(address).is_err() {
        let ended = server.child.try_wait()?.is_some();
        if ended || Instant::now() > deadline {
            bail!("{program} does not accept on {address}: {}", std::fs::read_to_string(said)?);
        }
        thread::sleep(POLL_TIME);
    }
    Ok(server)
}

fn on_server_core(program: &Path) -> Command {
    let mut command = Command::new("taskset");
    command.arg("-c").arg(SERVER_CORE.to_string()).arg(program);
    command
}

/// Keeps this thread, and those it starts, off the server's core.
pub fn leave_server_core() -> Result<()> {
    let mut cores = rustix::thread::CpuSet::new();
    cores.set(CLIENT_CORE);
    rustix::thread::sched_setaffinity(None, &cores).context("two cores are needed")
}

impl Server {
    /// CPU time of the process, its threads and its children, in nanoseconds, as the scheduler counts it.
    pub fn cpu_ns(&self) -> u64 {
        self.pids().into_iter().map(process_cpu_ns).sum()
    }

    /// CPU time of the threads whose names begin so, in nanoseconds.
    pub fn threads_cpu_ns(&self, name: &str) -> u64 {
        threads_cpu_ns(self.child.id(), name)
    }

    /// Memory of the process and its children that is resident, in bytes.
    pub fn rss_bytes(&self) -> u64 {
        self.pids().into_iter().map(process_rss_bytes).sum()
    }

    fn pids(&self) -> Vec<u32> {
        let pid = self.child.id();
        let children =
            std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        let children = children.split_whitespace().filter_map(|pid| pid.parse().ok());
        std::iter::once(pid).chain(children).collect()
    }
}

fn process_cpu_ns(pid: u32) -> u64 {
    threads_cpu_ns(pid, "")
}

fn threads_cpu_ns(pid: u32, name: &str) -> u64 {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return 0 };
    let on_cpu = |task: std::fs::DirEntry| {
        let read = |file| std::fs::read_to_string(task.path().join(file)).ok();
        let is_named = read("comm")?.starts_with(name);
        let ns = read("schedstat")?.split_whitespace().next()?.parse::<u64>().ok()?;
        is_named.then_some(ns)
    };
    tasks.flatten().filter_map(on_cpu).sum()
}

/// Memory of this process that is resident, in bytes.
pub fn own_rss_bytes() -> u64 {
    process_rss_bytes(std::process::id())
}

fn process_rss_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|text| text.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Keeps the runtime polling. On one machine it is the server that pays for waking a client that sleeps, several
/// microseconds a time in a virtual machine, and how often that is depends on who happens to be ahead; over a network
/// no server pays that.
pub async fn never_sleep() {
    loop {
        tokio::task::yield_now().await;
    }
}

/// A directory that goes with its value.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(parent: &Path, name: &str) -> Result<Self> {
        let path = parent.join(format!("thalweg-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A free port on loopback.
pub fn free_address() -> Result<SocketAddr> {
    Ok(std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()?)
}
