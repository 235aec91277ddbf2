//! Compares the origin with nginx serving the same segments as plain files: CPU time per segment,
//! from local files and from S3, and the cost of indexing a presentation.
//!
//! ```text
//! make bench-origin
//! ```
//!
//! All servers run on one core; wrk and the S3 server run on the other. Servers take turns within
//! each round, and ratios are within a round. The presentation is `assets/sample`, in the page
//! cache. Its index is in memory, except where indexing itself is measured. `--quick` measures
//! fewer and shorter rounds. Results are also written to `target/bench-origin.json`.
#![allow(clippy::print_stdout, reason = "the benchmark prints its results")]

mod s3;
mod segments;
#[path = "../support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use s3::Storage;
use segments::Segment;
use support::{CLIENT_CORE, Scratch, Server, free_address, start_other, start_thalweg_with};

const NGINX: &str = "/usr/sbin/nginx";
/// The script of the lab that requests the lines of a file.
const SCRIPT: &str = include_str!("../../../crates/lab/src/reproduce/unified/requests.lua");
/// Name of the presentation.
const PRESENTATION: &str = "sample";
/// Connections of wrk.
const CONNECTIONS: usize = 32;

/// Length of the measurements.
struct Plan {
    rounds: usize,
    turn: Duration,
}

/// What a server did in a round.
#[derive(Debug, Clone, Copy)]
struct Round {
    segments_per_s: f64,
    cpu_us: f64,
}

fn main() -> Result<()> {
    let is_quick = std::env::args().any(|argument| argument == "--quick");
    let seconds = Duration::from_secs;
    let plan =
        if is_quick { Plan { rounds: 3, turn: seconds(1) } } else { Plan { rounds: 7, turn: seconds(3) } };
    support::leave_server_core()?;
    let scratch = Scratch::new(Path::new("/dev/shm"), "bench-origin")?;
    let media = sample()?;
    let storage = Storage::start(&scratch.0, &media, PRESENTATION)?;
    let library = media.parent().context("the sample has no parent directory")?.display().to_string();
    let local = ["--media".to_owned(), library];
    let remote = storage.flags();
    let files = origin(&local, &[])?;
    let over_s3 = origin(&remote, &storage.environment())?;
    let segments = segments::of(&files, PRESENTATION)?;
    let nginx = nginx(&scratch.0, &segments)?;
    let script = scratch.0.join("requests.lua");
    std::fs::write(&script, SCRIPT)?;
    let of_files = list(&scratch.0.join("files.txt"), &segments)?;
    // The version of a file, which is part of a segment's target, depends on the storage.
    let of_s3 = list(&scratch.0.join("s3.txt"), &segments::of(&over_s3, PRESENTATION)?)?;

    let servers = [
        ("nginx, plain files", &nginx, &of_files),
        ("origin, local files", &files, &of_files),
        ("origin, S3", &over_s3, &of_s3),
    ];
    let mut rounds: Vec<Vec<Round>> = servers.iter().map(|_| Vec::new()).collect();
    for round in 0..=plan.rounds {
        for (at, (name, server, list)) in servers.iter().enumerate() {
            let measured = measure(server, &plan, &script, list).with_context(|| (*name).to_owned())?;
            // The first round fills caches and opens connections.
            if round > 0 {
                rounds[at].push(measured);
            }
        }
    }
    let names = servers.map(|(name, ..)| name);
    let mean_bytes = segments.iter().map(|segment| segment.bytes).sum::<u64>() / segments.len() as u64;
    println!("{} segments of {mean_bytes} bytes on average, {CONNECTIONS} connections", segments.len());
    println!("{:<22}{:>14}{:>16}{:>30}", "", "segments/s", "CPU µs/segment", "CPU by nginx's");
    for (name, rounds_of) in names.iter().zip(&rounds) {
        let (_, segments_per_s, _) = spread(rounds_of.iter().map(|round| round.segments_per_s));
        let (_, cpu_us, _) = spread(rounds_of.iter().map(|round| round.cpu_us));
        let (low, times, high) = ratios(rounds_of, &rounds[0]);
        println!(
            "{name:<22}{segments_per_s:>14.0}{cpu_us:>16.1}{:>30}",
            format!("{times:.2} ({low:.2} to {high:.2})")
        );
    }
    drop((files, over_s3, nginx));
    let files_ms = indexing(&local, &[], plan.rounds).context("indexing files")?;
    let s3_ms = indexing(&remote, &storage.environment(), plan.rounds).context("indexing S3")?;
    for (name, (cpu_ms, wall_ms)) in [("files", files_ms), ("S3", s3_ms)] {
        println!("first manifest after a start, {name}: {wall_ms:.1} ms, CPU {cpu_ms:.1} ms");
    }
    let path = support::target_directory()?.join("bench-origin.json");
    let indexing = json!({ "files_ms": files_ms, "s3_ms": s3_ms });
    std::fs::write(&path, format!("{:#}\n", document(&names, &rounds, &indexing)))?;
    println!("figures in {}", path.display());
    Ok(())
}

/// Writes the targets of segments for the script, and returns the file.
fn list(file: &Path, segments: &[Segment]) -> Result<PathBuf> {
    let lines: String = segments.iter().map(|segment| format!("{} -\n", segment.target)).collect();
    std::fs::write(file, lines)?;
    Ok(file.to_owned())
}

/// Returns the directory of the sample presentation.
fn sample() -> Result<PathBuf> {
    let assets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../assets").join(PRESENTATION);
    assets.canonicalize().with_context(|| assets.display().to_string())
}

/// Starts the origin in front of a library.
fn origin(library: &[String], environment: &[(&str, String)]) -> Result<Server> {
    let mut arguments = vec!["origin", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    arguments.extend(["--ingest", "127.0.0.1:0"]);
    arguments.extend(library.iter().map(String::as_str));
    let environment: Vec<_> = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
    start_thalweg_with(&arguments, &environment)
}

/// Starts nginx with one worker, serving each segment as a plain file at the same target.
fn nginx(scratch: &Path, segments: &[Segment]) -> Result<Server> {
    let root = scratch.join("nginx");
    for segment in segments {
        let file = root.join(segment.target.trim_start_matches('/'));
        std::fs::create_dir_all(file.parent().context("a segment at the root")?)?;
        std::fs::write(file, &segment.content)?;
    }
    let (address, at) = (free_address()?, root.display());
    let config = format!(
        "daemon off; worker_processes 1; pid {at}/nginx.pid; user root; error_log stderr;
         events {{ worker_connections 1024; multi_accept on; }}
         http {{
           access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000000; keepalive_timeout 600;
           open_file_cache max=10000 inactive=600s;
           client_body_temp_path {at}/t; proxy_temp_path {at}/t; fastcgi_temp_path {at}/t; uwsgi_temp_path {at}/t;
           scgi_temp_path {at}/t;
           server {{ listen {address} backlog=4096; root {at}; etag on; add_header Cache-Control max-age=3600; }}
         }}"
    );
    let path = root.join("nginx.conf");
    std::fs::write(&path, config)?;
    let text = |path: &Path| path.display().to_string();
    let arguments = ["-p".into(), text(&root), "-c".into(), text(&path), "-e".into(), "stderr".into()];
    start_other(NGINX, &arguments, address, &root.join("output"))
}

/// Measures a server with wrk for one turn.
fn measure(server: &Server, plan: &Plan, script: &Path, list: &Path) -> Result<Round> {
    let url = format!("http://{}/", server.address);
    let (cpu, begun) = (server.cpu_ns(), Instant::now());
    let output = Command::new("taskset")
        .args(["-c", &CLIENT_CORE.to_string(), "wrk", "--threads", "1"])
        .args(["--connections", &CONNECTIONS.to_string()])
        .args(["--duration", &format!("{}s", plan.turn.as_secs()), "--script"])
        .arg(script)
        .arg(&url)
        .arg("--")
        .arg(list)
        .output()
        .context("wrk: tools/setup bench installs it")?;
    let (elapsed, cpu_ns) = (begun.elapsed(), server.cpu_ns() - cpu);
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success() && !text.contains("Non-2xx"), "{text}");
    let requests =
        text.lines().find_map(|line| line.split_once(" requests in ")).context("wrk counted no requests")?;
    let requests: f64 = requests.0.trim().parse()?;
    Ok(Round {
        segments_per_s: requests / elapsed.as_secs_f64(),
        cpu_us: cpu_ns as f64 / 1e3 / requests.max(1.0),
    })
}

/// Measures the first manifest of a fresh origin, which indexes the presentation. Returns the
/// medians of CPU time and elapsed time, in milliseconds.
fn indexing(library: &[String], environment: &[(&str, String)], rounds: usize) -> Result<(f64, f64)> {
    let mut measured = Vec::new();
    for _ in 0..rounds {
        let server = origin(library, environment)?;
        let (cpu, begun) = (server.cpu_ns(), Instant::now());
        segments::get(&server, &format!("/vod/{PRESENTATION}/manifest.mpd"))?;
        measured.push((server.cpu_ns() - cpu, begun.elapsed()));
    }
    let median = |of: fn(&(u64, Duration)) -> f64| spread(measured.iter().map(of)).1;
    Ok((median(|(cpu_ns, _)| *cpu_ns as f64 / 1e6), median(|(_, wall)| wall.as_secs_f64() * 1e3)))
}

/// Returns the lowest, median and highest ratio of CPU time per segment within a round.
fn ratios(ours: &[Round], nginxs: &[Round]) -> (f64, f64, f64) {
    spread(ours.iter().zip(nginxs).map(|(ours, nginxs)| ours.cpu_us / nginxs.cpu_us.max(f64::MIN_POSITIVE)))
}

/// Returns minimum, median and maximum.
fn spread(values: impl Iterator<Item = f64>) -> (f64, f64, f64) {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    (values[0], values[values.len() / 2], values[values.len() - 1])
}

fn document(names: &[&str], rounds: &[Vec<Round>], indexing: &Value) -> Value {
    let server = |(name, of): (&&str, &Vec<Round>)| {
        let measured: Vec<_> = of
            .iter()
            .map(
                |round| json!({ "segments_per_s": round.segments_per_s, "cpu_us_per_segment": round.cpu_us }),
            )
            .collect();
        let (low, median, high) = ratios(of, &rounds[0]);
        json!({ "server": name, "rounds": measured, "cpu_by_nginxs": { "low": low, "median": median, "high": high } })
    };
    json!({
        "servers": names.iter().zip(rounds).map(server).collect::<Vec<_>>(),
        "indexing": indexing,
    })
}
