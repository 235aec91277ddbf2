//! What a dump of all sockets costs, beside `ss -tin`: CPU and wall time at 1,000, 10,000 and 18,000 sockets.
//!
//! ```text
//! make bench-sockets
//! ```
//! The sockets are both ends of connections over loopback that this process holds. The library's dump decodes each socket
//! with tcp_info, congestion control and model; the two programs do the same and write it, to nobody.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark ends where something is not as it has to be"
)]

mod support;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use thalweg_tcp::diag::{Diag, Extensions, Filter};

/// Sockets at a time, and how often each has its turn.
const SIZES: [usize; 3] = [1_000, 10_000, 18_000];
const ROUNDS: usize = 9;
/// Runs of a program in one turn: bash tells milliseconds.
const RUNS: u32 = 5;
/// Files of this process beside the sockets.
const OTHER_FILES: u64 = 100;
/// What the library's dump may cost a socket, beside the walk over the kernel's table, which is there without any.
const CPU_US_MAX: f64 = 1.5;

fn main() -> Result<()> {
    let sockets_max = *SIZES.iter().max().unwrap() as u64;
    let limit = getrlimit(Resource::Nofile);
    let current = limit.maximum.unwrap_or(u64::MAX).min(sockets_max + OTHER_FILES);
    ensure!(current == sockets_max + OTHER_FILES, "a process may have {current} files here: ulimit -Hn");
    setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum: limit.maximum })?;
    let program = support::thalweg()?.display().to_string();
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let (mut ends, mut diag) = (vec![], Diag::open()?);
    println!(
        "{:>8} {:>22} {:>22} {:>22} {:>12}",
        "sockets", "library", "thalweg sockets --json", "ss -tin", "of ss' CPU"
    );
    let (mut is_met, others) = (true, others(&mut diag)?);
    let walk = median((0..ROUNDS).map(|_| dump(&mut diag, 0)).collect::<Result<_>>()?);
    for size in SIZES {
        while ends.len() < size {
            ends.extend(connect(&listener)?);
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
        is_met &= per_socket_us <= CPU_US_MAX;
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
        "the kernel's table by itself, with {others} sockets of other processes: {walk_ms:.2} ms of CPU"
    );
    println!(
        "wall time, and CPU time for a socket: medians of {ROUNDS} turns; the last are the library's and the program's"
    );
    if !is_met {
        bail!("the library's dump costs more than {CPU_US_MAX} us of CPU for a socket");
    }
    Ok(())
}

/// The sockets that other processes have, which all three dump as well.
fn others(diag: &mut Diag) -> Result<usize> {
    Ok(usize::try_from(diag.dump(&Filter::default(), Extensions::NONE, |_| ())?.sockets)?)
}

/// Both ends of one more connection.
fn connect(listener: &TcpListener) -> Result<[TcpStream; 2]> {
    let address: SocketAddr = listener.local_addr()?;
    let client = TcpStream::connect(address)?;
    Ok([client, listener.accept()?.0])
}

/// What one dump took.
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

/// The library's dump, by this thread's own CPU time. As an agent does, it keeps the socket and the buffers.
fn dump(diag: &mut Diag, least: usize) -> Result<Cost> {
    let filter = Filter::default();
    let (before, began) = (clock_gettime(ClockId::ThreadCPUTime), Instant::now());
    let mut rtt_us = 0u64;
    let dumped = diag.dump(&filter, Extensions::DELIVERY, |socket| {
        rtt_us += socket.tcp_info.map_or(0, |info| info.rtt_us.into());
    })?;
    let (after, wall) = (clock_gettime(ClockId::ThreadCPUTime), began.elapsed());
    ensure!(dumped.sockets >= least as u64 && (rtt_us > 0 || least == 0), "{dumped:?}");
    let ns = (after.tv_sec - before.tv_sec) * 1_000_000_000 + after.tv_nsec - before.tv_nsec;
    Ok(Cost { wall, cpu: Duration::from_nanos(ns.unsigned_abs()) })
}

/// A program's run, its output thrown away.
fn timed(command: &str) -> Result<Cost> {
    let script = format!(
        "TIMEFORMAT='cpu %3R %3U %3S'; time for i in {{1..{RUNS}}}; do {command} >/dev/null || exit; done"
    );
    let output = Command::new("bash").args(["-c", &script]).output()?;
    let said = String::from_utf8(output.stderr)?;
    ensure!(output.status.success(), "{command}: {said}");
    let times = said.lines().find_map(|line| line.strip_prefix("cpu ")).context("bash tells the time")?;
    let times: Vec<f64> = times.split(' ').map(str::parse).collect::<Result<_, _>>()?;
    let [wall, user, system] = times[..] else { bail!("{said}") };
    let each = |seconds: f64| Duration::from_secs_f64(seconds / f64::from(RUNS));
    Ok(Cost { wall: each(wall), cpu: each(user + system) })
}

/// The median of each.
fn median(mut costs: Vec<Cost>) -> Cost {
    let middle = costs.len() / 2;
    costs.sort_by_key(|cost| cost.wall);
    let wall = costs[middle].wall;
    costs.sort_by_key(|cost| cost.cpu);
    Cost { wall, cpu: costs[middle].cpu }
}
