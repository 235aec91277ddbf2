//! On-demand presentations, indexed on first request.
//!
//! [`library`] caches the indices, [`load`] builds them, [`names`] derives URL names from file
//! names, [`rebase`] makes segments self-contained, [`movie`] builds those of progressive files,
//! [`text`] serves WebVTT files, and [`images`] finds thumbnails. [`join`] plays presentations one
//! after another. This module responds to requests.
//!
//! Header and segment URLs in manifests contain the version of the file (`TRACK/VERSION/TIME.m4s`).
//! The content at such a URL never changes, so caches never mix a file's bytes with those of its
//! replacement. A request for a version that no longer exists gets 404. A URL without a version
//! (`TRACK/TIME.m4s`) serves the current file and must be validated on each use; it is meant for
//! people and scripts.
//!
//! **Invariant:** serving a manifest reads no media, and serving a segment reads only that
//! segment's bytes.

mod images;
pub(crate) mod join;
mod library;
mod load;
mod movie;
mod names;
mod rebase;
mod text;

use bytes::Bytes;
use hyper::{Response, StatusCode, header};
use thalweg_media::presentation::{Kind, NamedTrack};
use thalweg_media::tiles::Format;
use thalweg_media::track::{Media, Segment};
use thalweg_media::{dash, hls, vtt};

use crate::body::{self, Body};
use crate::response::{self, Part, RequestHead, Resource};
use crate::route::Item;
use crate::select;
use crate::storage::StorageError;

pub(crate) use library::{Library, ListingAges};
use load::Source;
pub(crate) use load::{Fault, Presentation, load};
pub(crate) use names::encode;

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
    let selection = match select::parse(request.query.filter(|_| what.is_selective())) {
        Ok(selection) => selection,
        Err(malformed) => return response::text(StatusCode::BAD_REQUEST, malformed),
    };
    let presentation = match library.get(name).await {
        Ok(presentation) => presentation,
        Err(fault @ (Fault::NoTracks { .. } | Fault::Unknown)) => {
            return match join::load(library, name).await {
                Ok(Some(playlist)) => join::respond(request, name, &playlist, &selection, &what),
                Ok(None) => refuse(name, &fault),
                Err(fault) => join::refuse(&fault),
            };
        }
        Err(fault) => return refuse(name, &fault),
    };
    let scope = Scope { library, request, presentation: &presentation, name, version };
    match what {
        Item::Multivariant => match selection.of(presentation.media.renditions()) {
            Ok(renditions) => {
                let mut playlist = hls::multivariant(&renditions);
                hls::images::announce(&mut playlist, presentation.media.tiles());
                manifest(request, HLS, playlist)
            }
            Err(nothing) => not_found(nothing),
        },
        Item::ImagePlaylist { track } => match presentation.tiles(&track) {
            Some((tiles, _)) => manifest(request, HLS, hls::images::on_demand(&presentation.media, tiles)),
            None => no_track(name, &track),
        },
        Item::Image { track, number, format } => scope.image(&track, number, format).await,
        Item::Mpd if selection.is_everything() => {
            manifest(request, DASH, dash::on_demand(&presentation.media))
        }
        Item::Mpd => match presentation.media.select(&selection) {
            Ok(selected) => manifest(request, DASH, dash::on_demand(&selected)),
            Err(nothing) => not_found(nothing),
        },
        Item::MediaPlaylist { track } => match presentation.track(&track) {
            Some((track, _)) => manifest(request, HLS, hls::media::on_demand(track)),
            None => no_track(name, &track),
        },
        Item::IFramePlaylist { track } => match presentation.track(&track) {
            Some((named, _)) => match hls::iframes::on_demand(named) {
                Some(playlist) => manifest(request, HLS, playlist),
                None => not_found(format_args!("the key frames of {name}/{track} are not known")),
            },
            None => no_track(name, &track),
        },
        Item::Header { ref track, .. } | Item::Segment { ref track, .. } | Item::WebVtt { ref track, .. }
            if version.is_some_and(|v| presentation.track(track).is_some_and(|(t, _)| t.version != v)) =>
        {
            gone(name, track)
        }
        Item::Header { ref track, .. } | Item::Segment { ref track, .. }
            if presentation.track(track).is_some_and(|(t, _)| t.index.info.media == Media::WebVtt) =>
        {
            not_found(format_args!("{name}/{track} is a WebVTT file, without header and segments in MP4"))
        }
        Item::Header { track, number: None } => match presentation.track(&track) {
            Some((named, source)) => {
                cut(library, request, named, source, version.is_some(), Piece::Header).await
            }
            None => no_track(name, &track),
        },
        Item::Segment { track, name: time } => match presentation.track(&track) {
            Some((named, source)) => match named.segment_at(time) {
                Some(placed) => {
                    let piece = Piece::Segment(placed.segment);
                    cut(library, request, named, source, version.is_some(), piece).await
                }
                None => not_found(format_args!("no segment of {name}/{track} begins at {time}")),
            },
            None => no_track(name, &track),
        },
        Item::WebVtt { track, time } => scope.text(&track, time).await,
        Item::Header { number: Some(_), .. } => not_found("on-demand headers are named init.mp4"),
    }
}

/// A request for an item of a presentation.
struct Scope<'a> {
    library: &'a Library,
    request: &'a RequestHead<'a>,
    presentation: &'a Presentation,
    /// Name of the presentation.
    name: &'a str,
    version: Option<&'a str>,
}

impl Scope<'_> {
    /// Responds with an image of a set of thumbnails.
    async fn image(&self, set: &str, number: u64, format: Format) -> Response<Body> {
        let Scope { library, request, name, version, .. } = *self;
        let Some((tiles, images)) = self.presentation.tiles(set) else { return no_track(name, set) };
        if version.is_some_and(|version| tiles.version != version) {
            return gone(name, set);
        }
        let at = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
        let object = at.and_then(|at| images.get(at)).filter(|_| tiles.format == format);
        let Some(object) = object else {
            let extension = format.extension();
            return not_found(format_args!("{name}/{set} has no image {number}.{extension}"));
        };
        let cache_control = cache_control(version.is_some());
        text::whole(library, request, object, format.media_type(), cache_control).await
    }

    /// Responds with a WebVTT file or, if `time` is given, with a segment of it.
    async fn text(&self, track: &str, time: Option<u64>) -> Response<Body> {
        let Scope { library, request, name, .. } = *self;
        let Some((named, source)) = self.presentation.track(track) else { return no_track(name, track) };
        let object = &source.object;
        if named.index.info.media != Media::WebVtt {
            return not_found(format_args!("{name}/{track} is not a WebVTT file"));
        }
        let cache_control = cache_control(self.version.is_some());
        let Some(time) = time else {
            return text::whole(library, request, object, text::CONTENT_TYPE, cache_control).await;
        };
        let Some(placed) = named.segment_at(time) else {
            return not_found(format_args!("no segment of {name}/{track} begins at {time}"));
        };
        let start = self.presentation.media.start_in(vtt::MPEG_TIMESCALE);
        let track = text::Track { named, object, start };
        text::segment(library, request, &track, placed, cache_control).await
    }
}

fn cache_control(is_versioned: bool) -> &'static str {
    if is_versioned { VERSION_CACHE_CONTROL } else { MEDIA_CACHE_CONTROL }
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
    source: &Source,
    is_versioned: bool,
    piece: Piece,
) -> Response<Body> {
    let object = &source.object;
    if let Some(movie) = &source.movie {
        let segment = match piece {
            Piece::Header => None,
            Piece::Segment(segment) => Some(segment),
        };
        return movie::respond(library, request, (track, object), movie, is_versioned, segment).await;
    }
    let (offset, size) = match piece {
        Piece::Header => (0, track.index.header_size),
        Piece::Segment(segment) => (segment.offset, segment.size),
    };
    // The rewritten bytes differ from the file's, so the entity tag must differ too.
    let is_rewritten = rebase::is_rewritten(&track.index);
    let form = if is_rewritten { "-moof" } else { "" };
    let resource = Resource {
        content_type: media_type(Kind::of(&track.index.info)),
        cache_control: String::from(cache_control(is_versioned)),
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
    // Messages of remote storage may contain account names and addresses.
    let mut response = match error {
        StorageError::Remote { failure, .. } => {
            response::text(status, format_args!("storage failed: {}", failure.kind.name()))
        }
        error => response::text(status, error),
    };
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

fn gone(name: &str, track: &str) -> Response<Body> {
    let message = format_args!("this version of {name}/{track} no longer exists");
    response::cacheable_text(StatusCode::NOT_FOUND, message, GONE_CACHE_CONTROL)
}

fn no_track(name: &str, track: &str) -> Response<Body> {
    not_found(format_args!("presentation {name} has no track {track}"))
}

fn not_found(message: impl std::fmt::Display) -> Response<Body> {
    response::text(StatusCode::NOT_FOUND, message)
}
