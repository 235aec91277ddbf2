//! Key and head of a stored response: all the metadata that the cache keeps.
//!
//! Fills, disk copies, purges and the index build on this module, which depends on none of them.

use std::sync::Arc;

use thalweg_http::Fields;

use crate::freshness::Freshness;
use crate::storage::Selection;

/// A cache key with its hash.
#[derive(Debug, Clone)]
pub(crate) struct Key {
    pub(crate) digest: u64,
    pub(crate) text: Arc<str>,
}

impl Key {
    pub(crate) fn is(&self, digest: u64, text: &str) -> bool {
        self.digest == digest && *self.text == *text
    }

    pub(crate) fn text(&self) -> &Arc<str> {
        &self.text
    }
}

/// A response's head as the cache stores it, with the caching decisions derived from it.
#[derive(Debug, Clone)]
pub struct Head {
    /// Status code.
    pub status: u16,
    /// The reason phrase, if it is not the usual one for the status.
    pub reason: Option<Arc<str>>,
    /// End-to-end fields, without `Content-Length` and `Age`.
    pub fields: Fields,
    /// Fields only for the client whose request caused the fetch.
    pub withheld: Fields,
    /// Fields only for this cache, never sent to a client: `Surrogate-Key`.
    pub surrogate: Fields,
    /// Content length in bytes, if the head states it.
    pub length: Option<u64>,
    /// How long the response may be reused.
    pub freshness: Freshness,
    /// Request fields that select this response.
    pub selection: Selection,
    /// Why the response may not be shared; `None` if it may.
    pub private: Option<Unshareable>,
    /// Whether the content is stored in slices, each under its own key.
    pub sliced: bool,
    /// Why a policy generated the response; `None` if a backend sent it. The disk tier does not
    /// store this value.
    pub made: Option<SynthReason>,
}

impl Head {
    /// Creates a shareable head of unknown length, as sent by a backend.
    pub fn new(status: u16, fields: Fields, freshness: Freshness) -> Self {
        Self {
            status,
            reason: None,
            fields,
            withheld: Fields::new(),
            surrogate: Fields::new(),
            length: None,
            freshness,
            selection: Selection::default(),
            private: None,
            sliced: false,
            made: None,
        }
    }

    /// Returns why the response may not be shared; `None` if it may. A response that no request
    /// selects (`Vary: *`) is never shareable.
    pub(crate) fn why_private(&self) -> Option<Unshareable> {
        let unmatchable = || Unshareable { reason: "vary", mark: PassMark::Moment };
        self.private.or_else(|| self.selection.is_unmatchable().then(unmatchable))
    }

    /// Returns whether the response was generated because the fetch failed.
    pub fn is_error(&self) -> bool {
        self.made == Some(SynthReason::Failed)
    }
}

/// Why a policy generated a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SynthReason {
    /// The fetch failed.
    Failed,
    /// The policy chose to generate the response.
    Chosen,
}

/// Reason why a response is for one client only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unshareable {
    /// One-word reason for `Cache-Status`.
    pub reason: &'static str,
    /// Expectation for the next response under the same key.
    pub mark: PassMark,
}

/// Expectation for the next response under a key whose last response was for one client only. It
/// applies to requests with the same selection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PassMark {
    /// No expectation.
    No,
    /// The next response is not expected to be shareable either. Requests for any variant are
    /// passed for `store::PASS_MARK_MS`, but stored responses are still served.
    Moment,
    /// A policy verdict: requests are passed (hit-for-pass). Stored responses selected by those
    /// requests are removed.
    Pass {
        /// When the verdict expires, in Unix milliseconds.
        until_ms: u64,
    },
    /// A policy verdict: each request fetches separately, and a shareable response is stored
    /// (hit-for-miss). Stored responses selected by those requests are removed.
    Miss {
        /// When the verdict expires, in Unix milliseconds.
        until_ms: u64,
    },
}

impl PassMark {
    /// Returns whether this is a policy verdict.
    pub fn is_of_policy(self) -> bool {
        matches!(self, Self::Pass { .. } | Self::Miss { .. })
    }
}
