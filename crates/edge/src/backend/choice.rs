//! All backends of an edge, shared by its workers: which of them is tried, and what is told of them.
//!
//! Policies that declare a backend of the same name, place, times, limits and probe share it: its health outlives a
//! reload, and its limit holds over both.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use thalweg_policy::program::{BackendRow, ProbeRow};

use super::health::Good;
use super::pool::IDLE_TIME_MAX;
use super::route::FetchTimeouts;
use super::{Backend, BackendId, BackendUrl, ConnectError, Judgement, Route, Target, place};
use crate::config::Timeouts;

/// All backends of an edge.
#[derive(Debug)]
pub(crate) struct Backends {
    /// The configured ones, by their ids.
    pub(super) list: Vec<Arc<Backend>>,
    turn: AtomicUsize,
    /// Those of policies; who has a policy or a request has them.
    declared: Mutex<Vec<Weak<Backend>>>,
    next_id: AtomicUsize,
    timeouts: FetchTimeouts,
    workers: usize,
}

/// What is told of a backend.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) name: String,
    /// `None` for one that is declared as none.
    pub(crate) address: Option<String>,
    pub(crate) judgement: Judgement,
    pub(crate) is_healthy: bool,
    /// Of its last probes, if it has a probe.
    pub(crate) good: Option<Good>,
    pub(crate) changed_ms: u64,
}

impl Backends {
    /// The configured ones, for as many `workers`.
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

    /// The backends to try, in their order: the configured ones by turns, those that failed a moment ago after the
    /// others, and `failed` last of all.
    ///
    /// # Errors
    /// When there is none that may be asked.
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

    /// Whether any is configured.
    pub(crate) fn has_configured(&self) -> bool {
        !self.list.is_empty()
    }

    fn by_turns(&self, failed: Option<BackendId>) -> Result<Vec<Arc<Backend>>, ConnectError> {
        if self.list.is_empty() {
            return Err(ConnectError::new("no backend is configured"));
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

    /// How long a fetch waits where it goes.
    pub(super) fn timeouts_of(&self, route: &Route) -> FetchTimeouts {
        match &route.target {
            Target::Configured => self.timeouts.of(route),
            Target::One(backend) => backend.timeouts.of(route),
        }
    }

    /// The backend that is declared so: that of another loaded policy, or a new one.
    pub(super) fn declared(&self, row: &BackendRow, probe: Option<&ProbeRow>) -> Arc<Backend> {
        // An index means nothing beyond its policy, and a probe's name says nothing of what it does.
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

    /// The configured backends, then those of policies.
    fn all(&self) -> Vec<Arc<Backend>> {
        let declared = self.declared.lock().unwrap_or_else(PoisonError::into_inner);
        self.list.iter().cloned().chain(declared.iter().filter_map(Weak::upgrade)).collect()
    }

    /// How each of them is.
    pub(crate) fn states(&self) -> Vec<State> {
        self.all().iter().map(|backend| backend.state()).collect()
    }

    /// Sets what an operator says of all backends of a name. Tells how many there are.
    pub(crate) fn judge(&self, name: &str, judgement: Judgement) -> usize {
        let named = self.all().into_iter().filter(|backend| backend.name() == name);
        named
            .inspect(|backend| {
                backend.health.judge(judgement);
                let is_healthy = backend.is_healthy();
                tracing::info!(%backend, health = judgement.as_str(), is_healthy, "backend's health set");
            })
            .count()
    }

    /// Closes connections that nobody has used for too long, again and again.
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
    fn state(&self) -> State {
        State {
            name: self.name().to_owned(),
            address: self.row.address.as_ref().map(|address| place::Shown(address).to_string()),
            judgement: self.health.judgement(),
            is_healthy: self.is_healthy(),
            good: self.health.good(),
            changed_ms: self.changed_ms(),
        }
    }
}
