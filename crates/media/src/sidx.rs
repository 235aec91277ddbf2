//! The segment index: sizes and durations of what follows (ISO/IEC 14496-12 §8.16.3).

use crate::boxes::Mp4Box;
use crate::error::Result;
use crate::fourcc::FourCc;

/// Longest sidx that is read: 65,535 references of 12 bytes, the most that its count can say.
pub const SIDX_BYTES_MAX: u64 = 1 << 20;

/// A segment index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sidx {
    /// Units per second of its times; DASH-IF wants mdhd's.
    pub timescale: u32,
    /// Presentation time of the first reference, after edit lists. Muxers disagree about these:
    /// ffmpeg writes 0 where composition begins later.
    pub earliest_presentation_time: u64,
    /// Bytes from the end of the sidx to the first reference.
    pub first_offset: u64,
    /// What it refers to, in order, without gaps.
    pub references: Vec<Reference>,
}

/// A run of bytes that a sidx refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reference {
    /// Whether it is another sidx rather than media.
    pub is_index: bool,
    /// Bytes.
    pub size: u32,
    /// Duration in the timescale of the sidx.
    pub duration: u32,
    /// Whether it begins with a stream access point.
    pub starts_with_sap: bool,
    /// Type of its stream access point, 0 where not known (as ffmpeg writes).
    pub sap_type: u8,
}

impl Sidx {
    /// Reads a whole sidx box that lies at `offset` in its file.
    ///
    /// # Errors
    /// A box that is cut off.
    pub fn parse(bytes: &[u8], offset: u64) -> Result<Self> {
        let sidx = Mp4Box::parse(bytes, offset)?;
        if sidx.kind != FourCc::SIDX {
            return Err(sidx.invalid("a sidx belongs here"));
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

    /// Bytes of all references together.
    #[must_use]
    pub fn referenced_bytes(&self) -> u64 {
        self.references.iter().map(|r| u64::from(r.size)).sum()
    }
}
