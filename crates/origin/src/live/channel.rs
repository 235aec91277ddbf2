//! A live channel as a state machine: headers and chunks in, segments out, no I/O and no clock.
//!
//! A source's chunks are cut into segments on a grid of media time that all tracks of an *epoch*
//! share: segment *n* begins at `media_start + (n − start_number) × segment`. The grid is learned from
//! the video's sync samples. Only decode times (tfdt) are trusted: neither the names of uploads nor
//! their borders nor the source's own manifest.
//!
//! All epochs are served on one line of media time, that of the first, which runs with the clock: the chunks of an
//! epoch whose times begin elsewhere are moved there as they go into segments ([`timeline::Timeline::shift`]); all else
//! here reckons with times as they come. Numbers lie on that line too, so a player that has not heard of a new epoch
//! asks for nothing that it would show at another time.
//!
//! Where a chunk belongs says [`decide`].
//!
//! What happens to the bytes is told as [`Effect`]s, in order; the caller keeps them.
//!
//! **Invariant:** a chunk that was taken is in exactly one segment, and a track's segments, in order of
//! their numbers, hold its chunks in the order they came.
//!
//! **Invariant:** what was published of an epoch (start, numbers, durations) does not change.

mod cut;
mod decide;
mod epoch;
mod follow;
mod gather;
mod snapshot;
#[cfg(test)]
mod tests;
mod timeline;
mod track;

use bytes::Bytes;
use std::collections::VecDeque;
use std::fmt;
use std::hash::{DefaultHasher, Hasher};
use thalweg_media::chunk::Chunk;
use thalweg_media::presentation::Kind;
use thalweg_media::prft::Prft;
use thalweg_media::retime;
use thalweg_media::track::TrackInfo;

use decide::{Decision, Place};
use epoch::Epoch;
pub(crate) use snapshot::{HeaderLookup, Lookup};
use track::Track;

/// Tracks of one channel.
pub(crate) const TRACKS_MAX: usize = 32;
/// Bytes of all tracks that wait for the segment duration to be learned.
pub(crate) const PENDING_BYTES_MAX: u64 = 64 << 20;
/// Longest segment: a source that sends no sync sample for so long cannot be joined by anyone.
pub(crate) const SEGMENT_US_MAX: i64 = 30_000_000;
/// A segment that has had no chunk for so long, beyond the duration of one, is completed as it is, so that
/// nobody waits for ever.
pub(crate) const SEGMENT_IDLE_US: i64 = 3_000_000;
/// How long an epoch waits for the other tracks once the video is known.
const GATHER_GRACE_US: i64 = 1_000_000;

/// What a channel is run with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    /// Least duration of a segment, in milliseconds.
    pub(crate) segment_target_ms: u32,
    /// How far back a viewer may go, in milliseconds.
    pub(crate) window_ms: u64,
}

/// A chunk as the channel looks at it.
#[derive(Debug, Clone)]
pub(crate) struct ChunkIn {
    /// The whole chunk.
    pub(crate) bytes: Bytes,
    /// Decode time in the track's timescale.
    pub(crate) time: u64,
    /// Duration in the track's timescale.
    pub(crate) duration: u64,
    /// Whether decoding can start with it.
    pub(crate) sync: bool,
    /// The duration of every frame, where all have the same.
    pub(crate) sample_duration: Option<u32>,
    /// When it was encoded.
    pub(crate) prft: Option<Prft>,
    /// The source says that it is the track's last.
    pub(crate) last: bool,
}

impl ChunkIn {
    fn end(&self) -> u64 {
        self.time + self.duration
    }

    fn half(&self) -> u64 {
        self.duration / 2
    }

    /// The same chunk so many units later; `None` where its times cannot be moved there.
    fn shifted(&self, by: i64, timescale: u32) -> Option<ChunkIn> {
        let time = self.time.checked_add_signed(by)?;
        let bytes = retime::shifted(&self.bytes, by, timescale).ok()??;
        let moved = |p: Prft| Prft { media_time: p.media_time.wrapping_add_signed(by), ..p };
        Some(ChunkIn { bytes, time, prft: self.prft.map(moved), ..self.clone() })
    }

    /// Its bytes with times so many units later; `None` where they cannot be moved there.
    fn served(&self, by: i64, timescale: u32) -> Option<Bytes> {
        if by == 0 { Some(self.bytes.clone()) } else { retime::shifted(&self.bytes, by, timescale).ok()? }
    }

    /// What tells a repetition of the chunk from another of the same time.
    fn fingerprint(&self) -> (u64, u64) {
        let mut hasher = DefaultHasher::new();
        hasher.write(&self.bytes);
        (self.time, hasher.finish())
    }
}

impl From<Chunk> for ChunkIn {
    fn from(chunk: Chunk) -> ChunkIn {
        ChunkIn {
            time: chunk.fragment.decode_time,
            duration: chunk.fragment.duration,
            sync: chunk.fragment.starts_with_sync,
            sample_duration: chunk.fragment.sample_duration,
            prft: chunk.prft,
            last: chunk.is_last(),
            bytes: chunk.bytes,
        }
    }
}

/// What the caller has to do with bytes, or may want to log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Effect {
    /// A segment begins.
    Begin { track: usize, number: u64 },
    /// Its next chunk.
    Append { track: usize, number: u64, bytes: Bytes },
    /// It is whole.
    Complete { track: usize, number: u64 },
    /// It has left the window.
    Evict { track: usize, number: u64 },
    /// Something worth a line in the log.
    Note(Note),
}

/// Why an epoch began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// It is the first.
    First,
    /// A header that differs from the last one.
    Header,
    /// Timestamps that have nothing to do with the last ones.
    Jump,
    /// Timestamps that left something out.
    Gap,
    /// The source has fallen behind the clock and stays there.
    Late,
}

/// Worth a line in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Note {
    /// An epoch began with a chunk of `track`.
    Epoch { id: u64, track: usize, cause: Cause },
    /// An epoch is published: segments of this duration, in microseconds.
    Published { id: u64, segment_us: u64 },
    /// A segment begins without a sync sample: the source's key frames are not where they were.
    Irregular { track: usize, number: u64 },
    /// A chunk was left out because its times fit neither the channel nor its own track.
    Misfit { track: usize, time: u64 },
}

/// What became of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is in a segment, or waits for its epoch to open.
    Taken,
    /// It had come before.
    Duplicate,
    /// Decoding cannot start with it and nothing came before it.
    NotSync,
    /// It lies before the epoch's start, where the video began, and nothing could be shown with it.
    Early,
    /// Its times do not fit the channel.
    Misfit,
}

/// Why a channel refuses what it is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// [`TRACKS_MAX`].
    TooManyTracks,
    /// The name belongs to a track of another kind.
    OtherKind { track: String },
    /// [`SEGMENT_US_MAX`].
    NoSyncSample { track: String },
    /// [`PENDING_BYTES_MAX`].
    TooMuchPending,
    /// Another upload of the track is open, under another header.
    Busy { track: String },
    /// Memory for live segments has run out.
    NoRoom,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::TooManyTracks => write!(f, "more than {TRACKS_MAX} tracks in one channel"),
            Refusal::OtherKind { track } => {
                write!(
                    f,
                    "track {track} was of another kind of media before: give each track a name of its own"
                )
            }
            Refusal::NoSyncSample { track } => {
                let s = SEGMENT_US_MAX / 1_000_000;
                write!(f, "track {track}: no second sync sample in {s} s: encode with shorter GOPs")
            }
            Refusal::Busy { track } => {
                write!(
                    f,
                    "track {track} is being uploaded under another header: give each track its own name"
                )
            }
            Refusal::NoRoom => f.write_str("no memory left for live segments"),
            Refusal::TooMuchPending => write!(
                f,
                "{} MiB before the segment duration could be learned from two sync samples",
                PENDING_BYTES_MAX >> 20
            ),
        }
    }
}

/// A live channel. Times called `now` and `…_us` are microseconds since 1970, UTC.
#[derive(Debug)]
pub(crate) struct Channel {
    settings: Settings,
    tracks: Vec<Track>,
    /// Oldest first; only the last can be gathering.
    epochs: VecDeque<Epoch>,
    next_epoch: u64,
    /// Start of the first epoch, once it is published.
    availability_start_us: Option<i64>,
    target_duration_s: u64,
    /// When the last chunk came.
    touched_us: i64,
    /// When the structure that manifests show last changed.
    published_us: i64,
    effects: Vec<Effect>,
}

impl Channel {
    pub(crate) fn new(settings: Settings) -> Channel {
        Channel {
            settings,
            tracks: Vec::new(),
            epochs: VecDeque::new(),
            next_epoch: 0,
            availability_start_us: None,
            target_duration_s: 0,
            touched_us: 0,
            published_us: 0,
            effects: Vec::new(),
        }
    }

    /// A CMAF header of the track called `name`; the index that effects and chunks name it by. `again` if the same
    /// upload has brought one of the track before; else it is to be [closed](Channel::closed).
    pub(crate) fn header(
        &mut self,
        name: &str,
        bytes: Bytes,
        info: TrackInfo,
        again: bool,
        now: i64,
    ) -> Result<usize, Refusal> {
        self.touched_us = now;
        let index = match self.tracks.iter().position(|t| t.name == name) {
            Some(index) => {
                let track = &self.tracks[index];
                if Kind::of(&track.info) != Kind::of(&info) {
                    return Err(Refusal::OtherKind { track: name.to_owned() });
                }
                if track.uploads > usize::from(again) && track.header != bytes {
                    return Err(Refusal::Busy { track: name.to_owned() });
                }
                if track.info.timescale != info.timescale {
                    // What is being made was made in the old unit.
                    self.complete_current(index);
                }
                self.tracks[index].set_header(bytes, info);
                index
            }
            None if self.tracks.len() == TRACKS_MAX => return Err(Refusal::TooManyTracks),
            None => {
                self.tracks.push(Track::new(name, bytes, info));
                self.tracks.len() - 1
            }
        };
        let track = &mut self.tracks[index];
        if !again {
            track.fresh = track.uploads == 0;
            track.uploads += 1;
        }
        Ok(index)
    }

    /// An upload that brought a header is over. If it brought media too, it was the track's, whose segment ends.
    pub(crate) fn closed(&mut self, track: usize, with_media: bool) {
        self.tracks[track].uploads = self.tracks[track].uploads.saturating_sub(1);
        if with_media {
            self.complete_current(track);
        }
    }

    /// A chunk of a track. The effects are in [`Channel::take_effects`].
    pub(crate) fn chunk(&mut self, track: usize, chunk: ChunkIn, now: i64) -> Result<Outcome, Refusal> {
        let last = chunk.last;
        self.touched_us = now;
        let chunk = self.moved(track, chunk, now);
        let outcome = match self.decide(track, &chunk, now) {
            Decision::Drop(outcome) => {
                if outcome == Outcome::Misfit {
                    self.note(Note::Misfit { track, time: chunk.time });
                }
                outcome
            }
            Decision::Stay => self.accept(track, chunk, now)?,
            Decision::Join => {
                self.join(track, now);
                self.accept(track, chunk, now)?
            }
            Decision::Begin(cause, follow) => {
                self.begin_epoch(track, cause, follow, now);
                self.join(track, now);
                self.accept(track, chunk, now)?
            }
            Decision::Follow => self.follow(track, chunk, now)?,
        };
        if outcome != Outcome::Duplicate {
            self.tracks[track].fresh = false;
        }
        if last {
            self.complete_current(track);
        }
        self.evict(now);
        Ok(outcome)
    }

    /// Time has passed: nobody waits for a source that hangs, and the window moves on without it.
    pub(crate) fn tick(&mut self, now: i64) {
        for track in 0..self.tracks.len() {
            let idle_us = SEGMENT_IDLE_US + self.chunk_us(&self.tracks[track]);
            if self.tracks[track].current.as_ref().is_some_and(|c| now - c.touched_us >= idle_us) {
                self.complete_current(track);
            }
        }
        self.try_open(now);
        self.forget_expected(now);
        self.evict(now);
    }

    /// What is to be done since the last call.
    pub(crate) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// The name of a track.
    pub(crate) fn track_name(&self, track: usize) -> &str {
        &self.tracks[track].name
    }

    /// The header that chunks of a track uploaded without one belong to.
    pub(crate) fn track_info(&self, name: &str) -> Option<(usize, &TrackInfo)> {
        let index = self.tracks.iter().position(|t| t.name == name)?;
        Some((index, &self.tracks[index].info))
    }

    /// The name of the only track, if there is exactly one.
    pub(crate) fn only_track(&self) -> Option<&str> {
        match self.tracks.as_slice() {
            [track] => Some(&track.name),
            _ => None,
        }
    }

    pub(crate) fn has_many_tracks(&self) -> bool {
        self.tracks.len() > 1
    }

    fn note(&mut self, note: Note) {
        self.effects.push(Effect::Note(note));
    }

    fn epoch(&self, id: u64) -> Option<&Epoch> {
        self.epochs.iter().find(|e| e.id == id)
    }

    /// Takes a chunk into the epoch of its track.
    fn accept(&mut self, track: usize, chunk: ChunkIn, now: i64) -> Result<Outcome, Refusal> {
        let epoch = self.tracks[track].epoch.and_then(|id| self.epoch(id));
        let timeline = epoch.and_then(|e| e.timeline.clone());
        self.tracks[track].took(&chunk, now);
        match timeline {
            Some(timeline) => Ok(self.place(track, &timeline, chunk, now)),
            None => self.gather(track, chunk, now),
        }
    }

    /// Duration of the longest chunk in the epoch of `track`.
    fn chunk_us(&self, track: &Track) -> i64 {
        let timeline = track.epoch.and_then(|id| self.epoch(id)).and_then(|e| e.timeline.as_ref());
        timeline.map_or(0, timeline::Timeline::chunk_us)
    }

    /// Duration of a segment in the epoch of `track`, or the least it can be.
    fn segment_us(&self, track: &Track) -> i64 {
        let timeline = track.epoch.and_then(|id| self.epoch(id)).and_then(|e| e.timeline.as_ref());
        timeline.map_or(i64::from(self.settings.segment_target_ms) * 1000, timeline::Timeline::segment_us)
    }
}
