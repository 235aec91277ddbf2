//! Look-up: finds the response for a request, and selects the part to send.
//!
//! [`find`] searches the cache. If another request is already fetching the response, it waits for
//! the head of that fetch: requests collapse onto one fetch (RFC 9111 §4), then read its content in
//! parallel. `find` itself fetches nothing; a [`Miss`] contains the fill for the caller's fetch.
//!
//! - [`found`]: the response, whether stored, joined or fetched. [`part`]: the part of it to send.
//! - [`content`] and [`sliced`]: the content, read from one fill or from slices fetched on demand.

use std::sync::Arc;

use thalweg_cache::{Failure, Fill, Head, Lookup, Reader, Stored};
use thalweg_http::Fields;
use thalweg_http::cache_control::RequestCacheControl;
use thalweg_http::cache_status::Forward;
use thalweg_record::CacheResult;

use crate::clock::now_ms;
use crate::refusal::Refusal;
use crate::worker::Worker;

mod content;
mod found;
mod part;
mod sliced;

pub(crate) use content::Content;
pub(crate) use found::{Forwarded, Found, MadeByPolicy};
pub(crate) use part::{Part, part};
pub(crate) use sliced::Sliced;

/// Maximum number of look-ups of one request before the request is passed. A look-up is repeated if
/// the awaited fetch did not produce a usable response, or if the stored response is unreadable.
const LOOK_UPS_MAX: usize = 8;
const NOTHING_STORED: Refusal = Refusal::by_edge(504, "no stored response for the request");

/// The state of one request's look-ups.
#[derive(Debug)]
pub(crate) struct Search {
    look_ups: usize,
    /// Whether the request waited for another request's fetch.
    pub(crate) has_waited: bool,
    /// Whether to request slices from the backend; cleared once it cannot serve them.
    pub(crate) may_slice: bool,
    /// Whether the request has stopped waiting for other requests' fetches.
    is_alone: bool,
}

impl Default for Search {
    fn default() -> Self {
        Self { look_ups: 0, has_waited: false, may_slice: true, is_alone: false }
    }
}

/// Look-up options, set by the request or the policy.
#[derive(Debug, Default)]
pub(crate) struct LookupOptions {
    pub(crate) directives: RequestCacheControl,
    /// `req.ttl`, in milliseconds.
    pub(crate) lifetime_ms_max: Option<u64>,
    /// `req.grace`, in milliseconds.
    pub(crate) grace_ms_max: Option<u64>,
    /// `req.hash_always_miss`.
    pub(crate) always_misses: bool,
    /// `req.hash_ignore_busy`.
    pub(crate) ignores_busy: bool,
    /// Whether a policy runs on the stored response and decides whether it is too old.
    pub(crate) under_policy: bool,
    /// Whether the policy defines `vcl_backend_error`. As in Varnish, that subroutine then handles
    /// failures, and no stale response is served.
    pub(crate) answers_failures: bool,
}

impl LookupOptions {
    /// Returns whether `stored` may be served if the backend has failed (RFC 5861 §4).
    pub(crate) fn serves_on_error(&self, stored: &Stored) -> bool {
        !self.answers_failures && stored.freshness().serves_on_error(now_ms())
    }

    /// Returns whether `stored` exceeds the policy's own limits on lifetime or grace.
    fn is_too_old(&self, stored: &Stored) -> bool {
        if self.lifetime_ms_max.is_none() && self.grace_ms_max.is_none() {
            return false;
        }
        let (freshness, now_ms) = (stored.freshness(), now_ms());
        let at_most = |ms: u64, limit_ms: Option<u64>| limit_ms.map_or(ms, |limit_ms| ms.min(limit_ms));
        let lifetime_ms = at_most(freshness.lifetime_ms, self.lifetime_ms_max);
        let is_fresh = freshness.is_fresh(now_ms);
        let grace_ms = if is_fresh { 0 } else { at_most(freshness.while_revalidate_ms, self.grace_ms_max) };
        freshness.age_ms(now_ms) >= lifetime_ms.saturating_add(grace_ms)
    }
}

/// The outcome of a look-up.
pub(crate) enum Outcome {
    Hit(Hit),
    Miss(Miss),
    /// A response from another request's fetch.
    Found(Found),
    /// The key is marked hit-for-pass: its responses must not be shared.
    HitForPass,
    /// The awaited fetch returned a response that cannot be shared.
    NotShared,
    Refused(Refusal),
}

/// A stored response that satisfies the request.
pub(crate) struct Hit {
    pub(crate) stored: Arc<Stored>,
    pub(crate) cache: CacheResult,
    /// Fill for background revalidation, if the response is stale.
    pub(crate) refresh: Option<Fill>,
}

/// A miss: no stored response can be served without contacting a backend.
pub(crate) struct Miss {
    pub(crate) fill: Fill,
    pub(crate) content: Reader<Arc<Head>>,
    /// The stale response to validate, if any.
    pub(crate) stale: Option<Arc<Stored>>,
    /// Whether the key is marked hit-for-miss, because its last response could not be shared.
    pub(crate) is_hit_for_miss: bool,
}

/// Finds the response under `key` for a request with `fields`.
pub(crate) async fn find(
    worker: &Worker,
    key: &str,
    fields: &Fields,
    options: &LookupOptions,
    search: &mut Search,
) -> Outcome {
    while search.look_ups < LOOK_UPS_MAX {
        search.look_ups += 1;
        let hit = |stored, cache| Outcome::Hit(Hit { stored, cache, refresh: None });
        let miss = |fill, content| Miss { fill, content, stale: None, is_hit_for_miss: false };
        match look_up(worker, key, fields, options, search.is_alone) {
            Lookup::Hit(stored) => return hit(stored, CacheResult::Hit),
            Lookup::Joined(stored) => return hit(stored, CacheResult::Join),
            Lookup::Refresh(stored, refresh) => {
                return Outcome::Hit(Hit { stored, cache: CacheResult::Stale, refresh });
            }
            Lookup::Miss(fill, content) => return Outcome::Miss(miss(fill, content)),
            Lookup::HitMiss(fill, content) => {
                // Responses that cannot be shared are not stored in slices.
                search.may_slice = false;
                return Outcome::Miss(Miss { is_hit_for_miss: true, ..miss(fill, content) });
            }
            Lookup::Stale(fill, content, stored) => {
                // Do not validate a fresh response that only exceeds the policy's limits.
                let is_fresh = options.under_policy && stored.freshness().is_fresh(now_ms());
                let stale = (!is_fresh).then_some(stored);
                return Outcome::Miss(Miss { stale, ..miss(fill, content) });
            }
            Lookup::Nothing => return Outcome::Refused(NOTHING_STORED),
            Lookup::Pass => return Outcome::HitForPass,
            Lookup::Wait(..) if options.ignores_busy => search.is_alone = true,
            Lookup::Wait(content, number) => {
                if let Some(outcome) = join(worker, key, fields, options, content, number).await {
                    return outcome;
                }
                search.has_waited = true;
            }
        }
    }
    Outcome::NotShared
}

fn look_up(worker: &Worker, key: &str, fields: &Fields, options: &LookupOptions, is_alone: bool) -> Lookup {
    if is_alone || options.always_misses {
        return worker.cache().start_fetch(key, fields);
    }
    let looked_up = worker.cache().look_up(key, fields, &options.directives, now_ms());
    let is_too_old = match &looked_up {
        Lookup::Hit(stored) | Lookup::Joined(stored) | Lookup::Refresh(stored, _) => {
            options.is_too_old(stored)
        }
        _ => false,
    };
    if !is_too_old {
        return looked_up;
    }
    // Look up again as if the response were stale, so that one request fetches and the others wait.
    // First release the fill for background revalidation.
    drop(looked_up);
    let directives = RequestCacheControl { no_cache: true, ..options.directives };
    worker.cache().look_up(key, fields, &directives, now_ms())
}

/// Waits for the head of another request's fetch. Returns `None` if the look-up must be repeated,
/// because the response is another variant or was purged while in flight, because its fetch was
/// abandoned, or because a policy must check it.
async fn join(
    worker: &Worker,
    key: &str,
    fields: &Fields,
    options: &LookupOptions,
    mut content: Reader<Arc<Head>>,
    number: u64,
) -> Option<Outcome> {
    let found = |found: Found| {
        // Under a policy, another look-up is needed to run `vcl_hit` and check the age.
        (!options.under_policy).then_some(Outcome::Found(found))
    };
    let peek = || worker.cache().peek(key, fields, now_ms());
    match content.head().await {
        // The index now contains a marker, which the next look-up finds.
        Ok(head) if head.private.is_some_and(|private| private.mark.is_of_policy()) => None,
        Ok(head) if head.private.is_some() => Some(Outcome::NotShared),
        Ok(head) if !head.selection.matches(fields) => None,
        Ok(head) if worker.cache().has_purged(key, &head, number) => None,
        Ok(head) if head.freshness.is_fresh(now_ms()) => found(Found::joined_at_head(head, content)),
        // The policy stored the response with a grace period only.
        Ok(_) if options.under_policy => None,
        Ok(_) | Err(Failure::NotShared) => Some(Outcome::NotShared),
        // There is nothing to join: the response is not sliced, or its fetch was abandoned.
        Err(Failure::NotSliced(_) | Failure::Abandoned) => None,
        Err(Failure::Superseded) => match peek().filter(|stored| stored.freshness().is_fresh(now_ms())) {
            Some(stored) => {
                let forwarded = Some(Forwarded::collapsed(Forward::Stale, Some(304)));
                found(Found { forwarded, ..Found::stored(&stored, CacheResult::Hit) })
            }
            None => Some(Outcome::NotShared),
        },
        Err(failure) => match peek().filter(|stored| options.serves_on_error(stored)) {
            Some(stored) => {
                let forwarded = Some(Forwarded::collapsed(Forward::Stale, failure.status()));
                found(Found { forwarded, ..Found::stale_on_error(&stored, &failure) })
            }
            None => {
                let refusal = Refusal::failed(&failure, Forward::Miss);
                Some(Outcome::Refused(Refusal { collapsed: true, ..refusal }))
            }
        },
    }
}
