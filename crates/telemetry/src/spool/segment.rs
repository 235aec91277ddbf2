//! Segment files: named by the number of their first record, a header, then frames to the end.
//!
//! ```text
//! "TWSPOOL1" | first number | the number that the segment before ended with: 8 bytes each | frames
//! ```
//!
//! **Invariant:** where the two numbers differ, the numbers between them were never given to a record: that is no loss.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use thalweg_record::Batch;

use super::frame::{Damaged, Edges, HEADER_BYTES, Header};
use crate::disk;

/// Bytes before the first frame.
pub(super) const SEGMENT_HEADER_BYTES: u64 = 24;
const MAGIC: [u8; 8] = *b"TWSPOOL1";
const EXTENSION: &str = "segment";

/// A segment, as far as its frames are whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    /// Number of its first record.
    pub(super) first: u64,
    /// Where the segment before ended.
    pub(super) follows: u64,
    /// Number after its last record.
    pub(super) end: u64,
    /// Length of the file.
    pub(super) length_bytes: u64,
}

impl Segment {
    /// The file of the segment that begins with `first`.
    pub(super) fn path(dir: &Path, first: u64) -> PathBuf {
        dir.join(format!("{first:020}.{EXTENSION}"))
    }

    /// Makes the file of a segment without records.
    pub(super) fn create(dir: &Path, first: u64, follows: u64) -> io::Result<(Self, File)> {
        let path = Self::path(dir, first);
        let file = disk::options().read(true).truncate(true).open(&path)?;
        let mut header = [0; SEGMENT_HEADER_BYTES as usize];
        header[..8].copy_from_slice(&MAGIC);
        header[8..16].copy_from_slice(&first.to_le_bytes());
        header[16..].copy_from_slice(&follows.to_le_bytes());
        if let Err(error) = file.write_all_at(&header, 0) {
            let _ = fs::remove_file(&path);
            return Err(error);
        }
        Ok((Self { first, follows, end: first, length_bytes: SEGMENT_HEADER_BYTES }, file))
    }

    /// Reads the header of a file; `end` is not known yet, and is `first`.
    fn open(path: &Path) -> io::Result<Option<Self>> {
        let file = File::open(path)?;
        let length_bytes = file.metadata()?.len();
        let mut header = [0; SEGMENT_HEADER_BYTES as usize];
        if length_bytes < SEGMENT_HEADER_BYTES {
            return Ok(None);
        }
        file.read_exact_at(&mut header, 0)?;
        let number = |at: usize| {
            header[at..at + 8].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
        };
        let (first, follows) = (number(8), number(16));
        let is_ours = header.starts_with(&MAGIC) && follows <= first && Some(first) == number_of(path);
        Ok(is_ours.then_some(Self { first, follows, end: first, length_bytes }))
    }
}

/// What is found in a directory.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The segments in order; the last goes to its last whole frame.
    pub(super) segments: Vec<Segment>,
    /// No number before this is free.
    pub(super) end: u64,
    /// The last frames were not torn by a kill but changed since: their numbers may have been read by somebody.
    pub(super) is_tail_damaged: bool,
    /// Files that are no segments though they are named so.
    pub(super) unreadable: Vec<PathBuf>,
}

impl Found {
    /// Removes what is no segment, and what the last one has after its whole frames.
    pub(super) fn tidy(&self, dir: &Path) -> io::Result<()> {
        self.unreadable.iter().try_for_each(fs::remove_file)?;
        let Some(last) = self.segments.last() else { return Ok(()) };
        OpenOptions::new().write(true).open(Segment::path(dir, last.first))?.set_len(last.length_bytes)
    }
}

/// Lists the segments of a directory.
pub(super) fn find(dir: &Path) -> io::Result<Found> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if number_of(&path).is_some() {
            paths.push(path);
        }
    }
    paths.sort();
    let mut found = Found::default();
    for path in paths {
        if let Some(segment) = Segment::open(&path)? {
            found.segments.push(segment);
            found.is_tail_damaged = false;
        } else {
            found.is_tail_damaged |= fs::metadata(&path)?.len() > SEGMENT_HEADER_BYTES;
            found.end = number_of(&path).unwrap_or(0);
            found.unreadable.push(path);
        }
    }
    for at in 1..found.segments.len() {
        found.segments[at - 1].end = found.segments[at].follows.max(found.segments[at - 1].first);
    }
    if let Some(last) = found.segments.last_mut() {
        found.is_tail_damaged |= find_end(dir, last)?;
        found.end = found.end.max(last.end);
    }
    Ok(found)
}

fn number_of(path: &Path) -> Option<u64> {
    let is_segment = path.extension().is_some_and(|extension| extension == EXTENSION);
    path.file_stem().filter(|_| is_segment)?.to_str()?.parse().ok()
}

/// Finds the end of a segment's last whole frame; tells whether what is after it is damage rather than a write that a kill
/// cut short.
fn find_end(dir: &Path, segment: &mut Segment) -> io::Result<bool> {
    let file = File::open(Segment::path(dir, segment.first))?;
    let length_bytes = file.metadata()?.len();
    let mut at = SEGMENT_HEADER_BYTES;
    let mut payload = Vec::new();
    let is_damaged = loop {
        match read_frame(&file, at, length_bytes, &mut payload)? {
            Frame::Whole(header) if header.first == segment.end => {
                segment.end = header.end();
                at += HEADER_BYTES as u64 + u64::from(header.payload_bytes);
            }
            Frame::None => break false,
            Frame::Whole(_) | Frame::Damaged => break true,
        }
    };
    segment.length_bytes = at;
    Ok(is_damaged)
}

/// How far edges had been heard with the last frame of all segments.
pub(super) fn heard(dir: &Path, segments: &[Segment]) -> io::Result<Edges> {
    let Some(segment) = segments.iter().rev().find(|segment| segment.end > segment.first) else {
        return Ok(Edges::new());
    };
    let file = File::open(Segment::path(dir, segment.first))?;
    let (mut at, mut last, mut payload) = (SEGMENT_HEADER_BYTES, None, Vec::new());
    while let Some(Ok(header)) = read_header(&file, at, segment.length_bytes)? {
        last = Some((header, at));
        at += HEADER_BYTES as u64 + u64::from(header.payload_bytes);
    }
    let Some((header, at)) = last else { return Ok(Edges::new()) };
    match read_frame(&file, at, segment.length_bytes, &mut payload)? {
        Frame::Whole(_) => header.heard(&payload).or_else(|_| Ok(Edges::new())),
        Frame::None | Frame::Damaged => Ok(Edges::new()),
    }
}

/// Gives each batch of a segment.
pub(super) fn read_all(dir: &Path, segment: &Segment, mut each: impl FnMut(&mut Batch)) -> io::Result<()> {
    let file = File::open(Segment::path(dir, segment.first))?;
    let (mut at, mut payload) = (SEGMENT_HEADER_BYTES, Vec::new());
    while at < segment.length_bytes {
        let Frame::Whole(header) = read_frame(&file, at, segment.length_bytes, &mut payload)? else { break };
        let Ok(mut batch) = header.batch(&payload) else { break };
        each(&mut batch);
        at += HEADER_BYTES as u64 + u64::from(header.payload_bytes);
    }
    Ok(())
}

/// What lies at an offset.
#[derive(Debug)]
pub(super) enum Frame {
    /// A frame; its checksum is right.
    Whole(Header),
    /// The end, or less than a frame before it.
    None,
    /// Something else.
    Damaged,
}

/// Reads the frame at an offset of a file of which `length_bytes` count, its payload into `payload`.
pub(super) fn read_frame(
    file: &File,
    at: u64,
    length_bytes: u64,
    payload: &mut Vec<u8>,
) -> io::Result<Frame> {
    let Some(header) = read_header(file, at, length_bytes)? else { return Ok(Frame::None) };
    let header = match header {
        Ok(header) => header,
        Err(_) => return Ok(Frame::Damaged),
    };
    let begin = at + HEADER_BYTES as u64;
    if length_bytes - begin < header.payload_bytes.into() {
        return Ok(Frame::None);
    }
    payload.resize(header.payload_bytes as usize, 0);
    file.read_exact_at(payload, begin)?;
    Ok(match header.check(payload) {
        Ok(()) => Frame::Whole(header),
        Err(_) => Frame::Damaged,
    })
}

/// Reads the header at an offset; nothing where less than one is left.
pub(super) fn read_header(
    file: &File,
    at: u64,
    length_bytes: u64,
) -> io::Result<Option<Result<Header, Damaged>>> {
    if length_bytes.saturating_sub(at) < HEADER_BYTES as u64 {
        return Ok(None);
    }
    let mut header = [0; HEADER_BYTES];
    file.read_exact_at(&mut header, at)?;
    Ok(Some(Header::decode(&header)))
}
