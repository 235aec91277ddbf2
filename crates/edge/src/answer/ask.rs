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
            Some(policy) => policy.transaction.asked(),
            None => asked(worker, self.request),
        }
    }

    /// Whether the policy allows less grace than `stored` has taken by now.
    pub(super) fn is_past_grace(&self, stored: &Stored) -> bool {
        let grace_s = self.policy.as_ref().and_then(|policy| policy.transaction.client.grace_s);
        grace_s.is_some_and(|grace_s| -(stored.freshness().ttl_s(now_ms()) as f64) >= grace_s)
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
