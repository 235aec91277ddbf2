//! Hit: runs `vcl_hit`, and revalidates a stale response in the background.

use std::sync::Arc;

use thalweg_cache::{Fill, Stored};
use thalweg_http::cache_status::Forward;
use thalweg_policy::step::Action;

use super::policy::RequestContext;
use super::{Session, Step};
use crate::fetch;
use crate::lookup::{Found, Hit};
use crate::transport::Outgoing;

impl<O: Outgoing> Session<'_, O> {
    pub(super) fn hit(&mut self, hit: Hit) -> Step {
        let Hit { stored, cache, refresh } = hit;
        let action = match &mut self.policy {
            Some(policy) => {
                let context =
                    RequestContext { client: self.client, socket: self.out.socket(), worker: self.worker };
                policy.hit(&stored, context)
            }
            None => Action::Deliver,
        };
        if !matches!(action, Action::Deliver | Action::Pass) {
            return self.divert(action);
        }
        if let Some(fill) = refresh {
            self.refresh(fill, &stored);
        }
        if action == Action::Pass {
            return Step::Pass(Forward::Bypass);
        }
        Step::Deliver(Found::hit(&stored, cache, self.search.has_waited))
    }

    /// Validates or refetches a response in the background while the stale one is served.
    fn refresh(&self, fill: Fill, stored: &Arc<Stored>) {
        let request = if stored.is_complete() {
            fetch::Request::validation(self.request(), stored.clone()).0
        } else {
            fetch::Request::whole(self.request())
        };
        let request = self.under_policy(request, false).in_background();
        self.worker.spawn(fetch::run(self.worker.clone(), fill, request, self.client.address.ip()));
    }
}
