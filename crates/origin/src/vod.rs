//! On-demand presentations, indexed on first request.
//!
//! [`library`] caches the indices, [`load`] builds them, [`names`] derives URL names from file
//! names, and [`rebase`] makes segments self-contained. This module responds to requests.
//!
//! Header and segment URLs in manifests contain the version of the file (`TRACK/VERSION/TIME.m4s`).
//! The content at such a URL never changes, so caches never mix a file's bytes with those of its
//! replacement. A request for a version that no longer exists gets 404. A URL without a version
//! (`TRACK/TIME.m4s`) serves the current file and must be validated on each use; it is meant for
//! people and scripts.
//!
//! **Invariant:** serving a manifest reads no media, and serving a segment reads only that
//! segment's bytes.

mod library;
mod load;
mod names;
mod rebase;

use bytes::Bytes;
use hyper::{Response, StatusCode, header};
use thalweg_media::presentation::{Kind, NamedTrack};
use thalweg_media::track::Segment;
use thalweg_media::{dash, hls};

use crate::body::{self, Body};
use crate::response::{self, Part, RequestHead, Resource};
use crate::route::Item;
use crate::storage::{Object, StorageError};

pub(crate) use library::{Library, ListingAges};
pub(crate) use load::Fault;

/// `Cache-Control` of manifests. The lifetime is short because a manifest changes with the files in
/// its directory; the ETag makes validation cheap.
const MANIFEST_CACHE_CONTROL: &str = "public, max-age=10";
/// `Cache-Control` of headers and segments whose URL contains the version: immutable (RFC 8246).
const VERSION_CACHE_CONTROL: &str = "public, max-age=31536000, immutable";
/// `Cache-Control` of headers and segments whose URL has no version: stored, but validated before
/// each use.
const MEDIA_CACHE_CONTROL: &str = "public, no-cache";
/// `Cache-Control` of a 404 for a missing version. It is short because the version exists again if
/// its file is restored.
const GONE_CACHE_CONTROL: &str = "public, max-age=2";

const HLS: &str = "application/vnd.apple.mpegurl";
const DASH: &str = "application/dash+xml";

/// Responds to a GET or HEAD request for an item of presentation `name`. If `version` is given,
/// only that version of the track's file is served.
pub(crate) async fn respond(
    library: &Library,
    request: &RequestHead<'_>,
    name: &str,
    version: Option<&str>,
    what: Item,
) -> Response<Body> {
    let response = answer(library, request, name, version, what.clone()).await;
    if response.extensions().get::<FileChanged>().is_none() {
        return response;
    }
    library.expire(name).await;
    answer(library, request, name, version, what).await
}

/// Marks a response to a request for a file that changed since it was listed.
#[derive(Debug, Clone, Copy)]
struct FileChanged;

async fn answer(
    library: &Library,
    request: &RequestHead<'_>,
    name: &str,
    version: Option<&str>,
    what: Item,
) -> Response<Body> {
    let presentation = match library.get(name).await {
        Ok(presentation) => presentation,
        Err(fault) => return refuse(name, &fault),
    };
    match what {
        Item::Multivariant => manifest(request, HLS, hls::multivariant(&presentation.media.renditions())),
        Item::Mpd => manifest(request, DASH, dash::on_demand(&presentation.media)),
        Item::MediaPlaylist { track } => match presentation.track(&track) {
            Some((track, _)) => manifest(request, HLS, hls::media::on_demand(track)),
            None => no_track(name, &track),
        },
        Item::Header { ref track, .. } | Item::Segment { ref track, .. }
            if version.is_some_and(|v| presentation.track(track).is_some_and(|(t, _)| t.version != v)) =>
        {
            let message = format_args!("this version of {name}/{track} no longer exists");
            response::cacheable_text(StatusCode::NOT_FOUND, message, GONE_CACHE_CONTROL)
        }
        Item::Header { track, number: None } => match presentation.track(&track) {
            Some((named, object)) => {
                cut(library, request, named, object, version.is_some(), Piece::Header).await
            }
            None => no_track(name, &track),
        },
        Item::Segment { track, name: time } => match presentation.track(&track) {
            Some((named, object)) => match named.segment_at(time) {
                Some(placed) => {
                    let piece = Piece::Segment(placed.segment);
                    cut(library, request, named, object, version.is_some(), piece).await
                }
                None => not_found(format_args!("no segment of {name}/{track} begins at {time}")),
            },
            None => no_track(name, &track),
        },
        Item::Header { number: Some(_), .. } => not_found("on-demand headers are named init.mp4"),
    }
}

/// A part of a track's file that is served on its own.
#[derive(Debug, Clone, Copy)]
enum Piece {
    Header,
    Segment(Segment),
}

/// Responds with a header or segment cut out of a track's file.
async fn cut(
    library: &Library,
    request: &RequestHead<'_>,
    track: &NamedTrack,
    object: &Object,
    is_versioned: bool,
    piece: Piece,
) -> Response<Body> {
    let (offset, size) = match piece {
        Piece::Header => (0, track.index.header_size),
        Piece::Segment(segment) => (segment.offset, segment.size),
    };
    // The rewritten bytes differ from the file's, so the entity tag must differ too.
    let is_rewritten = rebase::is_rewritten(&track.index);
    let form = if is_rewritten { "-moof" } else { "" };
    let resource = Resource {
        content_type: media_type(Kind::of(&track.index.info)),
        cache_control: String::from(if is_versioned { VERSION_CACHE_CONTROL } else { MEDIA_CACHE_CONTROL }),
        etag: Some(format!("\"{}-{offset:x}-{size:x}{form}\"", object.validator)),
        modified_s: Some(crate::clock::unix_s(object.modified)),
        size: Some(size),
    };
    let (mut head, part) = response::head(request, &resource);
    if let Piece::Segment(segment) = piece
        && let Some(time) = track.next_time(&segment)
    {
        head = head.header(header::LINK, format!("<{time}.m4s>; rel=\"next\""));
    }
    let range = match part {
        Part::Nothing => return response::finish(head, body::empty()),
        Part::Whole => 0..size,
        Part::Range(range) => range,
    };
    let wanted = offset + range.start..offset + range.end;
    let opened = async {
        let reader = library.storage().open(object).await.map_err(Fault::Storage)?;
        let patches = match piece {
            Piece::Header => rebase::header_patches(&reader, object, &track.index).await?,
            Piece::Segment(_) if is_rewritten => {
                let segment = offset..offset + size;
                rebase::patches(&reader, object, &track.index, segment, wanted.clone()).await?
            }
            Piece::Segment(_) => Vec::new(),
        };
        let pieces = reader.pieces(wanted.clone()).await.map_err(Fault::Storage)?;
        Ok(body::file(pieces, wanted.start, patches))
    };
    match opened.await {
        Ok(content) => response::finish(head, content),
        Err(Fault::Storage(error)) => unreadable(&error),
        Err(fault) => {
            tracing::error!(%fault, "cannot cut a segment");
            response::text(StatusCode::INTERNAL_SERVER_ERROR, fault)
        }
    }
}

/// Responds to a request for a listed file that cannot be read. If the failure may pass, the client
/// should retry.
fn unreadable(error: &StorageError) -> Response<Body> {
    tracing::error!(%error, "cannot read media");
    let status = match error {
        _ if error.is_temporary() => StatusCode::SERVICE_UNAVAILABLE,
        StorageError::Remote { .. } => StatusCode::BAD_GATEWAY,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let mut response = response::text(status, error);
    if error.is_temporary() {
        response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
    }
    if matches!(error, StorageError::Changed { .. }) {
        response.extensions_mut().insert(FileChanged);
    }
    response
}

/// Returns the segment media type for a media kind (RFC 6381 §3.3).
pub(crate) fn media_type(kind: Kind) -> &'static str {
    match kind {
        Kind::Video => "video/mp4",
        Kind::Audio => "audio/mp4",
        Kind::Text => "application/mp4",
    }
}

fn manifest(request: &RequestHead<'_>, content_type: &'static str, content: String) -> Response<Body> {
    let content = Bytes::from(content);
    let resource = Resource {
        content_type,
        cache_control: String::from(MANIFEST_CACHE_CONTROL),
        etag: Some(response::etag_of(&content)),
        // No Last-Modified: removing a file changes the manifest but none of the remaining files'
        // times.
        modified_s: None,
        size: Some(content.len() as u64),
    };
    response::bytes(request, &resource, &content)
}

fn refuse(name: &str, fault: &Fault) -> Response<Body> {
    match fault {
        Fault::Unknown => not_found(format_args!("no presentation named {name}")),
        Fault::Storage(error) => unreadable(error),
        fault => response::text(StatusCode::INTERNAL_SERVER_ERROR, fault),
    }
}

fn no_track(name: &str, track: &str) -> Response<Body> {
    not_found(format_args!("presentation {name} has no track {track}"))
}

fn not_found(message: impl std::fmt::Display) -> Response<Body> {
    response::text(StatusCode::NOT_FOUND, message)
}
