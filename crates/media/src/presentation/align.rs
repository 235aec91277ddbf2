//! Track alignment check, which reports the file and position at fault.

use super::sets::{Kind, switchable};
use super::{NamedTrack, Placed, Role, micros};
use std::fmt;

/// Tolerance for segment boundaries if the frame rate is unknown: half a frame at 25 frames per
/// second.
const HALF_FRAME_US: u64 = 20_000;

/// Reasons why tracks do not form a presentation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Misaligned {
    /// The presentation has no track.
    NoTracks,
    /// The presentation has only text tracks, and no media to subtitle.
    TextAlone,
    /// The edit list cuts off the whole track.
    NothingShown {
        /// The file.
        file: String,
    },
    /// Two tracks of a switching set have different segment boundaries.
    Boundary {
        /// The file compared with.
        first: String,
        /// The file that differs.
        second: String,
        /// First differing segment, counted from 1.
        segment: usize,
        /// Start of that segment in the first file, in microseconds.
        first_us: u64,
        /// Start of that segment in the second file, in microseconds.
        second_us: u64,
    },
    /// Two tracks of a switching set have different numbers of segments.
    Count {
        /// The file compared with.
        first: String,
        /// Number of segments in the first file.
        first_count: usize,
        /// The file that differs.
        second: String,
        /// Number of segments in the second file.
        second_count: usize,
    },
    /// Tracks end more than a segment apart.
    End {
        /// The file compared with.
        first: String,
        /// End of the first file, in microseconds.
        first_us: u64,
        /// The file that differs.
        second: String,
        /// End of the second file, in microseconds.
        second_us: u64,
        /// Allowed difference, in microseconds.
        allowed_us: u64,
    },
}

impl fmt::Display for Misaligned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = |us: &u64| *us as f64 / 1e6;
        match self {
            Misaligned::NoTracks => write!(f, "no CMAF track"),
            Misaligned::TextAlone => {
                write!(f, "the presentation has only subtitle tracks: add a video or an audio track")
            }
            Misaligned::NothingShown { file } => write!(f, "{file}: the edit list excludes all of the media"),
            Misaligned::Boundary { first, second, segment, first_us, second_us } => write!(
                f,
                "{first} and {second} do not line up: segment {segment} begins at {:.6} s in the first, \
                 at {:.6} s in the second; encode them with the same key frame times",
                s(first_us),
                s(second_us)
            ),
            Misaligned::Count { first, first_count, second, second_count } => write!(
                f,
                "{first} and {second} do not line up: the number of segments is {first_count} in the first \
                 and {second_count} in the second; the first missing one is segment {}",
                first_count.min(second_count) + 1
            ),
            Misaligned::End { first, first_us, second, second_us, allowed_us } => write!(
                f,
                "{first} and {second} do not line up: the first ends at {:.6} s, the second at {:.6} s; \
                 ends may be at most {:.6} s apart",
                s(first_us),
                s(second_us),
                s(allowed_us)
            ),
        }
    }
}

impl std::error::Error for Misaligned {}

/// Compares every track with the first track with which it must align. Trick-play tracks need only
/// end with the others, because players do not switch to them at a segment boundary.
pub(super) fn check(tracks: &[NamedTrack], roles: &[Role]) -> Result<(), Misaligned> {
    let main = tracks.iter().zip(roles).filter(|(_, role)| **role == Role::Main).map(|(t, _)| t);
    let main: Vec<&NamedTrack> = main.collect();
    for track in tracks {
        if track.segments().next().is_none() {
            return Err(Misaligned::NothingShown { file: track.file.clone() });
        }
    }
    for (i, track) in main.iter().enumerate() {
        let set = main[..i].iter().find(|other| switchable(&other.index.info, &track.index.info));
        if let Some(first) = set.filter(|t| Kind::of(&t.index.info) == Kind::Video) {
            same_boundaries(first, track)?;
        }
    }
    if !tracks.is_empty() && tracks.iter().all(|t| Kind::of(&t.index.info) == Kind::Text) {
        return Err(Misaligned::TextAlone);
    }
    same_ends(tracks)
}

fn same_boundaries(first: &NamedTrack, second: &NamedTrack) -> Result<(), Misaligned> {
    let tolerance_us = half_frame_us(first).max(half_frame_us(second));
    let (a, b): (Vec<Placed>, Vec<Placed>) = (first.segments().collect(), second.segments().collect());
    for (i, (one, other)) in a.iter().zip(&b).enumerate() {
        let first_us = micros(one.time, first.index.info.timescale);
        let second_us = micros(other.time, second.index.info.timescale);
        if first_us.abs_diff(second_us) > tolerance_us {
            return Err(Misaligned::Boundary {
                first: first.file.clone(),
                second: second.file.clone(),
                segment: i + 1,
                first_us,
                second_us,
            });
        }
    }
    if a.len() == b.len() {
        return Ok(());
    }
    Err(Misaligned::Count {
        first: first.file.clone(),
        first_count: a.len(),
        second: second.file.clone(),
        second_count: b.len(),
    })
}

fn half_frame_us(track: &NamedTrack) -> u64 {
    let Some((num, den)) = track.index.frame_rate else { return HALF_FRAME_US };
    u64::from(den) * 500_000 / u64::from(num.max(1))
}

/// Checks that video and audio end within one segment of each other; subtitles may end earlier.
fn same_ends(tracks: &[NamedTrack]) -> Result<(), Misaligned> {
    let mut timed = tracks.iter().filter(|t| Kind::of(&t.index.info) != Kind::Text);
    let Some(first) = timed.next() else { return Ok(()) };
    let end_us = |t: &NamedTrack| micros(t.end(), t.index.info.timescale);
    for second in timed {
        let allowed_us = segment_us_max(first).max(segment_us_max(second));
        if end_us(first).abs_diff(end_us(second)) > allowed_us {
            return Err(Misaligned::End {
                first: first.file.clone(),
                first_us: end_us(first),
                second: second.file.clone(),
                second_us: end_us(second),
                allowed_us,
            });
        }
    }
    Ok(())
}

fn segment_us_max(track: &NamedTrack) -> u64 {
    micros(track.segments().map(|s| s.duration).max().unwrap_or(0), track.index.info.timescale)
}
