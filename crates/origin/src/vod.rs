//! On demand: presentations in storage, indexed when they are first asked for.
//!
//! [`library`] keeps the indices, [`load`] makes them, [`names`] makes URLs of file names; here is what requests
//! get of them.
//!
//! Manifests name headers and segments with the version of their file (`TRACK/VERSION/TIME.m4s`), so what stands at
//! such a URL never changes and no cache mixes the bytes of a file with those of the one that replaced it; the version
//! of a file that is gone is 404. Without it (`TRACK/TIME.m4s`) the file's content of now is there, to be validated
//! each time it is used: for people and scripts.
//!
//! **Invariant:** nothing of the media is read to answer for a manifest, and of a segment only its own bytes.

mod library;
mod load;
mod names;
mod rebase;

use bytes::Bytes;
use hyper::{Response, StatusCode, header};
use thalweg_media::presentation::{Kind, NamedTrack};
use thalweg_media::track::Segment;
use thalweg_media::{dash, hls};

use crate::answer::{self, Asked, Part, Resource};
use crate::body::{self, Body};
use crate::route::Item;
use crate::storage::{Object, StorageError};

pub(crate) use library::Library;
pub(crate) use load::Fault;

/// How long manifests may be kept. They change when a file in the directory does, so it is short; their ETag makes
/// asking again cheap.
const MANIFEST_CACHE_CONTROL: &str = "public, max-age=10";
/// How long headers and segments may be kept whose URL has the version: for good (RFC 8246).
const VERSION_CACHE_CONTROL: &str = "public, max-age=31536000, immutable";
/// The same without the version: kept, but never used unasked.
const MEDIA_CACHE_CONTROL: &str = "public, no-cache";
/// How long it is believed that a version is not there: it may come back with its file.
const GONE_CACHE_CONTROL: &str = "public, max-age=2";

const HLS: &str = "application/vnd.apple.mpegurl";
const DASH: &str = "application/dash+xml";

/// The answer to a GET or HEAD of something of presentation `name`; with `version`, of that version of the track's
/// file.
pub(crate) async fn answer(
    library: &Library,
    asked: &Asked<'_>,
    name: &str,
    version: Option<&str>,
    what: Item,
) -> Response<Body> {
    let presentation = match library.get(name).await {
        Ok(presentation) => presentation,
        Err(fault) => return refuse(name, &fault),
    };
    match what {
        Item::Multivariant => manifest(asked, HLS, hls::multivariant(&presentation.media.renditions())),
        Item::Mpd => manifest(asked, DASH, dash::on_demand(&presentation.media)),
        Item::MediaPlaylist { track } => match presentation.track(&track) {
            Some((track, _)) => manifest(asked, HLS, hls::media::on_demand(track)),
            None => no_track(name, &track),
        },
        Item::Header { ref track, .. } | Item::Segment { ref track, .. }
            if version.is_some_and(|v| presentation.track(track).is_some_and(|(t, _)| t.version != v)) =>
        {
            let words = format_args!("this version of {name}/{track} is no longer there");
            answer::words_kept(StatusCode::NOT_FOUND, words, GONE_CACHE_CONTROL)
        }
        Item::Header { track, number: None } => match presentation.track(&track) {
            Some((named, object)) => {
                cut(library, asked, named, object, version.is_some(), Piece::Header).await
            }
            None => no_track(name, &track),
        },
        Item::Segment { track, name: time } => match presentation.track(&track) {
            Some((named, object)) => match named.segment_at(time) {
                Some(placed) => {
                    let piece = Piece::Segment(placed.segment);
                    cut(library, asked, named, object, version.is_some(), piece).await
                }
                None => missing(format_args!("no segment of {name}/{track} begins at {time}")),
            },
            None => no_track(name, &track),
        },
        Item::Header { number: Some(_), .. } => missing("on demand a header is init.mp4"),
    }
}

/// What is cut out of a track's file.
#[derive(Debug, Clone, Copy)]
enum Piece {
    Header,
    Segment(Segment),
}

/// A piece of a file as a representation of its own.
async fn cut(
    library: &Library,
    asked: &Asked<'_>,
    track: &NamedTrack,
    object: &Object,
    is_versioned: bool,
    piece: Piece,
) -> Response<Body> {
    let (offset, size, rebased) = match piece {
        Piece::Header => (0, track.index.header_size, false),
        Piece::Segment(segment) => (segment.offset, segment.size, track.index.has_base_data_offset),
    };
    // What is sent is not what the file has: another tag than the file's own bytes had.
    let form = if rebased { "-moof" } else { "" };
    let resource = Resource {
        content_type: media_type(Kind::of(&track.index.info)),
        cache_control: String::from(if is_versioned { VERSION_CACHE_CONTROL } else { MEDIA_CACHE_CONTROL }),
        etag: Some(format!("\"{}-{offset:x}-{size:x}{form}\"", object.validator)),
        modified_s: Some(crate::clock::unix_s(object.modified)),
        size: Some(size),
    };
    let (head, part) = answer::head(asked, &resource);
    let range = match part {
        Part::Nothing => return answer::finish(head, body::empty()),
        Part::Whole => 0..size,
        Part::Range(range) => range,
    };
    let wanted = offset + range.start..offset + range.end;
    let opened = async {
        let reader = library.storage().open(object).await.map_err(Fault::Storage)?;
        let patches = match rebased {
            true => rebase::patches(&reader, object, offset..offset + size, wanted.clone()).await?,
            false => Vec::new(),
        };
        Ok(body::file(reader, wanted.clone(), patches))
    };
    match opened.await {
        Ok(content) => answer::finish(head, content),
        Err(Fault::Storage(error)) => unreadable(&error),
        Err(fault) => {
            tracing::error!(%fault, "cannot cut a segment");
            answer::text(StatusCode::INTERNAL_SERVER_ERROR, fault)
        }
    }
}

/// Storage does not give what it listed. A file that was replaced a moment ago will be indexed again shortly.
fn unreadable(error: &StorageError) -> Response<Body> {
    tracing::error!(%error, "cannot read media");
    let changed = matches!(error, StorageError::Changed { .. });
    let status = if changed { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::INTERNAL_SERVER_ERROR };
    let mut answer = answer::text(status, error);
    if changed {
        answer.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
    }
    answer
}

/// RFC 6381 §3.3 names the media type of a segment after the kind of media in it.
pub(crate) fn media_type(kind: Kind) -> &'static str {
    match kind {
        Kind::Video => "video/mp4",
        Kind::Audio => "audio/mp4",
        Kind::Text => "application/mp4",
    }
}

fn manifest(asked: &Asked<'_>, content_type: &'static str, content: String) -> Response<Body> {
    let content = Bytes::from(content);
    let resource = Resource {
        content_type,
        cache_control: String::from(MANIFEST_CACHE_CONTROL),
        etag: Some(answer::etag_of(&content)),
        // A time of the files would stay when one of them is taken away.
        modified_s: None,
        size: Some(content.len() as u64),
    };
    answer::bytes(asked, &resource, &content)
}

fn refuse(name: &str, fault: &Fault) -> Response<Body> {
    match fault {
        Fault::Unknown => missing(format_args!("no presentation is called {name}")),
        Fault::Storage(error) => unreadable(error),
        fault => answer::text(StatusCode::INTERNAL_SERVER_ERROR, fault),
    }
}

fn no_track(name: &str, track: &str) -> Response<Body> {
    missing(format_args!("presentation {name} has no track {track}"))
}

fn missing(words: impl std::fmt::Display) -> Response<Body> {
    answer::text(StatusCode::NOT_FOUND, words)
}
