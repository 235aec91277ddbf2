//! Session: processes one request, from its head to its log record.
//!
//! ```text
//! check ─ receive ─ look-up ─ hit ───────────┐
//!           │          └───── miss ─ fetch ──┤
//!           ├─ pass ─ fetch ─────────────────┴─ deliver ─ send ─ record
//!           ├─ purge ─┐
//!           ├─ synth ─┴─ synth ─ record
//!           └─ pipe ─ record                   (restart: receive again, a few times)
//! ```
//!
//! [`Step`] lists the steps, and [`Session::drive`] runs them. Each step has its own file and
//! returns the next step. A policy can act at each step ([`policy`]). Without a policy, nothing is
//! allocated for one, and RFC 9111 alone decides.
//!
//! **Invariant:** every session is logged exactly once, regardless of how it ends. That writes one
//! record, unless the client is not sampled.
//! **Invariant:** a request and its fetches use the policy that was active when the request
//! arrived, unless that policy selects another.

use std::sync::Arc;

use thalweg_cache::TooManyPurges;
use thalweg_http::cache_status::Forward;
use thalweg_http::framing::FramingError;
use thalweg_http::{Framing, Method, RequestHead};
use thalweg_policy::Sub;
use thalweg_policy::step::Action;

use crate::lookup::{Found, Hit, Miss, Search};
use crate::refusal::Refusal;
use crate::sent::{MalformedLine, Sent};
use crate::transport::client::Client;
use crate::transport::{Incoming, Outgoing};
use crate::worker::Worker;
use policy::{ClientSide, Heads, RequestContext};
use synth::{GeneratedResponse, Synth};

mod check;
mod deliver;
mod fetch_head;
mod hit;
mod look_up;
mod miss;
mod multipart;
mod pass;
mod pipe;
mod policy;
mod purge;
mod receive;
mod record;
mod send;
mod synth;

const RESTARTED: Refusal = Refusal::by_edge(503, "the policy restarted the request too often");
const FAILED: Refusal = Refusal::by_edge(503, "the policy failed");

/// Buffers reused by a connection's sessions.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    /// The request as received.
    pub(crate) request: RequestHead,
    key: String,
}

/// One step of a session, with its input.
enum Step {
    /// Refuse requests that can be refused without a look-up.
    Check,
    /// Run `vcl_recv`, build the cache key, and select the next step.
    Receive,
    /// Look up the key in the cache.
    LookUp,
    /// Serve a stored response, whose content may still be arriving.
    Hit(Hit),
    /// Fetch the response, because no stored response can be served without contacting a backend.
    Miss(Miss),
    /// Forward the request to a backend, and send the response to this client only.
    Pass(Forward),
    /// Connect the client connection to a backend connection.
    Pipe,
    /// Purge everything stored under the key.
    Purge,
    /// Send a generated response, which a policy may change.
    Synth(Synth),
    /// Send a generated response unchanged.
    Generated(GeneratedResponse),
    /// Send the selected part of a found or fetched response.
    Deliver(Found),
    /// Restart the request, as requested by the policy.
    Restart,
    /// The response has ended.
    Done(Sent),
}

/// State of one request until its response has ended.
struct Session<'a, O> {
    worker: &'a Arc<Worker>,
    client: &'a Client,
    out: &'a mut O,
    /// The request as received.
    received: &'a mut RequestHead,
    key: &'a mut String,
    /// Framing of the request content while it is unread; `None` once it is read.
    framing: Framing,
    policy: Option<Box<ClientSide>>,
    search: Search,
}

/// Responds to the request in `buffers`, whose content is delimited by `framing`.
pub(crate) async fn run<I: Incoming, O: Outgoing>(
    worker: &Arc<Worker>,
    client: &Client,
    buffers: &mut Buffers,
    framing: Result<Framing, FramingError>,
    incoming: &mut I,
    out: &mut O,
) -> Sent {
    let started = worker.begin(client.address.ip());
    client.steering().begin_request();
    let Buffers { request, key } = buffers;
    let first = framing.as_ref().map_or_else(check::unframed, |_| Step::Check);
    let mut session = Session {
        worker,
        client,
        out,
        received: request,
        key,
        framing: framing.unwrap_or(Framing::UntilClose),
        policy: None,
        search: Search::default(),
    };
    let sent = session.drive(first, incoming).await;
    client.steering().count_sent(sent.bytes);
    session.record(started, &sent);
    sent
}

/// Refuses a request that could not be parsed.
pub(crate) async fn refuse<O: Outgoing>(
    worker: &Arc<Worker>,
    client: &Client,
    buffers: &mut Buffers,
    refusal: &Refusal,
    line: MalformedLine,
    out: &mut O,
) {
    let started = worker.begin(client.address.ip());
    buffers.request = RequestHead::default();
    if line.method == "HEAD" {
        buffers.request.method = Method::Head;
    }
    let own = GeneratedResponse::refused(refusal);
    let sent = synth::send(out, own, &buffers.request, true).await;
    record::write(
        worker,
        client,
        out.socket(),
        started,
        &buffers.request,
        &sent,
        record::Extras::malformed(&line),
    );
}

impl<O: Outgoing> Session<'_, O> {
    /// Runs the steps until the response has ended. Rare steps are boxed to keep the connection's
    /// future small.
    async fn drive(&mut self, mut step: Step, incoming: &mut impl Incoming) -> Sent {
        loop {
            step = match step {
                Step::Check => self.check(incoming).await,
                Step::Receive => self.receive(),
                Step::LookUp => self.look_up().await,
                Step::Hit(hit) => self.hit(hit),
                Step::Miss(miss) => Box::pin(self.miss(miss)).await,
                Step::Pass(forward) => Box::pin(self.pass(forward, incoming)).await,
                Step::Pipe => Box::pin(self.pipe(incoming)).await,
                Step::Purge => Box::pin(self.purge()).await,
                Step::Restart => self.restart(),
                Step::Synth(synth) => self.synth(synth),
                Step::Generated(own) => Step::Done(Box::pin(self.send_own(own)).await),
                // Borrowed, because moving the value would enlarge the future.
                Step::Deliver(ref mut found) => match self.deliver(found).await {
                    Ok(part) => Step::Done(self.send(found, part).await),
                    Err(step) => *step,
                },
                Step::Done(sent) => return sent,
            }
        }
    }

    /// Returns the request as changed by the policy or, without one, as received.
    fn request(&self) -> &RequestHead {
        self.policy.as_ref().map_or(&*self.received, |policy| &policy.req)
    }

    /// Returns whether the cache may serve the request. If so, the request's content has been read
    /// and discarded.
    fn is_read(&self) -> bool {
        is_read(self.received.method)
    }

    /// Returns whether the request has unread content.
    fn has_content(&self) -> bool {
        !matches!(self.framing, Framing::None | Framing::Length(0))
    }

    /// Returns whether the session requires the connection to close after the response.
    fn closes(&self) -> bool {
        self.has_content() || self.worker.is_stopping()
    }

    /// Returns the connection and worker, for a policy.
    fn context(&self) -> RequestContext<'_> {
        RequestContext { client: self.client, socket: self.out.socket(), worker: self.worker }
    }

    /// Runs a subroutine; `None` without a policy.
    fn run(&mut self, sub: Sub, heads: Heads<'_>) -> Option<Action> {
        let context = RequestContext { client: self.client, socket: self.out.socket(), worker: self.worker };
        Some(self.policy.as_mut()?.run(sub, heads, context))
    }

    /// Runs a subroutine that needs no message besides the request, if the policy adds to its
    /// built-in version.
    fn hook(&mut self, sub: Sub) -> Option<Action> {
        self.policy.as_ref().filter(|policy| policy.defines(sub))?;
        self.run(sub, Heads::default())
    }

    /// Returns the step for an action that any subroutine may return.
    fn divert(&self, action: Action) -> Step {
        match action {
            Action::Restart => Step::Restart,
            Action::Synth { status, reason } => Step::Synth(Synth::Chosen { status, reason }),
            _ => Step::Generated(GeneratedResponse::refused(&FAILED)),
        }
    }

    /// Restarts the request at `receive`, unless it has restarted too often.
    fn restart(&mut self) -> Step {
        self.search = Search::default();
        if self.policy.as_mut().is_some_and(|policy| policy.restart()) {
            Step::Receive
        } else {
            Step::Generated(GeneratedResponse::refused(&RESTARTED))
        }
    }
}

impl From<Refusal> for Step {
    fn from(refusal: Refusal) -> Self {
        Self::Synth(Synth::Refused(refusal))
    }
}

impl From<TooManyPurges> for Step {
    fn from(TooManyPurges: TooManyPurges) -> Self {
        Refusal::by_edge(503, "too many purges are in force").into()
    }
}

/// Returns whether the cache may serve requests with this method.
fn is_read(method: Method) -> bool {
    matches!(method, Method::Get | Method::Head)
}
