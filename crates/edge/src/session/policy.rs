//! Client side of a policy: per-request state read and set by VCL.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use thalweg_cache::Stored;
use thalweg_cache::freshness::Freshness;
use thalweg_http::{RequestHead, ResponseHead};
use thalweg_policy::step::Action;
use thalweg_policy::task::{Client, Fetch, LogLine, LogSource, Object, RequestState, Session, Workspace};
use thalweg_policy::value::Backend;
use thalweg_policy::{Sub, Task};

use crate::backend::{self, Route};
use crate::clock::{coarse_now_s, now_ms, now_s};
use crate::fetch::BackendSide;
use crate::key::write_key;
use crate::lookup::LookupOptions;
use crate::policy::host::Process;
use crate::policy::loaded::Loaded;
use crate::policy::notes::{SharedNotes, lock};
use crate::policy::visible_head::visible_head;
use crate::sent::PolicyNotes;
use crate::steering::Socket;
use crate::transport::client::Client as Connection;
use crate::warnings::{WarningLimit, warn_limited};
use crate::worker::Worker;

/// Maximum number of restarts of one request, as in Varnish.
const RESTARTS_MAX: u32 = 4;
/// Prefix of keys built by a `vcl_hash` that hashes anything besides URL and host. No authority or
/// path starts with it.
const OWN_KEY: &str = "?vcl:";

static RESTARTS: WarningLimit = WarningLimit::new();

/// Number (VCL `xid`) of the next request or connection.
static NUMBER: AtomicU64 = AtomicU64::new(1);

/// Message heads available to a subroutine, in addition to the request.
#[derive(Debug, Default)]
pub(super) struct Heads<'a> {
    pub(super) bereq: Option<&'a mut RequestHead>,
    pub(super) obj: Option<&'a ResponseHead>,
    pub(super) resp: Option<&'a mut ResponseHead>,
}

/// Connection and worker of a request.
#[derive(Clone, Copy)]
pub(super) struct RequestContext<'a> {
    pub(super) client: &'a Connection,
    pub(super) socket: &'a crate::transport::socket::Socket,
    pub(super) worker: &'a Worker,
}

/// Client side of a policy, for one request.
pub(super) struct ClientSide {
    loaded: Arc<Loaded>,
    /// The request as received.
    received: RequestHead,
    /// The request as changed by the policy.
    pub(super) req: RequestHead,
    pub(super) client: Client,
    fetch: Fetch,
    object: Object,
    session: Box<Session>,
    notes: SharedNotes,
    kept: RequestState,
    workspace: Workspace,
    random: u64,
}

impl fmt::Debug for ClientSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientSide({} in {})", self.client.xid, self.loaded.name)
    }
}

impl ClientSide {
    /// Creates the client side for the request `received`. Takes the connection's VCL session,
    /// which [`ClientSide::end`] returns.
    pub(super) fn new(loaded: Arc<Loaded>, received: RequestHead, context: RequestContext<'_>) -> Self {
        let xid = NUMBER.fetch_add(1, Relaxed);
        let client = Client { time_s: now_s(), xid, backend_hint: hint(&loaded), ..Client::default() };
        let session = context.client.take_session().unwrap_or_else(|| Box::new(new_session(context)));
        Self {
            loaded,
            req: received.clone(),
            received,
            client,
            fetch: Fetch::default(),
            object: Object::default(),
            session,
            notes: SharedNotes::default(),
            kept: RequestState::default(),
            workspace: Workspace::default(),
            random: now_ms() ^ xid.rotate_left(32),
        }
    }

    /// Returns the VCL session to the connection. If `is_recorded`, produces the policy's
    /// contribution to the record.
    pub(super) fn end(self, connection: &Connection, is_recorded: bool) -> Option<Box<PolicyNotes>> {
        connection.put_session(self.session);
        let Client { xid, restarts, .. } = self.client;
        is_recorded.then(|| {
            let notes = std::mem::take(&mut *lock(&self.notes));
            Box::new(PolicyNotes { xid, restarts, notes })
        })
    }

    /// Records the backend used.
    pub(super) fn note_backend(&self, backend: &Arc<backend::Backend>) {
        lock(&self.notes).backend = Some(backend.clone());
    }

    /// Switches to another policy and its backends, as if the request had just been received under
    /// it.
    pub(super) fn enter(&mut self, loaded: Arc<Loaded>) {
        let Client { restarts, xid, time_s, timestamp_s, .. } = self.client;
        let backend_hint = hint(&loaded);
        self.client = Client { restarts, xid, time_s, timestamp_s, backend_hint, ..Client::default() };
        self.req.clone_from(&self.received);
        // The module data belongs to objects of the previous policy.
        self.kept = RequestState::default();
        self.loaded = loaded;
    }

    /// Returns whether the policy adds to the built-in version of this subroutine.
    pub(super) fn defines(&self, sub: Sub) -> bool {
        self.loaded.program.extends_builtin(sub)
    }

    /// Runs a subroutine. An error becomes [`Action::Fail`].
    pub(super) fn run(&mut self, sub: Sub, heads: Heads<'_>, context: RequestContext<'_>) -> Action {
        let RequestContext { client: connection, socket, worker } = context;
        let Self { loaded, received, req, client, fetch, object, session, notes, kept, workspace, random } =
            self;
        let run = |fd: BorrowedFd<'_>| {
            Ok(loaded.run(
                sub,
                &mut Task {
                    // The coarse clock may lag behind the request's start time, which is more
                    // precise.
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
                    connection: &mut Socket {
                        fd,
                        steering: &mut connection.steering(),
                        common: worker.steering(),
                        delivered: connection.last_delivery(),
                    },
                    host: &Process { cache: worker.cache(), loaded, bundles: Some(worker.bundles()) },
                    log: &mut lock(notes).lines,
                    kept,
                    workspace,
                    random,
                },
            ))
        };
        socket.with_fd(run).unwrap_or(Action::Fail { reason: None })
    }

    /// Runs `vcl_hit` for a stored response.
    pub(super) fn hit(&mut self, stored: &Stored, context: RequestContext<'_>) -> Action {
        self.object =
            Object { hits: stored.count_hit(), storage: Some("memory".into()), ..Object::default() };
        self.note_times(&stored.freshness());
        if !self.defines(Sub::Hit) {
            return Action::Deliver;
        }
        let obj = visible_head(&stored.head);
        self.run(Sub::Hit, Heads { obj: Some(&obj), ..Heads::default() }, context)
    }

    /// Records the state of the response about to be delivered.
    pub(super) fn note_delivered(&mut self, freshness: &Freshness, is_uncacheable: bool) {
        self.object.uncacheable = is_uncacheable;
        self.note_times(freshness);
    }

    fn note_times(&mut self, freshness: &Freshness) {
        let now_ms = now_ms();
        let object = &mut self.object;
        object.age_s = freshness.age_ms(now_ms) as f64 / 1e3;
        object.grace_s = freshness.while_revalidate_ms as f64 / 1e3;
        object.time_s = freshness.born_ms as f64 / 1e3;
        object.ttl_s = freshness.ttl_ms(now_ms) as f64 / 1e3;
    }

    /// Discards the result of a look-up that is not used for the response.
    pub(super) fn forget_found(&mut self) {
        self.object = Object::default();
    }

    /// Restarts the request. Returns false, and logs a warning, after too many restarts.
    pub(super) fn restart(&mut self) -> bool {
        // Other values set by the policy are kept, as in Varnish.
        let client = &mut self.client;
        client.restarts += 1;
        client.hash_data.clear();
        (client.body, client.filters) = (None, None);
        (client.is_hitmiss, client.is_hitpass) = (false, false);
        let restarts = client.restarts;
        self.object = Object::default();
        if restarts > RESTARTS_MAX {
            let text = format!("more than {RESTARTS_MAX} restarts");
            warn_limited!(RESTARTS, policy = self.loaded.name, reason = text, "policy failed");
            lock(&self.notes).lines.push(LogLine { tag: LogSource::Error, text });
        }
        restarts <= RESTARTS_MAX
    }

    /// Runs `vcl_pipe`, which may select the backend and the connect timeout.
    pub(super) fn pipe(&mut self, bereq: &mut RequestHead, context: RequestContext<'_>) -> Action {
        self.fetch = Fetch { backend: self.client.backend_hint, is_pass: true, ..Fetch::default() };
        self.run(Sub::Pipe, Heads { bereq: Some(bereq), ..Heads::default() }, context)
    }

    /// Returns the pipe's route; `None` if no backend is healthy.
    pub(super) fn pipe_route(&mut self, bereq: &mut RequestHead, worker: &Worker) -> Option<Route> {
        let mut side = self.backend_side(true);
        side.fetch = std::mem::take(&mut self.fetch);
        side.kept = std::mem::take(&mut self.kept);
        side.route(bereq, worker.cache())
    }

    /// Creates the backend side for a fetch started by this request.
    pub(super) fn backend_side(&self, is_pass: bool) -> Box<BackendSide> {
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
        let (session, notes) = (self.session.clone(), self.notes.clone());
        Box::new(BackendSide::new(self.loaded.clone(), client, session, notes, is_pass))
    }

    /// Records whether the key is marked hit-for-miss or hit-for-pass.
    pub(super) fn note_marks(&mut self, is_hitmiss: bool, is_hitpass: bool) {
        (self.client.is_hitmiss, self.client.is_hitpass) = (is_hitmiss, is_hitpass);
    }

    /// Returns the look-up options set by the policy.
    pub(super) fn look_up_options(&self) -> LookupOptions {
        let ms = |seconds: f64| (seconds * 1e3) as u64;
        let Client { ttl_s, grace_s, hash_always_miss, hash_ignore_busy, .. } = self.client;
        LookupOptions {
            // A lifetime of 0 or less means no limit, but a grace of 0 is a limit.
            lifetime_ms_max: ttl_s.filter(|ttl_s| *ttl_s > 0.0).map(ms),
            grace_ms_max: grace_s.filter(|grace_s| *grace_s >= 0.0).map(ms),
            always_misses: hash_always_miss,
            ignores_busy: hash_ignore_busy,
            under_policy: true,
            answers_failures: self.defines(Sub::BackendError),
            ..LookupOptions::default()
        }
    }

    /// Writes the cache key for the data hashed by `vcl_hash`. For the built-in `vcl_hash`, the key
    /// is the same as without a policy, so that a purge by URL finds the response.
    pub(super) fn write_key(&self, key: &mut String) {
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
            // Slice keys are derived by adding a space and a suffix, so the key itself must not
            // contain a space.
            match byte {
                b'!'..=b'~' if *byte != b'%' => key.push(char::from(*byte)),
                _ => key.push_str(&format!("%{byte:02x}")),
            }
        }
    }
}

/// Creates the VCL session of a connection on which no policy has run yet.
fn new_session(context: RequestContext<'_>) -> Session {
    let client = context.client.address;
    let local = context.socket.local_addr().unwrap_or(client);
    let hostname = rustix::system::uname().nodename().to_string_lossy().into_owned();
    Session {
        client,
        remote: client,
        server: local,
        local,
        identity: hostname.clone(),
        hostname,
        endpoint: context.worker.config().listen.to_string(),
        socket: "a0".into(),
        xid: NUMBER.fetch_add(1, Relaxed),
        ..Session::default()
    }
}

/// Returns the default backend of a policy.
fn hint(loaded: &Loaded) -> Backend {
    loaded.program.default_backend().map_or(Backend::None, Backend::Declared)
}
