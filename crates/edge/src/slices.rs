//! Slices: parts of large content, each a fill with its own key, fetched by range request when a
//! response reads it.
//!
//! A response is sliced if its content is too large for one fill, or if a client requests bytes far
//! ahead of the content received so far, so that seeking in a film need not wait for its start. The
//! head is stored without content under the response's own key. It has a freshness lifetime, and is
//! validated and purged like any other stored response. Each slice's key contains the strong entity
//! tag, so a slice never belongs to another representation.
//!
//! This module defines the keys, heads and byte ranges of slices. `fetch::slices` receives them
//! from a backend, and `lookup::sliced` reads them for a response.

use std::fmt::Write;
use std::ops::Range;
use std::sync::Arc;

use thalweg_cache::Head;
use thalweg_cache::freshness::Freshness;
use thalweg_cache::storage::Selection;
use thalweg_http::range::{self, ByteRange};
use thalweg_http::validators::strong_etag;
use thalweg_http::{Fields, Method, RequestHead};

use crate::worker::Worker;

/// A representation whose content can be fetched in slices.
#[derive(Debug, Clone)]
pub(crate) struct Representation {
    /// The response's cache key.
    pub(crate) key: Arc<str>,
    /// The response's strong entity tag.
    pub(crate) etag: Arc<[u8]>,
    /// Length of the whole content in bytes.
    pub(crate) length: u64,
    /// Size in bytes of each slice except the last.
    pub(crate) slice_bytes: u64,
    /// Head stored with each slice, except for the status and the length. It has the response's
    /// fields, so that a ban or tag purge of the response also removes its slices. It never becomes
    /// stale, because the key determines the content.
    head: Arc<Head>,
}

impl Representation {
    /// Creates the representation of a response with this key and head, if it can be sliced.
    pub(crate) fn of(worker: &Worker, key: &str, head: &Head) -> Option<Self> {
        let (length, etag) = (head.length?, strong_etag(&head.fields)?);
        let slice_bytes = slice_bytes(worker)?;
        if head.status != 200 || head.private.is_some() {
            return None;
        }
        let freshness = Freshness { lifetime_ms: u64::MAX, ..Freshness::default() };
        let selection = Selection::default();
        let slice_head =
            Head { withheld: Fields::new(), freshness, selection, sliced: false, ..head.clone() };
        Some(Self { key: key.into(), etag: etag.into(), length, slice_bytes, head: Arc::new(slice_head) })
    }

    /// Returns the byte range of slice `index`.
    pub(crate) fn bytes(&self, index: u64) -> Range<u64> {
        let start = index * self.slice_bytes;
        start..(start + self.slice_bytes).min(self.length)
    }

    /// Derives the key of slice `index` from the response's key. No client can request that key,
    /// because it contains spaces.
    pub(crate) fn slice_key(&self, index: u64) -> String {
        let mut key = format!("{} ", self.key);
        for byte in &*self.etag {
            // An entity tag may contain bytes that are not valid UTF-8.
            let _ = write!(key, "{byte:02x}");
        }
        let _ = write!(key, " {}/{}*{index}", self.length, self.slice_bytes);
        key
    }

    /// Creates the head to store with slice `index`, received with `status`.
    pub(crate) fn slice_head(&self, index: u64, status: u16) -> Head {
        let bytes = self.bytes(index);
        Head { status, length: Some(bytes.end - bytes.start), ..Head::clone(&self.head) }
    }
}

/// A slice to fetch.
#[derive(Debug)]
pub(crate) enum SliceRequest {
    /// A range of a response for which nothing is stored yet.
    Cold(Range<u64>),
    /// Slice `index` of a known representation.
    Known { of: Representation, index: u64 },
}

impl SliceRequest {
    /// Adds the range to `fields` and, for a known representation, the entity tag that must match.
    pub(crate) fn write(&self, fields: &mut Fields) {
        let bytes = match self {
            Self::Cold(bytes) => bytes.clone(),
            Self::Known { of, index } => of.bytes(*index),
        };
        fields.push("Range", format!("bytes={}-{}", bytes.start, bytes.end - 1));
        if let Self::Known { of, .. } = self {
            fields.push("If-Range", &*of.etag);
        }
    }
}

/// Returns the slice to fetch if nothing is stored and the requested range starts more than one
/// slice into the content.
pub(crate) fn cold(worker: &Worker, request: &RequestHead) -> Option<SliceRequest> {
    let slice_bytes = slice_bytes(worker)?;
    let ranges = range::parse(request.fields.get("range").filter(|_| request.method == Method::Get)?)?;
    // The start of a suffix range depends on the length, which is unknown.
    let (ByteRange::FromTo(first, _) | ByteRange::From(first)) = ranges.single()? else { return None };
    if first <= slice_bytes {
        return None;
    }
    let start = first - first % slice_bytes;
    Some(SliceRequest::Cold(start..start.checked_add(slice_bytes)?))
}

/// Returns the slice size in bytes; `None` if slicing is off or a slice would not fit in the cache.
pub(crate) fn slice_bytes(worker: &Worker) -> Option<u64> {
    let bytes = worker.config().slice_bytes;
    (bytes > 0 && bytes <= worker.cache().content_bytes_max()).then_some(bytes)
}

/// Returns whether the backend declares support for byte ranges.
pub(crate) fn serves_ranges(fields: &Fields) -> bool {
    fields.list("accept-ranges").any(|unit| unit.eq_ignore_ascii_case(b"bytes"))
}
