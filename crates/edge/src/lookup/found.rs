//! Response found for a request, whether stored, joined or fetched.

use std::sync::Arc;

use thalweg_cache::fill::Progress;
use thalweg_cache::freshness::Freshness;
use thalweg_cache::{Failure, Head, Reader, Stored};
use thalweg_http::cache_status::{CacheStatus, Forward};
use thalweg_record::CacheResult;

use super::Content;
use super::sliced::{Opened, Sliced};
use crate::refusal::Refusal;

/// A response found for a request, with its content.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) head: Arc<Head>,
    pub(crate) content: Content,
    pub(crate) cache: CacheResult,
    /// Freshness, for `Age` and `Cache-Status`.
    pub(crate) freshness: Freshness,
    /// Whether the response was fetched for this client, which then also receives the withheld
    /// fields.
    pub(crate) is_fetcher: bool,
    /// Whether the backend responded to this very request and has thus applied its conditions and
    /// ranges.
    pub(crate) is_passed: bool,
    /// Set once a policy has written the head, which is then sent to the client unchanged.
    pub(crate) by_policy: Option<MadeByPolicy>,
    /// How the request was forwarded; `None` for a hit.
    pub(crate) forwarded: Option<Forwarded>,
}

/// A policy's decisions about a response, other than the new head.
#[derive(Debug)]
pub(crate) struct MadeByPolicy {
    /// Whether the connection closes after the response.
    pub(crate) closes: bool,
    /// The head before the policy changed it.
    pub(crate) before: Arc<Head>,
}

impl MadeByPolicy {
    /// Returns whether the policy wrote this field line, by adding or changing it.
    pub(crate) fn wrote(&self, name: &str, value: &[u8]) -> bool {
        let mut before = self.before.fields.iter().chain(self.before.withheld.iter());
        !before.any(|(known, text)| known.eq_ignore_ascii_case(name) && text == value)
    }
}

/// How a request was forwarded to a backend or collapsed, for `Cache-Status` (RFC 9211).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Forwarded {
    pub(crate) why: Forward,
    /// The backend's status, if known.
    pub(crate) status: Option<u16>,
    /// Whether the response was stored.
    pub(crate) stored: bool,
    pub(crate) collapsed: bool,
}

impl Forwarded {
    pub(crate) fn new(why: Forward, status: Option<u16>) -> Self {
        Self { why, status, stored: false, collapsed: false }
    }

    /// Describes a request that was collapsed onto another request's fetch.
    pub(crate) fn collapsed(why: Forward, status: Option<u16>) -> Self {
        Self { collapsed: true, ..Self::new(why, status) }
    }
}

impl Found {
    pub(crate) fn stored(stored: &Stored, cache: CacheResult) -> Self {
        let content = Content::Fill(stored.content.reader(0));
        let freshness = stored.freshness();
        Self {
            head: stored.head.clone(),
            content,
            cache,
            freshness,
            is_fetcher: false,
            is_passed: false,
            by_policy: None,
            forwarded: None,
        }
    }

    /// Serves a stale response because the backend failed (RFC 5861 §4).
    pub(crate) fn stale_on_error(stored: &Stored, failure: &Failure) -> Self {
        let forwarded = Some(Forwarded::new(Forward::Stale, failure.status()));
        Self { forwarded, ..Self::stored(stored, CacheResult::Stale) }
    }

    /// Joins a response that another request's fetch is still receiving.
    pub(crate) fn joined(stored: &Stored) -> Self {
        let forwarded = Some(Forwarded::collapsed(Forward::Miss, None));
        let cache = if stored.head.is_error() { CacheResult::Error } else { CacheResult::Join };
        Self { forwarded, ..Self::stored(stored, cache) }
    }

    /// Serves a hit. If the request has waited for another request's fetch and that fetch failed,
    /// it gets the same error.
    pub(crate) fn hit(stored: &Stored, cache: CacheResult, has_waited: bool) -> Self {
        if cache == CacheResult::Join || has_waited && stored.head.is_error() {
            Self::joined(stored)
        } else {
            Self::stored(stored, cache)
        }
    }

    /// Joins another request's fetch after its head has arrived.
    pub(crate) fn joined_at_head(head: Arc<Head>, content: Reader<Arc<Head>>) -> Self {
        let forwarded = Forwarded::collapsed(Forward::Miss, None);
        Self { cache: CacheResult::Join, is_fetcher: false, ..Self::fetched(head, content, forwarded) }
    }

    /// Serves a response fetched for this client only.
    pub(crate) fn passed(head: Arc<Head>, content: Reader<Arc<Head>>, forwarded: Forwarded) -> Self {
        let cache = if head.is_error() { CacheResult::Error } else { CacheResult::Pass };
        Self { cache, is_passed: true, ..Self::fetched(head, content, forwarded) }
    }

    pub(crate) fn fetched(head: Arc<Head>, content: Reader<Arc<Head>>, mut forwarded: Forwarded) -> Self {
        let cache = match head.private {
            _ if head.is_error() => CacheResult::Error,
            Some(_) => CacheResult::Pass,
            None => CacheResult::Miss,
        };
        // A status generated by the edge is not the backend's.
        forwarded.status = forwarded.status.filter(|_| head.made.is_none());
        let (freshness, content) = (head.freshness, Content::Fill(content));
        Self {
            head,
            content,
            cache,
            freshness,
            is_fetcher: true,
            is_passed: false,
            by_policy: None,
            forwarded: Some(forwarded),
        }
    }

    /// Switches the content to slices; `opened` is the outcome for the first slice.
    pub(crate) fn read_from_slices(&mut self, sliced: Sliced, opened: Option<Opened>) {
        let (cache, forwarded) = match (self.cache, self.forwarded, opened) {
            // The head was stored, or the joined content has not reached the first slice yet.
            (_, None, Some(opened)) | (CacheResult::Join, _, Some(opened)) => match opened.cache {
                CacheResult::Hit if self.cache == CacheResult::Join => (CacheResult::Hit, None),
                CacheResult::Hit => (self.cache, None),
                CacheResult::Join => (opened.cache, Some(Forwarded::collapsed(Forward::Partial, None))),
                fetched => {
                    let partial = Forwarded::new(Forward::Partial, Some(opened.status));
                    (fetched, Some(Forwarded { stored: opened.stored, ..partial }))
                }
            },
            (CacheResult::Miss, Some(forwarded), Some(opened)) if opened.cache == CacheResult::Miss => {
                (self.cache, Some(Forwarded { status: Some(opened.status), ..forwarded }))
            }
            (cache, forwarded, _) => (cache, forwarded),
        };
        (self.content, self.cache, self.forwarded) = (Content::Sliced(Box::new(sliced)), cache, forwarded);
    }

    /// Returns the `Cache-Status` of the response (RFC 9211).
    pub(crate) fn status(&self, now_ms: u64) -> CacheStatus<'_> {
        let forwarded = self.forwarded;
        CacheStatus {
            hit: forwarded.is_none(),
            forward: forwarded.map(|forwarded| forwarded.why),
            forward_status: forwarded.and_then(|forwarded| forwarded.status),
            ttl_s: self.head.private.is_none().then(|| self.freshness.ttl_s(now_ms)),
            stored: forwarded.is_some_and(|forwarded| forwarded.stored),
            collapsed: forwarded.is_some_and(|forwarded| forwarded.collapsed),
            key: None,
            detail: self.detail(),
        }
    }

    /// Returns a short reason why the response is an error or is not shared with other clients.
    pub(crate) fn detail(&self) -> Option<&'static str> {
        let private = self.head.private.map(|private| private.reason);
        if self.head.is_error() { Some("backend-error") } else { private }
    }

    /// Returns the refusal to send if the content fails before any of it is sent.
    pub(crate) fn refusal(&self, failure: &Failure) -> Refusal {
        let refusal = Refusal::failed(failure, self.forwarded.map(|forwarded| forwarded.why));
        let status = self.forwarded.and_then(|forwarded| forwarded.status);
        Refusal {
            forward_status: refusal.forward_status.or(status),
            collapsed: self.forwarded.is_some_and(|forwarded| forwarded.collapsed),
            ..refusal
        }
    }

    /// Returns the `Age` in seconds, if the response was stored earlier or received with an age.
    pub(crate) fn age_s(&self, now_ms: u64) -> Option<u64> {
        let age = self.freshness.age_s(now_ms);
        let stored = matches!(self.cache, CacheResult::Hit | CacheResult::Join | CacheResult::Stale);
        (age > 0 || stored).then_some(age)
    }

    /// Returns the content length in bytes, if known yet.
    pub(crate) fn length(&self) -> Option<u64> {
        match self.content.progress() {
            Progress::Complete(length) if !self.is_passed => Some(length),
            _ => self.head.length,
        }
    }
}
