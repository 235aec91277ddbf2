//! Sample table: size, duration, composition offset, flags and location of every sample of a track
//! (ISO/IEC 14496-12 §8.6, §8.7).
//!
//! A sample takes about 4 bytes of memory in video with reordered frames (size 3, composition
//! offset 1), and 2 bytes in audio; 16 bytes are the worst case, apart from 12 bytes for each run
//! of contiguous samples. Flags and durations are usually long runs.

use std::ops::Range;

use super::column::{Column, ColumnBuilder};
use super::extents::Extents;
use super::limits::SAMPLES_MAX;
use crate::boxes::Mp4Box;
use crate::error::{Fault, Result};
use crate::fourcc::FourCc;

/// Flags of a sync sample: it depends on no other sample (§8.8.3.1).
const SYNC: u32 = 0x0200_0000;
/// Flags of another sample: it depends on others, and is no sync sample.
const NON_SYNC: u32 = 0x0101_0000;
/// sample_is_non_sync_sample.
const IS_NON_SYNC: u32 = 0x0001_0000;
/// Position of an sdtp entry's bits in sample flags.
const SDTP_SHIFT: u32 = 20;

/// Values of one sample, as in a trun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sample {
    pub(super) duration: u32,
    pub(super) size: u32,
    pub(super) flags: u32,
    pub(super) composition_offset: i32,
}

impl Sample {
    pub(super) fn is_sync(self) -> bool {
        self.flags & IS_NON_SYNC == 0
    }
}

/// All samples of a track, in decoding order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SampleTable {
    count: u32,
    sizes: Column,
    durations: Column,
    composition_offsets: Column,
    flags: Column,
    extents: Extents,
}

impl SampleTable {
    /// Reads the sample table of a track in a file of `file_size` bytes.
    pub(super) fn parse(stbl: &Mp4Box<'_>, file_size: u64) -> Result<Self> {
        let sizes = sizes(stbl)?;
        let count = sizes.count();
        if count == 0 {
            return Err(stbl.invalid("the track has no samples"));
        }
        let sizes = sizes.finish();
        let extents = Extents::parse(stbl, count, sizes.values_from(0), file_size)?;
        let stts = stbl.require(FourCc::STTS)?;
        let composition_offsets = match stbl.find(FourCc::CTTS)? {
            Some(ctts) => time_runs(&ctts, count)?,
            None => {
                let mut none = ColumnBuilder::default();
                none.push(0, count);
                none.finish()
            }
        };
        let durations = time_runs(&stts, count)?;
        Ok(Self { count, sizes, durations, composition_offsets, flags: flags(stbl, count)?, extents })
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Removes all samples from `count` on.
    pub(super) fn truncate(&mut self, count: u32) {
        self.count = self.count.min(count);
    }

    /// Iterates over the samples from `first` on.
    pub(super) fn samples_from(&self, first: u32) -> impl Iterator<Item = Sample> + '_ {
        let sizes = self.sizes.values_from(first);
        let durations = self.durations.values_from(first);
        let offsets = self.composition_offsets.values_from(first);
        let flags = self.flags.values_from(first);
        let all = sizes.zip(durations).zip(offsets.zip(flags));
        let left = self.count.saturating_sub(first) as usize;
        all.take(left).map(|((size, duration), (offset, flags))| Sample {
            duration,
            size,
            flags,
            composition_offset: offset.cast_signed(),
        })
    }

    /// Returns where the `count` samples from `first` on lie in the file, in decoding order.
    /// `first` lies at `position`. Adjacent samples are one range.
    pub(super) fn data(&self, first: u32, count: u32, position: u64) -> Vec<Range<u64>> {
        let mut positions = self.extents.walk(first, position);
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for size in self.sizes.values_from(first).take(count as usize) {
            let sample = positions.next_sample(size);
            match ranges.last_mut() {
                _ if sample.is_empty() => {}
                Some(last) if last.end == sample.start => last.end = sample.end,
                _ => ranges.push(sample),
            }
        }
        ranges
    }

    /// Returns the location of the samples.
    pub(super) fn extents(&self) -> &Extents {
        &self.extents
    }

    /// Returns the size in memory, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        let columns = [&self.sizes, &self.durations, &self.composition_offsets, &self.flags];
        columns.iter().map(|column| column.memory_bytes()).sum::<usize>() + self.extents.memory_bytes()
    }
}

/// Reads stsz or stz2 (§8.7.3).
fn sizes(stbl: &Mp4Box<'_>) -> Result<ColumnBuilder> {
    let mut sizes = ColumnBuilder::default();
    if let Some(stsz) = stbl.find(FourCc::STSZ)? {
        let (_, _, mut r) = stsz.full()?;
        let (constant, count) = (r.u32()?, r.u32()?);
        check_count(&stsz, u64::from(count))?;
        if constant > 0 {
            sizes.push(constant, count);
        } else {
            let entries = r.bytes(count as usize * 4)?;
            entries.as_chunks::<4>().0.iter().for_each(|size| sizes.push(u32::from_be_bytes(*size), 1));
        }
        return Ok(sizes);
    }
    let Some(stz2) = stbl.find(FourCc::STZ2)? else { return Err(stbl.fault(Fault::Missing(FourCc::STSZ))) };
    let (_, _, mut r) = stz2.full()?;
    let (field_bits, count) = (r.u32()? & 0xff, r.u32()?);
    check_count(&stz2, u64::from(count))?;
    let count = count as usize;
    match field_bits {
        4 => {
            let entries = r.bytes(count.div_ceil(2))?.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
            entries.take(count).for_each(|size| sizes.push(u32::from(size), 1));
        }
        8 => r.bytes(count)?.iter().for_each(|size| sizes.push(u32::from(*size), 1)),
        16 => {
            let entries = r.bytes(count * 2)?.as_chunks::<2>().0.iter();
            entries.for_each(|size| sizes.push(u32::from(u16::from_be_bytes(*size)), 1));
        }
        _ => return Err(stz2.invalid("field_size must be 4, 8 or 16")),
    }
    Ok(sizes)
}

/// Reads stts or ctts (§8.6.1), which have the same form. Composition offsets are the bits of an
/// `i32`: muxers write negative offsets in version 0 too.
fn time_runs(table: &Mp4Box<'_>, samples: u32) -> Result<Column> {
    let (_, _, mut r) = table.full()?;
    let entries = r.u32()? as usize;
    let words = r.bytes(entries.saturating_mul(8))?.as_chunks::<4>().0;
    let mut column = ColumnBuilder::default();
    for [count, value] in words.as_chunks::<2>().0 {
        let left = samples - column.count();
        column.push(u32::from_be_bytes(*value), u32::from_be_bytes(*count).min(left));
    }
    if column.count() < samples {
        return Err(table.invalid("describes fewer samples than stsz declares"));
    }
    Ok(column.finish())
}

/// Reads stss (§8.6.2) and sdtp (§8.6.4.3) as sample flags. Without stss, all samples are sync
/// samples.
fn flags(stbl: &Mp4Box<'_>, samples: u32) -> Result<Column> {
    let mut column = ColumnBuilder::default();
    let sdtp = match stbl.find(FourCc::SDTP)? {
        Some(sdtp) => Some(sdtp.full()?.2.bytes(samples as usize)?),
        None => None,
    };
    let Some(stss) = stbl.find(FourCc::STSS)? else {
        push_flags(&mut column, sdtp, true, samples);
        return Ok(column.finish());
    };
    let (_, _, mut r) = stss.full()?;
    let entries = r.u32()? as usize;
    for number in r.bytes(entries.saturating_mul(4))?.as_chunks::<4>().0 {
        let number = u32::from_be_bytes(*number);
        if number <= column.count() {
            return Err(stss.invalid("sample numbers must ascend from 1"));
        }
        if number > samples {
            break;
        }
        push_flags(&mut column, sdtp, false, number - 1);
        push_flags(&mut column, sdtp, true, number);
    }
    push_flags(&mut column, sdtp, false, samples);
    Ok(column.finish())
}

/// Adds the flags of all samples before `end`.
fn push_flags(column: &mut ColumnBuilder, sdtp: Option<&[u8]>, is_sync: bool, end: u32) {
    let count = end - column.count();
    let Some(sdtp) = sdtp else {
        return column.push(if is_sync { SYNC } else { NON_SYNC }, count);
    };
    let non_sync = if is_sync { 0 } else { IS_NON_SYNC };
    let start = column.count() as usize;
    for dependency in &sdtp[start..end as usize] {
        column.push(u32::from(*dependency) << SDTP_SHIFT | non_sync, 1);
    }
}

fn check_count(table: &Mp4Box<'_>, found: u64) -> Result<()> {
    let max = u64::from(SAMPLES_MAX);
    if found > max { Err(table.fault(Fault::OverLimit { limit: "SAMPLES_MAX", max, found })) } else { Ok(()) }
}
