//! Slices received from a backend. The first provides the head of the whole response; the others
//! are fetched separately.
//!
//! **Invariant:** a slice is stored only if the backend sent exactly the requested range of the
//! same representation.

use std::ops::Range;

use thalweg_cache::{Failure, Fill, Head, Lookup};
use thalweg_http::cache_control::RequestCacheControl;
use thalweg_http::validators::strong_etag;
use thalweg_http::{Fields, RequestHead, ResponseHead, range};

use super::exchange::Exchange;
use super::outcome::Outcome;
use super::request::{Request, Want};
use crate::clock::now_ms;
use crate::slices::{Representation, SliceRequest, serves_ranges};
use crate::worker::Worker;

/// Amount of a response's content to copy into its fill.
#[derive(Debug)]
pub(super) enum Extent {
    /// All content, and the head to store if the fill is abandoned.
    All(Option<Box<Remainder>>),
    /// Only this many bytes, which form a slice.
    First(u64),
}

/// Evaluates the response for slice `index` of a known representation.
pub(super) fn judge(worker: &Worker, of: &Representation, index: u64, exchange: Exchange) -> Outcome {
    let not_sliced = |reason| Outcome::Failed(Failure::NotSliced(reason));
    let (head, cache) = (&exchange.head, worker.cache());
    let is_same = strong_etag(&head.fields) == Some(&*of.etag);
    match head.status {
        206 if is_same => {}
        200 if is_same => {
            cache.forget_sliced(&of.key, now_ms());
            return not_sliced("the backend does not serve ranges of this content");
        }
        200 | 206 | 404 | 410 | 416 => {
            cache.forget(&of.key, &of.etag);
            return not_sliced("the backend's content has changed");
        }
        status => return Outcome::Failed(Failure::Status(status)),
    }
    if range_of(head) != Some((of.bytes(index), of.length)) {
        cache.forget_sliced(&of.key, now_ms());
        return not_sliced("the backend sent a different range");
    }
    let head = of.slice_head(index, head.status);
    Outcome::Response(exchange, head)
}

/// Starts the fill for the content of `exchange` with `head`. Returns the fill and the amount to
/// copy, or `None` if no content is needed; `fill` has then ended.
pub(super) fn begin(
    worker: &Worker,
    mut fill: Fill,
    request: &Request,
    head: Head,
    exchange: &Exchange,
) -> Option<(Fill, Extent)> {
    match (&request.want, exchange.head.status) {
        (Want::Slice(SliceRequest::Known { of, index }), _) => {
            fill.begin(head, now_ms());
            let bytes = of.bytes(*index);
            return Some((fill, Extent::First(bytes.end - bytes.start)));
        }
        (Want::Slice(SliceRequest::Cold(bytes)), 206) => {
            return begin_cold(worker, fill, bytes, head, &exchange.head);
        }
        (Want::Slice(SliceRequest::Cold(_)), 416) => {
            fill.fail(Failure::NotSliced("the range cannot be satisfied"));
            return None;
        }
        // For a whole response or an error, continue as if no range had been requested.
        _ => {}
    }
    let sliceable = fill
        .key()
        .filter(|_| serves_ranges(&head.fields))
        .and_then(|key| Representation::of(worker, key, &head));
    match sliceable {
        // The content is too large for one fill, so store it in slices, starting with the first.
        Some(of) if of.length > worker.cache().content_bytes_max() => {
            split(worker, fill, &of, head, 0, exchange.head.status)
        }
        sliceable => {
            let is_sliceable = |of: &Representation| of.length > of.slice_bytes;
            let remainder = sliceable.filter(is_sliceable).map(|of| {
                Box::new(Remainder { key: of.key.as_ref().into(), head: head.clone(), length: of.length })
            });
            fill.begin(head, now_ms());
            Some((fill, Extent::All(remainder)))
        }
    }
}

/// Starts the fill for a 206 to the first slice request for an unknown response. `head` is the head
/// of the whole response.
fn begin_cold(
    worker: &Worker,
    fill: Fill,
    bytes: &Range<u64>,
    mut head: Head,
    partial: &ResponseHead,
) -> Option<(Fill, Extent)> {
    let Some(key) = fill.key().map(str::to_owned) else {
        fill.fail(Failure::NotSliced("passed"));
        return None;
    };
    if head.private.is_some() {
        fill.not_shared(&head, now_ms());
        return None;
    }
    head.length = range_of(partial)
        .filter(|(sent, length)| sent.start == bytes.start && sent.end == bytes.end.min(*length))
        .map(|(_, length)| length);
    let Some(of) = Representation::of(worker, &key, &head) else {
        fill.fail(Failure::NotSliced("the backend sent a different range, or one that must not be stored"));
        return None;
    };
    split(worker, fill, &of, head, bytes.start / of.slice_bytes, partial.status)
}

/// Stores `head` as the head of a sliced response. The arriving content, received with `status`,
/// fills slice `index`, unless that slice is already stored or being fetched.
fn split(
    worker: &Worker,
    fill: Fill,
    of: &Representation,
    head: Head,
    index: u64,
    status: u16,
) -> Option<(Fill, Extent)> {
    let (key, directives) = (of.slice_key(index), RequestCacheControl::default());
    let slice = match worker.cache().look_up(&key, &Fields::new(), &directives, now_ms()) {
        Lookup::Miss(mut slice, _) => {
            slice.begin(of.slice_head(index, status), now_ms());
            Some(slice)
        }
        _ => None,
    };
    // Complete the head only now, because the readers waiting for it then look up the slice.
    fill.complete_sliced(head, of.length);
    let bytes = of.bytes(index);
    slice.map(|slice| (slice, Extent::First(bytes.end - bytes.start)))
}

/// The head of an abandoned fill, to be stored so that the next request fetches slices.
#[derive(Debug)]
pub(super) struct Remainder {
    key: String,
    head: Head,
    length: u64,
}

impl Remainder {
    /// Stores the head, unless another fetch has started.
    pub(super) fn store(self, worker: &Worker, request: &RequestHead) {
        let directives = RequestCacheControl::default();
        if let Lookup::Miss(fill, _) =
            worker.cache().look_up(&self.key, &request.fields, &directives, now_ms())
        {
            fill.complete_sliced(self.head, self.length);
        }
    }
}

/// Returns the range and the complete length of a 206.
fn range_of(head: &ResponseHead) -> Option<(Range<u64>, u64)> {
    let content_range = range::parse_content_range(head.fields.get("content-range")?)?;
    Some((content_range.range?, content_range.length?)).filter(|_| head.status == 206)
}
