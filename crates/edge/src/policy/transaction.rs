//! A client's request under a policy: what its subroutines work on, and what they have decided.

use std::fmt;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thalweg_cache::freshness::Freshness;
use thalweg_cache::{Head, Stored};
use thalweg_http::{RequestHead, ResponseHead, Version};
use thalweg_policy::step::Action;
use thalweg_policy::task::{Backend, Client, Fetch, Kept, Line, Object, Session, Tag, Workspace};
use thalweg_policy::{Sub, Task};
use tokio::net::TcpStream;

use super::host::Process;
use super::{Fetching, Loaded, settled};
use crate::answer::Refusal;
use crate::backend::{self, Route};
use crate::request::write_key;
use crate::steering::{Response, Socket, Steering};
use crate::worker::Worker;
use crate::{coarse_now_s, now_ms, now_s};

/// Restarts of one request, as Varnish has it.
const RESTARTS_MAX: u32 = 4;
/// What a key begins with that a policy has made of something else than URL and host: no host has this in it.
const OWN_KEY: &str = "vcl:";

/// What comes in place of an answer that was looked for.
#[derive(Debug)]
pub(crate) enum Instead {
    Refusal(Refusal),
    /// The policy has decided on something else.
    Action(Action),
}

impl From<Refusal> for Instead {
    fn from(refusal: Refusal) -> Self {
        Self::Refusal(refusal)
    }
}

/// What a request and the fetches it causes leave for its record.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// In the order in which they were logged.
    pub(crate) lines: Vec<Line>,
    /// The one that was chosen last.
    pub(crate) backend: Option<Arc<backend::Backend>>,
}

pub(super) type SharedNotes = Arc<Mutex<Notes>>;

pub(super) fn lock(notes: &SharedNotes) -> MutexGuard<'_, Notes> {
    notes.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a request's record has of the policy that it ran through.
#[derive(Debug)]
pub(crate) struct Noted {
    /// `req.xid`.
    pub(crate) xid: u64,
    pub(crate) restarts: u32,
    pub(crate) notes: Notes,
}

/// The messages of a step beside the request.
#[derive(Debug, Default)]
pub(crate) struct Heads<'a> {
    pub(crate) bereq: Option<&'a mut RequestHead>,
    pub(crate) obj: Option<&'a ResponseHead>,
    pub(crate) resp: Option<&'a mut ResponseHead>,
}

/// A client's request on its way through a policy.
pub(crate) struct Transaction {
    pub(crate) loaded: Arc<Loaded>,
    /// The request as it came.
    pub(crate) received: RequestHead,
    /// The request as the policy has made it.
    pub(crate) req: RequestHead,
    pub(crate) client: Client,
    fetch: Fetch,
    object: Object,
    session: Box<Session>,
    steering: Steering,
    notes: SharedNotes,
    kept: Kept,
    workspace: Workspace,
    random: u64,
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Transaction({} in {})", self.client.xid, self.loaded.name)
    }
}

impl Transaction {
    /// `session` and `steering` are the connection's, until [`Transaction::end`].
    pub(crate) fn new(
        loaded: Arc<Loaded>,
        received: RequestHead,
        (session, steering): (Box<Session>, Steering),
        xid: u64,
    ) -> Self {
        let client = Client { time_s: now_s(), xid, backend_hint: hint(&loaded), ..Client::default() };
        Self {
            loaded,
            req: received.clone(),
            received,
            client,
            fetch: Fetch::default(),
            object: Object::default(),
            session,
            steering,
            notes: SharedNotes::default(),
            kept: Kept::default(),
            workspace: Workspace::default(),
            random: now_ms() ^ xid.rotate_left(32),
        }
    }

    /// The request as it came, the connection's part, and what goes into the record, if there is to be one.
    pub(crate) fn end(self, is_recorded: bool) -> (RequestHead, Box<Session>, Steering, Option<Box<Noted>>) {
        let Client { xid, restarts, .. } = self.client;
        let noted = is_recorded.then(|| {
            let notes = std::mem::take(&mut *lock(&self.notes));
            Box::new(Noted { xid, restarts, notes })
        });
        (self.received, self.session, self.steering, noted)
    }

    /// Notes who was asked.
    pub(crate) fn tell_backend(&self, backend: &Arc<backend::Backend>) {
        lock(&self.notes).backend = Some(backend.clone());
    }

    /// Goes on in another policy, as if the request had come there: its backends are others.
    pub(crate) fn enter(&mut self, loaded: Arc<Loaded>) {
        let Client { restarts, xid, time_s, timestamp_s, .. } = self.client;
        let backend_hint = hint(&loaded);
        self.client = Client { restarts, xid, time_s, timestamp_s, backend_hint, ..Client::default() };
        self.req.clone_from(&self.received);
        // What modules keep is by objects of the policy left.
        self.kept = Kept::default();
        self.loaded = loaded;
    }

    /// Whether the policy says anything at this step beyond what is built in.
    pub(crate) fn says(&self, sub: Sub) -> bool {
        self.loaded.program.is_written(sub)
    }

    /// Runs a subroutine. Whatever goes wrong in it is [`Action::Fail`].
    pub(crate) fn run(&mut self, sub: Sub, heads: Heads<'_>, stream: &TcpStream, worker: &Worker) -> Action {
        let Self {
            loaded,
            received,
            req,
            client,
            fetch,
            object,
            session,
            steering,
            notes,
            kept,
            workspace,
            random,
        } = self;
        let result = loaded.program.run(
            sub,
            &mut Task {
                // No step is before the request's start, which is told more precisely.
                now_s: coarse_now_s().max(client.time_s),
                original: heads.bereq.is_none().then_some(received),
                req: Some(req),
                bereq: heads.bereq,
                beresp: None,
                obj: heads.obj,
                resp: heads.resp,
                client,
                fetch,
                object,
                session,
                connection: &mut Socket { stream, steering, common: worker.steering() },
                host: &Process { cache: worker.cache(), loaded, bundles: Some(worker.bundles()) },
                log: &mut lock(notes).lines,
                kept,
                workspace,
                random,
            },
        );
        settled(result, &loaded.name, sub)
    }

    /// Has the bundle decide, where the policy has not, before content of this length is sent.
    /// Experiments are about the host that the client asked for, whatever the policy has made of it.
    pub(crate) fn follow_bundle(&mut self, bytes: Option<u64>, stream: &TcpStream, worker: &Worker) {
        if let Some(taken) = &*worker.bundles().active() {
            let response =
                Response { client: self.session.remote, host: self.received.authority.name(), bytes };
            self.steering.follow(stream.as_fd(), &taken.bundle, response, worker.steering());
        }
    }

    /// `vcl_hit`, for what was found.
    pub(crate) fn hit(&mut self, stored: &Stored, stream: &TcpStream, worker: &Worker) -> Action {
        self.object =
            Object { hits: stored.count_hit(), storage: Some("memory".into()), ..Object::default() };
        self.tell_times(&stored.freshness());
        if !self.says(Sub::Hit) {
            return Action::Deliver;
        }
        let obj = shown(&stored.head);
        self.run(Sub::Hit, Heads { obj: Some(&obj), ..Heads::default() }, stream, worker)
    }

    /// What is about to be delivered, found or fetched.
    pub(crate) fn delivers(&mut self, freshness: &Freshness, is_uncacheable: bool) {
        self.object.uncacheable = is_uncacheable;
        self.tell_times(freshness);
    }

    fn tell_times(&mut self, freshness: &Freshness) {
        let now_ms = now_ms();
        let object = &mut self.object;
        object.age_s = freshness.age_ms(now_ms) as f64 / 1e3;
        object.grace_s = freshness.while_revalidate_ms as f64 / 1e3;
        object.time_s = freshness.born_ms as f64 / 1e3;
        object.ttl_s = freshness.ttl_ms(now_ms) as f64 / 1e3;
    }

    /// What was found is not what answers.
    pub(crate) fn forget_found(&mut self) {
        self.object = Object::default();
    }

    /// Begins again, if that is not once too often, which is logged.
    pub(crate) fn restart(&mut self) -> bool {
        // All that the policy has set stays, as in Varnish.
        let client = &mut self.client;
        client.restarts += 1;
        client.hash_data.clear();
        (client.body, client.filters) = (None, None);
        (client.is_hitmiss, client.is_hitpass) = (false, false);
        let restarts = client.restarts;
        self.object = Object::default();
        if restarts > RESTARTS_MAX {
            let text = format!("more than {RESTARTS_MAX} restarts");
            tracing::warn!(policy = self.loaded.name, reason = text, "policy failed");
            lock(&self.notes).lines.push(Line { tag: Tag::Error, text });
        }
        restarts <= RESTARTS_MAX
    }

    /// Runs `vcl_pipe`, which may say where the pipe leads and how long connecting may take.
    pub(crate) fn pipe(&mut self, bereq: &mut RequestHead, stream: &TcpStream, worker: &Worker) -> Action {
        self.fetch = Fetch { backend: self.client.backend_hint, is_pass: true, ..Fetch::default() };
        self.run(Sub::Pipe, Heads { bereq: Some(bereq), ..Heads::default() }, stream, worker)
    }

    /// Where the pipe leads; `None` where no backend is healthy.
    pub(crate) fn pipe_route(&mut self, bereq: &mut RequestHead, worker: &Worker) -> Option<Route> {
        let mut fetching = self.fetching(true);
        fetching.fetch = std::mem::take(&mut self.fetch);
        fetching.kept = std::mem::take(&mut self.kept);
        fetching.route(bereq, worker.cache())
    }

    /// The fetch that this request causes.
    pub(crate) fn fetching(&self, is_pass: bool) -> Box<Fetching> {
        let client = Client {
            backend_hint: self.client.backend_hint,
            identity: self.client.identity.clone(),
            xid: self.client.xid,
            time_s: self.client.time_s,
            is_hitmiss: self.client.is_hitmiss,
            is_hitpass: self.client.is_hitpass,
            hash_data: self.client.hash_data.clone(),
            ..Client::default()
        };
        Box::new(Fetching::new(
            self.loaded.clone(),
            client,
            self.session.clone(),
            self.notes.clone(),
            is_pass,
        ))
    }

    /// The cache key: of what `vcl_hash` has hashed. The built-in one makes the same key as there is without a policy, so
    /// that a purge by URL finds it.
    pub(crate) fn write_key(&self, key: &mut String) {
        let hashed = &self.client.hash_data;
        let (url, host) = (self.req.target.as_str(), self.req.authority.as_str());
        let is_plain = !host.is_empty()
            && hashed
                .strip_prefix(url.as_bytes())
                .and_then(|rest| rest.strip_prefix(b"\0"))
                .and_then(|rest| rest.strip_suffix(b"\0"))
                .is_some_and(|rest| rest == host.as_bytes());
        if is_plain {
            return write_key(&self.req.authority, url, key);
        }
        key.clear();
        key.push_str(OWN_KEY);
        for byte in hashed {
            // A space ends a key that others are derived from.
            match byte {
                b'!'..=b'~' if *byte != b'%' => key.push(char::from(*byte)),
                _ => key.push_str(&format!("%{byte:02x}")),
            }
        }
    }
}

/// A stored head as a policy reads it.
pub(crate) fn shown(head: &Head) -> ResponseHead {
    ResponseHead {
        status: head.status,
        version: Version::Http11,
        reason: head.reason.clone(),
        fields: head.fields.clone(),
    }
}

/// Where requests go unless the policy says otherwise.
fn hint(loaded: &Loaded) -> Backend {
    loaded.program.default_backend().map_or(Backend::None, Backend::Declared)
}
