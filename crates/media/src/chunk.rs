//! CMAF chunks out of a stream of bytes that arrives in any pieces: the door of live ingest.
//!
//! [`ChunkScanner::push`] takes what has arrived, [`ChunkScanner::next_event`] gives the CMAF header
//! and each chunk the moment it is complete. The events depend on the bytes alone, not on how they
//! were split. After a fault the scanner stays at fault and drops what is pushed, so that an upload
//! can be read to its end before it is answered.

use bytes::Bytes;

use crate::error::Result;
use crate::fourcc::FourCc;
use crate::fragment::Fragment;
use crate::track::TrackInfo;

/// Longest CMAF chunk in bytes, and so the most that a scanner holds besides what was last pushed:
/// half a second at 1 Gbit/s.
pub const CHUNK_BYTES_MAX: u64 = 64 << 20;

/// What a scanner finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The CMAF header.
    Header(Header),
    /// A complete chunk.
    Chunk(Chunk),
}

/// A CMAF header: ftyp and moov.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Its bytes as received.
    pub bytes: Bytes,
    /// What they say.
    pub info: TrackInfo,
    /// Whether a header was known before: sources repeat it, and may change it.
    pub repeated: bool,
}

/// A CMAF chunk: moof and mdat, and what stands before them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// styp, prft, emsg, moof and mdat as received. Boxes for players of whole files (sidx, ssix,
    /// mfra, free) that came before the moof are left out.
    pub bytes: Bytes,
    /// Where its first box began in the upload.
    pub offset: u64,
    /// What its moof says.
    pub fragment: Fragment,
    /// Its producer reference time, the last where several came.
    pub prft: Option<Prft>,
    /// Brands of its styp, the major one first; `None` without a styp.
    pub styp: Option<Vec<FourCc>>,
}

impl Chunk {
    /// Whether it belongs to the last segment of its track: brand `lmsg`.
    #[must_use]
    pub fn is_last(&self) -> bool {
        self.styp.as_ref().is_some_and(|brands| brands.contains(&FourCc::LMSG))
    }
}

/// Producer reference time: when, by the wall clock, media time was captured or encoded
/// (ISO/IEC 14496-12 §8.16.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prft {
    /// reference_track_ID.
    pub track_id: u32,
    /// NTP time: seconds since 1900 in the upper 32 bits, fractions of a second in the lower.
    pub ntp: u64,
    /// The media time that `ntp` belongs to, in the track's timescale.
    pub media_time: u64,
    /// What happened at `ntp`: 0 the encoder's input, 1 its output, 2 the moof was finished, 4 it was
    /// written, 8 arbitrary, 24 captured.
    pub flags: u32,
}

/// Finds CMAF headers and chunks in a stream of bytes.
#[derive(Debug, Default)]
pub struct ChunkScanner {
    info: Option<TrackInfo>,
}

impl ChunkScanner {
    /// A scanner of a stream that brings its own CMAF header.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A scanner of a stream whose CMAF header came earlier, such as a segment uploaded on its own.
    #[must_use]
    pub fn with_header(info: &TrackInfo) -> Self {
        Self { info: Some(info.clone()) }
    }

    /// Takes the next bytes of the stream, any number of them.
    pub fn push(&mut self, bytes: &[u8]) {
        let _ = (bytes, &self.info);
        todo!()
    }

    /// The next header or chunk that is complete; `None` until more is pushed.
    ///
    /// # Errors
    /// The stream's first fault, with its offset and box; it stays. [`Fault::MissingHeader`] where a
    /// fragment came and no header before it.
    ///
    /// [`Fault::MissingHeader`]: crate::error::Fault::MissingHeader
    pub fn next_event(&mut self) -> Result<Option<Event>> {
        todo!()
    }

    /// Says that the stream has ended. To be called when [`next_event`](Self::next_event) has
    /// nothing more.
    ///
    /// # Errors
    /// The fault met before, or [`Fault::Truncated`] where a box or a moof without its mdat is left.
    ///
    /// [`Fault::Truncated`]: crate::error::Fault::Truncated
    pub fn finish(&mut self) -> Result<()> {
        todo!()
    }
}
