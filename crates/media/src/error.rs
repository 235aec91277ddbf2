//! Parser errors: the position, the box, and the fault.
//!
//! `Display` reads `offset 1234: box 'trun': truncated, needs 40 bytes, 12 left`. The offset counts
//! from the first byte of the file or upload, as in a hex viewer.

use std::fmt;

use crate::fourcc::FourCc;

/// The result type of this crate's parsers.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A fault in a file or stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// Position of the box with the fault, from the start of the file or upload.
    pub offset: u64,
    /// Type of the box with the fault.
    pub kind: FourCc,
    /// The fault.
    pub fault: Fault,
}

/// Kinds of fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The box's size exceeds the bytes available.
    Truncated {
        /// Bytes that the box needs.
        need: u64,
        /// Bytes available for the box.
        left: u64,
    },
    /// A value that the specification forbids.
    Invalid(&'static str),
    /// A required child box is missing.
    Missing(FourCc),
    /// A value above one of this crate's named limits.
    OverLimit {
        /// The limit's name.
        limit: &'static str,
        /// The limit's value.
        max: u64,
        /// The value found in the file.
        found: u64,
    },
    /// A sample entry whose codec is not supported.
    UnsupportedCodec(FourCc),
    /// The codec configuration could not be parsed; contains mp4-atom's message.
    CodecConfiguration(String),
    /// The file is not fragmented: its samples are described in moov.
    Progressive,
    /// The fragmented file has this many tracks; a CMAF track file has exactly one (ISO/IEC
    /// 23000-19 §7.3.1).
    ManyTracks(usize),
    /// The file has media but no moov, which describes it.
    MissingMoov,
    /// A fragment has no preceding CMAF header, so its times have no timescale.
    MissingHeader,
    /// The file is not ISO BMFF.
    NotIsoBmff,
    /// The file has a CMAF header but no fragment.
    Empty,
}

impl Error {
    pub(crate) fn new(offset: u64, kind: FourCc, fault: Fault) -> Self {
        Self { offset, kind, fault }
    }

    pub(crate) fn invalid(offset: u64, kind: FourCc, what: &'static str) -> Self {
        Self::new(offset, kind, Fault::Invalid(what))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            FourCc::WEBVTT => write!(f, "offset {}: WebVTT: {}", self.offset, self.fault),
            kind => write!(f, "offset {}: box '{kind}': {}", self.offset, self.fault),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { need, left } => write!(f, "truncated, needs {need} bytes, {left} left"),
            Self::Invalid(what) => f.write_str(what),
            Self::Missing(kind) => write!(f, "has no '{kind}' box"),
            Self::OverLimit { limit, max, found } => write!(f, "{found} exceeds {limit} ({max})"),
            Self::UnsupportedCodec(kind) if matches!(&kind.0, b"enct" | b"encs") => {
                write!(f, "the track is encrypted ('{kind}'), which is supported only for video and audio")
            }
            Self::UnsupportedCodec(kind) => write!(f, "codec '{kind}' is not supported"),
            Self::CodecConfiguration(why) => write!(f, "codec configuration: {why}"),
            Self::Progressive => f.write_str(
                "progressive MP4, not fragmented: convert it, one file per track, with `ffmpeg -i IN.mp4 -map 0:v:0 -c copy \
                 -movflags +cmaf+frag_keyframe OUT.mp4` (audio: `-map 0:a:0 -c copy -movflags +cmaf -frag_duration \
                 500000`)",
            ),
            Self::ManyTracks(count) => write!(
                f,
                "fragmented MP4 with {count} tracks, but CMAF allows one per file: make it progressive, with all tracks, with \
                 `ffmpeg -i IN.mp4 -map 0 -c copy -movflags +faststart OUT.mp4`, or split it with `ffmpeg -i IN.mp4 -map \
                 0:v:0 -c copy -movflags +cmaf+frag_keyframe OUT.mp4` (audio: `-map 0:a:0 -c copy -movflags +cmaf \
                 -frag_duration 500000`)"
            ),
            Self::MissingMoov => f.write_str(
                "media data without a 'moov' box in the file: the file is incomplete, because the recording or the copy \
                 was interrupted",
            ),
            Self::MissingHeader => f.write_str("fragment before any CMAF header (ftyp and moov)"),
            Self::NotIsoBmff => f.write_str("not an MP4 (ISO BMFF) file"),
            Self::Empty => f.write_str("no fragment (moof) after the CMAF header"),
        }
    }
}

impl std::error::Error for Error {}
