//! A channel with its bytes: the state machine's effects carried out, and those who wait for them woken.
//!
//! Lock order: the cell's state → a FillBuffer → the arena. The state's lock is not held across an await, and those
//! who wait for a change are woken after it was let go.

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

use super::channel::{Channel, ChunkIn, Effect, HeaderLookup, Lookup, Note, Outcome, Refusal, Settings};
use crate::clock::now_utc;

/// Slabs of the arena that stay free for chunks that come while room is made.
const SPARE_SLABS: usize = 2;

/// A channel.
#[derive(Debug)]
pub(crate) struct Cell {
    name: String,
    arena: Arc<Arena>,
    state: Mutex<State>,
    /// Changes whenever a request that waits might find what it waits for.
    changed: watch::Sender<()>,
}

/// What the cell's lock guards.
#[derive(Debug)]
pub(super) struct State {
    channel: Channel,
    segments: HashMap<(usize, u64), Segment>,
}

#[derive(Debug)]
struct Segment {
    buffer: Arc<FillBuffer<()>>,
    /// While it is being filled.
    writer: Option<Writer<()>>,
}

/// What became of a segment that was asked for.
#[derive(Debug)]
pub(super) enum Found {
    /// It is there, whole or not.
    Here { kind: Kind, buffer: Arc<FillBuffer<()>>, etag: String },
    /// It is not, and will not be.
    Nowhere,
}

impl Cell {
    pub(super) fn new(name: &str, settings: Settings, arena: Arc<Arena>) -> Cell {
        let state = State { channel: Channel::new(settings), segments: HashMap::new() };
        Cell { name: name.to_owned(), arena, state: Mutex::new(state), changed: watch::Sender::new(()) }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// When its first epoch began.
    pub(super) fn since(&self) -> Option<Utc> {
        self.lock().channel.since()
    }

    /// Whether its source is gone, and the window has passed over what it left.
    pub(super) fn is_over(&self, now: i64) -> bool {
        self.lock().channel.is_over(now)
    }

    /// Milliseconds of a segment.
    pub(super) fn segment_ms(&self) -> u64 {
        self.lock().channel.segment_ms()
    }

    /// The header that chunks of a track belong to, if one came.
    pub(super) fn track_info(&self, track: &str) -> Option<(usize, TrackInfo)> {
        self.lock().channel.track_info(track).map(|(index, info)| (index, info.clone()))
    }

    /// The only track, by its name, if there is exactly one.
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
        self.change(|channel, _| channel.header(track, bytes, info, again, now))
    }

    pub(super) fn chunk(&self, track: usize, chunk: ChunkIn, now: i64) -> Result<Outcome, Refusal> {
        let (taken, lost) = self.change_and_tell(|channel, arena| {
            // Room is made before the chunk is taken: what was taken is not lost.
            let need = chunk.bytes.len().div_ceil(SLAB_BYTES) + SPARE_SLABS;
            while arena.free_slabs() < need && channel.shed(now) {}
            channel.chunk(track, chunk, now)
        });
        if lost { Err(Refusal::NoRoom) } else { taken }
    }

    /// See [`Channel::closed`].
    pub(super) fn closed(&self, track: usize, with_media: bool) {
        self.change(|channel, _| channel.closed(track, with_media));
    }

    pub(super) fn tick(&self, now: i64) {
        self.change(|channel, _| channel.tick(now));
    }

    /// What `find` finds, as soon as it finds something.
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

    /// Changes the channel, carries out what follows, and wakes who waits if anything began or ended.
    fn change<T>(&self, change: impl FnOnce(&mut Channel, &Arena) -> T) -> T {
        self.change_and_tell(change).0
    }

    /// Also tells whether bytes were lost for want of room.
    fn change_and_tell<T>(&self, change: impl FnOnce(&mut Channel, &Arena) -> T) -> (T, bool) {
        let mut state = self.lock();
        let changed = change(&mut state.channel, &self.arena);
        let (mut wake, mut lost) = (false, false);
        // What was lost has effects of its own, but loses nothing more.
        loop {
            let effects = state.channel.take_effects();
            if effects.is_empty() {
                break;
            }
            wake |= effects.iter().any(|e| !matches!(e, Effect::Append { .. }));
            for effect in effects {
                lost |= self.carry_out(&mut state, effect).is_err();
            }
        }
        drop(state);
        if wake {
            self.changed.send_replace(());
        }
        (changed, lost)
    }

    /// Fails if bytes could not be kept; their segment is forgotten then.
    fn carry_out(&self, state: &mut State, effect: Effect) -> Result<(), Failure> {
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
        state.channel.lost(track, number);
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
                    "chunk left out: its time does not fit the channel"
                );
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The channel as manifests show it.
    pub(super) fn model(&self) -> Option<Model> {
        self.channel.live().map(|live| live.at(now_utc()))
    }

    /// A header: `None` while it may still come, `Some(None)` if it will not.
    pub(super) fn header(&self, track: &str, number: u64) -> Option<Option<(Kind, Bytes)>> {
        let kind = self.channel.track_info(track).map(|(_, info)| Kind::of(info));
        match self.channel.header_of(track, number) {
            HeaderLookup::Here(bytes) => Some(kind.map(|kind| (kind, bytes))),
            HeaderLookup::Soon => None,
            HeaderLookup::Nowhere => Some(None),
        }
    }

    /// A segment: `None` while it may still begin.
    pub(super) fn segment(&self, track: &str, number: u64, now: i64) -> Option<Found> {
        let (Some((_, info)), Some(since)) = (self.channel.track_info(track), self.channel.since()) else {
            return Some(Found::Nowhere);
        };
        match self.channel.segment(track, number, now) {
            Lookup::Here(index) => {
                let buffer = self.segments.get(&(index, number)).map(|s| s.buffer.clone());
                let etag = format!("{:x}-{number:x}", since.0);
                let kind = Kind::of(info);
                Some(buffer.map_or(Found::Nowhere, |buffer| Found::Here { kind, buffer, etag }))
            }
            Lookup::Soon => None,
            Lookup::Nowhere => Some(Found::Nowhere),
        }
    }
}
