//! Delayed tracks: moves the delay of an empty edit (ISO/IEC 14496-12 §8.6.6) into decode times.
//!
//! Players disagree about empty edits. Chromium ignores them in Media Source Extensions, and with
//! them the edit that follows; Firefox applies them. CMAF forbids them (ISO/IEC 23000-19 §7.5.13).
//! A delayed track is therefore served without its edit list, and with later decode times. Neither
//! change affects the size of a box.

use crate::boxes::{Boxes, Mp4Box};
use crate::error::Result;
use crate::fourcc::FourCc;

/// Returns the positions of the edit lists (edts) in `header`, which begins at `offset` in its
/// file. To remove an edit list, change the four bytes at `position + 4`, its type, to `free`.
///
/// # Errors
///
/// Returns an error if a box is malformed.
pub fn edit_lists(header: &[u8], offset: u64) -> Result<Vec<u64>> {
    let mut found = Vec::new();
    for moov in Boxes::new(header, offset) {
        let moov = moov?;
        if moov.kind != FourCc::MOOV {
            continue;
        }
        for trak in moov.children() {
            let trak = trak?;
            if trak.kind == FourCc::TRAK {
                found.extend(trak.find(FourCc::EDTS)?.map(|edts| edts.offset));
            }
        }
    }
    Ok(found)
}

/// Adds `delay`, in the track's timescale, to the decode time of a whole moof at `offset` in its
/// file.
///
/// # Errors
///
/// Returns an error if a box is malformed, or if the sum exceeds the 32 bits of a tfdt of version
/// 0. On error, the moof is unchanged.
pub fn delay_moof(moof: &mut [u8], offset: u64, delay: u64) -> Result<()> {
    let mut times = Vec::new();
    for traf in Mp4Box::parse(moof, offset)?.children() {
        let traf = traf?;
        if traf.kind != FourCc::TRAF {
            continue;
        }
        let tfdt = traf.require(FourCc::TFDT)?;
        let (version, _, mut fields) = tfdt.full()?;
        let time = fields.u32_or_u64(version == 1)?.saturating_add(delay);
        let start = usize::try_from(tfdt.body_offset() - offset).expect("slice offsets fit in a usize") + 4;
        match u32::try_from(time) {
            _ if version == 1 => times.push((start, time.to_be_bytes().to_vec())),
            Ok(time) => times.push((start, time.to_be_bytes().to_vec())),
            Err(_) => return Err(tfdt.invalid("delayed decode time exceeds 32 bits")),
        }
    }
    for (start, time) in times {
        moof[start..start + time.len()].copy_from_slice(&time);
    }
    Ok(())
}
