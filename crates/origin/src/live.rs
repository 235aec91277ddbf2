//! Live channels: what ingest puts in, what requests get out.
//!
//! [`channel`] decides, [`cell`] keeps the bytes and wakes who waits, [`ingest`] reads uploads, [`naming`] finds the
//! track that an upload is of, [`queue`] keeps those in order that wait for their header, [`budget`] bounds what they
//! hold of unfinished chunks; here is what requests get.
//!
//! **Invariant:** a request that is a little ahead of the source waits for an event, bounded in time, and is never
//! sent back to ask again.
//! **Invariant:** a chunk can be read the moment it is complete.

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
use thalweg_media::presentation::live::Live as Model;
use thalweg_media::presentation::utc::Utc;
use thalweg_media::{dash, hls};
use tokio::time::timeout;

use crate::answer::{self, Asked, Part, Resource};
use crate::body::{self, Body};
use crate::clock::now_us;
use crate::config::{Config, UploadLimits};
use crate::route::Item;
use crate::vod::media_type;
use budget::Budget;
use cell::{Cell, Found};
use channel::Settings;
use queue::Queue;

/// How often channels are looked at for sources that hang and segments that leave the window. Nothing waits for it
/// that a chunk could wake.
const TICK: Duration = Duration::from_millis(500);
/// Longest name of a channel.
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
    /// What uploads hold of chunks that are not whole yet.
    held_back: Budget,
    /// Media that wait for their header.
    waiting: Queue,
}

/// Why a channel cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoChannel {
    /// The name is empty, too long, or has characters beyond letters, digits, `.`, `_`, `~` and `-`.
    Name,
    /// As many as the configuration allows are there.
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

    /// The channel that an upload is to, if it is there already; `Err` if it cannot be.
    pub(crate) fn channel_of_upload(&self, name: &str) -> Result<Option<Arc<Cell>>, NoChannel> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"._~-".contains(&b);
        if name.is_empty() || name.len() > CHANNEL_NAME_BYTES_MAX || !name.bytes().all(allowed) {
            return Err(NoChannel::Name);
        }
        Ok(self.lock().get(name).cloned())
    }

    /// The channel for a CMAF header that has come, made if there is none. `name` was found good.
    pub(crate) fn channel_for_header(&self, name: &str) -> Result<Arc<Cell>, NoChannel> {
        let mut channels = self.lock();
        if channels.len() >= self.channels_max && !channels.contains_key(name) {
            return Err(NoChannel::TooMany);
        }
        let new = || Arc::new(Cell::new(name, self.settings, self.arena.clone()));
        Ok(channels.entry(name.to_owned()).or_insert_with(new).clone())
    }

    /// The channels that can be played, with the time since when.
    pub(crate) fn published(&self) -> Vec<(String, Utc)> {
        let cells: Vec<_> = self.lock().values().cloned().collect();
        let now = now_us();
        let playing = cells.iter().filter(|c| !c.is_over(now));
        playing.filter_map(|c| Some((c.name().to_owned(), c.since()?))).collect()
    }

    /// Ends what hangs and drops what is over, for ever.
    pub(crate) async fn keep_house(&self) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let cells: Vec<_> = self.lock().values().cloned().collect();
            for cell in cells {
                cell.tick(now_us());
            }
            self.forget_ended(now_us());
        }
    }

    /// Makes room for other channels. One that an upload or a request holds stays until the next time; nobody gets hold
    /// of it meanwhile but through the lock.
    fn forget_ended(&self, now: i64) {
        self.lock().retain(|_, cell| Arc::strong_count(cell) > 1 || !cell.is_over(now));
    }

    /// The answer to a GET or HEAD of something of `channel`.
    pub(crate) async fn answer(&self, asked: &Asked<'_>, channel: &str, what: Item) -> Response<Body> {
        let Some(cell) = self.channel(channel).filter(|cell| !cell.is_over(now_us())) else {
            return missing(format_args!("no channel is called {channel}"));
        };
        match what {
            Item::Mpd => self.mpd(asked, &cell).await,
            Item::Multivariant => self.multivariant(asked, &cell).await,
            Item::MediaPlaylist { track } => self.media_playlist(asked, &cell, &track).await,
            Item::Header { track, number: Some(number) } => self.header(asked, &cell, &track, number).await,
            Item::Segment { track, name } => self.segment(asked, &cell, &track, name).await,
            Item::Header { number: None, .. } => missing("live a header is init-NUMBER.mp4"),
        }
    }

    async fn mpd(&self, asked: &Asked<'_>, cell: &Cell) -> Response<Body> {
        match self.model(cell, |_| true).await {
            Some(model) => manifest(asked, DASH, 1, dash::live(&model)),
            None => not_yet(cell),
        }
    }

    async fn multivariant(&self, asked: &Asked<'_>, cell: &Cell) -> Response<Body> {
        let model = self.model(cell, |model| model.current().is_some()).await;
        match model.as_ref().and_then(Model::current) {
            Some(epoch) => manifest(asked, HLS, 1, hls::multivariant_live(epoch)),
            None => not_yet(cell),
        }
    }

    /// Waits for the first whole segment; a player has no use for a playlist without one.
    async fn media_playlist(&self, asked: &Asked<'_>, cell: &Cell, track: &str) -> Response<Body> {
        // Listed segments stay for as long again (RFC 8216bis §6.2.2).
        let depth_us = self.settings.window_ms * 1000 / 2;
        let ready = |model: &Model| {
            let known = model.epochs.iter().any(|e| e.track(track).is_some());
            let any = model.epochs.iter().filter_map(|e| e.track(track)).any(|t| !t.segments.is_empty());
            any || !known
        };
        let Some(model) = self.model(cell, ready).await else { return not_yet(cell) };
        match hls::media::live(&model, track, depth_us) {
            Some(playlist) => manifest(asked, HLS, (model.target_duration_s / 2).max(1), playlist),
            None => missing(format_args!("channel {} has no track {track}", cell.name())),
        }
    }

    /// The channel's model, as soon as it is ready, if that is soon. Manifests are written of it outside of the
    /// channel's lock.
    async fn model(&self, cell: &Cell, ready: impl Fn(&Model) -> bool) -> Option<Model> {
        timeout(patience(cell), cell.wait_for(|state| state.model().filter(&ready))).await.ok()
    }

    async fn header(&self, asked: &Asked<'_>, cell: &Cell, track: &str, number: u64) -> Response<Body> {
        let found = timeout(patience(cell), cell.wait_for(|state| state.header(track, number))).await;
        let Some((kind, bytes)) = found.ok().flatten() else {
            return missing(format_args!("channel {} has no header {number} of {track}", cell.name()));
        };
        let resource = Resource {
            content_type: media_type(kind),
            cache_control: self.media_cache_control(),
            etag: Some(answer::etag_of(&bytes)),
            modified_s: None,
            size: Some(bytes.len() as u64),
        };
        answer::bytes(asked, &resource, &bytes)
    }

    async fn segment(&self, asked: &Asked<'_>, cell: &Cell, track: &str, number: u64) -> Response<Body> {
        let found =
            timeout(patience(cell), cell.wait_for(|state| state.segment(track, number, now_us()))).await;
        let Ok(Found::Here { kind, buffer, etag }) = found else {
            return missing(format_args!("channel {} has no segment {number} of {track}", cell.name()));
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
        let (head, part) = answer::head(asked, &resource);
        let content = match part {
            Part::Whole => body::fill(buffer.reader(0), None),
            Part::Range(range) => body::fill(buffer.reader(range.start), Some(range.end - range.start)),
            Part::Nothing => body::empty(),
        };
        answer::finish(head, content)
    }

    /// A segment's name is never used again, so it may be kept for as long as anyone can ask for it.
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

/// How long a request waits for what is about to be there: one and a half segments.
fn patience(cell: &Cell) -> Duration {
    Duration::from_millis(cell.segment_ms() * 3 / 2)
}

/// A manifest that caches may keep for `max_age_s`.
fn manifest(
    asked: &Asked<'_>,
    content_type: &'static str,
    max_age_s: u64,
    content: String,
) -> Response<Body> {
    let content = Bytes::from(content);
    let resource = Resource {
        content_type,
        cache_control: format!("public, max-age={max_age_s}, s-maxage={max_age_s}"),
        etag: Some(answer::etag_of(&content)),
        modified_s: None,
        size: Some(content.len() as u64),
    };
    answer::bytes(asked, &resource, &content)
}

fn not_yet(cell: &Cell) -> Response<Body> {
    let words = format_args!("channel {} has no whole segment yet", cell.name());
    let mut answer = answer::text(StatusCode::SERVICE_UNAVAILABLE, words);
    answer.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
    answer
}

fn missing(words: impl std::fmt::Display) -> Response<Body> {
    answer::text(StatusCode::NOT_FOUND, words)
}
