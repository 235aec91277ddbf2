//! A stored response: head, content, use count for eviction, and purge state.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use thalweg_http::Fields;
use thalweg_http::validators::has_validator;

use crate::entry::{Head, Key};
use crate::eviction::Frequency;
use crate::fill::{FillBuffer, Progress};
use crate::freshness::Freshness;
use crate::purge::{Position, PurgeState, Purges};
use crate::storage::made_s;

/// Approximate index bytes of a stored response, excluding its key and fields.
pub(crate) const STORED_BYTES: usize = 512;

/// Content of a response, with its head.
pub type Content = FillBuffer<Arc<Head>>;

/// A stored response. Its content may still be arriving.
#[derive(Debug)]
pub struct Stored {
    /// The head as of its last validation.
    pub head: Arc<Head>,
    /// The content, with its head as of the fill.
    pub content: Arc<Content>,
    key: Key,
    pub(crate) frequency: Frequency,
    pub(crate) purge_state: PurgeState,
    /// Number of hits, for policies.
    hits: AtomicU64,
}

impl Stored {
    pub(crate) fn new(
        key: Key,
        head: Arc<Head>,
        content: Arc<Content>,
        purge_state: PurgeState,
    ) -> Arc<Self> {
        let (frequency, hits) = (Frequency::default(), AtomicU64::new(0));
        Arc::new(Self { head, content, key, frequency, purge_state, hits })
    }

    /// Returns the freshness of the head, shortened by any soft purge.
    pub fn freshness(&self) -> Freshness {
        let freshness = self.head.freshness;
        self.purge_state.stale_ms().map_or(freshness, |since_ms| freshness.stale_from(since_ms))
    }

    /// Returns the number of the newest purge before the fetch started.
    pub fn number(&self) -> u64 {
        self.purge_state.number()
    }

    pub(crate) fn is_spared(&self, purges: &Purges, request: Option<&Fields>) -> bool {
        purges.spares(&self.key.text, &self.head, &self.purge_state, request)
    }

    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    /// Creates a stored response with the same content under another head.
    pub(crate) fn with_head(&self, head: Head, purge_state: PurgeState) -> Arc<Self> {
        let (content, key, frequency) = (self.content.clone(), self.key.clone(), Frequency::default());
        let hits = AtomicU64::new(self.hits.load(Relaxed));
        Arc::new(Self { head: Arc::new(head), content, key, purge_state, frequency, hits })
    }

    pub(crate) fn made_s(&self) -> u64 {
        made_s(&self.head.fields)
    }

    /// Counts a hit and returns the total.
    pub fn count_hit(&self) -> u64 {
        self.hits.fetch_add(1, Relaxed) + 1
    }

    pub(crate) fn note_use(&self) -> Progress {
        self.frequency.used();
        if self.head.sliced
            && let Some(copy) = self.content.copy()
        {
            copy.used();
        }
        self.content.progress()
    }

    /// Returns whether the content is complete. A fill in progress may still fail.
    pub fn is_complete(&self) -> bool {
        matches!(self.content.progress(), Progress::Complete(_))
    }

    /// Returns whether the backend can validate the response. Returns false for an error response:
    /// it should not persist, and its validator may belong to the response that it replaces.
    pub fn has_validator(&self) -> bool {
        self.head.status < 400 && has_validator(&self.head.fields)
    }

    /// Returns the response's size in the index, excluding its content, in bytes.
    pub(crate) fn index_bytes(&self) -> usize {
        STORED_BYTES
            + self.key.text.len()
            + self.head.reason.as_deref().map_or(0, str::len)
            + self.head.fields.text_len()
            + self.head.withheld.text_len()
            + self.head.surrogate.text_len()
            + self.head.selection.bytes()
    }

    /// Returns the response's position in the purge sequence.
    pub(crate) fn position(&self) -> Position {
        self.purge_state.position()
    }

    /// Returns the number of content bytes, excluding slices; `None` until the content is complete.
    pub(crate) fn own_bytes(&self) -> Option<u64> {
        match self.content.progress() {
            Progress::Complete(length) => Some(if self.head.sliced { 0 } else { length }),
            _ => None,
        }
    }

    /// Queues the removal of the response's disk copy, if any.
    pub(crate) fn discard_copy(&self) {
        self.content.copy().iter().for_each(|copy| copy.discard());
    }

    /// Records a soft purge in the disk copy, if any.
    pub(crate) fn tell_disk(&self) {
        if self.purge_state.stale_ms().is_some()
            && let Some(copy) = self.content.copy()
        {
            copy.update_position(&self.head, self.purge_state.position());
        }
    }
}
