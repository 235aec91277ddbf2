//! CMAF header of one track of a movie: ftyp, and a moov that declares the track as fragmented.
//!
//! Boxes that describe the media, above all the sample entry, are copied unchanged. Durations are
//! set to 0, sample tables are empty, and the edit list has only the shift by which the media
//! begins early, such as an audio encoder's priming.

use super::build::Builder;
use crate::boxes::Mp4Box;
use crate::error::{Error, Fault, Result};
use crate::fourcc::FourCc;
use crate::track::TrackInfo;

/// Maximum length of a written header, in bytes. Codec configurations rarely exceed 1 KiB.
const HEADER_BYTES_MAX: u64 = 256 << 10;
/// tkhd flags: the track is enabled, and used in the presentation (§8.3.2.3). Muxers often enable
/// only the first audio track.
const TKHD_ENABLED: u8 = 0x3;

/// Writes the header of the track `trak`.
pub(super) fn write(moov: &Mp4Box<'_>, trak: &Mp4Box<'_>, info: &TrackInfo) -> Result<Vec<u8>> {
    let mut out = Builder::default();
    out.boxed(FourCc::FTYP, |out| -> Result<()> {
        out.bytes.extend_from_slice(b"iso6\0\0\0\0iso6cmfc");
        Ok(())
    })?;
    out.boxed(FourCc::MOOV, |out| -> Result<()> {
        without_duration(out, &moov.require(FourCc::MVHD)?, 12, 20)?;
        write_trak(out, trak, info)?;
        out.boxed(FourCc::MVEX, |out| -> Result<()> {
            // Default sample description, and no other defaults.
            out.full(FourCc::TREX, 0, 0, &[info.track_id, 1, 0, 0, 0]);
            Ok(())
        })
    })?;
    let found = out.bytes.len() as u64;
    if found > HEADER_BYTES_MAX {
        let fault = Fault::OverLimit { limit: "HEADER_BYTES_MAX", max: HEADER_BYTES_MAX, found };
        return Err(trak.fault(fault));
    }
    Ok(out.bytes)
}

fn write_trak(out: &mut Builder, trak: &Mp4Box<'_>, info: &TrackInfo) -> Result<()> {
    let mdia = trak.require(FourCc::MDIA)?;
    out.boxed(FourCc::TRAK, |out| {
        let tkhd = out.bytes.len();
        let source = trak.require(FourCc::TKHD)?;
        without_duration(out, &source, 16, 24)?;
        out.bytes[tkhd + source.header_size + 3] |= TKHD_ENABLED;
        if info.edit_media_time > 0 {
            write_edit(out, info.edit_media_time)?;
        }
        out.boxed(FourCc::MDIA, |out| {
            for child in mdia.children() {
                let child = child?;
                match child.kind {
                    FourCc::MDHD => without_duration(out, &child, 12, 20)?,
                    FourCc::MINF => write_minf(out, &child)?,
                    FourCc::FREE | FourCc::SKIP | FourCc::UDTA | FourCc::META => {}
                    _ => out.bytes.extend_from_slice(child.bytes),
                }
            }
            Ok(())
        })
    })
}

/// Writes an edit list that presents the media from `media_time` on, to its end (§8.6.6). A
/// duration of 0 means all fragments.
fn write_edit(out: &mut Builder, media_time: u64) -> Result<()> {
    out.boxed(FourCc::EDTS, |out| {
        const RATE_ONE: u32 = 0x1_0000;
        let (high, low) = ((media_time >> 32) as u32, media_time as u32);
        match i32::try_from(media_time) {
            Ok(_) => out.full(FourCc::ELST, 0, 0, &[1, 0, low, RATE_ONE]),
            Err(_) => out.full(FourCc::ELST, 1, 0, &[1, 0, 0, high, low, RATE_ONE]),
        }
        Ok(())
    })
}

fn write_minf(out: &mut Builder, minf: &Mp4Box<'_>) -> Result<()> {
    let stsd = minf.require(FourCc::STBL)?.require(FourCc::STSD)?;
    out.boxed(FourCc::MINF, |out| {
        for child in minf.children() {
            let child = child?;
            match child.kind {
                FourCc::STBL => {}
                FourCc::FREE | FourCc::SKIP | FourCc::UDTA | FourCc::META => {}
                _ => out.bytes.extend_from_slice(child.bytes),
            }
        }
        out.boxed(FourCc::STBL, |out| {
            out.bytes.extend_from_slice(stsd.bytes);
            out.full(FourCc::STTS, 0, 0, &[0]);
            out.full(FourCc::STSC, 0, 0, &[0]);
            out.full(FourCc::STSZ, 0, 0, &[0, 0]);
            out.full(FourCc::STCO, 0, 0, &[0]);
            Ok(())
        })
    })
}

/// Copies a full box, and sets its duration to 0. The duration is at `at` after version and flags
/// in version 0, and at `wide_at` in version 1.
fn without_duration(out: &mut Builder, source: &Mp4Box<'_>, at: usize, wide_at: usize) -> Result<()> {
    let (version, _, r) = source.full()?;
    let (at, len) = if version == 1 { (wide_at, 8) } else { (at, 4) };
    let field = source.header_size + 4 + at;
    if r.rest().len() < at + len {
        let (need, left) = ((field + len) as u64, source.bytes.len() as u64);
        return Err(Error::new(source.offset, source.kind, Fault::Truncated { need, left }));
    }
    let start = out.bytes.len();
    out.bytes.extend_from_slice(source.bytes);
    out.bytes[start + field..start + field + len].fill(0);
    Ok(())
}
