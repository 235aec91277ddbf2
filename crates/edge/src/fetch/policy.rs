//! Backend side of a policy: per-fetch state read and set by `vcl_backend_fetch`,
//! `vcl_backend_response` and `vcl_backend_error`.
//!
//! The policy decides what is stored and for how long, starting from the RFC 9111 freshness. A
//! validated response is updated first, so that the policy sees the complete head.

use std::fmt;
use std::sync::Arc;

use thalweg_cache::freshness::Freshness;
use thalweg_cache::tags::has_too_many_tags;
use thalweg_cache::{Cache, Head, PassMark, Unshareable};
use thalweg_http::{Method, RequestHead, ResponseHead};
use thalweg_policy::step::Action;
use thalweg_policy::task::{Client, Fetch, LogLine, LogSource, Object, RequestState, Session, Workspace};
use thalweg_policy::value::Backend;
use thalweg_policy::{Sub, Task};

use crate::backend::{self, Ends, Route, Target, duration};
use crate::clock::{coarse_now_s, now_ms, now_s};
use crate::policy::host::Process;
use crate::policy::loaded::Loaded;
use crate::policy::notes::{SharedNotes, lock};
use crate::policy::socket::NoConnection;

/// Maximum number of retries of one fetch, as in Varnish.
const RETRIES_MAX: u32 = 4;

/// Initial values of a response in `vcl_backend_response`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Preset {
    /// RFC 9111 freshness.
    pub(super) freshness: Freshness,
    /// Remaining freshness lifetime at `now_ms`, in whole seconds.
    pub(super) ttl_s: f64,
    pub(super) now_ms: u64,
}

/// Backend side of a policy, for one fetch.
pub(crate) struct BackendSide {
    loaded: Arc<Loaded>,
    /// Fetch variables that the policy may read and set.
    pub(crate) fetch: Fetch,
    client: Client,
    session: Box<Session>,
    /// The request before `vcl_backend_fetch` ran.
    original: Option<RequestHead>,
    notes: SharedNotes,
    /// Data of the policy's modules; for `vcl_pipe`, that of the client side.
    pub(crate) kept: RequestState,
    workspace: Workspace,
    random: u64,
}

impl fmt::Debug for BackendSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BackendSide({} in {})", self.client.xid, self.loaded.name)
    }
}

impl BackendSide {
    /// Creates the backend side for a fetch on behalf of `client`, within its `session`.
    pub(crate) fn new(
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
        let (kept, workspace) = (RequestState::default(), Workspace::default());
        Self { loaded, fetch, client, session, original: None, notes, kept, workspace, random }
    }

    /// Turns the fetch into a background fetch, for which no client waits.
    pub(crate) fn in_background(mut self: Box<Self>) -> Box<Self> {
        self.fetch.is_bgfetch = true;
        self
    }

    /// Adds the reason why the fetch failed to the policy's log lines, if a client waits for the
    /// fetch.
    pub(super) fn log_failure(&self, text: String) {
        if !self.fetch.is_bgfetch {
            lock(&self.notes).lines.push(LogLine { tag: LogSource::FetchError, text });
        }
    }

    /// Returns whether the policy handles failed fetches itself.
    pub(super) fn answers_failures(&self) -> bool {
        self.loaded.program.extends_builtin(Sub::BackendError)
    }

    /// Records the backend used, if a client waits for the fetch.
    pub(super) fn note_backend(&self, backend: &Arc<backend::Backend>) {
        if !self.fetch.is_bgfetch {
            lock(&self.notes).backend = Some(backend.clone());
        }
    }

    /// Counts a retry. Returns false if there were too many.
    pub(super) fn retry(&mut self) -> bool {
        self.fetch.retries += 1;
        self.fetch.retries <= RETRIES_MAX
    }

    /// Returns the route selected by the policy; `None` if no backend is healthy.
    pub(crate) fn route(&mut self, bereq: &mut RequestHead, cache: &Arc<Cache>) -> Option<Route> {
        let chosen = match self.fetch.backend {
            Backend::None => self.loaded.program.default_backend().map(Backend::Declared),
            backend => Some(backend),
        };
        let target = match chosen {
            None => Target::Configured,
            Some(backend) => {
                let loaded = self.loaded.clone();
                let index =
                    self.with_task(bereq, None, cache, |task| loaded.program.resolve(backend, task))?;
                self.fetch.answered = Backend::Declared(index);
                let backend = loaded.backends.get(index)?;
                self.note_backend(backend);
                Target::One(backend.clone())
            }
        };
        let Fetch { connect_timeout_s, first_byte_timeout_s, between_bytes_timeout_s, .. } = self.fetch;
        let preset = Fetch::default();
        // The backend's declaration applies to values left unchanged by the policy.
        let set = |now: f64, preset: f64| (now != preset).then(|| duration(now));
        Some(Route {
            target,
            connect: set(connect_timeout_s, preset.connect_timeout_s),
            first_byte: set(first_byte_timeout_s, preset.first_byte_timeout_s),
            between_bytes: set(between_bytes_timeout_s, preset.between_bytes_timeout_s),
            ends: Some(Ends { client: self.session.client, server: self.session.server }),
        })
    }

    /// Runs a backend-side subroutine. An error becomes [`Action::Fail`].
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
        self.with_task(bereq, beresp, cache, |task| loaded.run(sub, task))
    }

    /// Sets the initial values for `vcl_backend_response`.
    pub(super) fn preset(&mut self, freshness: Freshness, was_304: bool, now_ms: u64) -> Preset {
        let preset = Preset { freshness, ttl_s: freshness.ttl_s(now_ms) as f64, now_ms };
        let fetch = &mut self.fetch;
        fetch.ttl_s = preset.ttl_s;
        fetch.grace_s = freshness.while_revalidate_ms as f64 / 1e3;
        fetch.age_s = freshness.age_s(now_ms) as f64;
        fetch.uncacheable = fetch.is_pass;
        (fetch.was_304, fetch.response_time_s) = (was_304, now_ms as f64 / 1e3);
        preset
    }

    /// Builds the head to store for a response to `method`, applying the policy's changes to
    /// `preset`.
    pub(super) fn apply_to_head(
        &self,
        mut head: Head,
        preset: &Preset,
        method: Method,
        is_hit_for_pass: bool,
    ) -> Head {
        let fetch = &self.fetch;
        // Under a policy, no fields are withheld: the policy decides which clients receive them.
        for (name, value) in std::mem::take(&mut head.withheld).iter() {
            head.fields.push(name, value);
        }
        let lifetime_ms = if fetch.ttl_s == preset.ttl_s {
            // The policy did not change the lifetime, so use the response's exact value.
            preset.freshness.lifetime_ms
        } else {
            preset.freshness.age_ms(preset.now_ms).saturating_add_signed(signed_ms(fetch.ttl_s))
        };
        head.freshness = Freshness {
            lifetime_ms,
            while_revalidate_ms: ms(fetch.grace_s),
            if_error_ms: head.freshness.if_error_ms,
            must_revalidate: false,
            immutable: false,
            ..preset.freshness
        };
        head.private = self.private(&head, method, is_hit_for_pass);
        head
    }

    /// Returns why a response cannot be shared and how long its key is marked; `None` if it can be
    /// shared.
    fn private(&self, head: &Head, method: Method, is_hit_for_pass: bool) -> Option<Unshareable> {
        let fetch = &self.fetch;
        let until_ms = |lasts_s: f64| now_ms().saturating_add(ms(lasts_s));
        let (reason, mark) = if fetch.is_pass {
            (if fetch.is_hitpass { "hit-for-pass" } else { "pass" }, PassMark::No)
        } else if fetch.uncacheable {
            let mark = match is_hit_for_pass {
                _ if fetch.ttl_s <= 0.0 => PassMark::No,
                true => PassMark::Pass { until_ms: until_ms(fetch.ttl_s) },
                // As in Varnish, the marker lasts for the TTL plus grace and keep.
                false => PassMark::Miss {
                    until_ms: until_ms(fetch.ttl_s + fetch.grace_s.max(0.0) + fetch.keep_s.max(0.0)),
                },
            };
            (if fetch.is_hitmiss { "hit-for-miss" } else { "policy" }, mark)
        } else if method != Method::Get && !fetch.was_304 {
            // A later GET may need content that the response to this method does not have.
            ("method", PassMark::No)
        } else if head.fields.list("vary").any(|member| member == b"*") {
            // The policy cannot change this, because no later request can match (RFC 9111 §4.1).
            ("vary", PassMark::Moment)
        } else if fetch.ttl_s <= 0.0 && fetch.grace_s <= 0.0 && fetch.keep_s <= 0.0 {
            ("not-fresh", PassMark::No)
        } else if has_too_many_tags([&head.surrogate, &head.fields]) {
            ("tags", PassMark::Moment)
        } else {
            return None;
        };
        Some(Unshareable { reason, mark })
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

/// Converts a policy's seconds to milliseconds. A positive value becomes at least 1; a negative
/// value becomes 0.
fn ms(seconds: f64) -> u64 {
    u64::try_from(signed_ms(seconds)).unwrap_or(0)
}

fn signed_ms(seconds: f64) -> i64 {
    if seconds > 0.0 { ((seconds * 1e3).round() as i64).max(1) } else { (seconds * 1e3).round() as i64 }
}
