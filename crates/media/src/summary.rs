//! Summary of a moov box for people: every track with its codec, duration and edit list, also of
//! files that are not CMAF tracks.

use crate::boxes::Mp4Box;
use crate::error::Result;
use crate::fourcc::FourCc;

/// Maximum edits reported per track.
pub const EDITS_MAX: usize = 16;
/// Maximum tracks reported.
pub const TRACKS_MAX: usize = 64;

/// Contents of a moov box.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Movie {
    /// Units per second of the edits' durations (mvhd).
    pub timescale: u32,
    /// Whether samples are in fragments (mvex).
    pub is_fragmented: bool,
    /// At most [`TRACKS_MAX`] tracks.
    pub tracks: Vec<Track>,
}

/// A track of a moov box.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Track {
    /// tkhd track_ID.
    pub id: u32,
    /// Handler, such as `vide`.
    pub handler: FourCc,
    /// Type of the first sample entry, such as `avc1`.
    pub sample_entry: Option<FourCc>,
    /// Units per second (mdhd).
    pub timescale: u32,
    /// Duration of the samples described in moov, in `timescale`; 0 if they are in fragments.
    pub duration: u64,
    /// At most [`EDITS_MAX`] edits.
    pub edits: Vec<Edit>,
}

/// An edit (ISO/IEC 14496-12 §8.6.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edit {
    /// Duration in the movie's timescale; 0 extends to the end of a fragmented track.
    pub duration: u64,
    /// Start in the track's timescale, or `None` for an empty edit.
    pub media_time: Option<u64>,
}

/// Reads a moov box.
///
/// # Errors
///
/// Returns an error if a box is malformed, or if a box that describes a track is missing.
pub fn movie(moov: &Mp4Box<'_>) -> Result<Movie> {
    let (timescale, _) = time_header(&moov.require(FourCc::MVHD)?)?;
    let is_fragmented = moov.find(FourCc::MVEX)?.is_some();
    let mut tracks = Vec::new();
    for trak in moov.children() {
        let trak = trak?;
        if trak.kind == FourCc::TRAK && tracks.len() < TRACKS_MAX {
            tracks.push(track(&trak)?);
        }
    }
    Ok(Movie { timescale, is_fragmented, tracks })
}

fn track(trak: &Mp4Box<'_>) -> Result<Track> {
    let (version, _, mut tkhd) = trak.require(FourCc::TKHD)?.full()?;
    tkhd.skip(if version == 1 { 16 } else { 8 })?;
    let id = tkhd.u32()?;
    let mdia = trak.require(FourCc::MDIA)?;
    let (timescale, duration) = time_header(&mdia.require(FourCc::MDHD)?)?;
    let mut hdlr = mdia.require(FourCc::HDLR)?.full()?.2;
    hdlr.skip(4)?;
    let handler = hdlr.fourcc()?;
    let stsd = mdia.require(FourCc::MINF)?.require(FourCc::STBL)?.require(FourCc::STSD)?;
    let sample_entry = stsd.children_after(8)?.next().transpose()?.map(|entry| entry.kind);
    let edits = match trak.find(FourCc::EDTS)? {
        Some(edts) => edts.find(FourCc::ELST)?.map(|elst| edits(&elst)).transpose()?.unwrap_or_default(),
        None => Vec::new(),
    };
    Ok(Track { id, handler, sample_entry, timescale, duration, edits })
}

/// Reads timescale and duration of an mvhd or mdhd box.
fn time_header(found: &Mp4Box<'_>) -> Result<(u32, u64)> {
    let (version, _, mut r) = found.full()?;
    r.skip(if version == 1 { 16 } else { 8 })?;
    let timescale = r.u32()?;
    let duration = r.u32_or_u64(version == 1)?;
    let is_unknown = duration == u64::MAX || version == 0 && duration == u64::from(u32::MAX);
    Ok((timescale, if is_unknown { 0 } else { duration }))
}

fn edits(elst: &Mp4Box<'_>) -> Result<Vec<Edit>> {
    let (version, _, mut r) = elst.full()?;
    let count = usize::try_from(r.u32()?).unwrap_or(usize::MAX).min(EDITS_MAX);
    let mut edits = Vec::new();
    for _ in 0..count {
        let duration = r.u32_or_u64(version == 1)?;
        let time = r.u32_or_u64(version == 1)?;
        // Only -1 is negative: an empty edit.
        let is_empty = time == if version == 1 { u64::MAX } else { u64::from(u32::MAX) };
        r.skip(4)?;
        edits.push(Edit { duration, media_time: (!is_empty).then_some(time) });
    }
    Ok(edits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boxes::Boxes;

    fn full(kind: &[u8; 4], fields: &[u8]) -> Vec<u8> {
        let size = u32::try_from(fields.len() + 8).unwrap();
        [&size.to_be_bytes()[..], kind, fields].concat()
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_be_bytes()).collect()
    }

    #[test]
    fn progressive_movie_is_summarised() {
        let elst = full(b"elst", &words(&[0, 2, 480, u32::MAX, 0x1_0000, 5000, 1024, 0x1_0000]));
        let hdlr = full(b"hdlr", &[&words(&[0, 0])[..], b"soun", &[0; 13]].concat());
        let stsd = full(b"stsd", &[&words(&[0, 1])[..], &full(b"mp4a", &[0; 28])].concat());
        let minf = full(b"minf", &full(b"stbl", &stsd));
        let mdhd = full(b"mdhd", &words(&[0, 0, 0, 48_000, 240_000, 0]));
        let mdia = full(b"mdia", &[mdhd, hdlr, minf].concat());
        let tkhd = full(b"tkhd", &words(&[0, 0, 0, 7]));
        let trak = full(b"trak", &[tkhd, full(b"edts", &elst), mdia].concat());
        let moov = full(b"moov", &[full(b"mvhd", &words(&[0, 0, 0, 1000, 5480])), trak].concat());
        let found = Boxes::new(&moov, 0).next().unwrap().unwrap();
        let edits =
            vec![Edit { duration: 480, media_time: None }, Edit { duration: 5000, media_time: Some(1024) }];
        let track = Track {
            id: 7,
            handler: FourCc::SOUN,
            sample_entry: Some(FourCc(*b"mp4a")),
            timescale: 48_000,
            duration: 240_000,
            edits,
        };
        assert_eq!(movie(&found), Ok(Movie { timescale: 1000, is_fragmented: false, tracks: vec![track] }));
        for end in 8..moov.len() {
            let cut = full(b"moov", &moov[8..end]);
            let _ = Boxes::new(&cut, 0).next().unwrap().map(|found| movie(&found));
        }
    }
}
