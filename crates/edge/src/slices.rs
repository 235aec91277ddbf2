//! Large content in slices: each is a fill under a key of its own, fetched by range when somebody reads it.
//!
//! A response is sliced where its content is too large to be stored whole, or where somebody asks for bytes far from what
//! has come of it: a seek into a film does not wait for its start. Its head is found under its own key as ever, and is
//! fresh, validated and purged there; of content it has none there. The slices' keys have its strong entity tag in them,
//! so a slice never belongs to another representation, and is good for as long as the head is.
//!
//! **Invariant:** only what a backend sent as exactly this range of exactly this representation becomes a slice.

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

mod fetching;
mod reading;

pub(crate) use fetching::{Left, begin, begin_large};
pub(crate) use reading::{Opened, Sliced};

/// A representation whose content can be had in slices.
#[derive(Debug, Clone)]
struct Representation {
    /// The key of the response.
    key: Arc<str>,
    /// Its strong entity tag.
    etag: Arc<[u8]>,
    /// Bytes of all of it.
    length: u64,
    /// Bytes of each slice but the last.
    slice_bytes: u64,
    /// The head that slices are stored with, but for their length. It has the fields of the response, so that a ban or a
    /// tag takes the slices away with it; it does not age: what is in a slice follows from its key.
    head: Arc<Head>,
}

impl Representation {
    /// Of the response with `head` under `key`, if its head says enough.
    fn of(worker: &Worker, key: &str, head: &Head) -> Option<Self> {
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

    /// The bytes of slice `index`.
    fn bytes(&self, index: u64) -> Range<u64> {
        let start = index * self.slice_bytes;
        start..(start + self.slice_bytes).min(self.length)
    }

    /// The key of slice `index`, derived from that of the response: no client can ask for a key with a space in it.
    fn slice_key(&self, index: u64) -> String {
        let mut key = format!("{} ", self.key);
        for byte in &*self.etag {
            // A tag may have bytes that are no text.
            let _ = write!(key, "{byte:02x}");
        }
        let _ = write!(key, " {}/{}*{index}", self.length, self.slice_bytes);
        key
    }

    /// The head that slice `index` is stored with; it came with `status`.
    fn slice_head(&self, index: u64, status: u16) -> Head {
        let bytes = self.bytes(index);
        Head { status, length: Some(bytes.end - bytes.start), ..Head::clone(&self.head) }
    }
}

/// What a fetch asks for that is to bring a slice.
#[derive(Debug)]
pub(crate) struct Asked {
    bytes: Range<u64>,
    /// The representation that it must belong to; any, if nothing is known of it yet.
    of: Option<Representation>,
}

impl Asked {
    /// The conditions of the request.
    pub(crate) fn write(&self, fields: &mut Fields) {
        fields.push("Range", format!("bytes={}-{}", self.bytes.start, self.bytes.end - 1));
        if let Some(of) = &self.of {
            fields.push("If-Range", &*of.etag);
        }
    }
}

/// The slice to ask for first, where nothing is stored and `request` begins too far in to wait for the start.
pub(crate) fn cold(worker: &Worker, request: &RequestHead) -> Option<Asked> {
    let slice_bytes = slice_bytes(worker)?;
    let ranges = range::parse(request.fields.get("range").filter(|_| request.method == Method::Get)?)?;
    // The end of what is not known is not known.
    let (ByteRange::FromTo(first, _) | ByteRange::From(first)) = ranges.single()? else { return None };
    if first <= slice_bytes {
        return None;
    }
    let start = first - first % slice_bytes;
    Some(Asked { bytes: start..start.checked_add(slice_bytes)?, of: None })
}

fn slice_bytes(worker: &Worker) -> Option<u64> {
    let bytes = worker.config().slice_bytes;
    (bytes > 0 && bytes <= worker.cache().content_bytes_max()).then_some(bytes)
}

fn serves_ranges(fields: &Fields) -> bool {
    fields.list("accept-ranges").any(|unit| unit.eq_ignore_ascii_case(b"bytes"))
}
