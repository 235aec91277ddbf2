//! Incremental reader of a segment that finds CMAF chunks and their media times.
//!
//! Viewers do not decode media, so only moof boxes are buffered, and only until they are parsed. A
//! segment that is not CMAF (MPEG-2 TS, multiplexed tracks) counts as one piece once it is
//! complete, with the times listed in the manifest.

use std::rc::Rc;
use std::time::Duration;

use thalweg_media::boxes::{BOX_HEADER_BYTES_MAX, BoxHeader};
use thalweg_media::fourcc::FourCc;
use thalweg_media::fragment::{Fragment, MOOF_BYTES_MAX};
use thalweg_media::track::TrackInfo;

use super::manifest::{Segment, TimeMapping, units};
use super::playhead::Piece;

/// Events reported while reading a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The first byte of a chunk, or of a segment that is not CMAF.
    Begins,
    /// A chunk is complete.
    Complete(Piece),
}

/// Reader of one segment.
#[derive(Debug)]
pub struct Chunks {
    /// The track's CMAF header. If `None`, the segment is not CMAF and its bytes are ignored.
    info: Option<Rc<TrackInfo>>,
    mapping: Option<TimeMapping>,
    /// The segment's times from the manifest.
    listed: Piece,
    /// Decode time of the first chunk.
    first: Option<Duration>,
    /// Bytes of an incomplete box header or moof.
    partial: Vec<u8>,
    /// Number of bytes left to skip in the current box.
    skip: u64,
    /// Times from the last moof, reported when its mdat is complete.
    pending: Option<Piece>,
    is_mdat: bool,
    /// Whether a chunk has started but is not complete.
    is_open: bool,
    /// Number of complete chunks.
    count: u32,
    /// Whether the bytes contradict the CMAF header.
    is_faulty: bool,
}

impl Chunks {
    /// Creates a reader for a segment. `info` is the track's CMAF header, or `None` if the segment
    /// is not CMAF.
    #[must_use]
    pub fn new(segment: &Segment, info: Option<Rc<TrackInfo>>) -> Self {
        Self {
            info,
            mapping: segment.mapping,
            listed: Piece { start: segment.start, duration: segment.duration },
            first: None,
            partial: Vec::new(),
            skip: 0,
            pending: None,
            is_mdat: false,
            is_open: false,
            count: 0,
            is_faulty: false,
        }
    }

    /// Returns whether the bytes contradict the CMAF header. The segment then counts as one piece.
    #[must_use]
    pub fn is_faulty(&self) -> bool {
        self.is_faulty
    }

    /// Processes the segment's next bytes.
    pub fn push(&mut self, mut bytes: &[u8], mut report: impl FnMut(Event)) {
        while !bytes.is_empty() {
            if !self.is_open {
                self.is_open = true;
                report(Event::Begins);
            }
            if self.info.is_none() || self.is_faulty {
                return;
            }
            if self.skip > 0 {
                let skipped = usize::try_from(self.skip).unwrap_or(usize::MAX).min(bytes.len());
                self.skip -= skipped as u64;
                bytes = &bytes[skipped..];
                self.end_box(&mut report);
                continue;
            }
            bytes = self.read_box(bytes, &mut report);
        }
    }

    /// Ends the segment. Returns it as one piece if no chunk was reported.
    pub fn finish(&mut self) -> Option<Piece> {
        (self.count == 0).then_some(self.listed)
    }

    /// Reads the header of the next box, or a complete moof. Returns the remaining bytes.
    fn read_box<'a>(&mut self, bytes: &'a [u8], report: &mut impl FnMut(Event)) -> &'a [u8] {
        let had = self.partial.len();
        let wanted = self.wanted();
        let taken = wanted.saturating_sub(had).min(bytes.len());
        self.partial.extend_from_slice(&bytes[..taken]);
        match BoxHeader::parse(&self.partial, 0) {
            Ok(None) => {}
            Ok(Some(header)) if header.kind == FourCc::MOOF => {
                if header.size.is_none_or(|size| size > MOOF_BYTES_MAX) {
                    self.is_faulty = true;
                } else if header.size.is_some_and(|size| size == self.partial.len() as u64) {
                    self.read_moof();
                }
            }
            Ok(Some(header)) => {
                self.partial = Vec::new();
                self.skip = header.size.unwrap_or(u64::MAX) - u64::from(header.header_size);
                self.is_mdat = header.kind == FourCc::MDAT;
                self.end_box(report);
            }
            Err(_) => self.is_faulty = true,
        }
        &bytes[taken..]
    }

    /// Returns how many bytes of the current box are needed before processing it.
    fn wanted(&self) -> usize {
        match BoxHeader::parse(&self.partial, 0) {
            Ok(Some(BoxHeader { kind: FourCc::MOOF, size: Some(size), .. })) if size <= MOOF_BYTES_MAX => {
                usize::try_from(size).expect("MOOF_BYTES_MAX fits in usize")
            }
            // Read the shortest header, then one byte at a time, to avoid reading past the header.
            _ if self.partial.len() < 8 => 8,
            _ => (self.partial.len() + 1).min(BOX_HEADER_BYTES_MAX),
        }
    }

    fn read_moof(&mut self) {
        let moof = std::mem::take(&mut self.partial);
        let Some(info) = &self.info else { return };
        let Ok(fragment) = Fragment::parse(&moof, 0, info) else {
            self.is_faulty = true;
            return;
        };
        let timescale = u64::from(info.timescale);
        let time = units(fragment.decode_time, timescale);
        let end = units(fragment.decode_time.saturating_add(fragment.duration), timescale);
        let first = *self.first.get_or_insert(time);
        let start = match self.mapping {
            Some(mapping) => time.saturating_add(mapping.start).saturating_sub(mapping.offset),
            None => self.listed.start.saturating_add(time.saturating_sub(first)),
        };
        self.pending = Some(Piece { start, duration: end.saturating_sub(time) });
    }

    /// Reports the chunk if its mdat is complete.
    fn end_box(&mut self, report: &mut impl FnMut(Event)) {
        if self.skip > 0 || !std::mem::take(&mut self.is_mdat) {
            return;
        }
        if let Some(piece) = self.pending.take() {
            self.count += 1;
            self.is_open = false;
            report(Event::Complete(piece));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use thalweg_media::header;

    /// Reads the smallest video track of the repository's sample.
    fn sample() -> (Rc<TrackInfo>, Vec<u8>) {
        let bytes =
            std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../assets/sample/video_180.mp4")).unwrap();
        let mut at = 0;
        while let Some(found) = BoxHeader::parse(&bytes[at..], at as u64).unwrap() {
            if found.kind == FourCc::MOOF {
                break;
            }
            at += usize::try_from(found.size.unwrap()).unwrap();
        }
        let info = header::parse(&bytes[..at], 0).unwrap();
        (Rc::new(info), bytes[at..].to_vec())
    }

    fn segment(mapping: Option<TimeMapping>) -> Segment {
        Segment {
            target: String::new(),
            range: None,
            header: None,
            start: Duration::from_secs(100),
            duration: Duration::from_secs(2),
            available: Duration::ZERO,
            mapping,
        }
    }

    /// Returns the chunks found in a segment that arrives in the given parts.
    fn pieces(
        info: Option<Rc<TrackInfo>>,
        mapping: Option<TimeMapping>,
        parts: &[&[u8]],
    ) -> (Vec<Piece>, Option<Piece>, bool) {
        let mut chunks = Chunks::new(&segment(mapping), info);
        let (mut found, mut begun) = (Vec::new(), 0);
        for part in parts {
            chunks.push(part, |event| match event {
                Event::Begins => begun += 1,
                Event::Complete(piece) => found.push(piece),
            });
        }
        assert!(begun == found.len() || begun == found.len() + 1);
        (found, chunks.finish(), chunks.is_faulty())
    }

    #[test]
    fn chunks_have_their_media_times() {
        let (info, bytes) = sample();
        let mapping = TimeMapping { start: Duration::from_secs(7), offset: Duration::ZERO };
        let (with_mapping, rest, is_faulty) = pieces(Some(Rc::clone(&info)), Some(mapping), &[&bytes]);
        assert_eq!((rest, is_faulty), (None, false));
        assert_eq!(with_mapping[0].start, Duration::from_secs(7));
        let total: Duration = with_mapping.iter().map(|piece| piece.duration).sum();
        assert!(total.abs_diff(Duration::from_secs(32)) < Duration::from_millis(1), "{total:?}");
        let (listed, ..) = pieces(Some(info), None, &[&bytes]);
        assert_eq!(listed[0].start, Duration::from_secs(100));
    }

    #[test]
    fn segment_that_is_not_cmaf_is_one_piece() {
        let whole = Piece { start: Duration::from_secs(100), duration: Duration::from_secs(2) };
        assert_eq!(pieces(None, None, &[b"\x47\x40\x11\x10", b"\x00"]), (vec![], Some(whole), false));
        let (info, _) = sample();
        assert_eq!(
            pieces(Some(info), None, &[b"\x00\x00\x00\x02no box at all"]),
            (vec![], Some(whole), true)
        );
    }

    proptest! {
        #[test]
        fn result_is_independent_of_splits(cuts in prop::collection::vec(1..5000usize, 1..100), length in 0..200_000usize) {
            let (info, bytes) = sample();
            let bytes = &bytes[..length.min(bytes.len())];
            let mut parts = Vec::new();
            let mut rest = bytes;
            for cut in cuts {
                let (part, after) = rest.split_at(cut.min(rest.len()));
                parts.push(part);
                rest = after;
            }
            parts.push(rest);
            let whole = pieces(Some(Rc::clone(&info)), None, &[bytes]);
            prop_assert_eq!(pieces(Some(info), None, &parts), whole);
        }

        #[test]
        fn any_bytes_are_accepted(bytes in prop::collection::vec(any::<u8>(), 0..300), at in 0..4000usize) {
            let (info, mut sample) = sample();
            sample.truncate(4000);
            sample.splice(at.min(sample.len())..at.min(sample.len()), bytes);
            pieces(Some(info), None, &[&sample]);
        }
    }
}
