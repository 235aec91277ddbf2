//! Track alignment: which tracks form a presentation, and why others are left out.

use super::sets::switchable;
use super::{Kind, NamedTrack, Placed, Role, micros};
use std::fmt;

/// Tolerance for segment boundaries if the frame rate is unknown: half a frame at 25 frames per
/// second.
const HALF_FRAME_US: u64 = 20_000;

/// Reasons why a track is left out of a presentation, or why no presentation remains.
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
    /// Several reasons, each for another track.
    Several(Vec<Misaligned>),
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
            Misaligned::Several(reasons) => {
                let reasons: Vec<String> = reasons.iter().map(Misaligned::to_string).collect();
                f.write_str(&reasons.join("; "))
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

impl Misaligned {
    /// Returns the file left out, if the fault concerns one file.
    pub fn file(&self) -> Option<&str> {
        match self {
            Misaligned::NoTracks | Misaligned::TextAlone | Misaligned::Several(_) => None,
            Misaligned::NothingShown { file } => Some(file),
            Misaligned::Boundary { second, .. }
            | Misaligned::Count { second, .. }
            | Misaligned::End { second, .. } => Some(second),
        }
    }
}

/// The tracks that form a presentation, each with its role, and the reason for each track left out.
#[derive(Debug)]
pub(super) struct Aligned {
    pub(super) tracks: Vec<(NamedTrack, Role)>,
    pub(super) excluded: Vec<Misaligned>,
}

/// Leaves out the tracks that do not align with the others.
///
/// In each switching set of video, the tracks whose segment boundaries equal those of the reference
/// stay: the track with which most tracks of the set align. Then, of all video and audio tracks,
/// those stay that end within one segment of the reference: the video track near whose end most of
/// them end or, without video, the audio track. Of several such tracks, the reference is the first
/// by file name. Subtitles may end earlier, and trick-play tracks may have other boundaries,
/// because players do not switch to them at a segment boundary.
pub(super) fn keep_aligned(tracks: Vec<NamedTrack>) -> Aligned {
    let mut excluded = Vec::new();
    let (shown, empty): (Vec<_>, Vec<_>) = tracks.into_iter().partition(|t| t.segments().next().is_some());
    excluded.extend(empty.into_iter().map(|t| Misaligned::NothingShown { file: t.file }));
    let roles = super::role::roles(&shown);
    let mut tracks: Vec<(NamedTrack, Role)> = shown.into_iter().zip(roles).collect();
    let is_ladder = |(t, role): &(NamedTrack, Role)| *role == Role::Main && kind(t) == Kind::Video;
    let mut checked: Vec<String> = Vec::new();
    while let Some((first, _)) = tracks.iter().find(|t| is_ladder(t) && !checked.contains(&t.0.file)) {
        let info = first.index.info.clone();
        let in_set = |t: &(NamedTrack, Role)| is_ladder(t) && switchable(&t.0.index.info, &info);
        checked.extend(tracks.iter().filter(|t| in_set(t)).map(|(t, _)| t.file.clone()));
        exclude(&mut tracks, &mut excluded, in_set, same_boundaries);
    }
    exclude(&mut tracks, &mut excluded, |(t, _)| kind(t) != Kind::Text, same_end);
    Aligned { tracks, excluded }
}

/// Among the tracks for which `is_member` holds, excludes those that fail `compare` with the
/// reference.
fn exclude(
    tracks: &mut Vec<(NamedTrack, Role)>,
    excluded: &mut Vec<Misaligned>,
    is_member: impl Fn(&(NamedTrack, Role)) -> bool,
    compare: impl Fn(&NamedTrack, &NamedTrack) -> Result<(), Misaligned>,
) {
    let mut members: Vec<&NamedTrack> = tracks.iter().filter(|t| is_member(t)).map(|(t, _)| t).collect();
    members.sort_by_key(|t| (kind(t), &t.file));
    let Some(&first) = members.first() else { return };
    let agreeing = |a: &NamedTrack| members.iter().filter(|b| compare(a, b).is_ok()).count();
    let mut best = (first, agreeing(first));
    // Usually all members agree with the first, and no other candidate is compared.
    for &candidate in members[1..].iter().filter(|t| kind(t) == kind(first)) {
        if best.1 == members.len() {
            return;
        }
        let count = agreeing(candidate);
        if count > best.1 {
            best = (candidate, count);
        }
    }
    let reasons: Vec<(&str, Misaligned)> = members
        .iter()
        .filter_map(|track| Some((track.file.as_str(), compare(best.0, track).err()?)))
        .collect();
    let files: Vec<String> = reasons.iter().map(|(file, _)| (*file).to_owned()).collect();
    excluded.extend(reasons.into_iter().map(|(_, reason)| reason));
    tracks.retain(|(t, _)| !files.contains(&t.file));
}

fn kind(track: &NamedTrack) -> Kind {
    Kind::of(&track.index.info)
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

/// Checks that two tracks end within one segment of each other.
fn same_end(first: &NamedTrack, second: &NamedTrack) -> Result<(), Misaligned> {
    let end_us = |t: &NamedTrack| micros(t.end(), t.index.info.timescale);
    let allowed_us = segment_us_max(first).max(segment_us_max(second));
    if end_us(first).abs_diff(end_us(second)) <= allowed_us {
        return Ok(());
    }
    Err(Misaligned::End {
        first: first.file.clone(),
        first_us: end_us(first),
        second: second.file.clone(),
        second_us: end_us(second),
        allowed_us,
    })
}

fn segment_us_max(track: &NamedTrack) -> u64 {
    micros(track.segments().map(|s| s.duration).max().unwrap_or(0), track.index.info.timescale)
}
