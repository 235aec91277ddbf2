//! Warnings: properties of a presentation that may spoil playback although it can be served.

use super::{Kind, NamedTrack, Role, micros};
use std::fmt;

/// Minimum difference between the ends of audio and video that suggests a lost offset between them,
/// in microseconds. Viewers notice sound that is early by 45 ms or late by 125 ms (ITU-R BT.1359).
const END_DIFFERENCE_US_MIN: u64 = 100_000;

/// A reason to check a presentation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Warning {
    /// Audio and video both begin at 0 without an edit list, but end at different times. The muxer
    /// may have dropped the offset between them.
    OffsetUnknown {
        /// The audio file.
        audio: String,
        /// The video file.
        video: String,
        /// End of the audio minus end of the video, in microseconds.
        difference_us: i64,
    },
}

impl Warning {
    /// Returns the file to check.
    pub fn file(&self) -> &str {
        match self {
            Warning::OffsetUnknown { audio, .. } => audio,
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::OffsetUnknown { audio, video, difference_us } => {
                let (seconds, relation) = match difference_us {
                    ..0 => (-difference_us as f64 / 1e6, "before"),
                    _ => (*difference_us as f64 / 1e6, "after"),
                };
                write!(
                    f,
                    "{audio} ends {seconds:.3} s {relation} {video}, and both begin at 0 without an edit list: if \
                     they began at different times in the source, sound and picture are not in sync; make both \
                     files with ffmpeg's -movflags +delay_moov+default_base_moof, without cmaf"
                )
            }
        }
    }
}

/// Returns the warnings about `tracks`.
pub(super) fn warnings(tracks: &[NamedTrack], roles: &[Role]) -> Vec<Warning> {
    let of_kind = |kind| {
        let main = tracks.iter().zip(roles).filter(|(_, role)| **role == Role::Main).map(|(t, _)| t);
        main.filter(move |t| Kind::of(&t.index.info) == kind && begins_unstated(t))
    };
    let Some(video) = of_kind(Kind::Video).next() else { return Vec::new() };
    let end_us = |t: &NamedTrack| micros(t.end(), t.index.info.timescale);
    let warning = |audio: &NamedTrack| {
        let difference_us = end_us(audio).cast_signed().saturating_sub(end_us(video).cast_signed());
        (difference_us.unsigned_abs() >= END_DIFFERENCE_US_MIN).then(|| Warning::OffsetUnknown {
            audio: audio.file.clone(),
            video: video.file.clone(),
            difference_us,
        })
    };
    of_kind(Kind::Audio).filter_map(warning).collect()
}

/// Returns whether a track begins at 0 although nothing says so: muxers that keep the offset
/// between tracks write an edit list or a later decode time.
fn begins_unstated(track: &NamedTrack) -> bool {
    track.start() == 0 && track.index.info.edit_media_time == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presentation::OnDemand;
    use crate::presentation::tests::{audio, video};

    fn warned(sound: NamedTrack) -> Vec<String> {
        let presentation = OnDemand::new(vec![video("v", 180, &[25_600, 25_600]), sound]).unwrap();
        presentation.warnings().iter().map(Warning::to_string).collect()
    }

    #[test]
    fn different_ends_without_a_stated_start_are_reported() {
        let warnings = warned(audio("a", None, &[96_000, 76_800]));
        let [only] = &warnings[..] else { panic!("{warnings:?}") };
        assert!(only.starts_with("a.mp4 ends 0.400 s before v.mp4, and both begin at 0"), "{only}");
        assert_eq!(warned(audio("a", None, &[96_000, 100_800])).len(), 1);
        assert_eq!(warned(audio("a", None, &[96_000, 91_201])), [""; 0]);
        let mut edited = audio("a", None, &[96_000, 76_800]);
        edited.index.info.edit_media_time = 1024;
        assert_eq!(warned(edited), [""; 0]);
        let mut later = audio("a", None, &[96_000, 76_800]);
        later.index.segments.iter_mut().for_each(|s| s.time += 19_200);
        assert_eq!(warned(later), [""; 0]);
    }
}
