//! Role of a track in its presentation: a part of the film, or a track for fast forward and rewind.
//!
//! A video track is a trick-play track if every sample is a sync sample and one of two conditions
//! holds:
//!
//! - its file name has one of the [`TRICK_PLAY_WORDS`] between punctuation, as in
//!   `video.trickplay.mp4`;
//! - its frame rate is at most a quarter ([`RATE_RATIO_MIN`]) of the fastest video track's.
//!
//! A presentation whose video tracks all meet the first condition has no trick-play track, because
//! nothing else would remain to play.

use super::{Kind, NamedTrack};

/// Minimum ratio between the highest frame rate of a presentation and a trick-play track's. No
/// ladder spans so much with ordinary tracks that consist of sync samples alone.
const RATE_RATIO_MIN: u64 = 4;

/// Words in a file name that mark a trick-play track, in upper or lower case.
const TRICK_PLAY_WORDS: [&str; 5] = ["trickplay", "trickmode", "trick", "iframe", "iframes"];

/// Role of a track.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Role {
    /// Part of the film: video, audio or subtitles.
    #[default]
    Main,
    /// Sync samples alone, for fast forward, rewind and seek previews.
    TrickPlay,
}

/// Returns the role of each track, in order.
pub(super) fn roles(tracks: &[NamedTrack]) -> Vec<Role> {
    let videos = || tracks.iter().filter(|t| Kind::of(&t.index.info) == Kind::Video);
    let rates = videos().filter_map(|t| t.index.frame_rate);
    let fastest = rates.reduce(|a, b| if at_least(a, b, 1) { a } else { b });
    let all_named = videos().all(is_named_trick_play);
    let role = |track: &NamedTrack| {
        let is_slow =
            fastest.zip(track.index.frame_rate).is_some_and(|(f, r)| at_least(f, r, RATE_RATIO_MIN));
        let is_named = !all_named && is_named_trick_play(track);
        let is_intra = Kind::of(&track.index.info) == Kind::Video && track.index.all_sync;
        if is_intra && (is_slow || is_named) { Role::TrickPlay } else { Role::Main }
    };
    tracks.iter().map(role).collect()
}

fn is_named_trick_play(track: &NamedTrack) -> bool {
    let name = track.file.rsplit('/').next().unwrap_or(&track.file);
    let mut words = name.split(|c: char| !c.is_ascii_alphanumeric());
    track.index.all_sync && words.any(|w| TRICK_PLAY_WORDS.iter().any(|known| w.eq_ignore_ascii_case(known)))
}

/// Returns whether frame rate `a` is at least `ratio` times frame rate `b`.
fn at_least(a: (u32, u32), b: (u32, u32), ratio: u64) -> bool {
    let product = |x: u32, y: u32| u128::from(x) * u128::from(y);
    product(a.0, b.1) >= u128::from(ratio) * product(b.0, a.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presentation::tests::{audio, video};

    fn intra(name: &str, rate: Option<(u32, u32)>) -> NamedTrack {
        let mut track = video(name, 180, &[25_600]);
        (track.index.frame_rate, track.index.all_sync) = (rate, true);
        track
    }

    fn trick_plays(tracks: &[NamedTrack]) -> Vec<&str> {
        let both = tracks.iter().zip(roles(tracks));
        both.filter(|(_, role)| *role == Role::TrickPlay).map(|(t, _)| t.name.as_str()).collect()
    }

    #[test]
    fn slow_track_of_sync_samples_is_trick_play() {
        let ladder = || vec![video("v", 360, &[25_600]), audio("a", None, &[96_000])];
        let with = |track: NamedTrack| [ladder(), vec![track]].concat();
        assert_eq!(trick_plays(&with(intra("half_hz", Some((1, 2))))), ["half_hz"]);
        assert_eq!(trick_plays(&with(intra("quarter", Some((25, 4))))), ["quarter"]);
        assert_eq!(trick_plays(&with(intra("faster", Some((26, 4))))), [""; 0]);
        assert_eq!(trick_plays(&with(intra("unknown", None))), [""; 0]);
        let mut predicted = intra("predicted", Some((1, 2)));
        predicted.index.all_sync = false;
        assert_eq!(trick_plays(&with(predicted)), [""; 0]);
        assert_eq!(trick_plays(&[intra("alone", Some((1, 2)))]), [""; 0]);
    }

    #[test]
    fn name_marks_a_trick_play_track() {
        let main = || intra("intra", Some((25, 1)));
        for name in ["video.trickplay", "TRICK_180", "v-iframes"] {
            assert_eq!(trick_plays(&[main(), intra(name, Some((25, 1)))]), [name]);
            assert_eq!(trick_plays(&[intra(name, None)]), [""; 0], "nothing else would remain");
        }
        assert_eq!(trick_plays(&[main(), intra("electrical_tricks", None)]), [""; 0]);
        let mut elsewhere = intra("v", None);
        elsewhere.file = String::from("trick/v.mp4");
        assert_eq!(trick_plays(&[main(), elsewhere]), [""; 0], "a directory is not part of the name");
    }
}
