//! Client for one sample: opens a connection, fetches one response, then reads the server kernel's
//! counters.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use thalweg_http::ResponseHead;
use thalweg_load::connection::{Connection, Timeouts};
use thalweg_load::response::Sink;
use thalweg_load::{ErrorKind, Failure};
use tokio::time::sleep;

use super::{Request, SLICE, Sample};

/// Time limit for connecting, and for each wait for bytes.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause between a response and the next request on its connection. An earlier request would carry
/// the response's delayed acknowledgement. Linux delays an acknowledgement by at most 200 ms
/// (`TCP_DELACK_MAX`).
pub(super) const DELAYED_ACK_MAX: Duration = Duration::from_millis(250);
const TIMEOUTS: Timeouts = Timeouts::each(PATIENCE);

/// Field that selects the algorithm in a request and names the socket's algorithm in a response.
pub const ALGORITHM_FIELD: &str = "Lab-Congestion-Control";
/// Response field with the number of TCP segments retransmitted by the server's kernel.
pub const RETRANSMITS_FIELD: &str = "Lab-Retransmits";
/// Response field with the goodput of the previous response, as measured by the edge, in bytes per
/// second; 0 if it was not measured.
pub const GOODPUT_FIELD: &str = "Lab-Goodput";
/// Path of the resource whose response has [`ALGORITHM_FIELD`], [`RETRANSMITS_FIELD`] and
/// [`GOODPUT_FIELD`].
pub const COUNTERS_PATH: &str = "/lab/tcp";

/// The endpoints of a sample.
#[derive(Debug, Clone, Copy)]
pub struct Endpoints {
    /// An address in the client's prefix.
    pub client: IpAddr,
    /// The edge's address.
    pub server: SocketAddr,
}

/// Takes one sample by requesting the content once. The calling thread must be on the clients'
/// side. `range_start` is the first byte of a range request.
///
/// # Errors
///
/// Returns an error if the server is unreachable, sends an unexpected response, or uses a different
/// algorithm.
pub async fn take_sample(
    endpoints: Endpoints,
    request: Request,
    range_start: u64,
    algorithm: &str,
) -> Result<Sample, Failure> {
    let started = Instant::now();
    let mut connection = Connection::open(&endpoints.server.into(), Some(endpoints.client), TIMEOUTS).await?;
    let connected = Instant::now();
    let target = target(request);
    let range = match request.is_range {
        true => format!("Range: bytes={range_start}-{}\r\n", range_start + request.bytes - 1),
        false => String::new(),
    };
    let mut sink = ResponseSink::since(started);
    let fields = format!("{ALGORITHM_FIELD}: {algorithm}\r\n{range}");
    let response = connection.get("lab", &target, &fields, &mut sink).await?;
    let status = if request.is_range { 206 } else { 200 };
    if response.status != status || response.content_bytes != request.bytes {
        let (status, bytes) = (response.status, response.content_bytes);
        let detail = format!("{target}: status {status} with {bytes} bytes of content");
        return Err(Failure::new(ErrorKind::Content, detail));
    }
    // Otherwise the next request would carry the acknowledgement of the last byte.
    sleep(DELAYED_ACK_MAX).await;
    let counters = counters(&mut connection, algorithm).await?;
    Ok(Sample {
        total: response.last_byte - started,
        connect: connected - started,
        ttfb: response.first_byte - connected,
        retransmits: counters.retransmits,
        edge_bytes_per_s: counters.goodput_bytes_per_s,
        progress: sink.into_progress(),
    })
}

/// Returns the request target for the content.
pub fn target(request: Request) -> String {
    let bytes = if request.is_range { super::plan::RANGED_BYTES } else { request.bytes };
    format!("/lab/content?bytes={bytes}")
}

/// What the server reports about a response after its end.
struct Counters {
    retransmits: u64,
    goodput_bytes_per_s: Option<u64>,
}

/// Reads what the server knows about this connection. Returns an error if the connection uses a
/// different algorithm.
async fn counters(connection: &mut Connection, algorithm: &str) -> Result<Counters, Failure> {
    let mut sink = ResponseSink::since(Instant::now());
    connection.get("lab", COUNTERS_PATH, "", &mut sink).await?;
    if sink.algorithm != algorithm {
        let detail = format!(
            "requested {algorithm}, but the socket has {:?}: does the kernel support it?",
            sink.algorithm
        );
        return Err(Failure::new(ErrorKind::Content, detail));
    }
    let retransmits = sink.retransmits.ok_or_else(|| {
        Failure::new(ErrorKind::Content, format!("{COUNTERS_PATH}: no {RETRANSMITS_FIELD} field"))
    })?;
    Ok(Counters { retransmits, goodput_bytes_per_s: sink.goodput_bytes_per_s.filter(|rate| *rate > 0) })
}

/// Records a response's fields and progress.
#[derive(Debug)]
struct ResponseSink {
    since: Instant,
    algorithm: String,
    retransmits: Option<u64>,
    goodput_bytes_per_s: Option<u64>,
    received_bytes: u64,
    /// Content bytes received by the end of each completed slice.
    progress: Vec<u64>,
}

impl ResponseSink {
    fn since(since: Instant) -> Self {
        Self {
            since,
            algorithm: String::new(),
            retransmits: None,
            goodput_bytes_per_s: None,
            received_bytes: 0,
            progress: Vec::new(),
        }
    }

    /// Returns the progress, including the slice in which the last byte arrived.
    fn into_progress(mut self) -> Vec<u64> {
        self.progress.push(self.received_bytes);
        self.progress
    }
}

impl Sink for ResponseSink {
    fn head(&mut self, head: &ResponseHead) -> Result<(), Failure> {
        let field = |name| head.fields.get_str(name);
        self.algorithm = field(ALGORITHM_FIELD).unwrap_or_default().to_owned();
        let number = |name| field(name).and_then(|text| text.parse().ok());
        self.retransmits = number(RETRANSMITS_FIELD);
        self.goodput_bytes_per_s = number(GOODPUT_FIELD);
        Ok(())
    }

    fn arrived(&mut self, at: Instant, bytes: u64) {
        let slices = ((at - self.since).as_nanos() / SLICE.as_nanos()) as usize;
        self.progress.resize(self.progress.len().max(slices), self.received_bytes);
        self.received_bytes += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_cumulative_at_the_end_of_each_slice() {
        let since = Instant::now();
        let mut sink = ResponseSink::since(since);
        for (slices, bytes) in [(2.5, 10), (2.9, 5), (3.0, 1), (6.1, 4)] {
            sink.arrived(since + SLICE.mul_f64(slices), bytes);
        }
        assert_eq!(sink.into_progress(), [0, 0, 15, 16, 16, 16, 20]);
    }
}
