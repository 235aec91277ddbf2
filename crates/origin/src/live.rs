//! Live channels: written by ingest, read by requests.
//!
//! [`channel`] is the state machine, [`cell`] stores the bytes and wakes waiting requests, and
//! [`ingest`] reads uploads. [`naming`] determines an upload's track, [`queue`] orders uploads
//! waiting for their header, and [`budget`] bounds the memory of incomplete chunks. This module
//! responds to requests.
//!
//! **Invariant:** a request slightly ahead of the source waits for its segment, up to a time limit,
//! so that players need not poll.
//! **Invariant:** a chunk can be read as soon as it is complete.

mod budget;
mod cell;
pub(crate) mod channel;
pub(crate) mod ingest;
mod naming;
mod queue;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hyper::{Response, StatusCode, header};
use thalweg_cache::Arena;
use thalweg_cache::arena::SLAB_BYTES;
use thalweg_media::presentation::live::Live as Model;
use thalweg_media::presentation::select::Selection;
use thalweg_media::presentation::utc::Utc;
use thalweg_media::{dash, hls};
use tokio::time::timeout;

use crate::body::{self, Body};
use crate::clock::now_us;
use crate::config::{Config, UploadLimits};
use crate::response::{self, Part, RequestHead, Resource};
use crate::route::Item;
use crate::select;
use crate::vod::media_type;
use budget::Budget;
use cell::{Cell, FoundSegment};
use channel::Settings;
use queue::Queue;

/// Interval between checks for stalled sources and for segments that have left the window. It does
/// not delay requests, which arriving chunks wake at once.
const TICK: Duration = Duration::from_millis(500);
/// Maximum length of a channel name, in bytes.
const CHANNEL_NAME_BYTES_MAX: usize = 64;

const HLS: &str = "application/vnd.apple.mpegurl";
const DASH: &str = "application/dash+xml";

/// All channels of an origin.
#[derive(Debug)]
pub(crate) struct Live {
    settings: Settings,
    channels_max: usize,
    arena: Arc<Arena>,
    channels: Mutex<BTreeMap<String, Arc<Cell>>>,
    uploads: UploadLimits,
    /// Memory used by incomplete chunks.
    held_back: Budget,
    /// Uploads waiting for their track's header.
    waiting: Queue,
}

/// Memory use, and number of channels.
#[derive(Debug)]
pub(crate) struct Usage {
    pub(crate) channels: u64,
    /// Bytes of stored segments.
    pub(crate) memory_bytes: u64,
    pub(crate) memory_bytes_max: u64,
    /// Bytes of incomplete chunks.
    pub(crate) held_bytes: u64,
}

/// Reasons why a channel cannot be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChannelError {
    /// The name is empty, too long, or contains characters other than letters, digits, `.`, `_`,
    /// `~` and `-`.
    Name,
    /// The configured maximum number of channels is reached.
    TooMany,
}

impl Live {
    pub(crate) fn new(config: &Config) -> std::io::Result<Live> {
        let ms = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
        let settings = Settings {
            segment_target_ms: u32::try_from(ms(config.segment_target)).unwrap_or(u32::MAX),
            window_ms: ms(config.window),
        };
        Ok(Live {
            settings,
            channels_max: config.channels_max,
            arena: Arena::new(config.live_memory_bytes)?,
            channels: Mutex::default(),
            uploads: config.uploads.clone(),
            held_back: Budget::new(config.uploads.held_back_bytes_max),
            waiting: Queue::default(),
        })
    }

    /// Returns the channel to which an upload belongs; `None` if it does not exist yet. Returns an
    /// error if the name is invalid.
    pub(crate) fn channel_of_upload(&self, name: &str) -> Result<Option<Arc<Cell>>, ChannelError> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"._~-".contains(&b);
        if name.is_empty() || name.len() > CHANNEL_NAME_BYTES_MAX || !name.bytes().all(allowed) {
            return Err(ChannelError::Name);
        }
        Ok(self.lock().get(name).cloned())
    }

    /// Returns the channel for a received CMAF header, creating it if necessary. `name` must have
    /// been validated.
    pub(crate) fn channel_for_header(&self, name: &str) -> Result<Arc<Cell>, ChannelError> {
        let mut channels = self.lock();
        if channels.len() >= self.channels_max && !channels.contains_key(name) {
            return Err(ChannelError::TooMany);
        }
        let new = || Arc::new(Cell::new(name, self.settings, self.arena.clone()));
        Ok(channels.entry(name.to_owned()).or_insert_with(new).clone())
    }

    /// Lists the playable channels with their start times.
    pub(crate) fn published(&self) -> Vec<(String, Utc)> {
        let cells: Vec<_> = self.lock().values().cloned().collect();
        let now = now_us();
        let playing = cells.iter().filter(|c| !c.is_over(now));
        playing.filter_map(|c| Some((c.name().to_owned(), c.since()?))).collect()
    }

    pub(crate) fn usage(&self) -> Usage {
        Usage {
            channels: self.lock().len() as u64,
            memory_bytes: self.arena.live_bytes() as u64,
            memory_bytes_max: (self.arena.slabs_max() * SLAB_BYTES) as u64,
            held_bytes: self.held_back.held(),
        }
    }

    /// Periodically ends stalled segments and drops ended channels; never returns.
    pub(crate) async fn run_maintenance(&self) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let cells: Vec<_> = self.lock().values().cloned().collect();
            for cell in cells {
                cell.tick(now_us());
            }
            self.drop_ended(now_us());
        }
    }

    /// Drops ended channels. A channel still used by an upload or a request is checked again on the
    /// next tick. No user can be added during the check, because that requires the lock.
    fn drop_ended(&self, now: i64) {
        self.lock().retain(|_, cell| Arc::strong_count(cell) > 1 || !cell.is_over(now));
    }

    /// Responds to a GET or HEAD request for an item of `channel`.
    pub(crate) async fn respond(
        &self,
        request: &RequestHead<'_>,
        channel: &str,
        what: Item,
    ) -> Response<Body> {
        let Some(cell) = self.channel(channel).filter(|cell| !cell.is_over(now_us())) else {
            return not_found(format_args!("no channel named {channel}"));
        };
        let selection = match select::parse(request.query.filter(|_| what.is_selective())) {
            Ok(selection) => selection,
            Err(malformed) => return response::text(StatusCode::BAD_REQUEST, malformed),
        };
        match what {
            Item::Mpd => self.mpd(request, &cell, &selection).await,
            Item::Multivariant => self.multivariant(request, &cell, &selection).await,
            Item::MediaPlaylist { track } => self.media_playlist(request, &cell, &track).await,
            Item::Header { track, number: Some(number) } => self.header(request, &cell, &track, number).await,
            Item::Segment { track, name } => self.segment(request, &cell, &track, name).await,
            Item::IFramePlaylist { .. } => not_found("a channel has no I-frame playlists"),
            Item::WebVtt { .. } => not_found("a channel has no WebVTT files"),
            Item::ImagePlaylist { .. } | Item::Image { .. } => not_found("a channel has no thumbnails"),
            Item::Header { number: None, .. } => not_found("live headers are named init-NUMBER.mp4"),
        }
    }

    async fn mpd(&self, request: &RequestHead<'_>, cell: &Cell, selection: &Selection) -> Response<Body> {
        let Some(model) = self.model(cell, |_| true).await else { return no_segment_yet(cell) };
        match model.select(selection) {
            Ok(model) => manifest(request, DASH, 1, dash::live(&model)),
            Err(nothing) => not_found(nothing),
        }
    }

    async fn multivariant(
        &self,
        request: &RequestHead<'_>,
        cell: &Cell,
        selection: &Selection,
    ) -> Response<Body> {
        let model = self.model(cell, |model| model.current().is_some()).await;
        match model.map(|model| model.select(selection)) {
            Some(Err(nothing)) => not_found(nothing),
            Some(Ok(model)) => match model.current() {
                Some(epoch) => manifest(request, HLS, 1, hls::multivariant_live(epoch)),
                None => no_segment_yet(cell),
            },
            None => no_segment_yet(cell),
        }
    }

    /// Waits for the first complete segment before responding, because players cannot use a
    /// playlist without one.
    async fn media_playlist(&self, request: &RequestHead<'_>, cell: &Cell, track: &str) -> Response<Body> {
        // A segment removed from the playlist must stay available for the playlist's duration (RFC
        // 8216bis §6.2.2).
        let depth_us = self.settings.window_ms * 1000 / 2;
        let ready = |model: &Model| {
            let known = model.epochs.iter().any(|e| e.track(track).is_some());
            let any = model.epochs.iter().filter_map(|e| e.track(track)).any(|t| !t.segments.is_empty());
            any || !known
        };
        let Some(model) = self.model(cell, ready).await else { return no_segment_yet(cell) };
        match hls::media::live(&model, track, depth_us) {
            Some(playlist) => manifest(request, HLS, (model.target_duration_s / 2).max(1), playlist),
            None => not_found(format_args!("channel {} has no track {track}", cell.name())),
        }
    }

    /// Returns a copy of the channel's model; `None` if the model is not ready within the time
    /// limit. Manifests are written from the copy, outside the channel's lock.
    async fn model(&self, cell: &Cell, ready: impl Fn(&Model) -> bool) -> Option<Model> {
        timeout(wait_limit(cell), cell.wait_for(|state| state.model().filter(&ready))).await.ok()
    }

    async fn header(
        &self,
        request: &RequestHead<'_>,
        cell: &Cell,
        track: &str,
        number: u64,
    ) -> Response<Body> {
        let found = timeout(wait_limit(cell), cell.wait_for(|state| state.header(track, number))).await;
        let Some((kind, bytes)) = found.ok().flatten() else {
            return not_found(format_args!("channel {} has no header {number} of {track}", cell.name()));
        };
        let resource = Resource {
            content_type: media_type(kind),
            cache_control: self.media_cache_control(),
            etag: Some(response::etag_of(&bytes)),
            modified_s: None,
            size: Some(bytes.len() as u64),
        };
        response::bytes(request, &resource, &bytes)
    }

    async fn segment(
        &self,
        request: &RequestHead<'_>,
        cell: &Cell,
        track: &str,
        number: u64,
    ) -> Response<Body> {
        let found =
            timeout(wait_limit(cell), cell.wait_for(|state| state.segment(track, number, now_us()))).await;
        let Ok(FoundSegment::Available { kind, buffer, etag }) = found else {
            return not_found(format_args!("channel {} has no segment {number} of {track}", cell.name()));
        };
        let size = match buffer.progress() {
            thalweg_cache::fill::Progress::Complete(size) => Some(size),
            _ => None,
        };
        let resource = Resource {
            content_type: media_type(kind),
            cache_control: self.media_cache_control(),
            etag: size.map(|size| format!("\"{etag}-{size:x}\"")),
            modified_s: None,
            size,
        };
        let (head, part) = response::head(request, &resource);
        let content = match part {
            Part::Whole => body::fill(buffer.reader(0), None),
            Part::Range(range) => body::fill(buffer.reader(range.start), Some(range.end - range.start)),
            Part::Nothing => body::empty(),
        };
        response::finish(head, content)
    }

    /// Returns the `Cache-Control` value of segments. Segment names are never reused, so caches may
    /// store a segment for as long as it can be requested.
    fn media_cache_control(&self) -> String {
        format!("public, max-age={}, immutable", (self.settings.window_ms / 1000).max(1))
    }

    fn channel(&self, name: &str) -> Option<Arc<Cell>> {
        self.lock().get(name).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Cell>>> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the maximum time a request waits for an item about to appear: one and a half segment
/// durations.
fn wait_limit(cell: &Cell) -> Duration {
    Duration::from_millis(cell.segment_ms() * 3 / 2)
}

/// Responds with a manifest that caches may store for `max_age_s` seconds.
fn manifest(
    request: &RequestHead<'_>,
    content_type: &'static str,
    max_age_s: u64,
    content: String,
) -> Response<Body> {
    let content = Bytes::from(content);
    let resource = Resource {
        content_type,
        cache_control: format!("public, max-age={max_age_s}, s-maxage={max_age_s}"),
        etag: Some(response::etag_of(&content)),
        modified_s: None,
        size: Some(content.len() as u64),
    };
    response::bytes(request, &resource, &content)
}

fn no_segment_yet(cell: &Cell) -> Response<Body> {
    let message = format_args!("channel {} has no complete segment yet", cell.name());
    let mut response = response::text(StatusCode::SERVICE_UNAVAILABLE, message);
    response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
    response
}

fn not_found(message: impl std::fmt::Display) -> Response<Body> {
    response::text(StatusCode::NOT_FOUND, message)
}
