//! In-place rewriting of segments whose data offsets count from the start of the file. The segments
//! become self-contained, and their size does not change.

use crate::boxes::{Boxes, Mp4Box};
use crate::error::Result;
use crate::fourcc::FourCc;

/// tfhd flags base-data-offset-present and default-base-is-moof, §8.8.7.1.
const BASE_DATA_OFFSET: u32 = 0x1;
const DEFAULT_BASE_IS_MOOF: u32 = 0x2_0000;
/// trun flag data-offset-present, §8.8.8.1.
const DATA_OFFSET: u32 = 0x1;
/// An empty free box, of the same size as the base_data_offset field it replaces.
const FREE: [u8; 8] = *b"\0\0\0\x08free";

/// Rewrites a segment in place so that every fragment's data offsets count from its own moof
/// instead of from the start of the file (tfhd base_data_offset, which ffmpeg writes without
/// `default_base_moof`). Only then can a player use the segment on its own. `segment` consists of
/// complete boxes and begins at `offset` in its file. Fragments without base_data_offset are
/// unchanged.
///
/// # Errors
///
/// Returns an error if a fragment is truncated or its runs lack data offsets. Earlier fragments
/// have then already been rewritten.
pub fn rebase_on_moof(segment: &mut [u8], offset: u64) -> Result<()> {
    let mut moofs = Vec::new();
    for found in Boxes::new(segment, offset) {
        let found = found?;
        if found.kind == FourCc::MOOF {
            let start = usize::try_from(found.offset - offset).expect("slice offsets fit in a usize");
            moofs.push(start..start + found.bytes.len());
        }
    }
    for moof in moofs {
        let moof_offset = offset + moof.start as u64;
        rebase_moof(&mut segment[moof], moof_offset)?;
    }
    Ok(())
}

/// Rewrites one whole moof at `offset` in its file, like [`rebase_on_moof`].
///
/// # Errors
///
/// Returns the same errors as [`rebase_on_moof`]. On error, the moof is unchanged.
pub fn rebase_moof(moof: &mut [u8], offset: u64) -> Result<()> {
    let at = |absolute: u64| usize::try_from(absolute - offset).expect("slice offsets fit in a usize");
    let mut tfhds = Vec::new();
    let mut data_offsets = Vec::new();
    for traf in Mp4Box::parse(moof, offset)?.children() {
        let traf = traf?;
        if traf.kind != FourCc::TRAF {
            continue;
        }
        let tfhd = traf.require(FourCc::TFHD)?;
        let (_, flags, mut r) = tfhd.full()?;
        if flags & BASE_DATA_OFFSET == 0 {
            continue;
        }
        r.skip(4)?;
        let shift = i128::from(r.u64()?) - i128::from(offset);
        let start = at(tfhd.offset);
        tfhds.push((start..start + tfhd.bytes.len(), tfhd.header_size, flags));
        let mut first = true;
        for trun in traf.children() {
            let trun = trun?;
            if trun.kind != FourCc::TRUN {
                continue;
            }
            if let Some(moved) = moved_data_offset(&trun, shift, first)? {
                data_offsets.push((at(trun.body_offset()) + 8, moved));
            }
            first = false;
        }
    }
    for (start, moved) in data_offsets {
        moof[start..start + 4].copy_from_slice(&moved.to_be_bytes());
    }
    for (tfhd, header_size, flags) in tfhds {
        drop_base_data_offset(&mut moof[tfhd], header_size, flags);
    }
    Ok(())
}

/// Returns the data_offset of a run after its base moves by `shift`; `None` if the run continues
/// the previous one.
fn moved_data_offset(trun: &Mp4Box<'_>, shift: i128, first: bool) -> Result<Option<i32>> {
    let (_, flags, mut r) = trun.full()?;
    r.skip(4)?;
    if flags & DATA_OFFSET == 0 {
        return if first { Err(trun.invalid("has no data_offset")) } else { Ok(None) };
    }
    let moved = i128::from(r.i32()?) + shift;
    let moved = i32::try_from(moved).map_err(|_| trun.invalid("data is too far from the moof"))?;
    Ok(Some(moved))
}

/// Removes base_data_offset from a tfhd, and fills the freed space at the end with a free box.
fn drop_base_data_offset(tfhd: &mut [u8], header_size: usize, flags: u32) {
    let (base, end) = (header_size + 8, tfhd.len());
    tfhd.copy_within(base + 8.., base);
    tfhd[end - 8..].copy_from_slice(&FREE);
    let flags = flags & !BASE_DATA_OFFSET | DEFAULT_BASE_IS_MOOF;
    // The version, in the top byte, is unchanged.
    tfhd[header_size + 1..header_size + 4].copy_from_slice(&flags.to_be_bytes()[1..]);
    if header_size == 16 {
        tfhd[8..16].copy_from_slice(&(end as u64 - 8).to_be_bytes());
    } else {
        let size = u32::try_from(end - 8).expect("a moof is smaller than 4 GiB");
        tfhd[..4].copy_from_slice(&size.to_be_bytes());
    }
}
