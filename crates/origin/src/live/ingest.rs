//! Uploads: DASH-IF Live Media Ingest, interface 1 (a long upload a track) and 2 (objects), by POST and PUT alike.
//!
//! **Invariant:** an upload is read to its end whatever is wrong with it, and then answered. ffmpeg takes a reset for
//! the end of the channel (it exits, or never sends the track again).
//! **Invariant:** what counts is the CMAF that arrives. Borders of HTTP chunks, numbers in names and the source's own
//! manifest say nothing about it.

mod fault;
mod media;

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderMap};
use hyper::{Method, Request, Response, StatusCode};
use tokio::time::timeout;

use super::Live;
use super::naming::{Upload, classify};
use crate::answer;
use crate::body::Body;
use fault::Fault;
use media::{Media, Names};

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
    let mut content = Content { incoming: content, idle_max: live.uploads.idle_max };
    let result = match Intake::new(live, channel, path, &head.headers) {
        Ok(intake) => intake.run(&mut content).await,
        Err(fault) => Err(fault),
    };
    let Err(fault) = result else { return answer::text(StatusCode::OK, "taken") };
    tracing::warn!(channel, path = path.join("/"), %fault, "upload refused");
    if !matches!(fault, Fault::Idle(_)) {
        content.drain().await;
    }
    answer::text(fault.status(), fault)
}

/// The content of an upload.
struct Content {
    incoming: Incoming,
    /// [`UploadLimits::idle_max`](crate::config::UploadLimits::idle_max).
    idle_max: Duration,
}

impl Content {
    /// The next bytes; `None` at the end.
    async fn next(&mut self) -> Result<Option<Bytes>, Fault> {
        loop {
            let frame = timeout(self.idle_max, self.incoming.frame()).await;
            match frame.map_err(|_| Fault::Idle(self.idle_max))? {
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

impl<'a> Intake<'a> {
    fn new(
        live: &'a Live,
        channel: &'a str,
        path: &[String],
        fields: &HeaderMap,
    ) -> Result<Intake<'a>, Fault> {
        live.channel_of_upload(channel).map_err(Fault::Channel)?;
        check_type(fields)?;
        match classify(path) {
            Upload::Manifest => Ok(Intake::Manifest),
            Upload::Other(extension) => Err(Fault::Extension(extension)),
            Upload::Media { track, long } => {
                Ok(Intake::Media(Box::new(Media::new(live, channel, Names { track, long }))))
            }
        }
    }

    async fn run(self, content: &mut Content) -> Result<(), Fault> {
        match self {
            Intake::Manifest => check_manifest(content).await,
            Intake::Media(mut media) => media.run(content).await,
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
