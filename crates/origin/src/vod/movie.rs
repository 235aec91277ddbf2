//! Tracks of progressive files ([`thalweg_media::progressive`]): headers and segments built on
//! request, with the media streamed from the file.
//!
//! A segment's media usually lies in several places, because the tracks of a file are interleaved.
//! **Invariant:** at most one read ([`READ_BYTES_MAX`](thalweg_media::progressive::reads)) of a
//! segment is in memory for each response, and its boxes.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper::{Response, StatusCode};
use thalweg_media::presentation::{Kind, NamedTrack};
use thalweg_media::progressive::SegmentParts;
use thalweg_media::progressive::reads::{Read, reads};
use thalweg_media::track::Segment;

use super::load::{Fault, MovieSource};
use super::{Library, cache_control, media_type, unreadable};
use crate::body::{self, Body, BodyError};
use crate::response::{self, Part, RequestHead, Resource};
use crate::storage::{Object, ObjectReader, StorageError};

/// Responds with the header of a track, or with `segment`.
pub(super) async fn respond(
    library: &Library,
    request: &RequestHead<'_>,
    (named, object): (&NamedTrack, &Object),
    source: &MovieSource,
    is_versioned: bool,
    segment: Option<Segment>,
) -> Response<Body> {
    let track = source.track();
    let (offset, size) = segment.map_or((0, track.header().len() as u64), |s| (s.offset, s.size));
    let (number, version) = (track.number, &named.version);
    let resource = Resource {
        content_type: media_type(Kind::of(&track.index.info)),
        cache_control: String::from(cache_control(is_versioned)),
        etag: Some(format!("\"{}-{version}-{number}-{offset:x}-{size:x}\"", object.validator)),
        modified_s: Some(crate::clock::unix_s(object.modified)),
        size: Some(size),
    };
    let Some(segment) = segment else {
        return response::bytes(request, &resource, &Bytes::copy_from_slice(track.header()));
    };
    let (head, part) = response::head(request, &resource);
    let range = match part {
        Part::Nothing => return response::finish(head, body::empty()),
        Part::Whole => 0..size,
        Part::Range(range) => range,
    };
    let Some(parts) = track.segment(&segment) else {
        return response::text(StatusCode::NOT_FOUND, "no such segment");
    };
    match open(library, object, parts, range).await {
        Ok(content) => response::finish(head, content),
        Err(Fault::Storage(error)) => unreadable(&error),
        Err(fault) => response::text(StatusCode::INTERNAL_SERVER_ERROR, fault),
    }
}

/// Returns the bytes `range` of a segment. The first read has succeeded when this returns, so that
/// a failure of storage is answered with an error status.
async fn open(
    library: &Library,
    object: &Object,
    parts: SegmentParts,
    range: Range<u64>,
) -> Result<Body, Fault> {
    let head_bytes = parts.head.len() as u64;
    let at = |position: u64| usize::try_from(position.min(head_bytes)).expect("a moof fits in memory");
    let head = Bytes::from(parts.head).slice(at(range.start)..at(range.end));
    let mut reads =
        reads(parts.data, range.start.saturating_sub(head_bytes)..range.end.saturating_sub(head_bytes));
    let mut ready: VecDeque<Bytes> = VecDeque::from_iter((!head.is_empty()).then_some(head));
    let reader = library.storage().open(object).await.map_err(Fault::Storage)?;
    if let Some(first) = reads.next() {
        fetch(&reader, &first, &mut ready).await.map_err(Fault::Storage)?;
    }
    let pieces = stream::unfold(Some((reader, reads, ready)), |state| async {
        let (reader, mut reads, mut ready) = state?;
        if ready.is_empty() {
            let read = reads.next()?;
            if let Err(error) = fetch(&reader, &read, &mut ready).await {
                return Some((Err(BodyError::Storage(error)), None));
            }
        }
        let piece = ready.pop_front()?;
        Some((Ok(Frame::data(piece)), Some((reader, reads, ready))))
    });
    Ok(StreamBody::new(pieces).boxed_unsync())
}

/// Performs a read, and appends its needed parts.
async fn fetch(reader: &ObjectReader, read: &Read, ready: &mut VecDeque<Bytes>) -> Result<(), StorageError> {
    let bytes = reader.read(read.offset, read.len).await?;
    ready.extend(read.pieces.iter().map(|piece| bytes.slice(piece.clone())));
    Ok(())
}
