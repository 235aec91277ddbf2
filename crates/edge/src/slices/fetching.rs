//! Slices as a backend brings them: the first with the head of the whole, others by themselves.

use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

use thalweg_cache::{Failure, Fill, Head, Lookup};
use thalweg_http::cache_control::RequestCacheControl;
use thalweg_http::validators::strong_etag;
use thalweg_http::{Fields, RequestHead, ResponseHead, range};

use super::{Asked, Representation, serves_ranges};
use crate::backend::Route;
use crate::exchange::Exchange;
use crate::worker::Worker;
use crate::{fetch, now_ms};

/// The first answer of a backend that was asked for a slice before anything was known: 206 with what was asked for.
/// `head` is the head of the whole that it tells of. Whatever happens, `fill` ends.
pub(crate) async fn begin(
    worker: &Arc<Worker>,
    fill: Fill,
    asked: &Asked,
    mut head: Head,
    mut exchange: Exchange,
) {
    let Some(key) = fill.key().map(str::to_owned) else { return fill.fail(Failure::NotSliced("passed")) };
    if head.private.is_some() {
        return fill.not_shared(&head, now_ms());
    }
    let length = range_of(&exchange.head)
        .filter(|(bytes, length)| {
            bytes.start == asked.bytes.start && bytes.end == asked.bytes.end.min(*length)
        })
        .map(|(_, length)| length);
    head.length = length;
    let Some(of) = Representation::of(worker, &key, &head) else {
        return fill.fail(Failure::NotSliced("the range is another, or may not be stored"));
    };
    split(worker, fill, &of, head, asked.bytes.start / of.slice_bytes, &mut exchange).await;
    worker.finish(exchange);
}

/// The head of content that is too large to be stored whole: from here on it is fetched in slices, of which what comes now
/// is the first. Gives all back if it cannot be had so.
pub(crate) async fn begin_large(
    worker: &Arc<Worker>,
    fill: Fill,
    head: Head,
    exchange: &mut Exchange,
) -> Option<(Fill, Head)> {
    let is_large = head.length.is_some_and(|length| length > worker.cache().content_bytes_max());
    let of = fill.key().filter(|_| is_large && serves_ranges(&head.fields));
    match of.and_then(|key| Representation::of(worker, key, &head)) {
        Some(of) => {
            split(worker, fill, &of, head, 0, exchange).await;
            None
        }
        None => Some((fill, head)),
    }
}

/// What is left of a fill that nobody reads any more: the head, for what is asked for next to be had in slices.
#[derive(Debug)]
pub(crate) struct Left {
    key: String,
    head: Head,
    length: u64,
}

impl Left {
    /// Of a fill whose head has come, if its content can be had in slices.
    pub(crate) fn of(worker: &Worker, fill: &Fill, head: &Head) -> Option<Self> {
        let key = fill.key()?;
        let of = Representation::of(worker, key, head).filter(|_| serves_ranges(&head.fields))?;
        (of.length > of.slice_bytes).then(|| Self { key: key.into(), head: head.clone(), length: of.length })
    }

    /// Stores it, unless somebody has begun anew.
    pub(crate) fn keep(self, worker: &Worker, request: &RequestHead) {
        let asked = RequestCacheControl::default();
        if let Lookup::Miss(fill, _) = worker.cache().look_up(&self.key, &request.fields, &asked, now_ms()) {
            fill.complete_sliced(self.head, self.length);
        }
    }
}

/// Stores `head` as one whose content is in slices, and slice `index` from what comes now.
async fn split(
    worker: &Arc<Worker>,
    fill: Fill,
    of: &Representation,
    head: Head,
    index: u64,
    exchange: &mut Exchange,
) {
    let slice = match worker.cache().look_up(
        &of.slice_key(index),
        &Fields::new(),
        &RequestCacheControl::default(),
        now_ms(),
    ) {
        Lookup::Miss(mut slice, _) => {
            slice.begin(of.slice_head(index, exchange.head.status), now_ms());
            Some(slice)
        }
        // It is there already, or somebody is about it.
        _ => None,
    };
    // Who is told of the head goes on to the slice: it must be found by then.
    fill.complete_sliced(head, of.length);
    if let Some(slice) = slice {
        let bytes = of.bytes(index);
        fetch::copy_first(exchange, slice, bytes.end - bytes.start).await;
    }
}

/// Fetches slice `index` into `fill`. Whatever happens, the fill ends.
pub(super) async fn fetch_slice(
    worker: Arc<Worker>,
    mut fill: Fill,
    (request, route): (RequestHead, Route),
    of: Representation,
    index: u64,
    client: IpAddr,
) {
    let bytes = of.bytes(index);
    let asked = Asked { bytes: bytes.clone(), of: Some(of.clone()) };
    let mut wanted = fetch::Request::slice(&request, asked);
    wanted.route = route;
    let mut exchange = match fetch::start(&worker, &mut wanted, client).await {
        Ok(exchange) => exchange,
        Err(failure) => return fill.fail(failure),
    };
    let head = &exchange.head;
    let is_same = strong_etag(&head.fields) == Some(&*of.etag);
    match head.status {
        206 if is_same => {}
        200 if is_same => {
            worker.cache().forget_sliced(&of.key, now_ms());
            return fill.fail(Failure::NotSliced("the backend serves no ranges of it"));
        }
        200 | 206 | 404 | 410 | 416 => {
            worker.cache().forget(&of.key, &of.etag);
            return fill.fail(Failure::NotSliced("the content at the backend has changed"));
        }
        status => return fill.fail(Failure::Status(status)),
    }
    if range_of(head) != Some((bytes.clone(), of.length)) {
        worker.cache().forget_sliced(&of.key, now_ms());
        return fill.fail(Failure::NotSliced("the backend gave another range"));
    }
    fill.begin(of.slice_head(index, head.status), now_ms());
    fetch::copy_first(&mut exchange, fill, bytes.end - bytes.start).await;
    worker.finish(exchange);
}

/// The range that a 206 holds, and the length of the whole.
fn range_of(head: &ResponseHead) -> Option<(Range<u64>, u64)> {
    let told = range::parse_content_range(head.fields.get("content-range")?)?;
    Some((told.range?, told.length?)).filter(|_| head.status == 206)
}
