//! A fetch under a policy: the backend's side of the request that caused it.

use std::fmt;
use std::sync::Arc;

use thalweg_cache::Cache;
use thalweg_http::{RequestHead, ResponseHead};
use thalweg_policy::step::Action;
use thalweg_policy::task::{Client, Fetch, Kept, Object, Session, Workspace};
use thalweg_policy::{Sub, Task};

use super::Loaded;
use super::host::Process;
use super::socket::NoConnection;
use super::transaction::{Lines, lock};
use crate::now_ms;

/// Retries of one fetch, as Varnish has it.
const RETRIES_MAX: u32 = 4;

/// A fetch on its way through a policy.
pub(crate) struct Fetching {
    loaded: Arc<Loaded>,
    /// What the policy may read and set.
    pub(crate) fetch: Fetch,
    client: Client,
    session: Box<Session>,
    lines: Lines,
    kept: Kept,
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
        lines: Lines,
        is_pass: bool,
    ) -> Self {
        let fetch = Fetch {
            backend: client.backend_hint,
            is_pass,
            time_s: now_ms() as f64 / 1e3,
            xid: client.xid,
            ..Fetch::default()
        };
        let random = now_ms() ^ client.xid.rotate_left(33);
        let (kept, workspace) = (Kept::default(), Workspace::default());
        Self { loaded, fetch, client, session, lines, kept, workspace, random }
    }

    /// Nobody waits for it.
    pub(crate) fn behind(mut self: Box<Self>) -> Box<Self> {
        self.fetch.is_bgfetch = true;
        self
    }

    /// Counts a retry, unless it is one too many.
    pub(crate) fn retry(&mut self) -> bool {
        self.fetch.retries += 1;
        self.fetch.retries <= RETRIES_MAX
    }

    /// Runs a subroutine of the backend's side. Whatever goes wrong in it is [`Action::Fail`].
    pub(crate) fn run(
        &mut self,
        sub: Sub,
        bereq: &mut RequestHead,
        beresp: Option<&mut ResponseHead>,
        cache: &Arc<Cache>,
    ) -> Action {
        let Self { loaded, fetch, client, session, lines, kept, workspace, random } = self;
        let result = loaded.program.run(
            sub,
            &mut Task {
                now_s: now_ms() as f64 / 1e3,
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
                host: &Process { cache },
                log: &mut lock(lines),
                kept,
                workspace,
                random,
            },
        );
        result.unwrap_or_else(|failure| {
            tracing::warn!(policy = loaded.name, %sub, %failure, "policy failed");
            Action::Fail { reason: None }
        })
    }
}
