//! What the benchmarks share: the servers under test as real processes, their CPU time, and a client that costs little.
#![allow(dead_code, unreachable_pub)]

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use anyhow::{Context, Result, bail};
use rustix::net::RecvFlags;
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::TcpStream;

/// The core of the server under test, and the one that everything else runs on.
pub const SERVER_CORE: usize = 0;
pub const CLIENT_CORE: usize = 1;

/// A server that ends with its value.
pub struct Server {
    child: Child,
    pub address: SocketAddr,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
    }
}

/// The release build of the program, next to this benchmark.
pub fn thalweg() -> Result<PathBuf> {
    let bench = std::env::current_exe()?;
    let target = bench.ancestors().nth(2).context("a benchmark lies in the target directory")?;
    let program = target.join("thalweg");
    if !program.exists() {
        bail!("{} is not built: cargo build --release -p thalweg", program.display());
    }
    Ok(program)
}

/// Starts a program on the server's core and waits until it says where it listens.
pub fn start_thalweg(arguments: &[&str]) -> Result<Server> {
    let mut child = on_server_core(&thalweg()?)
        .args(arguments)
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
            thread::spawn(move || lines.for_each(|line| eprintln!("{}", line.unwrap_or_default())));
            return Ok(Server { child, address });
        }
        said += &line;
    }
    bail!("thalweg {arguments:?} ended: {said}")
}

/// An edge of one thread before the server at `backend`, without a log.
pub fn start_edge(backend: SocketAddr) -> Result<Server> {
    let backend = format!("http://{backend}");
    let listen = ["edge", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--backend", &backend];
    start_thalweg(&[&listen[..], &["--memory", "256MiB", "--threads", "1"]].concat())
}

/// Starts Debian's nginx in the foreground with `config`, one worker, and waits until it accepts.
pub fn start_nginx(directory: &Path, config: &str, address: SocketAddr) -> Result<Server> {
    let path = directory.join("nginx.conf");
    std::fs::write(&path, config)?;
    let child = on_server_core(Path::new("/usr/sbin/nginx"))
        .arg("-p")
        .arg(directory)
        .arg("-c")
        .arg(&path)
        .args(["-e", "stderr"])
        .stdin(Stdio::null())
        .spawn()
        .context("nginx does not start (apt-get install nginx-light)")?;
    let server = Server { child, address };
    for _ in 0..500 {
        if std::net::TcpStream::connect(address).is_ok() {
            return Ok(server);
        }
        thread::sleep(std::time::Duration::from_millis(10));
    }
    bail!("nginx does not accept connections on {address}")
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
        let mut pids = vec![self.child.id()];
        let children = format!("/proc/{0}/task/{0}/children", self.child.id());
        let children = std::fs::read_to_string(children).unwrap_or_default();
        pids.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        pids.iter().map(|pid| process_cpu_ns(*pid)).sum()
    }
}

fn process_cpu_ns(pid: u32) -> u64 {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return 0 };
    let on_cpu = |task: std::fs::DirEntry| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    };
    tasks.flatten().filter_map(on_cpu).sum()
}

/// One connection that asks and discards what comes in the kernel (`MSG_TRUNC`), so that the client's core draws
/// more than the server's can send.
pub struct Discarding {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Discarding {
    pub async fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: vec![0; 1 << 20] })
    }

    /// Sends `request` and takes its response of `length` content bytes.
    pub async fn exchange(&mut self, request: &[u8], length: u64) -> Result<()> {
        self.stream.write_all(request).await?;
        let mut head = 0;
        let end = loop {
            head += self.receive_into(head, 2048, RecvFlags::empty()).await?;
            if let Some(end) = self.buffer[..head].windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            if head >= 8192 {
                bail!("the head does not end");
            }
        };
        if !self.buffer.starts_with(b"HTTP/1.1 200") {
            bail!("{}", String::from_utf8_lossy(&self.buffer[..end]));
        }
        let mut left = length.checked_sub((head - end) as u64).context("more content than expected")?;
        while left > 0 {
            let most = usize::try_from(left.min(self.buffer.len() as u64))?;
            left -= self.receive_into(0, most, RecvFlags::TRUNC).await? as u64;
        }
        Ok(())
    }

    async fn receive_into(&mut self, at: usize, most: usize, flags: RecvFlags) -> Result<usize> {
        let (stream, buffer) = (&self.stream, &mut self.buffer[at..at + most]);
        loop {
            stream.readable().await?;
            let received = stream.try_io(Interest::READABLE, || {
                let (_, received) = rustix::net::recv(stream, &mut *buffer, flags)?;
                Ok(received)
            });
            match received {
                Ok(0) => bail!("the connection ended early"),
                Ok(received) => return Ok(received),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
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
    pub fn new(name: &str) -> Result<Self> {
        let path = std::env::temp_dir().join(format!("thalweg-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The median of some figures, and their range.
pub fn spread(figures: &mut [f64]) -> (f64, f64, f64) {
    figures.sort_by(f64::total_cmp);
    (figures[figures.len() / 2], figures[0], figures[figures.len() - 1])
}

/// A free port on loopback.
pub fn free_address() -> Result<SocketAddr> {
    Ok(std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()?)
}
