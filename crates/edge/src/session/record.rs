//! Record: writes each response's entry to the request log.

use std::os::fd::AsFd;

use thalweg_http::RequestHead;
use tokio::net::TcpStream;

use super::Session;
use crate::log::{Entry, StartedResponse};
use crate::sent::{MalformedLine, PolicyNotes, Sent};
use crate::transport::Outgoing;
use crate::transport::client::Client;
use crate::worker::Worker;

/// Parts of a record that few responses have.
#[derive(Default)]
pub(super) struct Extras<'a> {
    noted: Option<Box<PolicyNotes>>,
    malformed: Option<&'a MalformedLine>,
}

impl<'a> Extras<'a> {
    /// Describes a request that could not be parsed.
    pub(super) fn malformed(line: &'a MalformedLine) -> Self {
        Self { malformed: Some(line), noted: None }
    }
}

impl<O: Outgoing> Session<'_, O> {
    /// Ends the policy's client side, if any, and writes the log entry.
    pub(super) fn record(&mut self, started: StartedResponse, sent: &Sent) {
        let policy = self.policy.take();
        let noted = policy.and_then(|policy| policy.end(self.client, self.worker.log().is_recording()));
        let extras = Extras { noted, malformed: None };
        write(self.worker, self.client, self.out.socket(), started, self.received, sent, extras);
    }
}

/// Writes the log entry of the response to `request`.
pub(super) fn write(
    worker: &Worker,
    client: &Client,
    socket: &TcpStream,
    started: StartedResponse,
    request: &RequestHead,
    sent: &Sent,
    extras: Extras<'_>,
) {
    let entry = Entry {
        request,
        malformed: extras.malformed,
        client: client.address,
        connection: socket.as_fd(),
        steering: &client.steering(),
        sent,
        noted: extras.noted,
    };
    worker.log().append(started, entry);
}
