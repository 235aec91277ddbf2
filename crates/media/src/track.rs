//! The model of a track: what its CMAF header says, and where its segments lie.
//!
//! Times and durations are in units of the track's own timescale (mdhd, ISO/IEC 14496-12 §8.4.2),
//! never in seconds: the manifests convert, so that nothing drifts.

/// What a CMAF header (ftyp + moov, ISO/IEC 23000-19 §7.2) says of its one track.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrackInfo {
    /// tkhd track_ID.
    pub track_id: u32,
    /// Units per second of all times of this track (mdhd).
    pub timescale: u32,
    /// Codec as RFC 6381 writes it, such as `avc1.64001f` or `mp4a.40.2`.
    pub codec: String,
    /// mdhd language as BCP 47, or `None` for `und`.
    pub language: Option<String>,
    /// What only one kind of media has.
    pub media: Media,
    /// trex, used where a fragment leaves a value out (ISO/IEC 14496-12 §8.8.3).
    pub sample_defaults: SampleDefaults,
    /// Media time that is presented first: the edit list's media_time, 0 without one.
    pub edit_media_time: u64,
}

/// The kinds of media that are packaged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Media {
    /// Pictures; sizes as shown, in square pixels.
    Video {
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
    },
    /// Sound.
    Audio {
        /// Samples per second.
        sample_rate: u32,
        /// Channels.
        channels: u32,
    },
    /// Subtitles in fMP4 (wvtt, stpp).
    Text,
}

/// Defaults for samples that a fragment does not describe itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SampleDefaults {
    /// Duration in the track's timescale.
    pub duration: u32,
    /// Size in bytes.
    pub size: u32,
    /// Flags as in ISO/IEC 14496-12 §8.8.3.1.
    pub flags: u32,
}

/// One segment in a track's file: whole fragments, first sample a sync sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Where its first byte (styp, sidx-less prft, or moof) lies in the file.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
    /// Earliest presentation time, in the track's timescale.
    pub time: u64,
    /// Duration in the track's timescale.
    pub duration: u64,
}

/// A track as indexed: enough to write every manifest and to cut every segment by byte range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrackIndex {
    /// What the header says.
    pub info: TrackInfo,
    /// The CMAF header's bytes `[0, header_size)` of the file, passed through unchanged.
    pub header_size: u64,
    /// Frames per second as (numerator, denominator), for video with a constant sample duration.
    pub frame_rate: Option<(u32, u32)>,
    /// Whether fragments were seen whose data offsets count from the start of the file (tfhd
    /// base_data_offset, ISO/IEC 14496-12 §8.8.7): segments play on their own only once their moofs
    /// went through [`rebase_moof`](crate::write::rebase_moof).
    pub has_base_data_offset: bool,
    /// Every segment, in order, gapless in bytes except for boxes between segments (sidx, mfra).
    pub segments: Vec<Segment>,
}

/// Endings of the names of files that are taken for tracks.
pub const TRACK_EXTENSIONS: [&str; 7] = ["mp4", "m4v", "m4a", "m4s", "cmfv", "cmfa", "cmft"];

/// Whether a file of that name is taken for a track: it has one of [`TRACK_EXTENSIONS`], in whatever case,
/// and is not hidden.
#[must_use]
pub fn is_track_file(name: &str) -> bool {
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    !name.starts_with('.') && TRACK_EXTENSIONS.iter().any(|known| extension.eq_ignore_ascii_case(known))
}

/// What to tell an operator in whose directory no track was found.
pub const TRACK_EXTENSIONS_TOLD: &str =
    "a track is a file ending in .mp4, .m4v, .m4a, .m4s, .cmfv, .cmfa or .cmft";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_track_files() {
        for yes in ["a.mp4", "a.b.CMFV", "a .m4s"] {
            assert!(is_track_file(yes), "{yes}");
        }
        for no in ["", "mp4", "a.mp4.part", ".a.mp4", ".mp4", "a.txt", "a."] {
            assert!(!is_track_file(no), "{no}");
        }
        for extension in TRACK_EXTENSIONS {
            assert!(TRACK_EXTENSIONS_TOLD.contains(&format!(".{extension}")), "{extension}");
        }
    }
}
