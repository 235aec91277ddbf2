//! One sample: a connection of its own, one response, and what the server's kernel says at its end.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use thalweg_http::ResponseHead;

use super::{Ask, SLICE, Sample};
use crate::load::connection::{Connection, Timeouts};
use crate::load::response::Sink;
use crate::load::{ErrorKind, Failure};

/// The longest that one step of a sample may take: a connection, or anything to arrive.
const PATIENCE: Duration = Duration::from_secs(60);
const TIMEOUTS: Timeouts = Timeouts { connect: PATIENCE, head: PATIENCE, content: PATIENCE };

/// The field by which a client asks for an algorithm, and is told which the socket has.
pub const ALGORITHM_FIELD: &str = "Lab-Congestion-Control";
/// The field in which the server's kernel says how many TCP segments it sent again.
pub const RETRANSMITS_FIELD: &str = "Lab-Retransmits";
/// Where it is told.
pub const TOLD_AT: &str = "/lab/tcp";

/// Where samples are taken.
#[derive(Debug, Clone, Copy)]
pub struct Way {
    /// An address of the client's prefix.
    pub client: IpAddr,
    /// The edge.
    pub server: SocketAddr,
}

/// Asks for the content once, on a thread of the client's side. `range_start` is where a range begins.
///
/// # Errors
/// If the server cannot be reached, or answers something else, or has another algorithm than was asked for.
pub async fn take(way: Way, ask: Ask, range_start: u64, algorithm: &str) -> Result<Sample, Failure> {
    let begun = Instant::now();
    let mut connection = Connection::open(&way.server.into(), Some(way.client), TIMEOUTS).await?;
    let connected = Instant::now();
    let target = target(ask);
    let range = match ask.is_range {
        true => format!("Range: bytes={range_start}-{}\r\n", range_start + ask.bytes - 1),
        false => String::new(),
    };
    let mut noted = Noted::since(begun);
    let request = request(&target, &format!("{ALGORITHM_FIELD}: {algorithm}\r\n{range}"));
    let response = connection.exchange(&request, &mut noted).await.map_err(|broken| broken.failure)?;
    let status = if ask.is_range { 206 } else { 200 };
    if response.status != status || response.content_bytes != ask.bytes {
        let (status, bytes) = (response.status, response.content_bytes);
        let detail = format!("{target}: status {status} with {bytes} bytes of content");
        return Err(Failure::new(ErrorKind::Content, detail));
    }
    Ok(Sample {
        total: response.last_byte - begun,
        connect: connected - begun,
        ttfb: response.first_byte - connected,
        retransmits: retransmits(&mut connection, algorithm).await?,
        progress: noted.into_progress(),
    })
}

/// The URL of content of that size.
pub fn target(ask: Ask) -> String {
    let bytes = if ask.is_range { super::plan::RANGED_BYTES } else { ask.bytes };
    format!("/lab/content?bytes={bytes}")
}

/// How many segments the server's kernel has sent again on this connection, which has to have that algorithm.
async fn retransmits(connection: &mut Connection, algorithm: &str) -> Result<u64, Failure> {
    let mut told = Noted::since(Instant::now());
    connection.exchange(&request(TOLD_AT, ""), &mut told).await.map_err(|broken| broken.failure)?;
    if told.algorithm != algorithm {
        let detail = format!(
            "{algorithm} was asked for and the socket has {:?}: does the kernel have it?",
            told.algorithm
        );
        return Err(Failure::new(ErrorKind::Content, detail));
    }
    told.retransmits.ok_or_else(|| {
        Failure::new(ErrorKind::Content, format!("{TOLD_AT} does not say how many segments were sent again"))
    })
}

fn request(target: &str, fields: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nHost: lab\r\n{fields}\r\n").into_bytes()
}

/// What is noted of a response.
#[derive(Debug)]
struct Noted {
    since: Instant,
    algorithm: String,
    retransmits: Option<u64>,
    came_bytes: u64,
    /// Content bytes that had come after each whole slice of time.
    progress: Vec<u64>,
}

impl Noted {
    fn since(since: Instant) -> Self {
        Self { since, algorithm: String::new(), retransmits: None, came_bytes: 0, progress: Vec::new() }
    }

    /// With the slice in which the last byte came.
    fn into_progress(mut self) -> Vec<u64> {
        self.progress.push(self.came_bytes);
        self.progress
    }
}

impl Sink for Noted {
    fn head(&mut self, head: &ResponseHead) -> Result<(), Failure> {
        let field = |name| head.fields.get_str(name);
        self.algorithm = field(ALGORITHM_FIELD).unwrap_or_default().to_owned();
        self.retransmits = field(RETRANSMITS_FIELD).and_then(|text| text.parse().ok());
        Ok(())
    }

    fn is_reading(&self) -> bool {
        false
    }

    fn read(&mut self, _: &[u8]) -> Result<(), Failure> {
        Ok(())
    }

    fn arrived(&mut self, at: Instant, bytes: u64) {
        let slices = ((at - self.since).as_nanos() / SLICE.as_nanos()) as usize;
        self.progress.resize(self.progress.len().max(slices), self.came_bytes);
        self.came_bytes += bytes;
    }

    fn chunk(&mut self, _: Instant) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_what_had_come_after_each_slice() {
        let since = Instant::now();
        let mut noted = Noted::since(since);
        for (slices, bytes) in [(2.5, 10), (2.9, 5), (3.0, 1), (6.1, 4)] {
            noted.arrived(since + SLICE.mul_f64(slices), bytes);
        }
        assert_eq!(noted.into_progress(), [0, 0, 15, 16, 16, 16, 20]);
    }
}
