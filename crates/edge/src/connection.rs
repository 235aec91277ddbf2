//! A client's connection: one request after the other, each answered whole before the next is looked at.
//!
//! Bytes after a request's head are the next request's (pipelining) and stay in the buffer. After anything that
//! leaves their meaning in doubt the connection is closed.
//!
//! **Invariant:** a response that ends with the connection and is cut, by whatever, ends with a reset.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

use thalweg_cache::TooMany;
use thalweg_http::cache_status::CacheStatus;
use thalweg_http::{Framing, Method, RequestHead, framing};
use thalweg_policy::task::Session;
use thalweg_record::CacheResult;
use tokio::net::TcpStream;

use crate::answer::{Found, Refusal};
use crate::interim::Asker;
use crate::log::Begun;
use crate::policy::Noted;
use crate::purge::{self, Order};
use crate::reply::Part;
use crate::request::{Read, RequestLine, Requests, write_key};
use crate::sent::Sent;
use crate::steering::{self, Response, Steering};
use crate::worker::Worker;
use own::{Own, own_fields};
use policed::Turn;

mod change;
mod content;
mod own;
mod pipe;
mod policed;
mod reply;

/// Whether the connection goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    Request,
    Close,
}

/// Serves one client until either side has had enough.
pub(crate) async fn serve(worker: Arc<Worker>, stream: TcpStream, client: SocketAddr) {
    let _ = stream.set_nodelay(true);
    let steering = Steering::begin(stream.as_fd(), worker.config().congestion_control, worker.steering());
    let client = SocketAddr::new(client.ip().to_canonical(), client.port());
    let mut connection = Connection {
        worker,
        stream,
        client,
        steering,
        noted: None,
        requests: Requests::default(),
        request: RequestHead::default(),
        key: String::new(),
        out: Vec::new(),
        session: None,
    };
    while let Ok(Next::Request) = connection.exchange().await {}
}

struct Connection {
    worker: Arc<Worker>,
    stream: TcpStream,
    client: SocketAddr,
    steering: Steering,
    /// What the policy has noted of this request.
    noted: Option<Box<Noted>>,
    requests: Requests,
    // Kept from request to request for their allocations.
    request: RequestHead,
    key: String,
    out: Vec<u8>,
    /// What policies know of it, once one has run.
    session: Option<Box<Session>>,
}

impl Connection {
    /// One request and its response.
    async fn exchange(&mut self) -> io::Result<Next> {
        let limits = &self.worker.config().head;
        match self.requests.read(&mut self.stream, &mut self.request, limits, self.worker.timeouts()).await? {
            Read::Request => {}
            Read::End => return Ok(Next::Close),
            Read::Malformed(refusal, line) => {
                let begun = self.worker.begin();
                self.request = RequestHead::default();
                let sent = self.refuse(&refusal, Next::Close, &mut Vec::new()).await;
                self.record(begun, &sent, Some(line));
                self.requests.linger(&mut self.stream).await;
                return Ok(Next::Close);
            }
        }
        let begun = self.worker.begin();
        self.steering.begin_request();
        let _busy = self.worker.busy();
        self.request.fields.remove_nominated();
        let policy = self.worker.policies().active();
        let checked = self.check_request(policy.is_some()).await;
        let mut out = std::mem::take(&mut self.out);
        let sent = match checked {
            Ok(framing) if let Some(policy) = policy => {
                Box::pin(self.policed(policy, framing, &mut out)).await
            }
            Ok(Framing::None) if is_read(self.request.method) => {
                self.write_key();
                let after = self.after();
                let answered = self.answered().await;
                match self.follow_bundle(answered) {
                    Ok((found, part)) => self.reply(found, part, after, &mut out).await,
                    Err(refusal) => self.refuse(&refusal, after, &mut out).await,
                }
            }
            Ok(_) if self.request.method == Method::Purge => {
                self.write_key();
                self.purge(&mut out).await
            }
            // Boxed: what is rare is not to make every connection larger.
            Ok(framing) => match Box::pin(self.change(framing, None, &mut out)).await {
                Turn::Sent(sent) => sent,
                Turn::Restart => unreachable!("only a policy restarts"),
            },
            Err((refusal, after)) => self.refuse(&refusal, after, &mut out).await,
        };
        self.out = out;
        self.steering.count_sent(sent.bytes);
        self.record(begun, &sent, None);
        // A shutdown would turn the reset of what was cut into a clean end.
        if sent.next == Next::Close && sent.cut.is_none() {
            self.requests.linger(&mut self.stream).await;
        }
        Ok(sent.next)
    }

    /// Whether the client, and the process, want another request on this connection.
    fn after(&self) -> Next {
        let keep = framing::keep_alive(self.request.version, &self.request.fields);
        if keep && !self.worker.is_stopping() { Next::Request } else { Next::Close }
    }

    /// Has the bundle decide before an answer is sent, and hands that through. What answers a change is not asked about,
    /// but counts for what comes after it.
    fn follow_bundle(&mut self, answered: Result<(Found, Part), Refusal>) -> Result<(Found, Part), Refusal> {
        if let (Ok((found, part)), Some(taken)) = (&answered, &*self.worker.bundles().active()) {
            let bytes = self.content_bytes(found, part);
            let response = Response { client: self.client, host: self.request.authority.name(), bytes };
            self.steering.follow(self.stream.as_fd(), &taken.bundle, response, self.worker.steering());
        }
        answered
    }

    fn asker(&self) -> Asker<'_> {
        Asker { ip: self.client.ip(), stream: &self.stream }
    }

    /// What can be said of a request without looking for its answer; else what delimits its content. That of GET and
    /// HEAD is read and ignored.
    async fn check_request(&mut self, is_policed: bool) -> Result<Framing, (Refusal, Next)> {
        let framing = framing::request_framing(&self.request).map_err(|error| {
            (Refusal::own(error.status(), "the length of the request is in doubt"), Next::Close)
        })?;
        let (method, after) = (self.request.method, self.after());
        let next = if framing == Framing::None { after } else { Next::Close };
        if matches!(method, Method::Options | Method::Trace) && !is_policed {
            return Err((Refusal::own(405, "the method is not allowed here"), next));
        }
        if self.worker.node().has_seen(&self.request.fields) {
            tracing::warn!(host = self.request.authority.as_str(), target = %self.request.target, "request loop");
            return Err((Refusal::own(508, "the request has come through this node before"), next));
        }
        let is_read = is_read(method) || method == Method::Purge && !is_policed;
        if is_read {
            let time_max = self.worker.timeouts().head;
            let expects = self.request.fields.contains("expect");
            let discarded = self.requests.discard_content(&mut self.stream, framing, expects, time_max).await;
            discarded.map_err(|refusal| (refusal, Next::Close))?;
            if framing != Framing::None {
                // It is gone, and nobody is to be told of it.
                self.request.fields.remove("content-length");
                self.request.fields.remove("transfer-encoding");
            }
        }
        if !self.worker.serves(self.request.authority.host()) {
            let next = if is_read { after } else { next };
            return Err((Refusal::own(421, "this host is not served here"), next));
        }
        if self.request.method == Method::Purge && !is_policed && !self.may_purge() {
            return Err((Refusal::own(403, "this address may not purge"), after));
        }
        Ok(if is_read { Framing::None } else { framing })
    }

    fn may_purge(&self) -> bool {
        self.worker.config().purge_from.iter().any(|prefix| prefix.contains(self.client.ip()))
    }

    fn write_key(&mut self) {
        write_key(&self.request.authority, self.request.target.as_str(), &mut self.key);
    }

    /// Does what a `PURGE` asks for, and says so.
    async fn purge(&self, out: &mut Vec<u8>) -> Sent {
        let next = self.after();
        let order = Order::from_request(&self.request.fields, &self.key);
        match order.carry_out(self.worker.cache()).await {
            Ok(count) => {
                let own = Own {
                    status: 200,
                    fields: own_fields("application/json"),
                    content: purge::done(count).into_bytes(),
                    cache_status: Some(CacheStatus::default()),
                    ..Own::default()
                };
                let sent = self.send_own(own, next, out).await;
                Sent { cache: CacheResult::Purge, ..sent }
            }
            Err(TooMany) => self.refuse(&Refusal::own(503, "too many purges are in force"), next, out).await,
        }
    }

    /// `malformed` is what could be read of a request that is none.
    fn record(&mut self, begun: Begun, sent: &Sent, malformed: Option<RequestLine>) {
        let noted = self.noted.take();
        if !self.worker.log().is_followed() {
            self.worker.log().pass_over(begun);
            return;
        }
        let mut record = sent.record(&self.request, self.client, (&self.stream, &self.steering), begun.at());
        if let Some(noted) = noted {
            let Noted { xid, restarts, notes } = *noted;
            (record.xid, record.restarts) = (Some(xid), restarts);
            record.backend = notes.backend.map(|backend| backend.name().to_owned());
            for line in notes.lines {
                record.lines.push(steering::tag(line.tag), line.text);
            }
        }
        if let Some(line) = malformed {
            (record.method, record.path) = (line.method.into(), line.target);
        }
        self.worker.log().put(begun, record);
    }
}

/// Methods that are answered from the cache.
fn is_read(method: Method) -> bool {
    matches!(method, Method::Get | Method::Head)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn future_bytes<F: Future>(_: impl Fn(Arc<Worker>, TcpStream, SocketAddr) -> F) -> usize {
        size_of::<F>()
    }

    /// With its task's head, the stream, the buffers and the session's entry, this is what makes 4 KiB.
    #[test]
    fn an_idle_connection_is_small() {
        let bytes = future_bytes(serve);
        assert!(bytes <= 2_816, "{bytes} bytes: box what is rare (nightly's -Zprint-type-sizes tells)");
    }
}
