//! Samples of one track fragment, from tfhd, tfdt and trun (ISO/IEC 14496-12 §8.8.7, §8.8.8,
//! §8.8.12), added up as they are read. No sample is stored.

use std::ops::Range;

use crate::boxes::Mp4Box;
use crate::error::{Fault, Result};
use crate::fragment::{FRAGMENT_SAMPLES_MAX, MEDIA_TIME_MAX};
use crate::reader::Reader;
use crate::track::SampleDefaults;

/// tfhd tf_flags, §8.8.7.1.
mod tf {
    pub(super) const BASE_DATA_OFFSET: u32 = 0x1;
    pub(super) const SAMPLE_DESCRIPTION_INDEX: u32 = 0x2;
    pub(super) const DURATION: u32 = 0x8;
    pub(super) const SIZE: u32 = 0x10;
    pub(super) const FLAGS: u32 = 0x20;
}

/// trun tr_flags, §8.8.8.1.
mod tr {
    pub(super) const DATA_OFFSET: u32 = 0x1;
    pub(super) const FIRST_SAMPLE_FLAGS: u32 = 0x4;
    pub(super) const DURATION: u32 = 0x100;
    pub(super) const SIZE: u32 = 0x200;
    pub(super) const FLAGS: u32 = 0x400;
    pub(super) const COMPOSITION_OFFSET: u32 = 0x800;
    pub(super) const PER_SAMPLE: u32 = DURATION | SIZE | FLAGS | COMPOSITION_OFFSET;
}

/// sample_is_non_sync_sample, §8.8.3.1.
const NON_SYNC: u32 = 0x0001_0000;

/// A tfhd, with the CMAF header's defaults for missing values.
pub(crate) struct TrackFragmentHeader {
    pub(crate) track_id: u32,
    pub(crate) base_data_offset: Option<u64>,
    pub(crate) defaults: SampleDefaults,
}

impl TrackFragmentHeader {
    pub(crate) fn parse(tfhd: &Mp4Box<'_>, trex: SampleDefaults) -> Result<Self> {
        let (_, flags, mut r) = tfhd.full()?;
        let track_id = r.u32()?;
        let base_data_offset = if flags & tf::BASE_DATA_OFFSET != 0 { Some(r.u64()?) } else { None };
        if flags & tf::SAMPLE_DESCRIPTION_INDEX != 0 {
            r.u32()?;
        }
        let mut or = |flag, default| if flags & flag != 0 { r.u32() } else { Ok(default) };
        let defaults = SampleDefaults {
            duration: or(tf::DURATION, trex.duration)?,
            size: or(tf::SIZE, trex.size)?,
            flags: or(tf::FLAGS, trex.flags)?,
        };
        Ok(Self { track_id, base_data_offset, defaults })
    }
}

/// Reads the decode time of a fragment's first sample.
pub(crate) fn decode_time(tfdt: &Mp4Box<'_>) -> Result<u64> {
    let (version, _, mut r) = tfdt.full()?;
    let time = r.u32_or_u64(version == 1)?;
    if time > MEDIA_TIME_MAX {
        let fault = Fault::OverLimit { limit: "MEDIA_TIME_MAX", max: MEDIA_TIME_MAX, found: time };
        return Err(tfdt.fault(fault));
    }
    Ok(time)
}

/// Totals over the runs of a fragment.
pub(crate) struct Samples {
    defaults: SampleDefaults,
    /// Base of the runs' data offsets, and position of the next run's data if the run has no
    /// offset; both relative to the first byte of the moof.
    base: i128,
    next_data: i128,
    pub(crate) count: u64,
    pub(crate) duration: u64,
    pub(crate) size: u64,
    /// Earliest composition time, relative to the fragment's decode time.
    pub(crate) earliest: i64,
    pub(crate) first_is_sync: bool,
    pub(crate) all_sync: bool,
    /// End of the first sample's data, relative to the first byte of the moof.
    pub(crate) first_end: i128,
    pub(crate) data: Option<Range<i128>>,
    pace: Pace,
}

/// Whether all samples so far have the same duration.
#[derive(Clone, Copy)]
enum Pace {
    Unknown,
    Constant(u32),
    Varying,
}

impl Samples {
    /// Creates empty totals; `base` is relative to the first byte of the moof.
    pub(crate) fn new(defaults: SampleDefaults, base: i128) -> Self {
        Self {
            defaults,
            base,
            next_data: base,
            count: 0,
            duration: 0,
            size: 0,
            earliest: i64::MAX,
            first_is_sync: false,
            all_sync: true,
            first_end: 0,
            data: None,
            pace: Pace::Unknown,
        }
    }

    /// Returns the duration of each sample, if all samples have the same duration.
    pub(crate) fn constant_duration(&self) -> Option<u32> {
        match self.pace {
            Pace::Constant(duration) => Some(duration),
            Pace::Unknown | Pace::Varying => None,
        }
    }

    /// Adds the samples of one trun.
    pub(crate) fn add_run(&mut self, trun: &Mp4Box<'_>) -> Result<()> {
        let (_, flags, mut r) = trun.full()?;
        let count = u64::from(r.u32()?);
        let found = self.count + count;
        if found > FRAGMENT_SAMPLES_MAX {
            let (limit, max) = ("FRAGMENT_SAMPLES_MAX", FRAGMENT_SAMPLES_MAX);
            return Err(trun.fault(Fault::OverLimit { limit, max, found }));
        }
        let start = match flags & tr::DATA_OFFSET {
            0 => self.next_data,
            _ => self.base + i128::from(r.i32()?),
        };
        let first_flags = if flags & tr::FIRST_SAMPLE_FLAGS != 0 { Some(r.u32()?) } else { None };
        if count == 0 {
            return Ok(());
        }
        let size_before = self.size;
        let first = self.read_sample(flags, &mut r)?;
        let opening = Sample { flags: first_flags.unwrap_or(first.flags), ..first };
        if self.count == 0 {
            self.first_is_sync = opening.is_sync();
            self.first_end = start + i128::from(opening.size);
        }
        self.add(opening, 1);
        if flags & tr::PER_SAMPLE == 0 {
            // The box size does not bound this count, so add all samples in one step rather than in
            // a loop.
            self.add(first, count - 1);
        } else {
            for _ in 1..count {
                let sample = self.read_sample(flags, &mut r)?;
                self.add(sample, 1);
            }
        }
        let end = start + i128::from(self.size - size_before);
        self.next_data = end;
        self.data = Some(match self.data.take() {
            None => start..end,
            Some(data) => data.start.min(start)..data.end.max(end),
        });
        Ok(())
    }

    fn read_sample(&self, flags: u32, r: &mut Reader<'_>) -> Result<Sample> {
        let mut or = |flag, default| if flags & flag != 0 { r.u32() } else { Ok(default) };
        Ok(Sample {
            duration: or(tr::DURATION, self.defaults.duration)?,
            size: or(tr::SIZE, self.defaults.size)?,
            flags: or(tr::FLAGS, self.defaults.flags)?,
            // Composition offsets are signed in version 1 and unsigned in version 0. Muxers
            // nevertheless write negative offsets in version 0, and none writes offsets of 2³¹
            // units or more, so both versions are read as signed, as in ffmpeg.
            composition_offset: or(tr::COMPOSITION_OFFSET, 0)?.cast_signed(),
        })
    }

    /// Adds `count` samples equal to `sample`. The sums cannot overflow, because each adds at most
    /// 2²⁰ values of 32 bits.
    fn add(&mut self, sample: Sample, count: u64) {
        if count == 0 {
            return;
        }
        let decode = i64::try_from(self.duration).expect("the sum of 2^20 32-bit durations fits in an i64");
        self.earliest = self.earliest.min(decode + i64::from(sample.composition_offset));
        self.count += count;
        self.all_sync &= sample.is_sync();
        self.duration += u64::from(sample.duration) * count;
        self.size += u64::from(sample.size) * count;
        self.pace = match self.pace {
            Pace::Unknown => Pace::Constant(sample.duration),
            Pace::Constant(duration) if duration == sample.duration => self.pace,
            Pace::Constant(_) | Pace::Varying => Pace::Varying,
        };
    }
}

#[derive(Clone, Copy)]
struct Sample {
    duration: u32,
    size: u32,
    flags: u32,
    composition_offset: i32,
}

impl Sample {
    fn is_sync(self) -> bool {
        self.flags & NON_SYNC == 0
    }
}
