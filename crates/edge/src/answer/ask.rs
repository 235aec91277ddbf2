//! A request that looks for its answer, and the say that a policy has in it.

use thalweg_cache::Stored;
use thalweg_http::RequestHead;
use thalweg_http::cache_control::RequestCacheControl;
use thalweg_policy::Sub;
use thalweg_policy::step::Action;
use tokio::net::TcpStream;

use crate::fetch;
use crate::now_ms;
use crate::policy::{Fetching, Heads, Instead, Transaction};
use crate::worker::Worker;

/// A request that looks for its answer.
pub(crate) struct Ask<'a> {
    /// As it came.
    pub(crate) request: &'a RequestHead,
    /// The policy that it runs through.
    pub(crate) policy: Option<Policed<'a>>,
}

/// A request's way through a policy, and the connection it came on.
pub(crate) struct Policed<'a> {
    pub(crate) transaction: &'a mut Transaction,
    pub(crate) stream: &'a TcpStream,
}

impl Ask<'_> {
    /// The request as it is by now.
    pub(crate) fn head(&self) -> &RequestHead {
        self.policy.as_ref().map_or(self.request, |policy| &policy.transaction.req)
    }

    /// Whether what was found answers the request; else it is passed.
    pub(super) fn hit(&mut self, worker: &Worker, stored: &Stored) -> Result<bool, Instead> {
        let Some(Policed { transaction, stream }) = &mut self.policy else { return Ok(true) };
        match transaction.hit(stored, stream, worker) {
            Action::Deliver => Ok(true),
            Action::Pass => Ok(false),
            action => Err(Instead::Action(action)),
        }
    }

    /// Whether what is missing is fetched to be stored; else the request is passed.
    pub(super) fn miss(&mut self, worker: &Worker) -> Result<bool, Instead> {
        match self.run(worker, Sub::Miss) {
            None | Some(Action::Fetch) => Ok(true),
            Some(Action::Pass) => Ok(false),
            Some(action) => Err(Instead::Action(action)),
        }
    }

    pub(super) fn passed(&mut self, worker: &Worker) -> Result<(), Instead> {
        if let Some(policy) = &mut self.policy {
            policy.transaction.forget_found();
        }
        match self.run(worker, Sub::Pass) {
            None | Some(Action::Fetch) => Ok(()),
            Some(action) => Err(Instead::Action(action)),
        }
    }

    /// What the policy says at this step, if it says anything.
    fn run(&mut self, worker: &Worker, sub: Sub) -> Option<Action> {
        let Policed { transaction, stream } = self.policy.as_mut().filter(|it| it.transaction.says(sub))?;
        Some(transaction.run(sub, Heads::default(), stream, worker))
    }

    /// The fetch as the policy has its say in it.
    pub(super) fn fetch(&self, request: fetch::Request, is_pass: bool) -> fetch::Request {
        match &self.policy {
            Some(policy) => request.under(policy.transaction.fetching(is_pass)),
            None => request,
        }
    }

    /// The policy's say in fetches of slices of its answer.
    pub(crate) fn slices(&self) -> Option<Box<Fetching>> {
        self.policy.as_ref().map(|policy| policy.transaction.fetching(false))
    }

    /// What the request says of caching, where that counts. Under a policy that is the policy's to say.
    pub(super) fn asked(&self, worker: &Worker) -> RequestCacheControl {
        match &self.policy {
            Some(_) => RequestCacheControl::default(),
            None => asked(worker, self.request),
        }
    }

    /// Whether the policy has `stored` be fresh, or of use while it is refreshed, for less than it says itself.
    pub(super) fn is_too_old(&self, stored: &Stored) -> bool {
        let Some(Policed { transaction, .. }) = &self.policy else { return false };
        let (freshness, now_ms) = (stored.freshness(), now_ms());
        let at_most =
            |ms: u64, limit_s: Option<f64>| limit_s.map_or(ms, |limit_s| ms.min((limit_s * 1e3) as u64));
        // Not above 0, a lifetime is none that was set; below 0, a grace is none.
        let ttl_s = transaction.client.ttl_s.filter(|ttl_s| *ttl_s > 0.0);
        let grace_s = transaction.client.grace_s.filter(|grace_s| *grace_s >= 0.0);
        let lifetime_ms = at_most(freshness.lifetime_ms, ttl_s);
        let grace_ms =
            if freshness.is_fresh(now_ms) { 0 } else { at_most(freshness.while_revalidate_ms, grace_s) };
        freshness.age_ms(now_ms) >= lifetime_ms.saturating_add(grace_ms)
    }

    /// Whether it is for the policy alone that `stored` does not answer.
    pub(super) fn is_fresh_by_itself(&self, stored: &Stored) -> bool {
        self.policy.is_some() && stored.freshness().is_fresh(now_ms())
    }

    /// Whether `stored` answers because the backend failed. Where the policy has a `vcl_backend_error` of its own, that
    /// answers instead, as on Varnish.
    pub(super) fn serves_on_error(&self, stored: &Stored) -> bool {
        let is_answered =
            self.policy.as_ref().is_some_and(|policy| policy.transaction.says(Sub::BackendError));
        !is_answered && stored.freshness().serves_on_error(now_ms())
    }

    /// Whether it has its answer fetched, whatever is stored or fetched already.
    pub(super) fn always_misses(&self) -> bool {
        self.policy.as_ref().is_some_and(|policy| policy.transaction.client.hash_always_miss)
    }

    /// Nothing has been found yet.
    pub(super) fn begin_look_up(&mut self) {
        self.tell_marks(false, false);
    }

    /// The key's last response was for one client alone: this may be another.
    pub(super) fn found_hit_for_miss(&mut self) {
        self.tell_marks(true, false);
    }

    /// Responses under this key are for one client alone.
    pub(super) fn found_hit_for_pass(&mut self) {
        self.tell_marks(false, true);
    }

    fn tell_marks(&mut self, is_hitmiss: bool, is_hitpass: bool) {
        if let Some(policy) = &mut self.policy {
            let client = &mut policy.transaction.client;
            (client.is_hitmiss, client.is_hitpass) = (is_hitmiss, is_hitpass);
        }
    }

    /// Whether it does not wait for a fetch of somebody else.
    pub(super) fn ignores_busy(&self) -> bool {
        self.policy.as_ref().is_some_and(|policy| policy.transaction.client.hash_ignore_busy)
    }
}

/// What the request says of caching, where that counts.
fn asked(worker: &Worker, request: &RequestHead) -> RequestCacheControl {
    if worker.config().rules.request_directives {
        RequestCacheControl::from_fields(&request.fields)
    } else {
        RequestCacheControl::default()
    }
}
