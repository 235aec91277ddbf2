//! Uploads: DASH-IF Live Media Ingest, interface 1 (a long upload a track) and 2 (objects), by POST and PUT alike.
//!
//! **Invariant:** an upload is read to its end whatever is wrong with it, and then answered. ffmpeg takes a reset for
//! the end of the channel (it exits, or never sends the track again).
//! **Invariant:** what counts is the CMAF that arrives. Borders of HTTP chunks, numbers in names and the source's own
//! manifest say nothing about it.

use std::fmt;
use std::sync::Arc;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderMap};
use hyper::{Method, Request, Response, StatusCode};
use thalweg_media::chunk::{ChunkScanner, Event};
use thalweg_media::error::{Error as MediaError, Fault as MediaFault};

use super::cell::Cell;
use super::channel::Refusal;
use super::naming::{Upload, classify};
use super::{Live, NoChannel};
use crate::answer;
use crate::body::Body;
use crate::clock::now_us;

/// Methods of a publishing point.
pub(crate) const ALLOW: &str = "PUT, POST, DELETE, OPTIONS";
/// Bytes of a source's manifest that are looked at.
const MANIFEST_HEAD_BYTES: usize = 256;
/// Media types that are taken; a source that sends none is taken at the word of its bytes.
const MEDIA_TYPES: [&str; 9] = [
    "video/mp4",
    "audio/mp4",
    "application/mp4",
    "video/iso.segment",
    "application/octet-stream",
    "application/dash+xml",
    "application/vnd.apple.mpegurl",
    "application/x-mpegurl",
    "text/xml",
];

/// What is wrong with an upload.
#[derive(Debug)]
enum Fault {
    Channel(NoChannel),
    Type(String),
    Extension(String),
    Media(MediaError),
    Refused(Refusal),
    /// The path does not say which track it is, and the channel has several.
    WhichTrack,
    NotAManifest,
    /// The connection broke off, or its transfer coding is wrong.
    Transport(hyper::Error),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Channel(NoChannel::Name) => {
                f.write_str("a channel's name has 1 to 64 letters, digits, '.', '_', '~' and '-'")
            }
            Fault::Channel(NoChannel::TooMany) => f.write_str("no room for another channel"),
            Fault::Type(found) => {
                write!(f, "media type {found} is not taken: send CMAF as video/mp4 or audio/mp4")
            }
            Fault::Extension(found) => write!(f, ".{found} is not taken: send CMAF"),
            Fault::Media(error) => error.fmt(f),
            Fault::Refused(refusal) => refusal.fmt(f),
            Fault::WhichTrack => {
                f.write_str("the path does not say which track this is: name uploads TRACK-NUMBER.m4s")
            }
            Fault::NotAManifest => f.write_str("named like a manifest, and is none"),
            Fault::Transport(error) => write!(f, "the upload broke off: {error}"),
        }
    }
}

impl Fault {
    /// Status codes as the specification has them: 415 media type, 412 missing header, else 400.
    fn status(&self) -> StatusCode {
        match self {
            Fault::Channel(NoChannel::Name) => StatusCode::NOT_FOUND,
            Fault::Channel(NoChannel::TooMany) => StatusCode::SERVICE_UNAVAILABLE,
            Fault::Type(_) | Fault::Extension(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Fault::Media(error) => match error.fault {
                MediaFault::NotIsoBmff | MediaFault::UnsupportedCodec(_) => {
                    StatusCode::UNSUPPORTED_MEDIA_TYPE
                }
                MediaFault::MissingHeader => StatusCode::PRECONDITION_FAILED,
                _ => StatusCode::BAD_REQUEST,
            },
            Fault::Refused(_) | Fault::WhichTrack | Fault::NotAManifest | Fault::Transport(_) => {
                StatusCode::BAD_REQUEST
            }
        }
    }
}

/// Takes an upload to `channel` and answers it.
pub(crate) async fn answer(
    live: &Live,
    request: Request<Incoming>,
    channel: &str,
    path: &[String],
) -> Response<Body> {
    match *request.method() {
        Method::PUT | Method::POST => {}
        // Interface 2 deletes what has left the source's window. Ours is our own.
        Method::DELETE => return answer::text(StatusCode::OK, "kept for the window of the channel"),
        Method::OPTIONS => return answer::preflight(ALLOW),
        _ => return answer::method_not_allowed(ALLOW),
    }
    let (head, content) = request.into_parts();
    let mut content = Content { incoming: content };
    let result = match Intake::new(live, channel, path, &head.headers) {
        Ok(mut intake) => intake.run(&mut content).await,
        Err(fault) => Err(fault),
    };
    let Err(fault) = result else { return answer::text(StatusCode::OK, "taken") };
    tracing::warn!(channel, path = path.join("/"), %fault, "upload refused");
    content.drain().await;
    answer::text(fault.status(), fault)
}

/// The content of an upload.
struct Content {
    incoming: Incoming,
}

impl Content {
    /// The next bytes; `None` at the end.
    async fn next(&mut self) -> Result<Option<bytes::Bytes>, Fault> {
        loop {
            match self.incoming.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(Fault::Transport(error)),
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Ok(Some(bytes));
                    }
                }
            }
        }
    }

    /// Reads what is left.
    async fn drain(&mut self) {
        while let Ok(Some(_)) = self.next().await {}
    }
}

/// What is done with an upload.
enum Intake {
    Manifest,
    Media(Box<Media>),
}

/// An upload of CMAF.
struct Media {
    cell: Arc<Cell>,
    /// The track's name, once it is known.
    track: String,
    index: Option<usize>,
    scanner: ChunkScanner,
    /// The upload brought the header itself: it is a whole track, whose end is the track's.
    has_header: bool,
}

impl Intake {
    fn new(live: &Live, channel: &str, path: &[String], fields: &HeaderMap) -> Result<Intake, Fault> {
        check_type(fields)?;
        let track = match classify(path) {
            Upload::Manifest => return Ok(Intake::Manifest),
            Upload::Other(extension) => return Err(Fault::Extension(extension)),
            Upload::Media(track) => track,
        };
        let cell = live.channel_for_ingest(channel).map_err(Fault::Channel)?;
        let track = if track.is_empty() { cell.only_track().unwrap_or_default() } else { track };
        let known = cell.track_info(&track);
        let scanner = match &known {
            Some((_, info)) => ChunkScanner::with_header(info),
            None => ChunkScanner::new(),
        };
        let index = known.map(|(index, _)| index);
        Ok(Intake::Media(Box::new(Media { cell, track, index, scanner, has_header: false })))
    }

    async fn run(&mut self, content: &mut Content) -> Result<(), Fault> {
        match self {
            Intake::Manifest => check_manifest(content).await,
            Intake::Media(media) => {
                let result = media.run(content).await;
                media.end();
                result
            }
        }
    }
}

impl Media {
    async fn run(&mut self, content: &mut Content) -> Result<(), Fault> {
        while let Some(bytes) = content.next().await? {
            self.scanner.push(&bytes);
            self.take_events()?;
        }
        self.scanner.finish().map_err(Fault::Media)
    }

    fn take_events(&mut self) -> Result<(), Fault> {
        while let Some(event) = self.scanner.next_event().map_err(Fault::Media)? {
            match event {
                Event::Header(header) => {
                    if self.track.is_empty() {
                        self.track = format!("track{}", header.info.track_id);
                    }
                    let index =
                        self.cell.header(&self.track, header.bytes, header.info).map_err(Fault::Refused)?;
                    self.index = Some(index);
                    self.has_header = true;
                }
                Event::Chunk(chunk) => {
                    let index = self.index.ok_or(Fault::WhichTrack)?;
                    let outcome = self.cell.chunk(index, chunk.into(), now_us()).map_err(Fault::Refused)?;
                    tracing::trace!(channel = self.cell.name(), track = self.track, ?outcome, "chunk");
                }
            }
        }
        Ok(())
    }

    /// The upload is over, one way or another. A segment that came in objects of its own may go on in the next.
    fn end(&mut self) {
        if let Some(index) = self.index.filter(|_| self.has_header) {
            self.cell.ended(index);
        }
    }
}

fn check_type(fields: &HeaderMap) -> Result<(), Fault> {
    let Some(value) = fields.get(CONTENT_TYPE) else { return Ok(()) };
    let value = String::from_utf8_lossy(value.as_bytes());
    let essence = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if essence.is_empty() || MEDIA_TYPES.contains(&essence.as_str()) || essence == "application/xml" {
        return Ok(());
    }
    Err(Fault::Type(essence))
}

/// The source's own manifest is not used; that it looks like one tells a misnamed upload.
async fn check_manifest(content: &mut Content) -> Result<(), Fault> {
    let mut head = Vec::new();
    while let Some(bytes) = content.next().await? {
        let room = MANIFEST_HEAD_BYTES - head.len();
        head.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
    let text = String::from_utf8_lossy(&head);
    let text = text.trim_start_matches('\u{feff}').trim_start();
    let looks_right = ["<?xml", "<MPD", "#EXTM3U"].iter().any(|start| text.starts_with(start));
    if looks_right { Ok(()) } else { Err(Fault::NotAManifest) }
}
