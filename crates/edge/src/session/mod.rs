//! Session: one request's life in the edge, from its head to its record.
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
//! returns the next step. A policy is an optional hook at each step ([`policy`]). Without one,
//! nothing is allocated for policies, and RFC 9111 alone decides.
//!
//! **Invariant:** every session ends in exactly one record, however it ends.
//! **Invariant:** a request, and any fetch it causes, use the policy that was active when the
//! request arrived, unless that policy selects another.

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

const RESTARTED: Refusal = Refusal::own(503, "the policy restarted the request too often");
const FAILED: Refusal = Refusal::own(503, "the policy failed");

/// Buffers that a connection reuses from session to session.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    /// The request as received.
    pub(crate) request: RequestHead,
    key: String,
}

/// One step of a session, with its input.
enum Step {
    /// Refuse requests that need no look-up to be refused.
    Check,
    /// Run `vcl_recv`, make the key, and select the next step.
    Receive,
    /// Look up the key in the cache.
    LookUp,
    /// Serve a stored response, whose content may still be arriving.
    Hit(Hit),
    /// Fetch, because no stored response can be served without a backend.
    Miss(Miss),
    /// Forward the request to a backend, and its response to this client alone.
    Pass(Forward),
    /// Connect the client's connection to a backend's.
    Pipe,
    /// Purge everything stored under the key.
    Purge,
    /// Send a generated response, which a policy may change.
    Synth(Synth),
    /// Send a generated response unchanged.
    Generated(GeneratedResponse),
    /// Send the selected part of a found or fetched response.
    Deliver(Found),
    /// Start again, because the policy requested it.
    Restart,
    /// The response has ended.
    Done(Sent),
}

/// One request, until its response has ended.
struct Session<'a, O> {
    worker: &'a Arc<Worker>,
    client: &'a Client,
    out: &'a mut O,
    /// The request as received.
    received: &'a mut RequestHead,
    key: &'a mut String,
    /// Framing of the request content, while that is unread.
    framing: Framing,
    policy: Option<Box<ClientSide>>,
    search: Search,
}

/// Answers the request in `buffers`, whose content is delimited by `framing`.
pub(crate) async fn run<I: Incoming, O: Outgoing>(
    worker: &Arc<Worker>,
    client: &Client,
    buffers: &mut Buffers,
    framing: Result<Framing, FramingError>,
    incoming: &mut I,
    out: &mut O,
) -> Sent {
    let started = worker.begin();
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
    let started = worker.begin();
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
    /// Runs step after step until the response has ended. Rare steps are boxed to keep the memory
    /// of an idle connection small.
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
                // Borrowed, because every move of a value would enlarge the future.
                Step::Deliver(ref mut found) => match self.deliver(found).await {
                    Ok(part) => Step::Done(self.send(found, part).await),
                    Err(step) => *step,
                },
                Step::Done(sent) => return sent,
            }
        }
    }

    /// Returns the request as changed by the policy, otherwise as received.
    fn request(&self) -> &RequestHead {
        self.policy.as_ref().map_or(&*self.received, |policy| &policy.req)
    }

    /// Whether the request may be answered from the cache. Its content, if any, has been read and
    /// discarded.
    fn is_read(&self) -> bool {
        is_read(self.received.method)
    }

    /// Whether the request has unread content.
    fn has_content(&self) -> bool {
        !matches!(self.framing, Framing::None | Framing::Length(0))
    }

    /// Whether the connection closes after the response, as far as the session knows.
    fn closes(&self) -> bool {
        self.has_content() || self.worker.is_stopping()
    }

    /// Returns the connection and process, for a policy.
    fn context(&self) -> RequestContext<'_> {
        RequestContext { client: self.client, socket: self.out.socket(), worker: self.worker }
    }

    /// Runs a subroutine, if there is a policy.
    fn run(&mut self, sub: Sub, heads: Heads<'_>) -> Option<Action> {
        let context = RequestContext { client: self.client, socket: self.out.socket(), worker: self.worker };
        Some(self.policy.as_mut()?.run(sub, heads, context))
    }

    /// Runs a subroutine that needs no message, if the policy defines it beyond the built-in one.
    fn hook(&mut self, sub: Sub) -> Option<Action> {
        self.policy.as_ref().filter(|policy| policy.defines(sub))?;
        self.run(sub, Heads::default())
    }

    /// Returns the step for an action that every subroutine may return.
    fn divert(&self, action: Action) -> Step {
        match action {
            Action::Restart => Step::Restart,
            Action::Synth { status, reason } => Step::Synth(Synth::Chosen { status, reason }),
            _ => Step::Generated(GeneratedResponse::refused(&FAILED)),
        }
    }

    /// Returns to `receive`, unless restarted too often.
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
        Refusal::own(503, "too many purges are in force").into()
    }
}

/// Whether requests with this method are answered from the cache.
fn is_read(method: Method) -> bool {
    matches!(method, Method::Get | Method::Head)
}
