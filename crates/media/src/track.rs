//! Model of a track: the contents of its CMAF header and the location of its segments.
//!
//! Times and durations are in the track's own timescale (mdhd, ISO/IEC 14496-12 §8.4.2), never in
//! seconds. Only manifests convert them, so that rounding errors do not accumulate.

use crate::properties::Properties;
use crate::tiles::parse_name;

/// Contents of a CMAF header (ftyp + moov, ISO/IEC 23000-19 §7.2), which describes one track.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrackInfo {
    /// tkhd track_ID.
    pub track_id: u32,
    /// Units per second of all times of the track (mdhd).
    pub timescale: u32,
    /// Codec in RFC 6381 form, such as `avc1.64001f` or `mp4a.40.2`.
    pub codec: String,
    /// Language as BCP 47, or `None` for `und`.
    pub language: Option<String>,
    /// Properties specific to the media kind.
    pub media: Media,
    /// Optional properties.
    pub properties: Box<Properties>,
    /// trex defaults for values missing in a fragment (ISO/IEC 14496-12 §8.8.3).
    pub sample_defaults: SampleDefaults,
    /// Media time presented first: the edit list's media_time, or 0 without one.
    pub edit_media_time: u64,
}

/// Supported media kinds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Media {
    /// Video, with its displayed size in square pixels.
    Video {
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
    },
    /// Audio.
    Audio {
        /// Sampling frequency in Hz.
        sample_rate: u32,
        /// Number of channels.
        channels: u32,
    },
    /// Subtitles in fMP4 (wvtt, stpp).
    Text,
    /// A WebVTT file.
    WebVtt,
}

/// Defaults for sample values missing in a fragment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SampleDefaults {
    /// Duration in the track's timescale.
    pub duration: u32,
    /// Size in bytes.
    pub size: u32,
    /// Flags as in ISO/IEC 14496-12 §8.8.3.1.
    pub flags: u32,
}

/// One segment in a track's file: a run of whole fragments that begins with a sync sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Position of the segment's first byte (styp, prft without a sidx, or moof) in the file.
    pub offset: u64,
    /// Size in bytes.
    pub size: u64,
    /// Earliest presentation time, in the track's timescale.
    pub time: u64,
    /// Duration in the track's timescale.
    pub duration: u64,
}

/// Index of a track: sufficient to write every manifest and to serve every segment as a byte range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrackIndex {
    /// Contents of the CMAF header.
    pub info: TrackInfo,
    /// Size of the CMAF header: the bytes `[0, header_size)` of the file, served unchanged.
    pub header_size: u64,
    /// Frames per second as (numerator, denominator), for video with a constant sample duration.
    pub frame_rate: Option<(u32, u32)>,
    /// Whether any fragment's data offsets count from the start of the file (tfhd base_data_offset,
    /// ISO/IEC 14496-12 §8.8.7). Segments then play only after
    /// [`rebase_moof`](crate::write::rebase_moof) has rewritten their moofs.
    pub has_base_data_offset: bool,
    /// Delay by an empty edit, in the track's timescale. Segments have the delay in their times,
    /// and play only after [`delay_moof`](crate::delay::delay_moof) has added it to their decode
    /// times.
    pub delay: u64,
    /// Whether every sample of the fragments read while indexing is a sync sample.
    pub all_sync: bool,
    /// All segments in order, contiguous except for boxes between segments (sidx, mfra).
    pub segments: Vec<Segment>,
    /// Bytes from the start of each segment to the end of its first sample, for a video track whose
    /// segments all begin with a sync sample of known size. Otherwise empty.
    pub key_sizes: Vec<u32>,
}

/// File name extensions of track files.
pub const TRACK_EXTENSIONS: [&str; 8] = ["mp4", "m4v", "m4a", "m4s", "cmfv", "cmfa", "cmft", "vtt"];

/// Returns whether a file is treated as a track: its name is not hidden and has one of
/// [`TRACK_EXTENSIONS`], in upper or lower case, or names an image of [tiles](crate::tiles).
#[must_use]
pub fn is_track_file(name: &str) -> bool {
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    let is_track = TRACK_EXTENSIONS.iter().any(|known| extension.eq_ignore_ascii_case(known));
    !name.starts_with('.') && (is_track || parse_name(name).is_some())
}

/// Message for an operator whose directory contains no track.
pub const TRACK_EXTENSIONS_HELP: &str =
    "a track is a file ending in .mp4, .m4v, .m4a, .m4s, .cmfv, .cmfa, .cmft or .vtt";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn track_files_are_recognised_by_name() {
        for yes in ["a.mp4", "a.b.CMFV", "a .m4s", "t.5x4.10s.1.jpg"] {
            assert!(is_track_file(yes), "{yes}");
        }
        for no in ["", "mp4", "a.mp4.part", ".a.mp4", ".mp4", "a.txt", "a.", "a.jpg"] {
            assert!(!is_track_file(no), "{no}");
        }
        for extension in TRACK_EXTENSIONS {
            assert!(TRACK_EXTENSIONS_HELP.contains(&format!(".{extension}")), "{extension}");
        }
    }
}
