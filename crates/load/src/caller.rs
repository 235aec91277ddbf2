//! Connections of one client: one per server, opened on demand and reopened after the server closes
//! it.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::connection::{Connection, Exchange, ExchangeError, Server, Timeouts};
use super::failure::Failure;
use super::figures::Time;
use super::recorder::{Counted, Recorder};
use super::response::Sink;
use super::target::Target;

/// Sends one client's requests to its servers.
#[derive(Debug)]
pub(crate) struct Caller {
    source: Option<IpAddr>,
    timeouts: Timeouts,
    recorder: Recorder,
    /// Idle connections, at most one per server.
    connections: Vec<(Server, Connection)>,
}

/// Failure of a call that received no complete response.
#[derive(Debug)]
pub(crate) struct NoResponse {
    pub(crate) failure: Failure,
    /// Whether a connection was open when the call failed.
    pub(crate) is_connected: bool,
}

impl Caller {
    pub(crate) fn new(source: Option<IpAddr>, timeouts: Timeouts, recorder: Recorder) -> Self {
        Self { source, timeouts, recorder, connections: Vec::new() }
    }

    /// Sends a request to the target's server and reads the response. Retries once if the server
    /// closed the idle connection (RFC 9112 §9.3.1, RFC 9113 §8.7).
    pub(crate) async fn call(
        &mut self,
        target: &Target,
        request: &[u8],
        counted: Counted,
        sink: &mut impl Sink,
    ) -> Result<Exchange, NoResponse> {
        let mut is_second = false;
        loop {
            let mut connection = self
                .connect(target, counted)
                .await
                .map_err(|failure| NoResponse { failure, is_connected: false })?;
            match connection.exchange(request, sink).await {
                Ok(exchange) => {
                    if exchange.is_kept_alive {
                        self.connections.push((target.server.clone(), connection));
                    }
                    return Ok(exchange);
                }
                Err(ExchangeError { is_idle_close: true, .. }) if !is_second => {
                    is_second = true;
                    self.recorder.reconnect(counted);
                }
                Err(ExchangeError { failure, .. }) => {
                    let failure = Failure::new(failure.kind, format!("{}: {failure}", target.url));
                    return Err(NoResponse { failure, is_connected: true });
                }
            }
        }
    }

    /// Closes all idle connections.
    pub(crate) fn close(&mut self) {
        self.connections.clear();
    }

    /// Returns an idle connection to the target's server, or opens one.
    async fn connect(&mut self, target: &Target, counted: Counted) -> Result<Connection, Failure> {
        if let Some(index) = self.connections.iter().position(|(server, _)| *server == target.server) {
            return Ok(self.connections.swap_remove(index).1);
        }
        let connection = Connection::open(&target.server, self.source, self.timeouts).await?;
        let opening = connection.opening();
        self.recorder.time(counted, Time::Connect, opening.connect);
        if let Some(tls) = opening.tls {
            self.recorder.time(counted, Time::Tls, tls);
        }
        Ok(connection)
    }
}

/// Returns the TTFB and TTLB of an exchange. `started` is the time before opening any connection,
/// and `due` is set in the open model only.
pub(crate) fn times(exchange: &Exchange, started: Instant, due: Option<Instant>) -> [(Time, Duration); 2] {
    [
        (Time::Ttfb, exchange.first_byte.saturating_duration_since(exchange.sent)),
        (Time::Ttlb, exchange.last_byte.saturating_duration_since(due.unwrap_or(started))),
    ]
}
