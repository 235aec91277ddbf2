//! A fetch under a policy: the backend's side of the request that caused it.

use std::fmt;
use std::sync::Arc;

use thalweg_cache::Cache;
use thalweg_http::{RequestHead, ResponseHead};
use thalweg_policy::step::Action;
use thalweg_policy::task::{Backend, Client, Fetch, Kept, Line, Object, Session, Tag, Workspace};
use thalweg_policy::{Sub, Task};

use super::host::Process;
use super::socket::NoConnection;
use super::transaction::{SharedNotes, lock};
use super::{Loaded, settled};
use crate::backend::{self, Ends, Route, Target, duration};
use crate::{coarse_now_s, now_ms, now_s};

/// Retries of one fetch, as Varnish has it.
const RETRIES_MAX: u32 = 4;

/// A fetch on its way through a policy.
pub(crate) struct Fetching {
    loaded: Arc<Loaded>,
    /// What the policy may read and set.
    pub(crate) fetch: Fetch,
    client: Client,
    session: Box<Session>,
    /// The request to the backend before `vcl_backend_fetch` had it.
    original: Option<RequestHead>,
    notes: SharedNotes,
    /// What modules keep; of `vcl_pipe` it is that of the client's side.
    pub(super) kept: Kept,
    workspace: Workspace,
    random: u64,
}

impl fmt::Debug for Fetching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fetching({} in {})", self.client.xid, self.loaded.name)
    }
}

impl Fetching {
    pub(super) fn new(
        loaded: Arc<Loaded>,
        client: Client,
        session: Box<Session>,
        notes: SharedNotes,
        is_pass: bool,
    ) -> Self {
        let fetch = Fetch {
            backend: client.backend_hint,
            is_pass,
            is_hitmiss: client.is_hitmiss,
            is_hitpass: client.is_hitpass,
            time_s: now_s(),
            xid: client.xid,
            ..Fetch::default()
        };
        let random = now_ms() ^ client.xid.rotate_left(33);
        let (kept, workspace) = (Kept::default(), Workspace::default());
        Self { loaded, fetch, client, session, original: None, notes, kept, workspace, random }
    }

    /// Nobody waits for it.
    pub(crate) fn behind(mut self: Box<Self>) -> Box<Self> {
        self.fetch.is_bgfetch = true;
        self
    }

    /// Logs why the fetch has failed, unless the client does not wait for it.
    pub(crate) fn tell_failure(&self, text: String) {
        if !self.fetch.is_bgfetch {
            lock(&self.notes).lines.push(Line { tag: Tag::FetchError, text });
        }
    }

    /// Whether the policy itself says what becomes of a fetch that fails.
    pub(crate) fn answers_failures(&self) -> bool {
        self.loaded.program.is_written(Sub::BackendError)
    }

    /// Notes who was asked, unless the client does not wait for it.
    pub(crate) fn tell_backend(&self, backend: &Arc<backend::Backend>) {
        if !self.fetch.is_bgfetch {
            lock(&self.notes).backend = Some(backend.clone());
        }
    }

    /// Counts a retry, unless it is one too many.
    pub(crate) fn retry(&mut self) -> bool {
        self.fetch.retries += 1;
        self.fetch.retries <= RETRIES_MAX
    }

    /// Where the fetch goes now that the policy has said so; `None` where no backend is healthy.
    pub(crate) fn route(&mut self, bereq: &mut RequestHead, cache: &Arc<Cache>) -> Option<Route> {
        let of_policy = match self.fetch.backend {
            Backend::None => self.loaded.program.default_backend().map(Backend::Declared),
            backend => Some(backend),
        };
        let target = match of_policy {
            None => Target::Configured,
            Some(backend) => {
                let loaded = self.loaded.clone();
                let index =
                    self.with_task(bereq, None, cache, |task| loaded.program.resolve(backend, task))?;
                self.fetch.answered = Backend::Declared(index);
                let backend = loaded.backends.get(index)?;
                self.tell_backend(backend);
                Target::One(backend.clone())
            }
        };
        let Fetch { connect_timeout_s, first_byte_timeout_s, between_bytes_timeout_s, .. } = self.fetch;
        let preset = Fetch::default();
        // What the policy has left as it was is the backend's to say.
        let set = |now: f64, preset: f64| (now != preset).then(|| duration(now));
        Some(Route {
            target,
            connect: set(connect_timeout_s, preset.connect_timeout_s),
            first_byte: set(first_byte_timeout_s, preset.first_byte_timeout_s),
            between_bytes: set(between_bytes_timeout_s, preset.between_bytes_timeout_s),
            ends: Some(Ends { client: self.session.client, server: self.session.server }),
        })
    }

    /// Runs a subroutine of the backend's side. Whatever goes wrong in it is [`Action::Fail`].
    pub(crate) fn run(
        &mut self,
        sub: Sub,
        bereq: &mut RequestHead,
        beresp: Option<&mut ResponseHead>,
        cache: &Arc<Cache>,
    ) -> Action {
        if sub == Sub::BackendFetch && self.fetch.retries == 0 {
            self.original.get_or_insert_default().clone_from(bereq);
        }
        let loaded = self.loaded.clone();
        let result = self.with_task(bereq, beresp, cache, |task| loaded.program.run(sub, task));
        settled(result, &loaded.name, sub)
    }

    fn with_task<T>(
        &mut self,
        bereq: &mut RequestHead,
        beresp: Option<&mut ResponseHead>,
        cache: &Arc<Cache>,
        work: impl FnOnce(&mut Task<'_>) -> T,
    ) -> T {
        let Self { loaded, fetch, client, session, original, notes, kept, workspace, random } = self;
        work(&mut Task {
            now_s: coarse_now_s().max(fetch.time_s),
            original: original.as_ref(),
            req: None,
            bereq: Some(bereq),
            beresp,
            obj: None,
            resp: None,
            client,
            fetch,
            object: &Object::default(),
            session,
            connection: &mut NoConnection,
            host: &Process { cache, loaded, bundles: None },
            log: &mut lock(notes).lines,
            kept,
            workspace,
            random,
        })
    }
}
