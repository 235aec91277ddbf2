//! Purge: requested by the method `PURGE` or, under a policy, by `return (purge)`.

use thalweg_http::cache_status::CacheStatus;
use thalweg_policy::Sub;
use thalweg_record::CacheResult;

use super::policy::Heads;
use super::synth::{GeneratedResponse, own_fields};
use super::{Session, Step};
use crate::purge::{self, PurgeRequest};
use crate::transport::Outgoing;

impl<O: Outgoing> Session<'_, O> {
    pub(super) async fn purge(&mut self) -> Step {
        let request = match self.policy {
            // A policy purges its own key, regardless of the request's fields.
            Some(_) => PurgeRequest::of_key(self.key),
            None => PurgeRequest::from_request(&self.received.fields, self.key),
        };
        let count = match request.execute(self.worker.cache()).await {
            Ok(count) => count,
            Err(error) => return error.into(),
        };
        if let Some(action) = self.run(Sub::Purge, Heads::default()) {
            return self.divert(action);
        }
        Step::Generated(GeneratedResponse {
            status: 200,
            fields: own_fields("application/json"),
            content: purge::reply(count).to_string().into_bytes(),
            cache_status: Some(CacheStatus::default()),
            cache: CacheResult::Purge,
            ..GeneratedResponse::default()
        })
    }
}
