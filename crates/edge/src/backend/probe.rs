//! Probes: requests sent repeatedly to a backend to determine its health (vcl-probe(7)).
//!
//! As in Varnish, the response must end with the connection. The probe sends `Connection: close`
//! and fails if the backend does not close the connection in time.
//!
//! **Invariant:** a backend has at most one probe in flight.

use std::io;
use std::sync::Weak;
use std::time::Duration;

use thalweg_policy::program::ProbeRow;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, sink};
use tokio::time::{sleep, timeout};

use super::endpoint;
use super::server::Backend;
use super::timeouts::duration;

/// Maximum number of response bytes searched for the status.
const STATUS_LINE_BYTES_MAX: u64 = 128;
/// Default interval, used instead of zero, as in varnishd.
const INTERVAL_DEFAULT: Duration = Duration::from_secs(5);
/// Default timeout, used instead of zero, as in varnishd.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(2);

/// Probes a backend until it is dropped, starting immediately.
pub(super) async fn run(backend: Weak<Backend>, probe: ProbeRow) {
    let interval = or_default(probe.interval_s, INTERVAL_DEFAULT);
    loop {
        {
            let Some(backend) = backend.upgrade() else { return };
            let answer = send_probe(&backend, &probe).await;
            record_result(&backend, answer);
        }
        sleep(interval).await;
    }
}

fn or_default(seconds: f64, default: Duration) -> Duration {
    Some(duration(seconds)).filter(|time| !time.is_zero()).unwrap_or(default)
}

/// Sends one probe. Returns the reason if the probe fails.
async fn send_probe(backend: &Backend, probe: &ProbeRow) -> Result<(), String> {
    let time_max = or_default(probe.timeout_s, TIMEOUT_DEFAULT);
    let answer = timeout(time_max, exchange(backend, &request(backend, probe))).await;
    let responded = matches!(answer, Ok(Ok(_)));
    backend.endpoint.look_up_again(if responded { endpoint::KEPT_MS_MAX } else { endpoint::AGAIN_MS_MIN });
    let answer = match answer {
        Ok(answer) => answer.map_err(|error| error.to_string())?,
        Err(_) => return Err("timed out".into()),
    };
    let line = String::from_utf8_lossy(&answer);
    let line = line.lines().next().unwrap_or_default();
    if status(line) == Some(probe.expected_status) {
        Ok(())
    } else {
        Err(format!("unexpected status {line:?}"))
    }
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

/// Sends a request, waits until the response has ended, and returns its first bytes.
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

fn record_result(backend: &Backend, answer: Result<(), String>) {
    if !backend.health.record_probe(answer.is_ok()) {
        if let Err(reason) = answer {
            tracing::debug!(%backend, reason, "probe failed");
        }
        return;
    }
    let good = backend.health.probe_count().map_or(0, |good| good.good);
    match answer {
        Ok(()) => tracing::info!(%backend, good, "backend is healthy"),
        Err(reason) => tracing::warn!(%backend, good, reason, "backend is sick"),
    }
}
