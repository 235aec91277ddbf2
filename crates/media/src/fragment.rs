//! Movie fragments: what one moof says of its samples (ISO/IEC 14496-12 §8.8).
//!
//! A CMAF chunk has one moof with one traf (ISO/IEC 23000-19 §7.5), and so has a fragment here.
//! Nothing of the media data is read.

use std::ops::Range;

use crate::boxes::{BoxHeader, Mp4Box};
use crate::error::{Error, Fault, Result};
use crate::fourcc::FourCc;
use crate::samples::{self, Samples, TrackFragmentHeader};
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
        let moof = Mp4Box::parse(moof, offset)?;
        if moof.kind != FourCc::MOOF {
            return Err(moof.invalid("a moof belongs here"));
        }
        let (_, _, mut mfhd) = moof.require(FourCc::MFHD)?.full()?;
        let sequence_number = mfhd.u32()?;
        let traf = only_traf(&moof)?;
        let tfhd = traf.require(FourCc::TFHD)?;
        let head = TrackFragmentHeader::parse(&tfhd, info.sample_defaults)?;
        if head.track_id != info.track_id {
            return Err(tfhd.invalid("track_ID is not that of the CMAF header"));
        }
        let decode_time = samples::decode_time(&traf.require(FourCc::TFDT)?)?;
        // The first traf of a moof counts from the moof itself, with default-base-is-moof or without.
        let base = head.base_data_offset.map_or(0, |base| i128::from(base) - i128::from(offset));
        let mut samples = Samples::new(head.defaults, base);
        for child in traf.children() {
            let child = child?;
            if child.kind == FourCc::TRUN {
                samples.add_run(&child)?;
            }
        }
        let Some(data) = &samples.data else { return Err(traf.invalid("has no samples")) };
        let (Ok(start), Ok(end)) = (u64::try_from(data.start), u64::try_from(data.end)) else {
            return Err(traf.invalid("its samples lie before the moof"));
        };
        Ok(Self {
            sequence_number,
            track_id: head.track_id,
            decode_time,
            presentation_time: decode_time.saturating_add_signed(samples.earliest),
            duration: samples.duration,
            sample_count: u32::try_from(samples.count).expect("at most FRAGMENT_SAMPLES_MAX"),
            sample_duration: samples.constant_duration(),
            starts_with_sync: samples.first_is_sync,
            data: start..end,
            data_size: samples.size,
            has_base_data_offset: head.base_data_offset.is_some(),
        })
    }

    /// Checks that the samples lie in the mdat whose `header` is found at `mdat_offset`; the moof
    /// is at `moof_offset` in the same file or upload.
    ///
    /// # Errors
    /// Names the mdat.
    pub fn check_data(&self, moof_offset: u64, mdat_offset: u64, header: &BoxHeader) -> Result<()> {
        let body = mdat_offset + u64::from(header.header_size);
        let end = header.size.map_or(u64::MAX, |size| mdat_offset.saturating_add(size));
        let first = moof_offset.saturating_add(self.data.start);
        let last = moof_offset.saturating_add(self.data.end);
        if first < body || last > end {
            return Err(Error::invalid(mdat_offset, header.kind, "does not hold the samples of its moof"));
        }
        Ok(())
    }

    /// Decode time at which the next fragment is to begin.
    #[must_use]
    pub fn decode_end(&self) -> u64 {
        self.decode_time + self.duration
    }
}

/// The one traf of a moof: CMAF has one (ISO/IEC 23000-19 §7.5.14).
fn only_traf<'a>(moof: &Mp4Box<'a>) -> Result<Mp4Box<'a>> {
    let mut only = None;
    let mut count = 0;
    for child in moof.children() {
        let child = child?;
        if child.kind == FourCc::TRAF {
            count += 1;
            only = Some(child);
        }
    }
    match only {
        Some(traf) if count == 1 => Ok(traf),
        Some(_) => Err(moof.fault(Fault::ManyTracks(count))),
        None => Err(moof.fault(Fault::Missing(FourCc::TRAF))),
    }
}
