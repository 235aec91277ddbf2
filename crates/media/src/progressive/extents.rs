//! Location of samples in the file: runs of samples that lie one after another, from stsc and stco
//! or co64 (ISO/IEC 14496-12 §8.7.4, §8.7.5).

use std::ops::Range;

use crate::boxes::Mp4Box;
use crate::error::{Fault, Result};
use crate::fourcc::FourCc;

/// Runs of samples without gaps. A chunk that begins where the previous one ends continues its run,
/// so the samples of a file with one track are usually one run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Extents {
    /// First sample of each run, ascending from 0.
    firsts: Vec<u32>,
    /// Position of each run in the file.
    offsets: Vec<u64>,
}

impl Extents {
    /// Reads the chunk tables of a track with samples of these `sizes`; checks that all samples lie
    /// within the file.
    pub(super) fn parse(
        stbl: &Mp4Box<'_>,
        count: u32,
        mut sizes: impl Iterator<Item = u32>,
        file_size: u64,
    ) -> Result<Self> {
        let chunks = ChunkOffsets::parse(stbl)?;
        let stsc = stbl.require(FourCc::STSC)?;
        let mut layout = ChunkLayout::parse(&stsc)?;
        let mut extents = Self::default();
        let (mut sample, mut end) = (0, None);
        for chunk in 0..chunks.count {
            if sample == count {
                break;
            }
            let offset = chunks.get(chunk);
            if end != Some(offset) {
                extents.push(sample, offset);
            }
            let in_chunk = layout.samples_of(&stsc, chunk)?.min(count - sample);
            let size: u64 = sizes.by_ref().take(in_chunk as usize).map(u64::from).sum();
            let chunk_end = offset.saturating_add(size);
            if chunk_end > file_size {
                let left = file_size.saturating_sub(offset);
                return Err(chunks.table.fault(Fault::Truncated { need: size, left }));
            }
            end = Some(chunk_end);
            sample += in_chunk;
        }
        if sample < count {
            return Err(stsc.invalid("chunks contain fewer samples than stsz declares"));
        }
        Ok(extents)
    }

    /// Appends a run that begins with `sample`.
    pub(super) fn push(&mut self, sample: u32, offset: u64) {
        self.firsts.push(sample);
        self.offsets.push(offset);
    }

    /// Returns the positions of samples from `first` on, which lies at `position`.
    pub(super) fn walk(&self, first: u32, position: u64) -> Positions<'_> {
        Positions {
            extents: self,
            next: self.firsts.partition_point(|f| *f <= first),
            sample: first,
            position,
        }
    }

    /// Returns the position of the first sample.
    pub(super) fn start(&self) -> u64 {
        self.offsets.first().copied().unwrap_or(0)
    }

    /// Returns the size in memory, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        12 * self.firsts.len()
    }
}

/// Finds the positions of consecutive samples.
pub(super) struct Positions<'a> {
    extents: &'a Extents,
    next: usize,
    sample: u32,
    position: u64,
}

impl Positions<'_> {
    /// Returns the range of the next sample, which has `size` bytes.
    pub(super) fn next_sample(&mut self, size: u32) -> Range<u64> {
        if self.extents.firsts.get(self.next) == Some(&self.sample) {
            self.position = self.extents.offsets[self.next];
            self.next += 1;
        }
        let start = self.position;
        self.sample += 1;
        self.position = start + u64::from(size);
        start..self.position
    }
}

/// The table of chunk offsets.
struct ChunkOffsets<'a> {
    table: Mp4Box<'a>,
    entries: &'a [u8],
    wide: bool,
    count: usize,
}

impl<'a> ChunkOffsets<'a> {
    fn parse(stbl: &Mp4Box<'a>) -> Result<Self> {
        let (table, wide) = match stbl.find(FourCc::CO64)? {
            Some(co64) => (co64, true),
            None => (stbl.require(FourCc::STCO)?, false),
        };
        let (_, _, mut r) = table.full()?;
        let count = r.u32()? as usize;
        let entries = r.bytes(count.saturating_mul(if wide { 8 } else { 4 }))?;
        Ok(Self { table, entries, wide, count })
    }

    fn get(&self, chunk: usize) -> u64 {
        if self.wide {
            u64::from_be_bytes(self.entries.as_chunks::<8>().0[chunk])
        } else {
            u64::from(u32::from_be_bytes(self.entries.as_chunks::<4>().0[chunk]))
        }
    }
}

/// The number of samples in each chunk: stsc, read as the chunks are.
struct ChunkLayout<'a> {
    /// First chunk, samples per chunk, and sample description of each group of chunks.
    groups: &'a [[u8; 4]],
    next: usize,
    samples: u32,
}

impl<'a> ChunkLayout<'a> {
    fn parse(stsc: &Mp4Box<'a>) -> Result<Self> {
        let (_, _, mut r) = stsc.full()?;
        let count = r.u32()? as usize;
        let groups = r.bytes(count.saturating_mul(12))?.as_chunks::<4>().0;
        Ok(Self { groups, next: 0, samples: 0 })
    }

    /// Returns the number of samples in `chunk`, counted from 0; called for each chunk in order.
    fn samples_of(&mut self, stsc: &Mp4Box<'_>, chunk: usize) -> Result<u32> {
        if let Some([first, samples, description]) = self.groups.get(3 * self.next..3 * self.next + 3) {
            let first = u32::from_be_bytes(*first) as usize;
            if first <= chunk {
                return Err(stsc.invalid("first_chunk must ascend from 1"));
            }
            if first == chunk + 1 {
                if u32::from_be_bytes(*description) != 1 {
                    return Err(stsc.invalid(
                        "the track changes its sample description within the file: encode it again as one",
                    ));
                }
                self.samples = u32::from_be_bytes(*samples);
                self.next += 1;
            }
        }
        if self.samples == 0 {
            return Err(stsc.invalid("a chunk must contain a sample"));
        }
        Ok(self.samples)
    }
}
