//! When each CMAF chunk of a segment is complete, and what media time it has, from the segment's bytes as they come. Pure.
//!
//! Of the bytes only the moof boxes are kept, and each no longer than until it is read: a viewer shows nothing. What is no
//! CMAF track (MPEG-2 TS, tracks multiplexed in one file) counts as one piece when it is complete, with the time that its
//! manifest says.

use std::rc::Rc;
use std::time::Duration;

use thalweg_media::boxes::{BOX_HEADER_BYTES_MAX, BoxHeader};
use thalweg_media::fourcc::FourCc;
use thalweg_media::fragment::{Fragment, MOOF_BYTES_MAX};
use thalweg_media::track::TrackInfo;

use super::manifest::{Line, Segment, units};
use super::playhead::Piece;

/// What bytes lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The first byte of a chunk, or of what is no CMAF.
    Begins,
    /// A chunk is complete.
    Complete(Piece),
}

/// Reads one segment.
#[derive(Debug)]
pub struct Chunks {
    /// `None`: no CMAF, nothing is looked at.
    info: Option<Rc<TrackInfo>>,
    line: Option<Line>,
    /// What the manifest says of the segment.
    listed: Piece,
    /// Decode time of the first chunk.
    first: Option<Duration>,
    /// The beginning of a box, until its header, or all of a moof, is there.
    partial: Vec<u8>,
    /// Bytes of the present box that are passed over.
    skip: u64,
    /// What the last moof said; complete with its mdat.
    pending: Option<Piece>,
    is_mdat: bool,
    /// A chunk has begun and is not complete.
    is_open: bool,
    /// Chunks that were complete.
    count: u32,
    /// What came was not what the header promised.
    is_faulty: bool,
}

impl Chunks {
    /// A reader of this segment, of a track with this header, if that is a CMAF track's.
    #[must_use]
    pub fn new(segment: &Segment, info: Option<Rc<TrackInfo>>) -> Self {
        Self {
            info,
            line: segment.line,
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

    /// Whether what came was not what the header promised. It then counts as a whole.
    #[must_use]
    pub fn is_faulty(&self) -> bool {
        self.is_faulty
    }

    /// Takes the next bytes.
    pub fn push(&mut self, mut bytes: &[u8], mut tell: impl FnMut(Event)) {
        while !bytes.is_empty() {
            if !self.is_open {
                self.is_open = true;
                tell(Event::Begins);
            }
            if self.info.is_none() || self.is_faulty {
                return;
            }
            if self.skip > 0 {
                let skipped = usize::try_from(self.skip).unwrap_or(usize::MAX).min(bytes.len());
                self.skip -= skipped as u64;
                bytes = &bytes[skipped..];
                self.end_box(&mut tell);
                continue;
            }
            bytes = self.read_box(bytes, &mut tell);
        }
    }

    /// The segment has come to its end: what no chunk has told of.
    pub fn finish(&mut self) -> Option<Piece> {
        (self.count == 0).then_some(self.listed)
    }

    /// Goes into the next box; the bytes that are left.
    fn read_box<'a>(&mut self, bytes: &'a [u8], tell: &mut impl FnMut(Event)) -> &'a [u8] {
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
                self.end_box(tell);
            }
            Err(_) => self.is_faulty = true,
        }
        &bytes[taken..]
    }

    /// How many bytes of the present box are to be together before it can be gone into.
    fn wanted(&self) -> usize {
        match BoxHeader::parse(&self.partial, 0) {
            Ok(Some(BoxHeader { kind: FourCc::MOOF, size: Some(size), .. })) if size <= MOOF_BYTES_MAX => {
                usize::try_from(size).expect("some MiB at most")
            }
            // The shortest header; then byte by byte, so that nothing has to be given back.
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
        let start = match self.line {
            Some(line) => time.saturating_add(line.start).saturating_sub(line.offset),
            None => self.listed.start.saturating_add(time.saturating_sub(first)),
        };
        self.pending = Some(Piece { start, duration: end.saturating_sub(time) });
    }

    /// Tells of the chunk if its mdat is over.
    fn end_box(&mut self, tell: &mut impl FnMut(Event)) {
        if self.skip > 0 || !std::mem::take(&mut self.is_mdat) {
            return;
        }
        if let Some(piece) = self.pending.take() {
            self.count += 1;
            self.is_open = false;
            tell(Event::Complete(piece));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use thalweg_media::header;

    /// The sample's smallest video, as its files come with the project.
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

    fn segment(line: Option<Line>) -> Segment {
        Segment {
            target: String::new(),
            range: None,
            header: None,
            start: Duration::from_secs(100),
            duration: Duration::from_secs(2),
            available: Duration::ZERO,
            line,
        }
    }

    /// The chunks of these bytes, split as given.
    fn pieces(
        info: Option<Rc<TrackInfo>>,
        line: Option<Line>,
        parts: &[&[u8]],
    ) -> (Vec<Piece>, Option<Piece>, bool) {
        let mut chunks = Chunks::new(&segment(line), info);
        let (mut told, mut begun) = (Vec::new(), 0);
        for part in parts {
            chunks.push(part, |event| match event {
                Event::Begins => begun += 1,
                Event::Complete(piece) => told.push(piece),
            });
        }
        assert!(begun == told.len() || begun == told.len() + 1);
        (told, chunks.finish(), chunks.is_faulty())
    }

    #[test]
    fn chunks_are_found_with_their_times() {
        let (info, bytes) = sample();
        let line = Line { start: Duration::from_secs(7), offset: Duration::ZERO };
        let (with_line, rest, is_faulty) = pieces(Some(Rc::clone(&info)), Some(line), &[&bytes]);
        assert_eq!((rest, is_faulty), (None, false));
        assert_eq!(with_line[0].start, Duration::from_secs(7));
        let total: Duration = with_line.iter().map(|piece| piece.duration).sum();
        assert!(total.abs_diff(Duration::from_secs(32)) < Duration::from_millis(1), "{total:?}");
        let (listed, ..) = pieces(Some(info), None, &[&bytes]);
        assert_eq!(listed[0].start, Duration::from_secs(100));
    }

    #[test]
    fn what_is_no_cmaf_is_one_piece() {
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
        fn how_bytes_are_split_changes_nothing(cuts in prop::collection::vec(1..5000usize, 1..100), length in 0..200_000usize) {
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
        fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..300), at in 0..4000usize) {
            let (info, mut sample) = sample();
            sample.truncate(4000);
            sample.splice(at.min(sample.len())..at.min(sample.len()), bytes);
            pieces(Some(info), None, &[&sample]);
        }
    }
}
