//! Spool segment files. Each file is named after its first record number and contains a header
//! followed by frames.
//!
//! ```text
//! "TWSPOOL1" | first number | end of the previous segment: 8 bytes each | frames
//! ```
//!
//! **Invariant:** if the two numbers in the header differ, the numbers between them were never
//! assigned and do not count as losses.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use thalweg_record::Batch;

use super::frame::{Damaged, Edges, HEADER_BYTES, Header};
use crate::disk;

/// Size, in bytes, of the header before the first frame.
pub(super) const SEGMENT_HEADER_BYTES: u64 = 24;
const MAGIC: [u8; 8] = *b"TWSPOOL1";
const EXTENSION: &str = "segment";

/// A spool segment, up to the end of its last complete frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    /// Number of the segment's first record.
    pub(super) first: u64,
    /// End of the previous segment: the number after its last record.
    pub(super) follows: u64,
    /// Number after the segment's last record.
    pub(super) end: u64,
    /// Length of the file in bytes, up to the end of the last complete frame.
    pub(super) length_bytes: u64,
}

impl Segment {
    /// Returns the path of the spool segment with the first record number `first`.
    pub(super) fn path(dir: &Path, first: u64) -> PathBuf {
        dir.join(format!("{first:020}.{EXTENSION}"))
    }

    /// Creates an empty spool segment file.
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

    /// Reads a file's header, or returns `None` if the file is not a spool segment. `end` is set to
    /// `first`, because the end is not in the header.
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

/// Spool segments and related files found in a directory.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Valid spool segments in order; the last segment extends to its last complete frame.
    pub(super) segments: Vec<Segment>,
    /// Next free number: no lower number may be assigned.
    pub(super) end: u64,
    /// Whether the last frames are damaged, rather than torn by a crash. In that case, sinks may
    /// already have read the records in these frames.
    pub(super) is_tail_damaged: bool,
    /// Files that are named like spool segments but have no valid header.
    pub(super) unreadable: Vec<PathBuf>,
}

impl Found {
    /// Deletes the unreadable files, and truncates the last spool segment after its last complete
    /// frame.
    pub(super) fn tidy(&self, dir: &Path) -> io::Result<()> {
        self.unreadable.iter().try_for_each(fs::remove_file)?;
        let Some(last) = self.segments.last() else { return Ok(()) };
        OpenOptions::new().write(true).open(Segment::path(dir, last.first))?.set_len(last.length_bytes)
    }
}

/// Finds the spool segments in a directory.
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

/// Finds the end of a spool segment's last complete frame. Returns whether the data after it is
/// damaged, rather than the start of a write cut short by a crash.
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

/// Reads the edge positions from the last frame of the last spool segment that has records.
pub(super) fn edge_positions(dir: &Path, segments: &[Segment]) -> io::Result<Edges> {
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
        Frame::Whole(_) => header.edge_positions(&payload).or_else(|_| Ok(Edges::new())),
        Frame::None | Frame::Damaged => Ok(Edges::new()),
    }
}

/// Calls `each` with every batch in a spool segment. Stops at the first invalid frame.
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

/// Result of reading a frame at an offset.
#[derive(Debug)]
pub(super) enum Frame {
    /// A complete frame with a correct checksum.
    Whole(Header),
    /// End of the file, or an incomplete frame.
    None,
    /// Any other data.
    Damaged,
}

/// Reads the frame at an offset and stores its payload in `payload`. Only the first `length_bytes`
/// of the file are valid.
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

/// Reads the frame header at an offset. Returns `None` if there are too few bytes left for a
/// header.
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
