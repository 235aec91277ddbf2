//! What a request is answered with: a response, from wherever it is, or a refusal.

use std::sync::Arc;

use thalweg_cache::fill::Progress;
use thalweg_cache::freshness::Freshness;
use thalweg_cache::{Failure, Head, Reader, Stored};
use thalweg_http::cache_status::{CacheStatus, Forward};
use thalweg_record::CacheResult;

use crate::content::Content;
use crate::slices::{Opened, Sliced};

/// A response to hand on.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) head: Arc<Head>,
    pub(crate) content: Content,
    pub(crate) cache: CacheResult,
    pub(super) freshness: Freshness,
    /// It was fetched for this client, which gets the fields that are for it alone.
    pub(crate) own: bool,
    /// The backend answered this very request: its conditions and range are not ours to apply.
    pub(crate) verbatim: bool,
    /// A policy has made the head all that the client is told.
    pub(crate) told: Option<Told>,
    /// `None` if it is a hit.
    pub(super) forwarded: Option<Forwarded>,
}

/// What a policy has made of a head, beside what is in it.
#[derive(Debug)]
pub(crate) struct Told {
    /// The connection ends with the response.
    pub(crate) closes: bool,
    /// The head as it was.
    pub(crate) before: Arc<Head>,
}

impl Told {
    /// Whether the policy has made this line.
    pub(crate) fn has_made(&self, name: &str, value: &[u8]) -> bool {
        let mut before = self.before.fields.iter().chain(self.before.withheld.iter());
        !before.any(|(known, text)| known.eq_ignore_ascii_case(name) && text == value)
    }
}

/// That a request went to a backend, or waited for one that did, for `Cache-Status` (RFC 9211).
#[derive(Debug, Clone, Copy)]
pub(super) struct Forwarded {
    pub(super) why: Forward,
    /// What the backend answered with, where that is known.
    pub(super) status: Option<u16>,
    /// What it sent is stored.
    pub(super) stored: bool,
    pub(super) collapsed: bool,
}

impl Forwarded {
    pub(super) fn new(why: Forward, status: Option<u16>) -> Self {
        Self { why, status, stored: false, collapsed: false }
    }

    /// Behind somebody else's fetch.
    pub(super) fn collapsed(why: Forward, status: Option<u16>) -> Self {
        Self { collapsed: true, ..Self::new(why, status) }
    }
}

/// A response of our own.
#[derive(Debug, Clone)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    /// What the client is told.
    pub(crate) reason: &'static str,
    pub(crate) forward: Option<Forward>,
    /// What the backend answered with, if it did.
    pub(crate) forward_status: Option<u16>,
    /// It waited for somebody else's fetch.
    pub(crate) collapsed: bool,
}

impl Found {
    pub(super) fn stored(stored: &Stored, cache: CacheResult) -> Self {
        let content = Content::Fill(stored.content.reader(0));
        let freshness = stored.freshness();
        let (own, verbatim, forwarded) = (false, false, None);
        Self { head: stored.head.clone(), content, cache, freshness, own, verbatim, told: None, forwarded }
    }

    /// Stale, because the backend failed (RFC 5861 §4).
    pub(super) fn in_need(stored: &Stored, failure: &Failure) -> Self {
        let forwarded = Some(Forwarded::new(Forward::Stale, failure.status()));
        Self { forwarded, ..Self::stored(stored, CacheResult::Stale) }
    }

    /// Still arriving, for somebody else.
    pub(super) fn joined(stored: &Stored) -> Self {
        let forwarded = Some(Forwarded::collapsed(Forward::Miss, None));
        let cache = if stored.head.is_error() { CacheResult::Error } else { CacheResult::Join };
        Self { forwarded, ..Self::stored(stored, cache) }
    }

    /// Here, for a request that `waited` for somebody else's fetch, or did not. Where that fetch has failed, the error is
    /// its own too.
    pub(super) fn here(stored: &Stored, cache: CacheResult, waited: bool) -> Self {
        if waited && stored.head.is_error() { Self::joined(stored) } else { Self::stored(stored, cache) }
    }

    pub(super) fn fetched(head: Arc<Head>, content: Reader<Arc<Head>>, mut forwarded: Forwarded) -> Self {
        let cache = match head.private {
            _ if head.is_error() => CacheResult::Error,
            Some(_) => CacheResult::Pass,
            None => CacheResult::Miss,
        };
        // It is not what a backend has answered with.
        forwarded.status = forwarded.status.filter(|_| head.made.is_none());
        let (freshness, content) = (head.freshness, Content::Fill(content));
        Self {
            head,
            content,
            cache,
            freshness,
            own: true,
            verbatim: false,
            told: None,
            forwarded: Some(forwarded),
        }
    }

    /// The same, with its content from slices; `opened` is where the first one was found.
    pub(super) fn sliced(self, sliced: Sliced, opened: Option<Opened>) -> Self {
        let (cache, forwarded) = match (self.cache, self.forwarded, opened) {
            // The head is here, or somebody else's content that has not come so far.
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
        Self { content: Content::Sliced(Box::new(sliced)), cache, forwarded, ..self }
    }

    /// `Cache-Status` (RFC 9211).
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

    /// Why it is for one client alone, or no response, in a word.
    pub(crate) fn detail(&self) -> Option<&'static str> {
        let private = self.head.private.map(|private| private.reason);
        if self.head.is_error() { Some("backend-error") } else { private }
    }

    /// How long it may be reused.
    pub(crate) fn freshness(&self) -> &Freshness {
        &self.freshness
    }

    /// Its content failed before any of it was sent.
    pub(crate) fn refusal(&self, failure: &Failure) -> Refusal {
        let refusal = Refusal::failed(failure, self.forwarded.map(|forwarded| forwarded.why));
        let status = self.forwarded.and_then(|forwarded| forwarded.status);
        Refusal {
            forward_status: refusal.forward_status.or(status),
            collapsed: self.forwarded.is_some_and(|forwarded| forwarded.collapsed),
            ..refusal
        }
    }

    /// The age to tell: of what was stored before, or had an age when it came.
    pub(crate) fn age_s(&self, now_ms: u64) -> Option<u64> {
        let age = self.freshness.age_s(now_ms);
        let stored = matches!(self.cache, CacheResult::Hit | CacheResult::Join | CacheResult::Stale);
        (age > 0 || stored).then_some(age)
    }

    /// Content bytes, if their number is known by now.
    pub(crate) fn length(&self) -> Option<u64> {
        match self.content.progress() {
            Progress::Complete(length) if !self.verbatim => Some(length),
            _ => self.head.length,
        }
    }
}

impl Refusal {
    pub(crate) const fn own(status: u16, reason: &'static str) -> Self {
        Self { status, reason, forward: None, forward_status: None, collapsed: false }
    }

    pub(crate) fn failed(failure: &Failure, forward: impl Into<Option<Forward>>) -> Self {
        let (status, reason) = match failure {
            Failure::BackendTimeout(_) => (504, "the backend did not answer in time"),
            Failure::Busy(_) => (503, "too many fetches are under way"),
            Failure::Policy(reason) => (503, *reason),
            Failure::NoRoom => (503, "no room for the response"),
            _ => (502, "no valid answer came from the backend"),
        };
        let (forward, forward_status) = (forward.into(), failure.status());
        Self { status, reason, forward, forward_status, collapsed: false }
    }
}
