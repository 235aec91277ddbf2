//! Record: writes each response's entry to the request log, or defers it until the client has
//! acknowledged the response.

use thalweg_http::RequestHead;
use thalweg_tcp::TcpInfo;

use super::Session;
use crate::log::{Entry, StartedResponse};
use crate::sent::{MalformedLine, PolicyNotes, Sent};
use crate::steering::Tcp;
use crate::transport::Outgoing;
use crate::transport::client::Client;
use crate::transport::socket::{Socket, Span};
use crate::worker::Worker;

/// Parts of an entry that few responses have.
#[derive(Default)]
pub(super) struct Extras<'a> {
    noted: Option<Box<PolicyNotes>>,
    malformed: Option<&'a MalformedLine>,
    /// The response's bytes on the wire, if their delivery is measured.
    span: Option<Span>,
}

impl<'a> Extras<'a> {
    /// Describes a request that could not be parsed.
    pub(super) fn malformed(line: &'a MalformedLine) -> Self {
        Self { malformed: Some(line), ..Self::default() }
    }
}

impl<O: Outgoing> Session<'_, O> {
    /// Ends the policy's client side, if any, and writes the log entry.
    pub(super) fn record(&mut self, started: StartedResponse, sent: &Sent) {
        let policy = self.policy.take();
        let is_recorded = self.worker.log().records_response(&started);
        let noted = policy.and_then(|policy| policy.end(self.client, is_recorded));
        let extras = Extras { noted, malformed: None, span: self.out.span() };
        write(self.worker, self.client, self.out.socket(), started, self.received, sent, extras);
    }
}

/// Writes the log entry for `request` and its response.
pub(super) fn write(
    worker: &Worker,
    client: &Client,
    socket: &Socket,
    started: StartedResponse,
    request: &RequestHead,
    sent: &Sent,
    extras: Extras<'_>,
) {
    let steering = client.steering();
    let span = extras.span.filter(|_| worker.log().is_recording());
    let tcp = if worker.log().records_response(&started) && span.is_none() {
        socket.with_fd(TcpInfo::read).ok().and_then(|info| Tcp::of(&info, &steering))
    } else {
        None
    };
    let entry = Entry {
        request,
        malformed: extras.malformed,
        client: client.address,
        tcp,
        steering: &steering,
        sent,
        noted: extras.noted,
    };
    match span {
        Some(span) => {
            let record = worker.log().defer(started, entry);
            client.await_ack(span, record, socket, &steering);
        }
        None => worker.log().append(started, entry),
    }
}
