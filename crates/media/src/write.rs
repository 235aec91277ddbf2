//! What is written into chunks that exist already: a live source that repeats recorded media moves
//! its chunks along the timeline, in place.

use std::ops::Range;

use crate::boxes::{Boxes, Mp4Box};
use crate::error::{Error, Fault, Result};
use crate::fourcc::FourCc;

/// Sets the decode time (tfdt) and the sequence number (mfhd) of a chunk, in place. `chunk` holds whole
/// boxes, one moof among them; offsets in faults count from its first byte.
///
/// # Errors
/// A chunk without moof, tfdt or mfhd, or cut off; a tfdt of version 0, 32 bits, that cannot hold
/// `decode_time`. The chunk is then as it was.
pub fn rewrite_tfdt(chunk: &mut [u8], decode_time: u64, sequence_number: u32) -> Result<()> {
    let (tfdt, mfhd) = {
        let moof = find_moof(chunk)?;
        let mfhd = moof.require(FourCc::MFHD)?;
        mfhd.full()?.2.u32()?;
        let tfdt = moof.require(FourCc::TRAF)?.require(FourCc::TFDT)?;
        (time_field(&tfdt, decode_time)?, field(&mfhd, 4))
    };
    let time = decode_time.to_be_bytes();
    chunk[tfdt.clone()].copy_from_slice(&time[8 - tfdt.len()..]);
    chunk[mfhd].copy_from_slice(&sequence_number.to_be_bytes());
    Ok(())
}

fn find_moof(chunk: &[u8]) -> Result<Mp4Box<'_>> {
    for found in Boxes::new(chunk, 0) {
        let found = found?;
        if found.kind == FourCc::MOOF {
            return Ok(found);
        }
    }
    Err(Error::new(0, FourCc::MDAT, Fault::Missing(FourCc::MOOF)))
}

/// Where the time of a tfdt lies in the chunk: 4 bytes or 8.
fn time_field(tfdt: &Mp4Box<'_>, time: u64) -> Result<Range<usize>> {
    let (version, _, mut r) = tfdt.full()?;
    let wide = version == 1;
    r.u32_or_u64(wide)?;
    let max = u64::from(u32::MAX);
    if !wide && time > max {
        return Err(tfdt.fault(Fault::OverLimit { limit: "tfdt of version 0", max, found: time }));
    }
    Ok(field(tfdt, if wide { 8 } else { 4 }))
}

/// The field after version and flags of a full box whose offset counts from the chunk's start.
fn field(full: &Mp4Box<'_>, len: usize) -> Range<usize> {
    let start = usize::try_from(full.body_offset()).expect("an offset in a slice") + 4;
    start..start + len
}
