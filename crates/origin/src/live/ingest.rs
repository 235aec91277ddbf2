//! Live uploads by POST or PUT: DASH-IF Live Media Ingest interface 1 (one long upload per track)
//! and interface 2 (one upload per object).
//!
//! **Invariant:** an authorised upload is read to its end, even if invalid, before the response is
//! sent. ffmpeg treats a reset as the end of the channel: it exits, or never sends the track again.
//! **Invariant:** only the received CMAF determines a channel; HTTP chunk boundaries, numbers in
//! names and the source's own manifest are ignored.
//! **Invariant:** uploads are published only on the ingest listener and after [`permit::check`].

mod fault;
mod media;
pub(crate) mod permit;

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, EXPECT, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use hyper::{Method, Request, Response, StatusCode};
use tokio::time::timeout;

use super::Live;
use super::naming::{Upload, classify};
use crate::body::Body;
use crate::metrics::Metrics;
use crate::response;
use fault::Fault;
use media::{Media, Names};
use permit::Denied;

/// Methods allowed on a publishing point.
pub(crate) const ALLOW: &str = "PUT, POST, DELETE, OPTIONS";
/// How long an unauthorised upload is read, so that its source receives the response rather than a
/// reset.
const DENIED_READ_MAX: Duration = Duration::from_secs(1);
/// Bytes inspected at the start of a source's manifest.
const MANIFEST_HEAD_BYTES: usize = 256;
/// Accepted media types. An upload without a media type is identified by its content.
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

/// Accepts an upload to `channel` and responds to it.
pub(crate) async fn respond(
    live: &Live,
    metrics: &Metrics,
    request: Request<Incoming>,
    channel: &str,
    path: &[String],
) -> Response<Body> {
    match *request.method() {
        Method::PUT | Method::POST => {}
        // Sources using interface 2 delete objects that have left their window, but the channel
        // keeps its own window.
        Method::DELETE => {
            return response::text(StatusCode::OK, "ignored: segments remain until they leave the window");
        }
        Method::OPTIONS => return response::preflight(ALLOW),
        _ => return response::method_not_allowed(ALLOW),
    }
    let (head, content) = request.into_parts();
    let _upload = metrics.upload();
    let mut content = Content::new(content, live, metrics);
    let result = match Intake::new(live, channel, path, &head.headers) {
        Ok(intake) => intake.run(&mut content).await,
        Err(fault) => Err(fault),
    };
    let Err(fault) = result else { return response::text(StatusCode::OK, "accepted") };
    tracing::warn!(channel, path = path.join("/"), %fault, "upload refused");
    if !matches!(fault, Fault::Idle(_)) {
        content.drain().await;
    }
    response::text(fault.status(), fault)
}

/// Responds to a request that is not allowed to publish.
pub(crate) async fn deny(
    live: &Live,
    metrics: &Metrics,
    request: Request<Incoming>,
    denied: Denied,
) -> Response<Body> {
    let (head, content) = request.into_parts();
    tracing::warn!(path = head.uri.path(), %denied, "upload denied");
    // A source that waits for `100 Continue` sends no content unless it receives one.
    if !head.headers.contains_key(EXPECT) {
        let _ = timeout(DENIED_READ_MAX, Content::new(content, live, metrics).drain()).await;
    }
    let mut response = response::text(denied.status(), denied);
    for challenge in denied.challenges() {
        response.headers_mut().append(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
    }
    response
}

/// The content of an upload.
struct Content<'a> {
    incoming: Incoming,
    /// [`UploadLimits::idle_max`](crate::config::UploadLimits::idle_max).
    idle_max: Duration,
    metrics: &'a Metrics,
}

impl<'a> Content<'a> {
    fn new(incoming: Incoming, live: &Live, metrics: &'a Metrics) -> Content<'a> {
        Content { incoming, idle_max: live.uploads.idle_max, metrics }
    }

    /// Reads the next bytes; `None` at the end.
    async fn next(&mut self) -> Result<Option<Bytes>, Fault> {
        loop {
            let frame = timeout(self.idle_max, self.incoming.frame()).await;
            match frame.map_err(|_| Fault::Idle(self.idle_max))? {
                None => return Ok(None),
                Some(Err(error)) => return Err(Fault::Transport(error)),
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        self.metrics.upload_bytes.inc_by(bytes.len() as u64);
                        return Ok(Some(bytes));
                    }
                }
            }
        }
    }

    /// Reads and discards the rest of the content.
    async fn drain(&mut self) {
        while let Ok(Some(_)) = self.next().await {}
    }
}

/// How an upload is processed.
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

    async fn run(self, content: &mut Content<'_>) -> Result<(), Fault> {
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

/// Checks that an upload named as a manifest starts like one, to catch misnamed uploads. The
/// manifest itself is not used.
async fn check_manifest(content: &mut Content<'_>) -> Result<(), Fault> {
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
