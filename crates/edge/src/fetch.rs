//! A fetch: one exchange with a backend, and the fill of what it brings.
//!
//! It runs as a task of its own, so that it outlives the client that caused it, and it hears of clients only
//! through the `FillBuffer`.

use std::sync::Arc;

use thalweg_cache::rules::{self, Rules};
use thalweg_cache::storage::withhold;
use thalweg_cache::{Failure, Fill, Head, Stored};
use thalweg_http::validators::strong_etag;
use thalweg_http::{Fields, Framing, Method, RequestHead, ResponseHead, reference, write};
use tokio::sync::{mpsc, oneshot};

use crate::backend::{ConnectError, Route, Wanted};
use crate::exchange::{Exchange, ExchangeError, Outgoing};
use crate::hops::{Node, via};
use crate::now_ms;
use crate::policy::Fetching;
use crate::request::write_key;
use crate::slices;
use crate::upload::Upload;
use crate::worker::Worker;

mod content;
mod head;
mod policed;

use head::{brought_up_to_date, learn, take_head};

/// Fields of a client's request that are about the client's own copy or part, not about what is fetched to be
/// stored (RFC 9111 §4.3.1).
const CONDITIONAL: [&str; 6] =
    ["if-match", "if-none-match", "if-modified-since", "if-unmodified-since", "if-range", "range"];

/// What is fetched.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) head: RequestHead,
    /// Where it goes.
    pub(crate) route: Route,
    /// Passed on with its own conditions and range, its response not to be stored.
    verbatim: bool,
    /// It is to have no content, whatever method a policy makes of it.
    is_head: bool,
    /// What is asked about, and who waits for the word on it.
    stale: Option<(Arc<Stored>, oneshot::Sender<Arc<Stored>>)>,
    /// A part of it alone.
    slice: Option<slices::Asked>,
    /// What is stored, which a HEAD that is passed may say something of.
    pub(crate) known: Option<Arc<Stored>>,
    content: Option<Upload>,
    /// How the client has delimited that content, whatever a policy has made of the fields that say it.
    framing: Framing,
    /// It refreshes what is served stale: nobody reads it from the start.
    behind: bool,
    /// The policy that has its say.
    policy: Option<Box<Fetching>>,
    /// Who hears of interim responses.
    pub(crate) interim: Option<mpsc::Sender<ResponseHead>>,
    /// Who hears what the backend answered with, by the time the head is there.
    status: Option<oneshot::Sender<u16>>,
}

impl Request {
    /// All of it, to be stored if it may be: HEAD is answered from GET.
    pub(crate) fn whole(head: &RequestHead) -> Self {
        let head = RequestHead { method: Method::Get, ..head.clone() };
        Self {
            head,
            route: Route::default(),
            verbatim: false,
            is_head: false,
            stale: None,
            known: None,
            content: None,
            framing: Framing::None,
            behind: false,
            policy: None,
            interim: None,
            status: None,
            slice: None,
        }
    }

    /// A part of it, to be stored by itself.
    pub(crate) fn slice(head: &RequestHead, slice: slices::Asked) -> Self {
        Self { slice: Some(slice), ..Self::whole(head) }
    }

    /// Whether it is about a part alone.
    pub(crate) fn is_slice(&self) -> bool {
        self.slice.is_some()
    }

    /// The status that the backend will have answered with once the head is there.
    pub(crate) fn tell_status(&mut self) -> oneshot::Receiver<u16> {
        let (tell, told) = oneshot::channel();
        self.status = Some(tell);
        told
    }

    /// Whether `stale` is still good, if it has a validator to ask with, else all of what replaced it. If it is, `told` gets it with its head brought up
    /// to date, before the fill ends as [`Failure::Superseded`].
    pub(crate) fn validation(
        head: &RequestHead,
        stale: Arc<Stored>,
    ) -> (Self, oneshot::Receiver<Arc<Stored>>) {
        let (tell, told) = oneshot::channel();
        (Self { stale: Some((stale, tell)), ..Self::whole(head) }, told)
    }

    /// Exactly what the client asked for.
    pub(crate) fn verbatim(head: &RequestHead) -> Self {
        Self {
            head: head.clone(),
            route: Route::default(),
            verbatim: true,
            is_head: head.method == Method::Head,
            stale: None,
            known: None,
            content: None,
            framing: Framing::None,
            behind: false,
            policy: None,
            interim: None,
            status: None,
            slice: None,
        }
    }

    /// The same, on behalf of nobody who waits for it.
    pub(crate) fn behind(self) -> Self {
        Self { behind: true, policy: self.policy.map(Fetching::behind), ..self }
    }

    /// The same, under a policy.
    pub(crate) fn under(self, policy: Box<Fetching>) -> Self {
        Self { policy: Some(policy), ..self }
    }

    /// Whether it can be sent once more: content goes out once.
    fn is_repeatable(&self) -> bool {
        matches!(self.framing, Framing::None | Framing::Length(0)) && self.head.method.is_idempotent()
    }

    /// It goes out without its content.
    fn drop_content(&mut self) {
        (self.content, self.framing) = (None, Framing::None);
    }

    /// A request that may change something, with its content.
    pub(crate) fn change(head: &RequestHead, framing: Framing, content: Option<Upload>) -> Self {
        Self { content, framing, ..Self::verbatim(head) }
    }

    /// The head that goes to the backend. With `missing` it asks for what comes from that byte on, if the entity tag is
    /// still the same.
    fn write(&self, client: std::net::IpAddr, node: &Node, missing: Option<(u64, &[u8])>) -> Vec<u8> {
        let mut fields = Fields::new();
        fields.push("Host", self.route.host(self.head.authority.as_str()));
        let mut rest = self.head.fields.clone();
        rest.remove_hop_by_hop();
        rest.remove("host");
        rest.remove("content-length");
        // Answered here, before the content is asked for.
        rest.remove("expect");
        // Those of a request are not passed on.
        rest.remove("trailer");
        if !self.verbatim {
            rest.remove_where(|name, _| {
                CONDITIONAL.iter().any(|field| name.eq_ignore_ascii_case(field.as_bytes()))
            });
        }
        for (name, value) in rest.iter() {
            fields.push(name, value);
        }
        if let Some((from, etag)) = missing {
            fields.push("Range", format!("bytes={from}-"));
            fields.push("If-Range", etag);
        } else if let Some((stale, _)) = self.stale.as_ref().filter(|(stale, _)| stale.has_validator()) {
            for (condition, validator) in [("If-None-Match", "etag"), ("If-Modified-Since", "last-modified")]
            {
                if let Some(value) = stale.head.fields.get(validator) {
                    fields.push(condition, value);
                }
            }
        }
        if let Some(slice) = self.slice.as_ref().filter(|_| missing.is_none()) {
            slice.write(&mut fields);
        }
        match self.framing {
            Framing::Length(length) => fields.push_number("Content-Length", length),
            Framing::Chunked => fields.push("Transfer-Encoding", "chunked"),
            Framing::None | Framing::UntilClose => {}
        }
        fields.push("TE", "trailers");
        fields.push("Connection", "TE");
        fields.append("X-Forwarded-For", client.to_string());
        fields.append("Via", via(self.head.version));
        node.sign(&mut fields);
        let mut out = Vec::new();
        write::write_request_head(&mut out, self.head.method_str(), self.head.target.as_str(), &fields);
        out
    }
}

/// Fetches and fills. Whatever happens, the fill ends.
pub(crate) async fn run(worker: Arc<Worker>, fill: Fill, mut request: Request, client: std::net::IpAddr) {
    if let Some(policy) = request.policy.take() {
        return policed::run(worker, fill, request, policy, client).await;
    }
    let asked_ms = now_ms();
    let mut started = start(&worker, &mut request, client).await;
    if let (Ok(exchange), Some((stale, _))) = (&started, &request.stale)
        && is_about_another(stale, &exchange.head)
    {
        request.stale = None;
        started = start(&worker, &mut request, client).await;
    }
    let exchange = match started {
        Ok(exchange) => exchange,
        Err(failure) => {
            tracing::debug!(target = %request.head.target, %failure, "fetch failed");
            return fill.fail(failure);
        }
    };
    if let Some((stale, tell)) =
        request.stale.take_if(|(stale, _)| exchange.head.status == 304 && stale.has_validator())
    {
        let rules = &worker.config().rules;
        let head = brought_up_to_date(&request.head, &stale.head, &exchange.head.fields, rules, asked_ms);
        // Nobody waits any more if the client has left; what it asked for is done all the same.
        fill.validated(&stale, head, |stored| drop(tell.send(stored)));
        return worker.finish(exchange);
    }
    if let Some((stale, _)) = &request.stale
        && is_failure(exchange.head.status)
        && stale.freshness().serves_on_error(now_ms())
    {
        return fill.fail(Failure::Status(exchange.head.status));
    }
    if is_unasked(&request, exchange.head.status) {
        return fill.fail(Failure::Status(exchange.head.status));
    }
    if let Some(known) = request.known.take_if(|_| exchange.head.status == 200) {
        learn(&worker, &request.head, &known, &exchange.head.fields, asked_ms);
    }
    if !request.head.method.is_safe() && matches!(exchange.head.status, 200..400) {
        invalidate(&worker, &request.head, &exchange.head.fields);
    }
    let head = take_head(&request, &exchange, &worker.config().rules, asked_ms);
    keep(&worker, fill, request, client, exchange, head).await;
}

/// Takes in a response, as a whole or in slices.
async fn keep(
    worker: &Arc<Worker>,
    fill: Fill,
    mut request: Request,
    client: std::net::IpAddr,
    mut exchange: Exchange,
    head: Head,
) {
    if let Some(tell) = request.status.take() {
        // Nobody waits any more if the client has left.
        let _ = tell.send(exchange.head.status);
    }
    if let Some(asked) = &request.slice {
        match exchange.head.status {
            206 => return slices::begin(worker, fill, asked, head, exchange).await,
            416 => return fill.fail(Failure::NotSliced("there is no such range")),
            // No range after all, or no response: as if all of it had been asked for.
            _ => {}
        }
    }
    let Some((mut fill, head)) = slices::begin_large(worker, fill, head, &mut exchange).await else { return };
    let sliceable = slices::Left::of(worker, &fill, &head);
    fill.begin(head, now_ms());
    match content::copy(worker, &request, client, exchange, &mut fill).await {
        Ok(mut exchange) => {
            keep_trailer(&mut exchange, &mut fill, &worker.config().rules);
            fill.complete();
            exchange.send_rest().await;
            worker.finish(exchange);
        }
        Err(failure) => {
            tracing::debug!(target = %request.head.target, %failure, "fill failed");
            let is_abandoned = failure == Failure::Abandoned;
            fill.fail(failure);
            if let Some(left) = sliceable.filter(|_| is_abandoned) {
                left.keep(worker, &request.head);
            }
        }
    }
}

/// Whether a 304 names a representation that is not the one asked about: then that is not to be updated by it (RFC 9111
/// §4.3.4).
fn is_about_another(stale: &Stored, head: &ResponseHead) -> bool {
    let named = strong_etag(&head.fields);
    head.status == 304 && named.is_some() && named != strong_etag(&stale.head.fields)
}

/// Answers to conditions and ranges that the request did not have.
fn is_unasked(request: &Request, status: u16) -> bool {
    !request.verbatim && (status == 304 || status == 206 && request.slice.is_none())
}

/// Answers that count as no answer where something stale may be served instead (RFC 5861 §4).
fn is_failure(status: u16) -> bool {
    matches!(status, 500 | 502 | 503 | 504)
}

/// What came after the content, without what the response names as not for all.
fn keep_trailer(exchange: &mut Exchange, fill: &mut Fill, rules: &Rules) {
    let mut trailer = exchange.take_trailer();
    if !trailer.is_empty() {
        withhold(&mut trailer, &rules::directives(&exchange.head.fields, rules).0);
        fill.set_trailer(trailer);
    }
}

/// The first `length` bytes of content into a fill that is about to end, or fail, with them.
pub(crate) async fn copy_first(exchange: &mut Exchange, mut fill: Fill, length: u64) {
    let mut left = length;
    while left > 0 {
        let next = async {
            fill.room().await?;
            exchange.next().await?.ok_or_else(|| Failure::Backend("the content is too short".into()))
        };
        let appended = match next.await {
            Ok(mut bytes) => {
                bytes.truncate(usize::try_from(left).unwrap_or(usize::MAX));
                left -= bytes.len() as u64;
                fill.append(bytes, now_ms()).map_err(|_| Failure::NoRoom)
            }
            Err(failure) => Err(failure),
        };
        if let Err(failure) = appended {
            tracing::debug!(%failure, "a slice failed");
            return fill.fail(failure);
        }
    }
    fill.complete();
}

/// Sends the request; once more, to another backend if there is one, if the first was lost before it answered and
/// nothing can have been done twice: content goes out once.
pub(crate) async fn start(
    worker: &Worker,
    request: &mut Request,
    client: std::net::IpAddr,
) -> Result<Exchange, Failure> {
    let head = request.write(client, worker.node(), None);
    let (method, config) = (request.head.method, worker.config());
    let has_content = request.content.is_some();
    let repeatable = method.is_idempotent() && !has_content;
    let connection =
        worker.connect(&request.route, if repeatable { Wanted::Any } else { Wanted::New }).await?;
    let backend = connection.backend_id();
    let may_try_again = method.is_idempotent() && (connection.reused || request.route.has_others());
    let mut outgoing =
        Outgoing { method, head: &head, content: &mut request.content, interim: request.interim.as_ref() };
    match Exchange::start(connection, outgoing.again(), config).await {
        Err(error) if error.before_response && may_try_again && has_content == outgoing.content.is_some() => {
            let connection = worker.connect(&request.route, Wanted::NewElsewhere(backend)).await?;
            Ok(Exchange::start(connection, outgoing, config).await?)
        }
        started => Ok(started?),
    }
}

/// Forgets what a successful change may have changed: its target, and what of the same host the response names
/// (RFC 9111 §4.4).
fn invalidate(worker: &Worker, request: &RequestHead, fields: &Fields) {
    let mut key = String::new();
    write_key(&request.authority, request.target.as_str(), &mut key);
    worker.cache().invalidate(&key);
    for name in ["location", "content-location"] {
        let named = fields.get_str(name);
        if let Some(target) =
            named.and_then(|named| reference::resolve(&request.authority, &request.target, named))
        {
            write_key(&request.authority, target.as_str(), &mut key);
            worker.cache().invalidate(&key);
        }
    }
}

impl From<ConnectError> for Failure {
    fn from(ConnectError { reason, timeout, busy, .. }: ConnectError) -> Self {
        match (busy, timeout) {
            (true, _) => Self::Busy(reason),
            (false, true) => Self::BackendTimeout(reason),
            (false, false) => Self::Backend(reason),
        }
    }
}

impl From<ExchangeError> for Failure {
    fn from(error: ExchangeError) -> Self {
        if error.timeout { Self::BackendTimeout(error.reason) } else { Self::Backend(error.reason) }
    }
}
