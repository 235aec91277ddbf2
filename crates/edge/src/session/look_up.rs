//! Look-up: finds a stored response for the request, and waits if another request is already
//! fetching it.

use thalweg_http::cache_control::RequestCacheControl;
use thalweg_http::cache_status::Forward;

use super::{Session, Step};
use crate::lookup::{self, LookupOptions, Outcome};
use crate::transport::Outgoing;

impl<O: Outgoing> Session<'_, O> {
    pub(super) async fn look_up(&mut self) -> Step {
        let options = self.look_up_options();
        if let Some(policy) = &mut self.policy {
            policy.note_marks(false, false);
        }
        let fields = self.policy.as_ref().map_or(&self.received.fields, |policy| &policy.req.fields);
        match lookup::find(self.worker, self.key, fields, &options, &mut self.search).await {
            Outcome::Hit(hit) => Step::Hit(hit),
            Outcome::Miss(miss) => {
                if let Some(policy) = self.policy.as_mut().filter(|_| miss.is_hit_for_miss) {
                    policy.note_marks(true, false);
                }
                Step::Miss(miss)
            }
            Outcome::Found(found) => Step::Deliver(found),
            Outcome::HitForPass => {
                if let Some(policy) = &mut self.policy {
                    policy.note_marks(false, true);
                }
                Step::Pass(Forward::Bypass)
            }
            Outcome::NotShared => Step::Pass(Forward::Miss),
            Outcome::Refused(refusal) => refusal.into(),
        }
    }

    /// Returns the look-up options. They are set by the policy or, without one, by the request's
    /// own cache directives.
    pub(super) fn look_up_options(&self) -> LookupOptions {
        match &self.policy {
            Some(policy) => policy.look_up_options(),
            None if self.worker.config().rules.request_directives => LookupOptions {
                directives: RequestCacheControl::from_fields(&self.received.fields),
                ..LookupOptions::default()
            },
            None => LookupOptions::default(),
        }
    }
}
