//! Measures an agent that dumps the held sockets: cost per socket and dump, and growth of memory.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::support::{Scratch, Server, start_thalweg};

/// Time between dumps: long enough for every sink to store one dump before the next.
const PERIOD: &str = "3s";
/// Numbers of the dumps between which the agent is measured.
const DUMPS: [u64; 2] = [3, 30];
/// Maximum growth of resident memory between these dumps.
const RSS_GROWTH_MAX: u64 = 16 << 20;
/// Time limit for all dumps, and the polling interval.
const TIME_MAX: Duration = Duration::from_secs(600);
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The sinks. (Parquet costs less, but buffers rows for up to a minute.)
const SINKS: [(&str, &str); 2] = [("JSON lines", "--json"), ("SQLite", "--sqlite")];

/// The agent's metrics once all records of a dump are stored.
struct Mark {
    dumps: f64,
    dump_cpu_s: f64,
    cpu_ns: u64,
    /// CPU time of the sink's thread.
    sink_cpu_ns: u64,
    rss_bytes: u64,
}

/// Prints the agent's cost with each sink.
///
/// # Errors
///
/// Returns an error if the agent's memory grows too much or the agent cannot be measured.
pub(crate) fn measure(sockets: usize) -> Result<()> {
    println!(
        "\n{:>10} {:>10} {:>14} {:>12} {:>14} {:>14}",
        "the agent", "dump us", "and spool us", "in all us", "RSS 3 dumps", "RSS 30 dumps"
    );
    let mut grown = Vec::new();
    for (name, flag) in SINKS {
        let scratch = Scratch::new(Path::new(env!("CARGO_TARGET_TMPDIR")), "agent")?;
        let spool = format!("{}=2GiB", scratch.0.join("spool").display());
        let kept = scratch.0.join("kept").display().to_string();
        let listen = ["agent", "--listen", "127.0.0.1:0", "--pop", "bench", "--period", PERIOD];
        let agent = start_thalweg(&[&listen[..], &["--spool", &spool, flag, &kept]].concat())?;
        let [first, last] = DUMPS.map(|dumps| mark(&agent, dumps, sockets));
        let (first, last) = (first?, last?);
        let each = (last.dumps - first.dumps) * sockets as f64;
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let us = |ns: u64| ns as f64 / 1e3 / each;
        let (cpu_ns, sink_cpu_ns) = (last.cpu_ns - first.cpu_ns, last.sink_cpu_ns - first.sink_cpu_ns);
        println!(
            "{name:>10} {:>10.2} {:>14.2} {:>12.2} {:>10.1} MiB {:>10.1} MiB",
            (last.dump_cpu_s - first.dump_cpu_s) * 1e6 / each,
            us(cpu_ns.saturating_sub(sink_cpu_ns)),
            us(cpu_ns),
            mib(first.rss_bytes),
            mib(last.rss_bytes),
        );
        if last.rss_bytes > first.rss_bytes + RSS_GROWTH_MAX {
            grown.push(name);
        }
    }
    println!(
        "CPU time per dump and socket, with {sockets} sockets: dump (the agent's own metric), all but the sink, total"
    );
    ensure!(
        grown.is_empty(),
        "the agent's memory must grow by at most {RSS_GROWTH_MAX} bytes, but grew more with {grown:?}"
    );
    Ok(())
}

/// Waits until `dumps` dumps are spooled and stored by the sink.
fn mark(agent: &Server, dumps: u64, sockets: usize) -> Result<Mark> {
    let start = Instant::now();
    loop {
        let figures = figures(agent)?;
        let figure = |name: &str| figures.get(name).copied().with_context(|| format!("no metric {name}"));
        let made = figure("thalweg_agent_dumps_total")?;
        let is_spooled = figure("thalweg_agent_spool_records_total")? >= made * sockets as f64;
        let lag = figure("thalweg_agent_sink_lag_records")?;
        if made >= dumps as f64 && is_spooled && lag == 0.0 {
            let dump_cpu_s = figure("thalweg_agent_dump_cpu_seconds_total")?;
            let [cpu_ns, sink_cpu_ns] = [agent.cpu_ns(), agent.threads_cpu_ns("sink-")];
            return Ok(Mark { dumps: made, dump_cpu_s, cpu_ns, sink_cpu_ns, rss_bytes: agent.rss_bytes() });
        }
        ensure!(start.elapsed() < TIME_MAX, "after {TIME_MAX:?}: {made} dumps, {lag} records not stored");
        thread::sleep(LOOK_EVERY);
    }
}

/// Reads the agent's metrics by name. Labels are ignored, because there is only one sink.
fn figures(agent: &Server) -> Result<HashMap<String, f64>> {
    let mut stream = TcpStream::connect(agent.address)?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let lines = text.lines().filter(|line| line.starts_with("thalweg_agent_"));
    let figures = lines.map(|line| {
        let (name, value) = line.rsplit_once(' ').with_context(|| format!("no value in {line:?}"))?;
        Ok((name.split('{').next().unwrap_or(name).to_owned(), value.parse()?))
    });
    figures.collect()
}
