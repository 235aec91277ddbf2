//! Uploads: DASH-IF Live Media Ingest, interface 1 (a long upload a track) and 2 (objects), by POST and PUT alike.
//!
//! **Invariant:** an upload is read to its end whatever is wrong with it, and then answered. ffmpeg takes a reset for
//! the end of the channel (it exits, or never sends the track again).
//! **Invariant:** what counts is the CMAF that arrives. Borders of HTTP chunks, numbers in names and the source's own
//! manifest say nothing about it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderMap};
use hyper::{Method, Request, Response, StatusCode};
use thalweg_media::chunk::{ChunkScanner, Event, Header};
use thalweg_media::error::{Error as MediaError, Fault as MediaFault};

use tokio::time::timeout;

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
/// An upload that brings no byte for so long has lost its source: its track is free for another.
const UPLOAD_IDLE: Duration = Duration::from_secs(60);
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
    /// [`UPLOAD_IDLE`].
    Idle,
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
            Fault::Idle => write!(f, "no byte of the upload came for {} s", UPLOAD_IDLE.as_secs()),
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
            Fault::Idle => StatusCode::REQUEST_TIMEOUT,
            Fault::Refused(Refusal::Busy { .. }) => StatusCode::CONFLICT,
            Fault::Refused(Refusal::NoRoom) => StatusCode::SERVICE_UNAVAILABLE,
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
    if !matches!(fault, Fault::Idle) {
        content.drain().await;
    }
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
            match timeout(UPLOAD_IDLE, self.incoming.frame()).await.map_err(|_| Fault::Idle)? {
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
enum Intake<'a> {
    Manifest,
    Media(Box<Media<'a>>),
}

/// An upload of CMAF.
struct Media<'a> {
    live: &'a Live,
    channel: &'a str,
    /// `None` until a header came, where there was no such channel before.
    cell: Option<Arc<Cell>>,
    /// What the path says of the track's name.
    names: Names,
    index: Option<usize>,
    scanner: ChunkScanner,
    /// A header that is not known to be that of a whole track or an object of its own.
    held: Option<Header>,
    /// The upload brought the header itself.
    has_header: bool,
    /// It brought a chunk.
    has_media: bool,
}

struct Names {
    /// If the upload is an object, a header or a segment.
    track: String,
    /// If it is the whole track.
    long: String,
}

impl Names {
    /// Nothing has to be known of the upload to name its track; sources leave a header's upload open for long.
    fn agree(&self) -> bool {
        self.track == self.long
    }
}

impl<'a> Intake<'a> {
    fn new(
        live: &'a Live,
        channel: &'a str,
        path: &[String],
        fields: &HeaderMap,
    ) -> Result<Intake<'a>, Fault> {
        let cell = live.channel_of_upload(channel).map_err(Fault::Channel)?;
        check_type(fields)?;
        let mut names = match classify(path) {
            Upload::Manifest => return Ok(Intake::Manifest),
            Upload::Other(extension) => return Err(Fault::Extension(extension)),
            Upload::Media { track, long } => Names { track, long },
        };
        if names.track.is_empty() {
            names.track = cell.as_ref().and_then(|c| c.only_track()).unwrap_or_default();
        }
        let known = cell.as_ref().and_then(|c| c.track_info(&names.track));
        let scanner = match &known {
            Some((_, info)) => ChunkScanner::with_header(info),
            None => ChunkScanner::new(),
        };
        let index = known.map(|(index, _)| index);
        let (held, has_header, has_media) = (None, false, false);
        let media = Media { live, channel, cell, names, index, scanner, held, has_header, has_media };
        Ok(Intake::Media(Box::new(media)))
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

impl Media<'_> {
    async fn run(&mut self, content: &mut Content) -> Result<(), Fault> {
        while let Some(bytes) = content.next().await? {
            self.scanner.push(&bytes);
            self.take_events()?;
        }
        self.scanner.finish().map_err(Fault::Media)?;
        match self.held.take() {
            Some(header) => self.take_header(header),
            None => Ok(()),
        }
    }

    fn take_events(&mut self) -> Result<(), Fault> {
        while let Some(event) = self.scanner.next_event().map_err(Fault::Media)? {
            match event {
                Event::Header(header) if self.has_header || self.names.agree() => self.take_header(header)?,
                Event::Header(header) => self.held = Some(header),
                Event::Chunk(chunk) => {
                    self.has_media = true;
                    if let Some(header) = self.held.take() {
                        self.take_header(header)?;
                    }
                    let (Some(cell), Some(index)) = (&self.cell, self.index) else {
                        return Err(Fault::WhichTrack);
                    };
                    let outcome = cell.chunk(index, chunk.into(), now_us()).map_err(Fault::Refused)?;
                    tracing::trace!(channel = self.channel, index, ?outcome, "chunk");
                }
            }
        }
        Ok(())
    }

    /// A header, once it is known whether media follow it.
    fn take_header(&mut self, header: Header) -> Result<(), Fault> {
        let cell = match &self.cell {
            Some(cell) => cell,
            None => self.cell.insert(self.live.channel_for_header(self.channel).map_err(Fault::Channel)?),
        };
        let name = if self.has_media { &self.names.long } else { &self.names.track };
        let numbered = format!("track{}", header.info.track_id);
        let name = if name.is_empty() { &numbered } else { name };
        let taken = cell.header(name, header.bytes, header.info, self.has_header, now_us());
        self.index = Some(taken.map_err(Fault::Refused)?);
        self.has_header = true;
        Ok(())
    }

    /// The upload is over, one way or another. A segment that came in objects of its own may go on in the next.
    fn end(&mut self) {
        if let (Some(cell), Some(index), true) = (&self.cell, self.index, self.has_header) {
            cell.closed(index, self.has_media);
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
