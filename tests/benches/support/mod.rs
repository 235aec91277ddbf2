//! Shared benchmark fixtures: servers under test as real processes, their CPU time and memory, and
//! CPU pinning.
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

/// CPU core of the server under test, and core of everything else.
pub const SERVER_CORE: usize = 0;
pub const CLIENT_CORE: usize = 1;

/// Time limits for a server to accept connections and to stop.
const START_TIME_MAX: Duration = Duration::from_secs(20);
const END_TIME_MAX: Duration = Duration::from_secs(5);
const POLL_TIME: Duration = Duration::from_millis(5);

/// A server, stopped on drop.
pub struct Server {
    child: Child,
    pub address: SocketAddr,
    /// Admin address, if the server is an edge.
    pub admin: Option<SocketAddr>,
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

/// Returns the directory in which this benchmark was built: `target`.
pub fn target_directory() -> Result<PathBuf> {
    let bench = std::env::current_exe()?;
    Ok(bench.ancestors().nth(3).context("the benchmark is not in the target directory")?.to_owned())
}

/// Returns the path of `thalweg`'s release build.
pub fn thalweg() -> Result<PathBuf> {
    let program = target_directory()?.join("release/thalweg");
    if !program.exists() {
        bail!("{} is not built: cargo build --release -p thalweg", program.display());
    }
    Ok(program)
}

/// Starts a program on the server's core and waits until it reports its listen address.
pub fn start_thalweg(arguments: &[&str]) -> Result<Server> {
    start_thalweg_with(arguments, &[])
}

/// Starts a program like [`start_thalweg`], with these variables in its environment.
pub fn start_thalweg_with(arguments: &[&str], environment: &[(&str, &str)]) -> Result<Server> {
    let mut child = on_core(SERVER_CORE, &thalweg()?)
        .args(arguments)
        .envs(environment.iter().copied())
        .env("THALWEG_LOG", "warn")
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start thalweg")?;
    let mut lines = BufReader::new(child.stderr.take().context("stderr is not piped")?).lines();
    let mut output = String::new();
    for line in lines.by_ref() {
        let line = line?;
        if let Some((_, address)) = line.split_once("listening ") {
            let address = address.trim().parse()?;
            // Keep reading: if the pipe were full, the program would block.
            let lines = lines.map_while(Result::ok).filter(|line| !line.contains(" listening "));
            thread::spawn(move || lines.for_each(|line| eprintln!("{line}")));
            return Ok(Server { child, address, admin: None });
        }
        output += &line;
    }
    bail!("thalweg {arguments:?} exited: {output}")
}

/// Starts a single-threaded edge for the server at `backend`, with further arguments `more`.
pub fn start_edge(backend: SocketAddr, more: &[&str]) -> Result<Server> {
    let (backend, admin) = (format!("http://{backend}"), free_address()?);
    let admin_text = admin.to_string();
    let listen = ["edge", "--listen", "127.0.0.1:0", "--admin", &admin_text, "--backend", &backend];
    // Use a state directory, so that the cost of counting responses in it is included.
    let state = ["--state", concat!(env!("CARGO_TARGET_TMPDIR"), "/edge")];
    let mut server = start_thalweg(&[&listen[..], &state, &["--threads", "1"], more].concat())?;
    server.admin = Some(admin);
    Ok(server)
}

/// Starts another program on the server's core, in the foreground, and waits until it accepts
/// connections on `address`. Its output is written to the file `output`.
pub fn start_other(
    program: &str,
    arguments: &[String],
    address: SocketAddr,
    output: &Path,
) -> Result<Server> {
    start_other_on(SERVER_CORE, program, arguments, address, output)
}

/// Starts another program like [`start_other`], but on the clients' core.
pub fn start_other_on_client_core(
    program: &str,
    arguments: &[String],
    address: SocketAddr,
    output: &Path,
) -> Result<Server> {
    start_other_on(CLIENT_CORE, program, arguments, address, output)
}

fn start_other_on(
    core: usize,
    program: &str,
    arguments: &[String],
    address: SocketAddr,
    output: &Path,
) -> Result<Server> {
    let out = File::create(output)?;
    let child = on_core(core, Path::new(program))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(out)
        .spawn()
        .with_context(|| format!("cannot start {program}: tools/setup bench installs it"))?;
    let mut server = Server { child, address, admin: None };
    let deadline = Instant::now() + START_TIME_MAX;
    while std::net::TcpStream::connect(address).is_err() {
        let ended = server.child.try_wait()?.is_some();
        if ended || Instant::now() > deadline {
            bail!("{program} does not accept connections on {address}: {}", std::fs::read_to_string(output)?);
        }
        thread::sleep(POLL_TIME);
    }
    Ok(server)
}

fn on_core(core: usize, program: &Path) -> Command {
    let mut command = Command::new("taskset");
    command.arg("-c").arg(core.to_string()).arg(program);
    command
}

/// Keeps this thread, and threads that it starts, off the server's core.
pub fn leave_server_core() -> Result<()> {
    let mut cores = rustix::thread::CpuSet::new();
    cores.set(CLIENT_CORE);
    rustix::thread::sched_setaffinity(None, &cores).context("this benchmark requires two cores")
}

impl Server {
    /// Returns the CPU time of the process, its threads and its children, in nanoseconds, as
    /// counted by the scheduler.
    pub fn cpu_ns(&self) -> u64 {
        self.pids().into_iter().map(process_cpu_ns).sum()
    }

    /// Returns the CPU time of all threads whose names start with `name`, in nanoseconds.
    pub fn threads_cpu_ns(&self, name: &str) -> u64 {
        threads_cpu_ns(self.child.id(), name)
    }

    /// Returns the resident memory of the process and its children, in bytes.
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

/// Returns the resident memory of this process, in bytes.
pub fn own_rss_bytes() -> u64 {
    process_rss_bytes(std::process::id())
}

fn process_rss_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|text| text.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Keeps the runtime polling, so that clients never sleep. On a single machine, the server's CPU
/// time would include waking its clients: several microseconds per wake-up in a virtual machine,
/// with a random number of wake-ups. Over a network, servers have no such cost.
pub async fn never_sleep() {
    loop {
        tokio::task::yield_now().await;
    }
}

/// A directory removed on drop.
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

/// Returns a loopback address with an unused port.
pub fn free_address() -> Result<SocketAddr> {
    Ok(std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()?)
}
