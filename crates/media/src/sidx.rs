//! Segment index: sizes and durations of the media after it (ISO/IEC 14496-12 §8.16.3).

use crate::boxes::Mp4Box;
use crate::error::Result;
use crate::fourcc::FourCc;

/// Maximum length of a sidx, in bytes. Its 16-bit count field allows at most 65,535 references of
/// 12 bytes, which fit.
pub const SIDX_BYTES_MAX: u64 = 1 << 20;

/// A segment index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sidx {
    /// Units per second of the index's times; DASH-IF requires mdhd's timescale.
    pub timescale: u32,
    /// Presentation time of the first reference, with the edit list applied. Muxers disagree:
    /// ffmpeg writes 0 even if composition begins later.
    pub earliest_presentation_time: u64,
    /// Bytes from the end of the sidx to the first reference.
    pub first_offset: u64,
    /// Referenced byte ranges, in order, without gaps.
    pub references: Vec<Reference>,
}

/// A byte range referenced by a sidx.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reference {
    /// Whether the byte range contains another sidx rather than media.
    pub is_index: bool,
    /// Size in bytes.
    pub size: u32,
    /// Duration in the timescale of the sidx.
    pub duration: u32,
    /// Whether the byte range begins with a stream access point.
    pub starts_with_sap: bool,
    /// Type of the stream access point; 0 if unknown (as written by ffmpeg).
    pub sap_type: u8,
}

impl Sidx {
    /// Reads a whole sidx box at `offset` in its file.
    ///
    /// # Errors
    ///
    /// Returns an error if the box is truncated.
    pub fn parse(bytes: &[u8], offset: u64) -> Result<Self> {
        let sidx = Mp4Box::parse(bytes, offset)?;
        if sidx.kind != FourCc::SIDX {
            return Err(sidx.invalid("expected a sidx"));
        }
        let (version, _, mut r) = sidx.full()?;
        let wide = version == 1;
        r.skip(4)?;
        let timescale = r.u32()?;
        let earliest_presentation_time = r.u32_or_u64(wide)?;
        let first_offset = r.u32_or_u64(wide)?;
        r.skip(2)?;
        let count = r.u16()?;
        let mut references = Vec::with_capacity(usize::from(count).min(r.rest().len() / 12));
        for _ in 0..count {
            let (size, duration, sap) = (r.u32()?, r.u32()?, r.u32()?);
            references.push(Reference {
                is_index: size >> 31 == 1,
                size: size & 0x7fff_ffff,
                duration,
                starts_with_sap: sap >> 31 == 1,
                sap_type: (sap >> 28 & 7) as u8,
            });
        }
        Ok(Self { timescale, earliest_presentation_time, first_offset, references })
    }

    /// Returns the total size of all references.
    #[must_use]
    pub fn referenced_bytes(&self) -> u64 {
        self.references.iter().map(|r| u64::from(r.size)).sum()
    }
}
