//! Edit lists of movies (ISO/IEC 14496-12 §8.6.6). A single edit, perhaps after a delay, is served:
//! its start becomes the header's edit list, and media after its end is not served. Several edits
//! are refused.

use crate::boxes::Mp4Box;
use crate::error::Result;
use crate::fourcc::FourCc;

/// media_rate of normal speed.
const RATE_ONE: u32 = 0x1_0000;

/// Returns the media time at which the edit list of `trak` ends, in the track's timescale; `None`
/// if the track has none, or if it has no end.
///
/// The result is rounded up to a unit of the movie's timescale, because muxers round durations to
/// milliseconds, and a rounded duration must not cost a sample.
pub(super) fn end(trak: &Mp4Box<'_>, timescale: u32, movie_timescale: u32) -> Result<Option<u64>> {
    let Some(edts) = trak.find(FourCc::EDTS)? else { return Ok(None) };
    let Some(elst) = edts.find(FourCc::ELST)? else { return Ok(None) };
    let (version, _, mut r) = elst.full()?;
    let wide = version == 1;
    let mut end = None;
    let mut is_edited = false;
    for _ in 0..r.u32()? {
        let duration = r.u32_or_u64(wide)?;
        let media_time = if wide { r.u64()?.cast_signed() } else { i64::from(r.i32()?) };
        let rate = r.u32()?;
        let Ok(media_time) = u64::try_from(media_time) else { continue };
        if is_edited {
            return Err(elst.invalid(
                "the edit list cuts out or repeats part of the track: encode the file again, so that the edits are \
                 in the media",
            ));
        }
        if rate != RATE_ONE {
            return Err(elst.invalid("the edit list changes the speed of the track: encode the file again"));
        }
        is_edited = true;
        let ticks = u128::from(duration) + 1;
        let length = (ticks * u128::from(timescale)).div_ceil(u128::from(movie_timescale.max(1)));
        let length = u64::try_from(length).unwrap_or(u64::MAX);
        end = (duration > 0).then(|| media_time.saturating_add(length));
    }
    Ok(end)
}
