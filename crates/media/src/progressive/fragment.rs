//! Movie fragment of a segment: a moof with one traf and one trun (ISO/IEC 14496-12 §8.8), and the
//! header of the mdat after it.
//!
//! **Invariant:** [`Layout`] alone determines the size of the moof, so a segment's size is known
//! before its moof is written.

use super::build::Builder;
use super::table::Sample;
use crate::fourcc::FourCc;

/// tfhd flags: default sample duration, size and flags, and default-base-is-moof.
mod tf {
    pub(super) const DURATION: u32 = 0x8;
    pub(super) const SIZE: u32 = 0x10;
    pub(super) const FLAGS: u32 = 0x20;
    pub(super) const BASE_IS_MOOF: u32 = 0x2_0000;
}

/// trun flags: data offset, flags of the first sample, and values of each sample.
mod tr {
    pub(super) const DATA_OFFSET: u32 = 0x1;
    pub(super) const FIRST_SAMPLE_FLAGS: u32 = 0x4;
    pub(super) const DURATION: u32 = 0x100;
    pub(super) const SIZE: u32 = 0x200;
    pub(super) const FLAGS: u32 = 0x400;
    pub(super) const COMPOSITION_OFFSET: u32 = 0x800;
}

/// Size of an mdat header, in bytes.
pub(super) const MDAT_HEADER_BYTES: u64 = 8;
/// Size of a moof without optional fields: moof and mfhd, traf, tfhd, tfdt and trun.
const MOOF_BYTES: u64 = 8 + 16 + 8 + 16 + 20 + 20;

/// Which values a fragment's samples share, and therefore the form of its moof.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Layout {
    first: Option<Sample>,
    /// Flags of the second sample, with which those of all further samples are compared.
    second_flags: u32,
    count: u32,
    data_bytes: u64,
    durations_vary: bool,
    sizes_vary: bool,
    flags_vary: bool,
    reordered: bool,
}

impl Layout {
    /// Adds a sample.
    pub(super) fn add(&mut self, sample: Sample) {
        let first = *self.first.get_or_insert(sample);
        if self.count == 1 {
            self.second_flags = sample.flags;
        }
        self.count += 1;
        self.data_bytes += u64::from(sample.size);
        self.durations_vary |= sample.duration != first.duration;
        self.sizes_vary |= sample.size != first.size;
        self.flags_vary |= self.count > 2 && sample.flags != self.second_flags;
        self.reordered |= sample.composition_offset != 0;
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Returns the size of moof and mdat, in bytes.
    pub(super) fn segment_bytes(&self) -> u64 {
        self.moof_bytes() + MDAT_HEADER_BYTES + self.data_bytes
    }

    /// Returns the bytes from the start of the moof to the end of the first sample.
    pub(super) fn first_sample_end(&self) -> u64 {
        let first = self.first.map_or(0, |first| u64::from(first.size));
        self.moof_bytes() + MDAT_HEADER_BYTES + first
    }

    fn moof_bytes(&self) -> u64 {
        let (tfhd, trun) = (self.tfhd_flags(), self.trun_flags());
        let optional = (tfhd & (tf::DURATION | tf::SIZE | tf::FLAGS)).count_ones();
        let optional = u64::from(optional + (trun & tr::FIRST_SAMPLE_FLAGS).count_ones());
        let per_sample = trun & (tr::DURATION | tr::SIZE | tr::FLAGS | tr::COMPOSITION_OFFSET);
        MOOF_BYTES + 4 * (optional + u64::from(per_sample.count_ones()) * u64::from(self.count))
    }

    fn tfhd_flags(&self) -> u32 {
        let default = |varies: bool, flag: u32| if varies { 0 } else { flag };
        tf::BASE_IS_MOOF
            | default(self.durations_vary, tf::DURATION)
            | default(self.sizes_vary, tf::SIZE)
            | default(self.flags_vary, tf::FLAGS)
    }

    fn trun_flags(&self) -> u32 {
        let of_each = |varies: bool, flag: u32| if varies { flag } else { 0 };
        tr::DATA_OFFSET
            | of_each(!self.flags_vary && self.first_differs(), tr::FIRST_SAMPLE_FLAGS)
            | of_each(self.durations_vary, tr::DURATION)
            | of_each(self.sizes_vary, tr::SIZE)
            | of_each(self.flags_vary, tr::FLAGS)
            | of_each(self.reordered, tr::COMPOSITION_OFFSET)
    }

    fn first_differs(&self) -> bool {
        self.count > 1 && self.first.is_some_and(|first| first.flags != self.second_flags)
    }

    /// Writes the moof and the mdat header of the segment with these `samples`.
    pub(super) fn write(
        &self,
        track_id: u32,
        sequence_number: u32,
        decode_time: u64,
        samples: impl Iterator<Item = Sample>,
    ) -> Vec<u8> {
        let Some(first) = self.first else { return Vec::new() };
        let mut out = Builder::default();
        out.bytes.reserve_exact((self.moof_bytes() + MDAT_HEADER_BYTES) as usize);
        let moof = out.boxed(FourCc::MOOF, |out| {
            out.full(FourCc::MFHD, 0, 0, &[sequence_number]);
            out.boxed(FourCc::TRAF, |out| {
                self.write_tfhd(out, track_id, first);
                out.full(FourCc::TFDT, 1, 0, &[(decode_time >> 32) as u32, decode_time as u32]);
                self.write_trun(out, first, samples)
            })
        });
        let Ok(()) = moof;
        let mdat = MDAT_HEADER_BYTES + self.data_bytes;
        out.u32(u32::try_from(mdat).expect("SEGMENT_BYTES_MAX limits the size of a segment"));
        out.bytes.extend_from_slice(&FourCc::MDAT.0);
        out.bytes
    }

    fn write_tfhd(&self, out: &mut Builder, track_id: u32, first: Sample) {
        let flags = self.tfhd_flags();
        let default_flags = if self.count > 1 { self.second_flags } else { first.flags };
        let mut fields = vec![track_id];
        fields.extend((flags & tf::DURATION != 0).then_some(first.duration));
        fields.extend((flags & tf::SIZE != 0).then_some(first.size));
        fields.extend((flags & tf::FLAGS != 0).then_some(default_flags));
        out.full(FourCc::TFHD, 0, flags, &fields);
    }

    fn write_trun(
        &self,
        out: &mut Builder,
        first: Sample,
        samples: impl Iterator<Item = Sample>,
    ) -> Result<(), std::convert::Infallible> {
        let flags = self.trun_flags();
        let data_offset = self.moof_bytes() + MDAT_HEADER_BYTES;
        out.boxed(FourCc::TRUN, |out| {
            // Version 1 has signed composition offsets.
            out.u32(1 << 24 | flags);
            out.u32(self.count);
            out.u32(data_offset as u32);
            if flags & tr::FIRST_SAMPLE_FLAGS != 0 {
                out.u32(first.flags);
            }
            for sample in samples.take(self.count as usize) {
                let mut value = |flag, value| {
                    if flags & flag != 0 {
                        out.u32(value);
                    }
                };
                value(tr::DURATION, sample.duration);
                value(tr::SIZE, sample.size);
                value(tr::FLAGS, sample.flags);
                value(tr::COMPOSITION_OFFSET, sample.composition_offset.cast_unsigned());
            }
            Ok(())
        })
    }
}
