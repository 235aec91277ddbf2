//! Movie fragments: what one moof says of its samples (ISO/IEC 14496-12 §8.8).
//!
//! A CMAF chunk has one moof with one traf (ISO/IEC 23000-19 §7.5), and so has a fragment here.
//! Nothing of the media data is read.

use std::ops::Range;

use crate::boxes::BoxHeader;
use crate::error::Result;
use crate::track::TrackInfo;

/// Longest moof that is read, in bytes: at 16 bytes a sample, 250,000 samples.
pub const MOOF_BYTES_MAX: u64 = 4 << 20;

/// Most samples in one fragment. A trun may describe 2³² samples in 20 bytes.
pub const FRAGMENT_SAMPLES_MAX: u64 = 1 << 20;

/// Latest decode time, in the track's timescale, so that sums of times cannot overflow:
/// 14,000 years at a timescale of 10 MHz.
pub const MEDIA_TIME_MAX: u64 = 1 << 62;

/// What one moof says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fragment {
    /// mfhd sequence_number. Not to be relied on for order: sources restart it.
    pub sequence_number: u32,
    /// tfhd track_ID, the same as the header's.
    pub track_id: u32,
    /// Decode time of the first sample (tfdt), in the track's timescale.
    pub decode_time: u64,
    /// Earliest composition time of its samples, in the track's timescale, before any edit list.
    /// What lies before media time 0 is never presented, so this is at least 0.
    pub presentation_time: u64,
    /// Sum of the samples' durations, in the track's timescale.
    pub duration: u64,
    /// Samples, at least one.
    pub sample_count: u32,
    /// The duration of every sample where all have the same.
    pub sample_duration: Option<u32>,
    /// Whether the first sample is a sync sample: decoding can start here.
    pub starts_with_sync: bool,
    /// Where the samples' bytes lie, from the first byte of the moof.
    pub data: Range<u64>,
    /// Sum of the samples' sizes, in bytes.
    pub data_size: u64,
    /// Whether tfhd has an absolute base_data_offset, which CMAF and MSE forbid.
    pub has_base_data_offset: bool,
}

impl Fragment {
    /// Reads a whole moof box, header and body, that lies at `offset` in its file or upload.
    /// `info` is what the track's CMAF header says: its defaults fill what the fragment leaves out.
    ///
    /// # Errors
    /// A box of it that is cut off, missing, forbidden by CMAF, or above a limit of this module.
    pub fn parse(moof: &[u8], offset: u64, info: &TrackInfo) -> Result<Self> {
        let _ = (moof, offset, info);
        todo!()
    }

    /// Checks that the samples lie in the mdat whose `header` is found at `mdat_offset`; the moof
    /// is at `moof_offset` in the same file or upload.
    ///
    /// # Errors
    /// Names the mdat.
    pub fn check_data(&self, moof_offset: u64, mdat_offset: u64, header: &BoxHeader) -> Result<()> {
        let _ = (moof_offset, mdat_offset, header);
        todo!()
    }

    /// Decode time at which the next fragment is to begin.
    #[must_use]
    pub fn decode_end(&self) -> u64 {
        self.decode_time + self.duration
    }
}
