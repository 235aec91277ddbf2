//! What carries the requests of one client: a connection to each server, made when it is needed and made anew when the server has
//! closed it.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::connection::{Broken, Connection, Exchange, Server, Timeouts};
use super::failure::Failure;
use super::figures::Time;
use super::recorder::{Counted, Recorder};
use super::response::Sink;
use super::target::Target;

/// One client's way to its servers.
#[derive(Debug)]
pub(crate) struct Caller {
    source: Option<IpAddr>,
    timeouts: Timeouts,
    recorder: Recorder,
    /// Those that are idle, and where they lead to; one for each server.
    connections: Vec<(Server, Connection)>,
}

/// Why there was no whole response.
#[derive(Debug)]
pub(crate) struct NoResponse {
    pub(crate) failure: Failure,
    /// Whether there was a connection for the request.
    pub(crate) is_connected: bool,
}

impl Caller {
    pub(crate) fn new(source: Option<IpAddr>, timeouts: Timeouts, recorder: Recorder) -> Self {
        Self { source, timeouts, recorder, connections: Vec::new() }
    }

    /// Sends a request to the target's server and takes the response. What an idle connection's close has swallowed is sent once
    /// more (RFC 9112 §9.3.1, RFC 9113 §8.7).
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
                Err(Broken { is_idle_close: true, .. }) if !is_second => {
                    is_second = true;
                    self.recorder.reconnect(counted);
                }
                Err(Broken { failure, .. }) => {
                    let failure = Failure::new(failure.kind, format!("{}: {failure}", target.url));
                    return Err(NoResponse { failure, is_connected: true });
                }
            }
        }
    }

    /// Lets its connections go.
    pub(crate) fn close(&mut self) {
        self.connections.clear();
    }

    /// The one that leads to where the target is, or a new one.
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

/// The times of an exchange that began, connection included, at `begun` and was due at `due`.
pub(crate) fn times(exchange: &Exchange, begun: Instant, due: Option<Instant>) -> [(Time, Duration); 2] {
    [
        (Time::Ttfb, exchange.first_byte.saturating_duration_since(exchange.sent)),
        (Time::Ttlb, exchange.last_byte.saturating_duration_since(due.unwrap_or(begun))),
    ]
}
