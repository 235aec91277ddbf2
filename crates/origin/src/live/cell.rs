//! A channel and its stored bytes: applies the state machine's effects and wakes waiting requests.
//!
//! Lock order: the cell's state, then a FillBuffer, then the arena. The state lock is never held
//! across an await, and waiters are woken after it is released.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use thalweg_cache::arena::SLAB_BYTES;
use thalweg_cache::{Arena, Failure, FillBuffer, Writer};
use thalweg_media::presentation::Kind;
use thalweg_media::presentation::live::Live as Model;
use thalweg_media::presentation::utc::Utc;
use thalweg_media::track::TrackInfo;
use tokio::sync::watch;

use super::channel::{
    Channel, Effect, HeaderLookup, IncomingChunk, Note, Outcome, Refusal, SegmentLookup, Settings,
};
use crate::clock::now_utc;

/// Arena slabs kept free for other chunks that arrive during eviction.
const SPARE_SLABS: usize = 2;

/// A channel and its stored segments.
#[derive(Debug)]
pub(crate) struct Cell {
    name: String,
    arena: Arc<Arena>,
    state: Mutex<State>,
    /// Notified whenever a waiting request might find its item.
    changed: watch::Sender<()>,
}

/// State behind the cell's lock.
#[derive(Debug)]
pub(super) struct State {
    channel: Channel,
    segments: HashMap<(usize, u64), Segment>,
}

#[derive(Debug)]
struct Segment {
    buffer: Arc<FillBuffer<()>>,
    /// Present while the segment is being filled.
    writer: Option<Writer<()>>,
}

/// The result of looking up a segment.
#[derive(Debug)]
pub(super) enum FoundSegment {
    /// The segment exists, complete or not.
    Available { kind: Kind, buffer: Arc<FillBuffer<()>>, etag: String },
    /// The segment does not exist and never will.
    Missing,
}

impl Cell {
    pub(super) fn new(name: &str, settings: Settings, arena: Arc<Arena>) -> Cell {
        let state = State { channel: Channel::new(settings), segments: HashMap::new() };
        Cell { name: name.to_owned(), arena, state: Mutex::new(state), changed: watch::Sender::new(()) }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the start of the channel's first epoch.
    pub(super) fn since(&self) -> Option<Utc> {
        self.lock().channel.since()
    }

    /// Returns whether the source has gone and all of its segments have left the window.
    pub(super) fn is_over(&self, now: i64) -> bool {
        self.lock().channel.is_over(now)
    }

    /// Returns the segment duration in milliseconds.
    pub(super) fn segment_ms(&self) -> u64 {
        self.lock().channel.segment_ms()
    }

    /// Returns a track's index and its latest header's contents; `None` before the first header.
    pub(super) fn track_info(&self, track: &str) -> Option<(usize, TrackInfo)> {
        self.lock().channel.track_info(track).map(|(index, info)| (index, info.clone()))
    }

    /// Returns the track's name if the channel has exactly one track.
    pub(super) fn only_track(&self) -> Option<String> {
        self.lock().channel.only_track().map(str::to_owned)
    }

    pub(super) fn has_many_tracks(&self) -> bool {
        self.lock().channel.has_many_tracks()
    }

    pub(super) fn header(
        &self,
        track: &str,
        bytes: Bytes,
        info: TrackInfo,
        again: bool,
        now: i64,
    ) -> Result<usize, Refusal> {
        self.apply(|channel, _| channel.header(track, bytes, info, again, now))
    }

    pub(super) fn chunk(&self, track: usize, chunk: IncomingChunk, now: i64) -> Result<Outcome, Refusal> {
        let (result, lost) = self.apply_reporting_loss(|channel, arena| {
            // Free memory before accepting the chunk, because an accepted chunk must not be lost.
            let need = chunk.bytes.len().div_ceil(SLAB_BYTES) + SPARE_SLABS;
            while arena.free_slabs() < need && channel.evict_oldest(now) {}
            channel.chunk(track, chunk, now)
        });
        if lost { Err(Refusal::NoRoom) } else { result }
    }

    /// See [`Channel::upload_ended`].
    pub(super) fn upload_ended(&self, track: usize, with_media: bool) {
        self.apply(|channel, _| channel.upload_ended(track, with_media));
    }

    pub(super) fn tick(&self, now: i64) {
        self.apply(|channel, _| channel.tick(now));
    }

    /// Waits until `find` returns a value.
    pub(super) async fn wait_for<T>(&self, mut find: impl FnMut(&State) -> Option<T>) -> T {
        let mut changed = self.changed.subscribe();
        loop {
            if let Some(found) = find(&self.lock()) {
                return found;
            }
            // The sender lives as long as the cell.
            let _ = changed.changed().await;
        }
    }

    /// Runs `apply` on the channel, applies the resulting effects, and wakes waiters if a segment
    /// or epoch started or ended.
    fn apply<T>(&self, apply: impl FnOnce(&mut Channel, &Arena) -> T) -> T {
        self.apply_reporting_loss(apply).0
    }

    /// Like [`apply`](Self::apply), but also returns whether bytes were dropped for lack of memory.
    fn apply_reporting_loss<T>(&self, apply: impl FnOnce(&mut Channel, &Arena) -> T) -> (T, bool) {
        let mut state = self.lock();
        let changed = apply(&mut state.channel, &self.arena);
        let (mut wake, mut lost) = (false, false);
        // Dropping a segment emits further effects, which drop no more bytes.
        loop {
            let effects = state.channel.take_effects();
            if effects.is_empty() {
                break;
            }
            wake |= effects.iter().any(|e| !matches!(e, Effect::Append { .. }));
            for effect in effects {
                lost |= self.apply_effect(&mut state, effect).is_err();
            }
        }
        drop(state);
        if wake {
            self.changed.send_replace(());
        }
        (changed, lost)
    }

    /// Applies one effect. If bytes cannot be stored, drops their segment and returns an error.
    fn apply_effect(&self, state: &mut State, effect: Effect) -> Result<(), Failure> {
        match effect {
            Effect::Begin { track, number } => {
                let (buffer, writer) = FillBuffer::stored(&self.arena, ());
                state.segments.insert((track, number), Segment { buffer, writer: Some(writer) });
            }
            Effect::Append { track, number, bytes } => return self.append(state, track, number, bytes),
            Effect::Complete { track, number } => {
                let segment = state.segments.get_mut(&(track, number));
                if let Some(writer) = segment.and_then(|s| s.writer.take()) {
                    writer.complete();
                }
            }
            Effect::Evict { track, number } => drop(state.segments.remove(&(track, number))),
            Effect::Note(note) => self.log(&state.channel, &note),
        }
        Ok(())
    }

    fn append(&self, state: &mut State, track: usize, number: u64, bytes: Bytes) -> Result<(), Failure> {
        let segment = state.segments.get_mut(&(track, number));
        let Some(mut writer) = segment.and_then(|s| s.writer.take()) else { return Err(Failure::NoRoom) };
        if writer.append(bytes).is_ok() {
            if let Some(segment) = state.segments.get_mut(&(track, number)) {
                segment.writer = Some(writer);
            }
            return Ok(());
        }
        writer.fail(Failure::NoRoom);
        state.channel.drop_segment(track, number);
        let track = state.channel.track_name(track);
        tracing::error!(
            channel = self.name,
            track,
            number,
            "no memory left for live segments: raise live_memory"
        );
        Err(Failure::NoRoom)
    }

    fn log(&self, channel: &Channel, note: &Note) {
        let name = &self.name;
        match *note {
            Note::Epoch { id, track, cause } => {
                tracing::info!(
                    channel = name,
                    epoch = id,
                    track = channel.track_name(track),
                    ?cause,
                    "epoch begins"
                );
            }
            Note::Published { id, segment_us } => {
                let segment_s = segment_us as f64 / 1e6;
                tracing::info!(channel = name, epoch = id, segment_s, "epoch published");
            }
            Note::Irregular { track, number } => {
                let track = channel.track_name(track);
                tracing::warn!(channel = name, track, number, "segment does not begin with a sync sample");
            }
            Note::Misfit { track, time } => {
                let track = channel.track_name(track);
                tracing::warn!(
                    channel = name,
                    track,
                    time,
                    "chunk dropped: its time does not fit the channel"
                );
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns the model from which manifests are written; `None` before the first epoch is
    /// published.
    pub(super) fn model(&self) -> Option<Model> {
        self.channel.live().map(|live| live.at(now_utc()))
    }

    /// Looks up a header. Returns `None` while it may still arrive, and `Some(None)` if it never
    /// will.
    pub(super) fn header(&self, track: &str, number: u64) -> Option<Option<(Kind, Bytes)>> {
        let kind = self.channel.track_info(track).map(|(_, info)| Kind::of(info));
        match self.channel.header_of(track, number) {
            HeaderLookup::Available(bytes) => Some(kind.map(|kind| (kind, bytes))),
            HeaderLookup::Pending => None,
            HeaderLookup::Missing => Some(None),
        }
    }

    /// Looks up a segment. Returns `None` while it may still start.
    pub(super) fn segment(&self, track: &str, number: u64, now: i64) -> Option<FoundSegment> {
        let (Some((_, info)), Some(since)) = (self.channel.track_info(track), self.channel.since()) else {
            return Some(FoundSegment::Missing);
        };
        match self.channel.segment(track, number, now) {
            SegmentLookup::Available(index) => {
                let buffer = self.segments.get(&(index, number)).map(|s| s.buffer.clone());
                let etag = format!("{:x}-{number:x}", since.0);
                let kind = Kind::of(info);
                Some(buffer.map_or(FoundSegment::Missing, |buffer| FoundSegment::Available {
                    kind,
                    buffer,
                    etag,
                }))
            }
            SegmentLookup::Pending => None,
            SegmentLookup::Missing => Some(FoundSegment::Missing),
        }
    }
}
