//! Results of accepting headers and chunks: segment effects, log notes, outcomes and refusals.

use bytes::Bytes;
use std::fmt;

/// Maximum tracks per channel.
pub(crate) const TRACKS_MAX: usize = 32;
/// Maximum bytes queued across all tracks while the segment duration is unknown.
pub(crate) const PENDING_BYTES_MAX: u64 = 64 << 20;
/// Maximum segment duration. A source whose sync samples are further apart is refused, because
/// players could not join it.
pub(crate) const SEGMENT_US_MAX: i64 = 30_000_000;

/// An operation on stored segments, or a note to log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Begin a segment.
    Begin { track: usize, number: u64 },
    /// Append the next chunk.
    Append { track: usize, number: u64, bytes: Bytes },
    /// Complete the segment.
    Complete { track: usize, number: u64 },
    /// Remove the segment, which has left the window.
    Evict { track: usize, number: u64 },
    /// Log a note.
    Note(Note),
}

/// Reasons to begin an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The epoch is the channel's first.
    First,
    /// The header changed.
    Header,
    /// The timestamps are unrelated to the previous ones.
    Jump,
    /// The timestamps skipped ahead.
    Gap,
    /// The source permanently fell behind the epoch's clock.
    Late,
}

/// An event to log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Note {
    /// An epoch began with a chunk of `track`.
    Epoch { id: u64, track: usize, cause: Cause },
    /// An epoch was published with segments of this duration, in microseconds.
    Published { id: u64, segment_us: u64 },
    /// A segment does not begin with a sync sample, because the source's sync samples are off the
    /// grid.
    Irregular { track: usize, number: u64 },
    /// A chunk was dropped because its times fit neither the channel nor its own track.
    Misfit { track: usize, time: u64 },
}

/// The result of sending a chunk to a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The chunk is in a segment, or pending until its epoch is published.
    Taken,
    /// The chunk repeats an earlier one.
    Duplicate,
    /// Dropped: the track has no segment in the epoch yet, and the chunk does not begin with a sync
    /// sample.
    NotSync,
    /// Dropped: the chunk precedes the epoch's start (the first video sample), so there is no video
    /// to show with it.
    Early,
    /// Dropped: the chunk's times do not fit the channel.
    Misfit,
}

/// Reasons why a channel refuses a header or chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The channel would have more than [`TRACKS_MAX`] tracks.
    TooManyTracks,
    /// The track exists with another media kind.
    OtherKind { track: String },
    /// No second sync sample arrived within [`SEGMENT_US_MAX`].
    NoSyncSample { track: String },
    /// Pending chunks would exceed [`PENDING_BYTES_MAX`].
    TooMuchPending,
    /// Another open upload of the track uses a different header.
    Busy { track: String },
    /// No memory left for live segments.
    NoRoom,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::TooManyTracks => write!(f, "too many tracks: a channel has at most {TRACKS_MAX}"),
            Refusal::OtherKind { track } => {
                write!(f, "track {track} already has another media kind: give each track its own name")
            }
            Refusal::NoSyncSample { track } => {
                let s = SEGMENT_US_MAX / 1_000_000;
                write!(f, "track {track}: no second sync sample in {s} s: encode with shorter GOPs")
            }
            Refusal::Busy { track } => {
                write!(f, "track {track} is being uploaded with another header: give each track its own name")
            }
            Refusal::NoRoom => f.write_str("no memory left for live segments"),
            Refusal::TooMuchPending => write!(
                f,
                "no second sync sample within {} MiB: encode with shorter GOPs or a lower bitrate",
                PENDING_BYTES_MAX >> 20
            ),
        }
    }
}
