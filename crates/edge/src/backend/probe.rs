//! Probes: a request to a backend again and again, whose answers say whether it is healthy (vcl-probe(7)).
//!
//! As there, the end of the connection is part of the answer: `Connection: close` is asked for, and what has not ended in
//! time is no good answer.
//!
//! **Invariant:** a backend is asked by one probe at a time.

use std::io;
use std::sync::Weak;
use std::time::Duration;

use thalweg_policy::program::ProbeRow;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, sink};
use tokio::time::{sleep, timeout};

use super::route::duration;
use super::{Backend, place};

/// Bytes of an answer in which its status is looked for.
const STATUS_LINE_BYTES_MAX: u64 = 128;
/// What an interval or a timeout of zero means, as in varnishd.
const INTERVAL_DEFAULT: Duration = Duration::from_secs(5);
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(2);

/// Asks as long as the backend is there, for the first time at once.
pub(super) async fn run(backend: Weak<Backend>, probe: ProbeRow) {
    let interval = or_default(probe.interval_s, INTERVAL_DEFAULT);
    loop {
        {
            let Some(backend) = backend.upgrade() else { return };
            let answer = ask(&backend, &probe).await;
            note(&backend, answer);
        }
        sleep(interval).await;
    }
}

fn or_default(seconds: f64, default: Duration) -> Duration {
    Some(duration(seconds)).filter(|time| !time.is_zero()).unwrap_or(default)
}

/// Nothing against the backend, or what is.
async fn ask(backend: &Backend, probe: &ProbeRow) -> Result<(), String> {
    let time_max = or_default(probe.timeout_s, TIMEOUT_DEFAULT);
    let answer = timeout(time_max, exchange(backend, &request(backend, probe))).await;
    let is_there = matches!(answer, Ok(Ok(_)));
    backend.place.look_up_again(if is_there { place::KEPT_MS_MAX } else { place::AGAIN_MS_MIN });
    let answer = match answer {
        Ok(answer) => answer.map_err(|error| error.to_string())?,
        Err(_) => return Err("it took too long".into()),
    };
    let line = String::from_utf8_lossy(&answer);
    let line = line.lines().next().unwrap_or_default();
    if status(line) == Some(probe.expected_status) { Ok(()) } else { Err(format!("it answered {line:?}")) }
}

fn request(backend: &Backend, probe: &ProbeRow) -> String {
    if probe.request.is_empty() {
        return format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
            probe.url,
            backend.host()
        );
    }
    let lines = probe.request.iter().map(|line| format!("{line}\r\n"));
    lines.chain(["\r\n".to_owned()]).collect()
}

/// The first bytes of the answer, once it has ended.
async fn exchange(backend: &Backend, request: &str) -> io::Result<Vec<u8>> {
    let mut stream = backend.open(None).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut start = Vec::new();
    (&mut stream).take(STATUS_LINE_BYTES_MAX).read_to_end(&mut start).await?;
    copy(&mut stream, &mut sink()).await?;
    Ok(start)
}

fn status(line: &str) -> Option<u16> {
    let (version, rest) = line.split_once(' ')?;
    let status = rest.split(' ').next()?;
    version.strip_prefix("HTTP/").and_then(|_| status.parse().ok())
}

fn note(backend: &Backend, answer: Result<(), String>) {
    if !backend.health.note(answer.is_ok()) {
        if let Err(reason) = answer {
            tracing::debug!(%backend, reason, "probe failed");
        }
        return;
    }
    let good = backend.health.good().map_or(0, |good| good.good);
    match answer {
        Ok(()) => tracing::info!(%backend, good, "backend is healthy"),
        Err(reason) => tracing::warn!(%backend, good, reason, "backend is sick"),
    }
}
