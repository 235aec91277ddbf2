//! Miss: runs `vcl_miss`, then starts one fetch for the whole response, for the requested slice, or
//! to validate a stale response.

use std::sync::Arc;

use thalweg_cache::{Failure, Head, Stored};
use thalweg_http::Method;
use thalweg_http::cache_status::Forward;
use thalweg_policy::Sub;
use thalweg_policy::step::Action;
use thalweg_record::CacheResult;
use tokio::sync::oneshot;

use super::{Session, Step};
use crate::lookup::{Forwarded, Found, Miss};
use crate::refusal::Refusal;
use crate::transport::Outgoing;
use crate::{fetch, slices};

impl<O: Outgoing> Session<'_, O> {
    pub(super) async fn miss(&mut self, miss: Miss) -> Step {
        let forward = miss.fill.forward();
        match self.hook(Sub::Miss) {
            None | Some(Action::Fetch) => {}
            Some(Action::Pass) => return Step::Pass(forward),
            Some(action) => return self.divert(action),
        }
        match miss.stale.clone() {
            Some(stale) => self.validate(miss, stale, forward).await,
            None => self.fetch(miss, forward).await,
        }
    }

    async fn fetch(&mut self, miss: Miss, forward: Forward) -> Step {
        let (request, mut sent_status) = self.wanted();
        let mut fetch = self.start(miss.fill, request, miss.content);
        match fetch.head(self.out).await {
            Ok(head) => {
                // For a slice, the backend's status differs from the status in the head, which
                // describes the whole response.
                let status = sent_status.as_mut().and_then(|status| status.try_recv().ok());
                let forwarded = self.forwarded(&head, forward, status.unwrap_or(head.status));
                Step::Deliver(Found::fetched(head, fetch.content, forwarded))
            }
            // The backend cannot serve the slice, so look up again and fetch the whole response.
            Err(Failure::NotSliced(_)) => Step::LookUp,
            Err(Failure::NotShared) => Step::Pass(forward),
            Err(failure) => Refusal::failed(&failure, forward).into(),
        }
    }

    /// Returns the fetch to start and, for a slice, a receiver for the backend's status.
    fn wanted(&mut self) -> (fetch::Request, Option<oneshot::Receiver<u16>>) {
        let request = self.request();
        let slice = slices::cold(self.worker, request).filter(|_| self.search.may_slice);
        let (wanted, status) = match slice {
            Some(slice) => {
                let mut wanted = fetch::Request::slice(request, slice);
                let status = wanted.status_receiver();
                // Request a slice only once. After that, the response is either stored in slices or
                // cannot be sliced.
                self.search.may_slice = false;
                (wanted, Some(status))
            }
            // HEAD starts a background fetch of the whole response; otherwise, every HEAD would
            // fetch again.
            None if request.method == Method::Head => (fetch::Request::whole(request).in_background(), None),
            None => (fetch::Request::whole(request), None),
        };
        (self.under_policy(wanted, false), status)
    }

    /// Validates a stale response. If the backend fails, serves the stale response where permitted.
    async fn validate(&mut self, miss: Miss, stale: Arc<Stored>, forward: Forward) -> Step {
        let (request, validated) = fetch::Request::validation(self.request(), stale.clone());
        let request = self.under_policy(request, false);
        let mut fetch = self.start(miss.fill, request, miss.content);
        match fetch.head(self.out).await {
            Ok(head) => {
                let forwarded = self.forwarded(&head, forward, head.status);
                Step::Deliver(Found::fetched(head, fetch.content, forwarded))
            }
            Err(Failure::Superseded) => match validated.await {
                Ok(stored) => {
                    let found = Found::stored(&stored, CacheResult::Validated);
                    let forwarded = Some(Forwarded::new(forward, Some(304)));
                    Step::Deliver(Found { is_fetcher: true, forwarded, ..found })
                }
                Err(_) => Refusal::failed(&Failure::Abandoned, forward).into(),
            },
            Err(failure) if self.look_up_options().serves_on_error(&stale) => {
                Step::Deliver(Found::stale_on_error(&stale, &failure))
            }
            Err(failure) => Refusal::failed(&failure, forward).into(),
        }
    }

    /// Describes the forwarded request for `Cache-Status`; `forward` is the reason for forwarding.
    fn forwarded(&self, head: &Arc<Head>, forward: Forward, status: u16) -> Forwarded {
        // A response purged while being fetched is sent to the waiting requests but not stored.
        let stored = head.private.is_none() && self.worker.cache().is_stored(self.key, head);
        Forwarded { stored, ..Forwarded::new(forward, Some(status)) }
    }

    /// Attaches the request's policy, if any, to a fetch.
    pub(super) fn under_policy(&self, request: fetch::Request, is_pass: bool) -> fetch::Request {
        match &self.policy {
            Some(policy) => request.under(policy.backend_side(is_pass)),
            None => request,
        }
    }
}
