//! WebVTT files: as a whole for DASH, and cut into segments for HLS.
//!
//! **Invariant:** a segment reads the file's header and the byte range of its cues, both bounded by
//! [`VTT_BYTES_MAX`](thalweg_media::vtt::VTT_BYTES_MAX).

use bytes::Bytes;
use hyper::Response;
use thalweg_media::presentation::{NamedTrack, Placed};
use thalweg_media::vtt;

use super::library::Library;
use super::unreadable;
use crate::body::{self, Body};
use crate::response::{self, Part, RequestHead, Resource};
use crate::storage::{Object, StorageError};

/// The charset is stated because the default of text/* is not UTF-8 everywhere.
pub(super) const CONTENT_TYPE: &str = "text/vtt; charset=utf-8";

/// A WebVTT file of a presentation.
pub(super) struct Track<'a> {
    pub(super) named: &'a NamedTrack,
    pub(super) object: &'a Object,
    /// Start of the presentation as an MPEG-2 timestamp.
    pub(super) start: u64,
}

/// Responds with a whole file.
pub(super) async fn whole(
    library: &Library,
    request: &RequestHead<'_>,
    object: &Object,
    content_type: &'static str,
    cache_control: &str,
) -> Response<Body> {
    let resource = Resource { content_type, ..resource(object, cache_control, "", object.size) };
    let (head, part) = response::head(request, &resource);
    let range = match part {
        Part::Nothing => return response::finish(head, body::empty()),
        Part::Whole => 0..object.size,
        Part::Range(range) => range,
    };
    let opened = async { library.storage().open(object).await?.pieces(range.clone()).await };
    match opened.await {
        Ok(pieces) => response::finish(head, body::file(pieces, range.start, Vec::new())),
        Err(error) => unreadable(&error),
    }
}

/// Responds with a segment of the file.
pub(super) async fn segment(
    library: &Library,
    request: &RequestHead<'_>,
    track: &Track<'_>,
    placed: Placed,
    cache_control: &str,
) -> Response<Body> {
    let content = match cut(library, track, placed).await {
        Ok(content) => content,
        Err(error) => return unreadable(&error),
    };
    let form = format!("-{:x}-{:x}", placed.time, track.start);
    let resource = resource(track.object, cache_control, &form, content.len() as u64);
    response::bytes(request, &resource, &content)
}

async fn cut(library: &Library, track: &Track<'_>, placed: Placed) -> Result<Bytes, StorageError> {
    let reader = library.storage().open(track.object).await?;
    let header = reader.read(0, track.named.index.header_size).await?;
    let cues = match placed.segment.size {
        0 => Bytes::new(),
        size => reader.read(placed.segment.offset, size).await?,
    };
    let times_ms = placed.time..placed.time + placed.duration;
    Ok(vtt::segment(&header, &cues, &times_ms, track.start).into())
}

fn resource(object: &Object, cache_control: &str, form: &str, size: u64) -> Resource {
    Resource {
        content_type: CONTENT_TYPE,
        cache_control: String::from(cache_control),
        etag: Some(format!("\"{}{form}\"", object.validator)),
        modified_s: Some(crate::clock::unix_s(object.modified)),
        size: Some(size),
    }
}
