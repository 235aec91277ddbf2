//! Rewrites fragments whose data offsets count from the start of the file, so that each segment is
//! self-contained, and fragments of tracks delayed by an edit list ([`thalweg_media::delay`]).
//!
//! Such offsets come from tfhd base_data_offset (ISO/IEC 14496-12 §8.8.7), written by ffmpeg
//! without `default_base_moof` and by Bento4's `mp4fragment`. A player that has only the segment
//! would look for samples at the wrong offset. Rewriting does not change a moof's size
//! ([`thalweg_media::write::rebase_moof`]), so lengths and ranges remain valid.
//!
//! **Invariant:** only box headers and moofs of a segment are read into memory, never the media.

use std::ops::Range;

use bytes::Bytes;
use thalweg_media::boxes::{BOX_HEADER_BYTES_MAX, BoxHeader};
use thalweg_media::delay::{delay_moof, edit_lists};
use thalweg_media::error::{Error as MediaError, Fault as MediaFault};
use thalweg_media::fourcc::FourCc;
use thalweg_media::fragment::MOOF_BYTES_MAX;
use thalweg_media::track::TrackIndex;
use thalweg_media::write::rebase_moof;

use super::load::Fault;
use crate::body::Patch;
use crate::storage::{Object, ObjectReader};

/// Minimum size of a read, in bytes: enough for a box header, and usually for the whole moof and
/// the next mdat's header.
const AHEAD_BYTES: u64 = 8 << 10;
/// Maximum total size of a segment's moofs, in bytes; they stay in memory while the segment is
/// sent.
const MOOFS_BYTES_MAX: u64 = 4 * MOOF_BYTES_MAX;

/// Returns whether the header and segments of a track are rewritten.
pub(super) fn is_rewritten(track: &TrackIndex) -> bool {
    track.has_base_data_offset || track.delay > 0
}

/// Returns patches that remove the edit list of a delayed track from its header.
pub(super) async fn header_patches(
    reader: &ObjectReader,
    object: &Object,
    track: &TrackIndex,
) -> Result<Vec<Patch>, Fault> {
    if track.delay == 0 {
        return Ok(Vec::new());
    }
    let header = reader.read(0, track.header_size).await.map_err(Fault::Storage)?;
    let fault = |error| Fault::Media { key: object.key.clone(), error };
    let lists = edit_lists(&header, 0).map_err(fault)?;
    Ok(lists.into_iter().map(|at| Patch { offset: at + 4, bytes: Bytes::from_static(b"free") }).collect())
}

/// Returns patches for the moofs that overlap the file range `wanted` within the segment at file
/// range `segment`.
pub(super) async fn patches(
    reader: &ObjectReader,
    object: &Object,
    track: &TrackIndex,
    segment: Range<u64>,
    wanted: Range<u64>,
) -> Result<Vec<Patch>, Fault> {
    let fault = |error| Fault::Media { key: object.key.clone(), error };
    let mut ahead = Ahead { reader, end: segment.end, offset: segment.start, bytes: Bytes::new() };
    let (mut patches, mut held) = (Vec::new(), 0);
    let mut pos = segment.start;
    while pos < wanted.end {
        let bytes = ahead.get(pos, BOX_HEADER_BYTES_MAX as u64).await?;
        let header = BoxHeader::parse(&bytes, pos).map_err(fault)?;
        let header = header.ok_or_else(|| fault(cut_off(pos, segment.end)))?;
        let size = header.size_in(pos, segment.end).map_err(fault)?;
        if header.kind == FourCc::MOOF && pos + size > wanted.start {
            held += size;
            over(pos, "MOOF_BYTES_MAX", MOOF_BYTES_MAX, size).map_err(fault)?;
            over(pos, "MOOFS_BYTES_MAX", MOOFS_BYTES_MAX, held).map_err(fault)?;
            let mut moof = ahead.get(pos, size).await?.to_vec();
            rebase_moof(&mut moof, pos).map_err(fault)?;
            delay_moof(&mut moof, pos, track.delay).map_err(fault)?;
            patches.push(Patch { offset: pos, bytes: moof.into() });
        }
        pos += size;
    }
    Ok(patches)
}

fn cut_off(pos: u64, end: u64) -> MediaError {
    MediaError { offset: pos, kind: FourCc::MOOF, fault: MediaFault::Truncated { need: 8, left: end - pos } }
}

fn over(pos: u64, limit: &'static str, max: u64, found: u64) -> Result<(), MediaError> {
    let fault = MediaFault::OverLimit { limit, max, found };
    if found > max { Err(MediaError { offset: pos, kind: FourCc::MOOF, fault }) } else { Ok(()) }
}

/// A buffered reader with a small read-ahead.
struct Ahead<'a> {
    reader: &'a ObjectReader,
    /// End of the segment, beyond which nothing is read.
    end: u64,
    offset: u64,
    bytes: Bytes,
}

impl Ahead<'_> {
    /// Returns the `len` bytes at `pos`, or fewer at the end of the segment.
    async fn get(&mut self, pos: u64, len: u64) -> Result<Bytes, Fault> {
        let len = len.min(self.end - pos);
        let there = self.offset..self.offset + self.bytes.len() as u64;
        if pos < there.start || pos + len > there.end {
            let len = len.max(AHEAD_BYTES).min(self.end - pos);
            self.bytes = self.reader.read(pos, len).await.map_err(Fault::Storage)?;
            self.offset = pos;
        }
        let start = usize::try_from(pos - self.offset).expect("buffered offsets fit in usize");
        Ok(self.bytes.slice(start..start + usize::try_from(len).expect("buffered lengths fit in usize")))
    }
}
