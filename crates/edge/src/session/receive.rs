//! Receive: runs `vcl_recv` and `vcl_hash`, builds the cache key, and selects the next step.
//! Without a policy, the method decides: GET and HEAD are looked up, PURGE purges, all other
//! methods are passed.

use thalweg_http::Method;
use thalweg_http::cache_status::Forward;
use thalweg_policy::Sub;
use thalweg_policy::step::Action;

use super::policy::Heads;
use super::{Session, Step};
use crate::key::write_key;
use crate::transport::Outgoing;

/// Maximum number of policy switches by `return (vcl(…))` for one request.
const POLICIES_MAX: usize = 4;

impl<O: Outgoing> Session<'_, O> {
    pub(super) fn receive(&mut self) -> Step {
        let Some(action) = self.run(Sub::Recv, Heads::default()) else { return self.receive_by_method() };
        match self.hash(action) {
            Action::Hash | Action::Pass if !self.is_read() => Step::Pass(Forward::Method),
            Action::Hash => Step::LookUp,
            Action::Pass => Step::Pass(Forward::Bypass),
            Action::Pipe => Step::Pipe,
            Action::Purge => Step::Purge,
            action => self.divert(action),
        }
    }

    fn receive_by_method(&mut self) -> Step {
        write_key(&self.received.authority, self.received.target.as_str(), self.key);
        match self.received.method {
            Method::Purge => Step::Purge,
            _ if self.is_read() => Step::LookUp,
            _ => Step::Pass(Forward::Method),
        }
    }

    /// Switches policies as requested by `return (vcl(…))`, then runs `vcl_hash`.
    fn hash(&mut self, mut action: Action) -> Action {
        for _ in 0..POLICIES_MAX {
            let Action::Vcl(name) = &action else { break };
            let loaded = self.worker.policies().by_name(name);
            let (Some(policy), Some(loaded)) = (&mut self.policy, loaded) else {
                tracing::warn!(name, "no policy with this name");
                return Action::Fail { reason: None };
            };
            policy.enter(loaded);
            action = self.run(Sub::Recv, Heads::default()).unwrap_or(action);
        }
        // A pass needs the key too, because `req.hash` identifies the request, as in Varnish.
        if matches!(action, Action::Hash | Action::Purge | Action::Pass | Action::Pipe) {
            if let Some(policy) = &mut self.policy {
                policy.client.hash_data.clear();
            }
            if self.run(Sub::Hash, Heads::default()) != Some(Action::Lookup) {
                return Action::Fail { reason: None };
            }
            if let Some(policy) = &self.policy {
                policy.write_key(self.key);
            }
        }
        action
    }
}
