//! Measures the cost of dumping all sockets, compared with `ss -tin`: CPU and wall time at 1,000,
//! 10,000, 18,000 and 50,000 sockets, and the cost of an agent that repeatedly dumps the largest
//! number.
//!
//! ```text
//! make bench-sockets
//! ```
//!
//! The sockets are both ends of loopback connections, held open by separate processes of this
//! program with the argument `hold`. The library's dump decodes each socket with its `tcp_info`,
//! congestion control and congestion control state. `thalweg sockets` and `ss` do the same and
//! write the result to `/dev/null`.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a panic ends the benchmark")]

#[path = "sockets/agent.rs"]
mod agent;
mod support;

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use thalweg_tcp::diag::{Diag, Extensions, Filter};

/// Numbers of sockets, and rounds for each number.
const SIZES: [usize; 4] = [1_000, 10_000, 18_000, 50_000];
const ROUNDS: usize = 9;
/// Runs of a program per measurement: several, because bash measures only whole milliseconds.
const RUNS: u32 = 5;
/// Maximum number of sockets per process, and allowance for its other files: many systems limit a
/// process to 20,000 open files.
const HELD_MAX: usize = 18_000;
const OTHER_FILES: usize = 100;
/// Maximum CPU time per socket of the library's dump. Excludes the walk over the kernel's hash
/// table, which takes just as long when the table is empty.
const CPU_US_MAX: f64 = 1.5;
/// Maximum wall time of the library's dump of the largest number of sockets.
const WALL_MAX: Duration = Duration::from_millis(100);
/// The argument that makes this program hold sockets.
const HOLD: &str = "hold";

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    if words.next().as_deref() == Some(HOLD) {
        return hold(words.next().context("hold requires a number of sockets")?.parse()?);
    }
    let program = support::thalweg()?.display().to_string();
    let (mut holders, mut held, mut diag) = (vec![], 0, Diag::open()?);
    println!(
        "{:>8} {:>22} {:>22} {:>22} {:>12}",
        "sockets", "library", "thalweg sockets --json", "ss -tin", "of ss' CPU"
    );
    let (mut is_met, others) = (true, others(&mut diag)?);
    let walk = median((0..ROUNDS).map(|_| dump(&mut diag, 0)).collect::<Result<_>>()?);
    for size in SIZES {
        while held < size {
            let more = (size - held).min(HELD_MAX);
            holders.push(Holder::start(more)?);
            held += more;
        }
        let (mut library, mut ours, mut theirs) = (vec![], vec![], vec![]);
        for _ in 0..ROUNDS {
            library.push(dump(&mut diag, size)?);
            ours.push(timed(&format!("{program} sockets --json"))?);
            theirs.push(timed("ss -tin")?);
        }
        let [library, ours, theirs] = [library, ours, theirs].map(median);
        let count = size + others;
        let per_socket_us = library.cpu.saturating_sub(walk.cpu).as_secs_f64() * 1e6 / size as f64;
        is_met &= per_socket_us <= CPU_US_MAX && library.wall <= WALL_MAX;
        println!(
            "{size:>8} {} {} {} {:>5.2} {:>5.2}",
            library.shown(count),
            ours.shown(count),
            theirs.shown(count),
            library.cpu.as_secs_f64() / theirs.cpu.as_secs_f64(),
            ours.cpu.as_secs_f64() / theirs.cpu.as_secs_f64(),
        );
    }
    let walk_ms = walk.cpu.as_secs_f64() * 1e3;
    println!(
        "walk over the kernel's table alone, with {others} sockets of other processes: {walk_ms:.2} ms of CPU time"
    );
    println!(
        "wall time, and CPU time per socket: medians of {ROUNDS} turns; last column: library and program"
    );
    let agents = agent::measure(held);
    if !is_met {
        bail!(
            "the library's dump must use at most {CPU_US_MAX} us of CPU time per socket, and take at most {WALL_MAX:?}"
        );
    }
    agents
}

/// Returns the number of sockets of other processes, which all three programs also dump.
fn others(diag: &mut Diag) -> Result<usize> {
    Ok(usize::try_from(diag.dump(&Filter::default(), Extensions::NONE, |_| ())?.sockets)?)
}

/// A process that holds sockets until this value is dropped.
struct Holder {
    child: Child,
    /// Standard input of the process; closing it ends the process.
    _stdin: ChildStdin,
}

impl Holder {
    /// Starts a process and waits until it holds `sockets` sockets.
    fn start(sockets: usize) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let command = command.args([HOLD, &sockets.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let stdin = child.stdin.take().context("stdin is not piped")?;
        let mut ready = [0; 2];
        child
            .stdout
            .take()
            .context("stdout is not piped")?
            .read_exact(&mut ready)
            .context("cannot open sockets")?;
        Ok(Self { child, _stdin: stdin })
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Holds both ends of connections until standard input closes.
fn hold(sockets: usize) -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let wanted = (sockets + OTHER_FILES) as u64;
    ensure!(
        limit.maximum.is_none_or(|most| most >= wanted),
        "a process needs {wanted} open files: raise the hard limit (ulimit -Hn)"
    );
    setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum })?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut ends = Vec::with_capacity(sockets);
    while ends.len() < sockets {
        ends.push(TcpStream::connect(listener.local_addr()?)?);
        ends.push(listener.accept()?.0);
    }
    println!("ok");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// The cost of one dump.
#[derive(Clone, Copy)]
struct Cost {
    wall: Duration,
    cpu: Duration,
}

impl Cost {
    fn shown(&self, sockets: usize) -> String {
        let us = self.cpu.as_secs_f64() * 1e6 / sockets as f64;
        format!("{:>9.2} ms {us:>6.2} us", self.wall.as_secs_f64() * 1e3)
    }
}

/// Measures the library's dump, with this thread's CPU time. Like an agent, reuses the netlink
/// socket and the buffers.
fn dump(diag: &mut Diag, least: usize) -> Result<Cost> {
    let filter = Filter::default();
    let (before, began) = (clock_gettime(ClockId::ThreadCPUTime), Instant::now());
    let mut rtt_us = 0u64;
    let dumped = diag.dump(&filter, Extensions::ALL, |socket| {
        rtt_us += socket.tcp_info.map_or(0, |info| info.rtt_us.into());
    })?;
    let (after, wall) = (clock_gettime(ClockId::ThreadCPUTime), began.elapsed());
    ensure!(dumped.sockets >= least as u64 && (rtt_us > 0 || least == 0), "{dumped:?}");
    let ns = (after.tv_sec - before.tv_sec) * 1_000_000_000 + after.tv_nsec - before.tv_nsec;
    Ok(Cost { wall, cpu: Duration::from_nanos(ns.unsigned_abs()) })
}

/// Measures the cost of running a program, with its output discarded.
fn timed(command: &str) -> Result<Cost> {
    let script = format!(
        "TIMEFORMAT='cpu %3R %3U %3S'; time for i in {{1..{RUNS}}}; do {command} >/dev/null || exit; done"
    );
    let output = Command::new("bash").args(["-c", &script]).output()?;
    let text = String::from_utf8(output.stderr)?;
    ensure!(output.status.success(), "{command}: {text}");
    let times = text.lines().find_map(|line| line.strip_prefix("cpu ")).context("bash printed no time")?;
    let times: Vec<f64> = times.split(' ').map(str::parse).collect::<Result<_, _>>()?;
    let [wall, user, system] = times[..] else { bail!("{text}") };
    let each = |seconds: f64| Duration::from_secs_f64(seconds / f64::from(RUNS));
    Ok(Cost { wall: each(wall), cpu: each(user + system) })
}

/// Returns the median wall time and the median CPU time.
fn median(mut costs: Vec<Cost>) -> Cost {
    let middle = costs.len() / 2;
    costs.sort_by_key(|cost| cost.wall);
    let wall = costs[middle].wall;
    costs.sort_by_key(|cost| cost.cpu);
    Cost { wall, cpu: costs[middle].cpu }
}
