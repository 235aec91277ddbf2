//! The fault of a file or stream: where it is, in which box, and what is wrong there.
//!
//! `Display` reads `offset 1234: box 'trun': truncated, needs 40 bytes, 12 left`. The offset counts
//! from the first byte of the file or upload, so that it can be found with a hex viewer.

use std::fmt;

use crate::fourcc::FourCc;

/// What this crate's parsers return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A fault in the bytes of a file or stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// Bytes from the start of the file or upload to the box at fault.
    pub offset: u64,
    /// The box at fault.
    pub kind: FourCc,
    /// What is wrong with it.
    pub fault: Fault,
}

/// The kinds of fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The box says it is longer than what is there.
    Truncated {
        /// Bytes that the box needs.
        need: u64,
        /// Bytes that are left for it.
        left: u64,
    },
    /// A value that the specification forbids.
    Invalid(&'static str),
    /// A box that has to be inside this one is not.
    Missing(FourCc),
    /// Above one of this crate's named limits.
    OverLimit {
        /// The limit's name.
        limit: &'static str,
        /// Its value.
        max: u64,
        /// What the box asks for.
        found: u64,
    },
    /// A sample entry (RFC 6381 codec) that is not packaged.
    UnsupportedCodec(FourCc),
    /// The codec configuration could not be read; mp4-atom's words.
    CodecConfiguration(String),
    /// Not a fragmented file: its samples lie in one table in moov.
    Progressive,
    /// A CMAF track file has one track (ISO/IEC 23000-19 §7.3.1).
    ManyTracks(usize),
    /// A fragment that came before any CMAF header, so that its times have no timescale.
    MissingHeader,
    /// Bytes that are no ISO BMFF file at all.
    NotIsoBmff,
    /// A file with a CMAF header and no fragment.
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
        write!(f, "offset {}: box '{}': {}", self.offset, self.kind, self.fault)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { need, left } => write!(f, "truncated, needs {need} bytes, {left} left"),
            Self::Invalid(what) => f.write_str(what),
            Self::Missing(kind) => write!(f, "has no '{kind}' box"),
            Self::OverLimit { limit, max, found } => write!(f, "{found} is above {limit} = {max}"),
            Self::UnsupportedCodec(kind) => write!(f, "codec '{kind}' is not supported"),
            Self::CodecConfiguration(why) => write!(f, "codec configuration: {why}"),
            Self::Progressive => f.write_str(
                "progressive MP4, not fragmented: make it so, a file a track, with `ffmpeg -i IN.mp4 -map 0:v:0 -c copy \
                 -movflags +cmaf+frag_keyframe OUT.mp4` (audio: `-map 0:a:0 -c copy -movflags +cmaf -frag_duration \
                 500000`)",
            ),
            Self::ManyTracks(count) => write!(
                f,
                "{count} tracks in one file, CMAF has one a file: split them with `ffmpeg -i IN.mp4 -map 0:v:0 \
                 -c copy -movflags +cmaf+frag_keyframe OUT.mp4` (audio: `-map 0:a:0 -c copy -movflags +cmaf \
                 -frag_duration 500000`)"
            ),
            Self::MissingHeader => f.write_str("fragment before any CMAF header (ftyp and moov)"),
            Self::NotIsoBmff => f.write_str("not an MP4 (ISO BMFF) file"),
            Self::Empty => f.write_str("no fragment (moof) after the CMAF header"),
        }
    }
}

impl std::error::Error for Error {}
