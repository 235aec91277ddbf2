//! All backends of an edge, shared by its workers: candidate selection and backend states.
//!
//! Policies share a declared backend if they declare the same name, address, timeouts, limits and
//! probe. Its health survives a policy reload, and its connection limit covers all policies that
//! share it.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use thalweg_policy::program::{BackendRow, ProbeRow};

use super::endpoint;
use super::error::ConnectError;
use super::health::{HealthOverride, ProbeCount};
use super::idle::IDLE_TIME_MAX;
use super::route::{Route, Target};
use super::server::{Backend, BackendId};
use super::timeouts::FetchTimeouts;
use super::url::BackendUrl;
use crate::config::Timeouts;

/// All backends of an edge.
#[derive(Debug)]
pub(crate) struct Backends {
    /// Configured backends, indexed by id.
    pub(super) list: Vec<Arc<Backend>>,
    turn: AtomicUsize,
    /// Backends declared by policies. Weak, because only policies and requests keep them alive.
    declared: Mutex<Vec<Weak<Backend>>>,
    next_id: AtomicUsize,
    timeouts: FetchTimeouts,
    workers: usize,
}

/// The state of a backend as reported to operators.
#[derive(Debug)]
pub(crate) struct BackendState {
    pub(crate) name: String,
    /// Address; `None` if declared as `none`.
    pub(crate) address: Option<String>,
    pub(crate) health_override: HealthOverride,
    pub(crate) is_healthy: bool,
    /// Number of good probes in the window; `None` without a probe.
    pub(crate) good: Option<ProbeCount>,
    pub(crate) changed_ms: u64,
}

impl Backends {
    /// Creates the configured backends of an edge with this number of workers.
    pub(crate) fn new(urls: &[BackendUrl], timeouts: &Timeouts, workers: usize) -> Self {
        let timeouts = FetchTimeouts::configured(timeouts);
        let backend = |(at, url): (usize, &BackendUrl)| {
            Arc::new(Backend::new(BackendId(at), url.row(), None, timeouts, workers))
        };
        Self {
            list: urls.iter().enumerate().map(backend).collect(),
            turn: AtomicUsize::new(0),
            declared: Mutex::default(),
            next_id: AtomicUsize::new(urls.len()),
            timeouts,
            workers,
        }
    }

    /// Returns the backends to try, in order. Configured backends rotate. Those that failed
    /// recently come after the others, and `failed` comes last.
    ///
    /// # Errors
    ///
    /// Returns an error if no backend can be used.
    pub(super) fn candidates(
        &self,
        target: &Target,
        failed: Option<BackendId>,
    ) -> Result<Vec<Arc<Backend>>, ConnectError> {
        let backend = match target {
            Target::Configured => return self.by_turns(failed),
            Target::One(backend) => backend,
        };
        if backend.is_healthy() {
            Ok(vec![backend.clone()])
        } else {
            Err(ConnectError::new(format!("backend {backend} is sick")))
        }
    }

    /// Returns whether any backend is configured.
    pub(crate) fn has_configured(&self) -> bool {
        !self.list.is_empty()
    }

    fn by_turns(&self, failed: Option<BackendId>) -> Result<Vec<Arc<Backend>>, ConnectError> {
        if self.list.is_empty() {
            return Err(ConnectError::new("no backend configured"));
        }
        let first = self.turn.fetch_add(1, Relaxed) % self.list.len();
        let (last, first) = self.list.split_at(first);
        let mut order: Vec<_> =
            first.iter().chain(last).filter(|backend| backend.is_healthy()).cloned().collect();
        order.sort_by_cached_key(|backend| (failed == Some(backend.id), backend.is_avoided()));
        if order.is_empty() {
            return Err(ConnectError::new("all backends are set to sick"));
        }
        Ok(order)
    }

    /// Returns the timeouts for a fetch with `route`.
    pub(super) fn timeouts_of(&self, route: &Route) -> FetchTimeouts {
        match &route.target {
            Target::Configured => route.timeouts(self.timeouts),
            Target::One(backend) => route.timeouts(backend.timeouts),
        }
    }

    /// Returns the backend declared by `row` and `probe`, reusing an existing one if it is
    /// identical.
    pub(super) fn declared(&self, row: &BackendRow, probe: Option<&ProbeRow>) -> Arc<Backend> {
        // Ignore the probe's index, which is valid within one policy only, and its name, which has
        // no effect.
        let row = BackendRow { probe: None, ..row.clone() };
        let probe = probe.map(|probe| ProbeRow { name: String::new(), ..probe.clone() });
        let mut declared = self.declared.lock().unwrap_or_else(PoisonError::into_inner);
        declared.retain(|backend| backend.strong_count() > 0);
        let same = |known: &Arc<Backend>| known.row == row && known.probe == probe;
        if let Some(known) = declared.iter().filter_map(Weak::upgrade).find(same) {
            return known;
        }
        let id = BackendId(self.next_id.fetch_add(1, Relaxed));
        let backend = Arc::new(Backend::new(id, row, probe, self.timeouts, self.workers));
        declared.push(Arc::downgrade(&backend));
        backend
    }

    /// Returns the configured backends, then the declared ones.
    fn all(&self) -> Vec<Arc<Backend>> {
        let declared = self.declared.lock().unwrap_or_else(PoisonError::into_inner);
        self.list.iter().cloned().chain(declared.iter().filter_map(Weak::upgrade)).collect()
    }

    /// Returns the state of each backend.
    pub(crate) fn states(&self) -> Vec<BackendState> {
        self.all().iter().map(|backend| backend.state()).collect()
    }

    /// Overrides the health of all backends with this name. Returns the number of these backends.
    pub(crate) fn set_health(&self, name: &str, health_override: HealthOverride) -> usize {
        let named = self.all().into_iter().filter(|backend| backend.name() == name);
        named
            .inspect(|backend| {
                backend.health.set_override(health_override);
                let is_healthy = backend.is_healthy();
                tracing::info!(%backend, health = health_override.as_str(), is_healthy, "backend health set");
            })
            .count()
    }

    /// Repeatedly closes connections that have been idle for too long.
    pub(crate) async fn close_old(&self) -> Infallible {
        loop {
            tokio::time::sleep(IDLE_TIME_MAX).await;
            for backend in self.all() {
                backend.idle.close_old();
            }
        }
    }
}

impl Backend {
    fn state(&self) -> BackendState {
        BackendState {
            name: self.name().to_owned(),
            address: self.row.address.as_ref().map(|address| endpoint::DisplayAddress(address).to_string()),
            health_override: self.health.health_override(),
            is_healthy: self.is_healthy(),
            good: self.health.probe_count(),
            changed_ms: self.changed_ms(),
        }
    }
}
