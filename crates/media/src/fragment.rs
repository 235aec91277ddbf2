//! Movie fragments: the samples declared by one moof (ISO/IEC 14496-12 §8.8).
//!
//! A CMAF chunk has one moof with one traf (ISO/IEC 23000-19 §7.5), and every fragment parsed here
//! must have the same form. Media data is never read.

use std::ops::Range;

use crate::boxes::{BoxHeader, Mp4Box};
use crate::error::{Error, Fault, Result};
use crate::fourcc::FourCc;
use crate::samples::{self, Samples, TrackFragmentHeader};
use crate::track::TrackInfo;

/// Maximum length of a moof, in bytes. It allows about 250,000 samples of 16 bytes each.
pub const MOOF_BYTES_MAX: u64 = 4 << 20;

/// Maximum samples in one fragment. A trun can declare 2³² samples in 20 bytes.
pub const FRAGMENT_SAMPLES_MAX: u64 = 1 << 20;

/// Maximum decode time, in the track's timescale, so that sums of times cannot overflow: 14,000
/// years at a timescale of 10 MHz.
pub const MEDIA_TIME_MAX: u64 = 1 << 62;

/// The contents of one moof.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fragment {
    /// mfhd sequence_number. It is not reliable for ordering, because sources restart it.
    pub sequence_number: u32,
    /// tfhd track_ID, equal to the header's.
    pub track_id: u32,
    /// Decode time of the first sample (tfdt), in the track's timescale.
    pub decode_time: u64,
    /// Earliest composition time of the samples, in the track's timescale, without the edit list;
    /// at least 0, because nothing before media time 0 is presented.
    pub presentation_time: u64,
    /// Sum of the samples' durations, in the track's timescale.
    pub duration: u64,
    /// Number of samples, at least one.
    pub sample_count: u32,
    /// Duration of each sample, if all samples have the same duration.
    pub sample_duration: Option<u32>,
    /// Whether the first sample is a sync sample, so that decoding can start here.
    pub starts_with_sync: bool,
    /// Whether every sample is a sync sample.
    pub all_sync: bool,
    /// Byte range of the samples, relative to the first byte of the moof.
    pub data: Range<u64>,
    /// End of the first sample, relative to the first byte of the moof.
    pub first_sample_end: u64,
    /// Sum of the samples' sizes, in bytes.
    pub data_size: u64,
    /// Whether tfhd has an absolute base_data_offset, which CMAF and MSE forbid.
    pub has_base_data_offset: bool,
}

impl Fragment {
    /// Parses a complete moof box at `offset` in its file or upload. `info` is the track's CMAF
    /// header, whose defaults apply to values missing in the fragment.
    ///
    /// # Errors
    ///
    /// Returns an error if a box is truncated, missing, forbidden by CMAF, or above a limit of this
    /// module.
    pub fn parse(moof: &[u8], offset: u64, info: &TrackInfo) -> Result<Self> {
        let moof = Mp4Box::parse(moof, offset)?;
        if moof.kind != FourCc::MOOF {
            return Err(moof.invalid("expected a moof"));
        }
        let (_, _, mut mfhd) = moof.require(FourCc::MFHD)?.full()?;
        let sequence_number = mfhd.u32()?;
        let traf = only_traf(&moof)?;
        let tfhd = traf.require(FourCc::TFHD)?;
        let head = TrackFragmentHeader::parse(&tfhd, info.sample_defaults)?;
        if head.track_id != info.track_id {
            return Err(tfhd.invalid("track_ID must match the CMAF header's"));
        }
        let decode_time = samples::decode_time(&traf.require(FourCc::TFDT)?)?;
        // The data offsets of a moof's first traf count from the moof, even without
        // default-base-is-moof.
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
            return Err(traf.invalid("samples must not precede the moof"));
        };
        Ok(Self {
            sequence_number,
            track_id: head.track_id,
            decode_time,
            presentation_time: decode_time.saturating_add_signed(samples.earliest),
            duration: samples.duration,
            sample_count: u32::try_from(samples.count).expect("FRAGMENT_SAMPLES_MAX fits in a u32"),
            sample_duration: samples.constant_duration(),
            starts_with_sync: samples.first_is_sync,
            all_sync: samples.all_sync,
            data: start..end,
            first_sample_end: u64::try_from(samples.first_end).unwrap_or(end),
            data_size: samples.size,
            has_base_data_offset: head.base_data_offset.is_some(),
        })
    }

    /// Checks that the samples lie in the mdat at `mdat_offset` with the given `header`; the moof
    /// is at `moof_offset` in the same file or upload.
    ///
    /// # Errors
    ///
    /// Returns an error that names the mdat if the samples lie outside it.
    pub fn check_data(&self, moof_offset: u64, mdat_offset: u64, header: &BoxHeader) -> Result<()> {
        let body = mdat_offset + u64::from(header.header_size);
        let end = header.size.map_or(u64::MAX, |size| mdat_offset.saturating_add(size));
        let first = moof_offset.saturating_add(self.data.start);
        let last = moof_offset.saturating_add(self.data.end);
        if first < body || last > end {
            return Err(Error::invalid(mdat_offset, header.kind, "must contain the samples of its moof"));
        }
        Ok(())
    }

    /// Returns the decode time at which the next fragment should begin.
    #[must_use]
    pub fn decode_end(&self) -> u64 {
        self.decode_time + self.duration
    }
}

/// Returns the only traf of a moof; CMAF allows exactly one (ISO/IEC 23000-19 §7.5.14).
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
