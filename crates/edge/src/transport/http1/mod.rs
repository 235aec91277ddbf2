//! HTTP/1 connection in clear text (RFC 9112): reads requests one by one, responds to each before
//! parsing the next, and keeps the connection open or closes it.
//!
//! - [`incoming`]: requests and their content. [`outgoing`]: responses.
//! - [`send`]: writes to the socket, joined or by `sendfile`.
//! - [`pipe`]: a client connection joined to a backend connection.
//!
//! **Invariant:** the connection closes after anything that leaves the framing of later bytes in
//! doubt.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use thalweg_http::{Framing, Method, RequestHead, Version, framing};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::session::{self, Buffers};
use crate::steering::Steering;
use crate::transport::Outgoing;
use crate::transport::client::Client;
use crate::transport::socket::Socket;
use crate::worker::Worker;
use incoming::{Read, RequestContent, Requests};
use outgoing::{Measure, RequestForm, Response};

mod incoming;
mod outgoing;
mod pipe;
mod send;

/// Form of the response to a request that could not be parsed.
const MALFORMED: RequestForm = RequestForm { version: Version::Http11, is_head: false, keeps_alive: false };

/// Delay before the first check for a response's acknowledgement, unless another request arrives
/// earlier.
const ACK_WAIT: Duration = Duration::from_millis(200);

/// Maximum number of scratch buffers that a worker keeps for later requests.
const SPARE_MAX: usize = 64;

/// Maximum capacity, in bytes, of a response buffer kept for reuse.
const PENDING_BYTES_MAX: usize = 64 * 1024;

/// Buffers of one request and its response, kept to reuse their allocations.
#[derive(Default)]
struct Scratch {
    buffers: Buffers,
    /// Response bytes not yet written.
    pending: Vec<u8>,
}

thread_local! {
    /// Scratch buffers of finished requests. An idle connection holds none.
    #[allow(clippy::vec_box, reason = "a connection's future must hold only a pointer to the buffers")]
    static SPARE: RefCell<Vec<Box<Scratch>>> = const { RefCell::new(Vec::new()) };
}

impl Scratch {
    fn take() -> Box<Self> {
        SPARE.with_borrow_mut(Vec::pop).unwrap_or_default()
    }

    fn give_back(self: Box<Self>) {
        SPARE.with_borrow_mut(|spare| {
            if spare.len() < SPARE_MAX && self.pending.capacity() <= PENDING_BYTES_MAX {
                spare.push(self);
            }
        });
    }
}

/// Serves one client until either side ends the connection.
pub(crate) async fn serve(worker: Arc<Worker>, stream: TcpStream, address: SocketAddr) {
    let _ = stream.set_nodelay(true);
    let steering = Steering::begin(stream.as_fd(), worker.config().congestion_control, worker.steering());
    let client = Client::new(address, steering);
    let socket = Socket::new(stream);
    run(&worker, &client, &socket).await;
    client.settle_deliveries(&socket);
}

async fn run(worker: &Arc<Worker>, client: &Client, socket: &Socket) {
    let mut requests = Requests::default();
    loop {
        let (limits, timeouts) = (&worker.config().head, worker.timeouts());
        if !next_request(&mut requests, client, socket, timeouts.idle).await {
            return;
        }
        let mut scratch = Scratch::take();
        let Scratch { buffers, pending } = &mut *scratch;
        let Ok(read) = requests.read(socket, &mut buffers.request, limits, timeouts.head).await else {
            return;
        };
        // Hold the guard until the client has had time to read the response.
        let _busy = worker.busy();
        // A trial needs all its evidence.
        let is_evidence = client.steering().steered().is_some() && worker.log().samples(client.address.ip());
        let measures =
            has_use_for_delivery(worker, client) && (is_evidence || client.is_delivery_due(socket.written()));
        let measure = Measure {
            bytes_min: measures.then_some(worker.config().delivery_bytes_min),
            needs_state: client.needs_path_state(),
        };
        let is_over = match read {
            Read::End => return,
            Read::Request => {
                buffers.request.fields.remove_nominated();
                let form = request_form(&buffers.request);
                // The session refuses content that cannot be delimited; the connection then closes.
                let framing = framing::request_framing(&buffers.request);
                let mut content =
                    RequestContent::new(socket, &mut requests, framing.unwrap_or(Framing::UntilClose));
                let mut response = Response::new(socket, timeouts.send_stall, pending, form, measure);
                let sent = session::run(worker, client, buffers, framing, &mut content, &mut response);
                let was_cut = sent.await.cut.is_some();
                // Return without a shutdown, which would turn the reset of a cut response into a
                // clean end.
                if was_cut {
                    return;
                }
                response.closes() || !content.is_read()
            }
            Read::Malformed(refusal, line) => {
                let mut response = Response::new(socket, timeouts.send_stall, pending, MALFORMED, measure);
                session::refuse(worker, client, buffers, &refusal, line, &mut response).await;
                true
            }
        };
        scratch.give_back();
        if is_over {
            requests.linger(socket).await;
            return;
        }
    }
}

/// Whether anything uses the measured delivery of the next response: its record, or a policy.
fn has_use_for_delivery(worker: &Worker, client: &Client) -> bool {
    let log = worker.log();
    log.is_recording() && (log.samples(client.address.ip()) || worker.policies().active().is_some())
}

/// Waits for the first byte of the next request; returns `false` if none arrives within `idle` or
/// the client closes. Collects acknowledgements of earlier responses when a request arrives. Until
/// then, checks for them at increasing intervals, first after [`ACK_WAIT`]: most clients send their
/// next request sooner.
async fn next_request(requests: &mut Requests, client: &Client, socket: &Socket, idle: Duration) -> bool {
    let deadline = Instant::now() + idle;
    let mut wait = ACK_WAIT;
    loop {
        let is_waiting = client.awaits_acks();
        let until = if is_waiting { deadline.min(Instant::now() + wait) } else { deadline };
        let arrived = requests.begin(socket, until).await;
        if is_waiting {
            client.collect_acks(socket);
        }
        match arrived {
            Ok(is_request) => return is_request,
            Err(_) if until == deadline => return false,
            Err(_) => wait *= 2,
        }
    }
}

fn request_form(request: &RequestHead) -> RequestForm {
    RequestForm {
        version: request.version,
        is_head: request.method == Method::Head,
        keeps_alive: framing::keep_alive(request.version, &request.fields),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn future_bytes<F: Future>(_: impl Fn(Arc<Worker>, TcpStream, SocketAddr) -> F) -> usize {
        size_of::<F>()
    }

    /// An idle connection must stay below 4 KiB, including the task header and the stream.
    #[test]
    fn idle_connection_is_small() {
        let bytes = future_bytes(serve);
        assert!(bytes <= 2_560, "{bytes} bytes: box rare parts (nightly's -Zprint-type-sizes lists sizes)");
    }
}
