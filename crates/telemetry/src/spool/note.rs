//! Position file: a sink's position in the spool and its number of lost records. The file is one
//! line of text: `POSITION LOST`, then `FIRST END RECORDS` for each of the latest gaps.
//!
//! **Invariant:** the file is replaced atomically, so it is complete after a crash. It is not
//! synced, because a sync would take longer than most batches. A power loss may therefore leave it
//! incomplete; the sink then starts at the oldest record.
//! **Invariant:** when a sink goes back over recorded gaps, their losses are not counted again.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::disk;

/// Maximum number of gaps in a position file. If a sink goes back over more gaps, the losses in the
/// older gaps are counted again.
pub(super) const GAPS_MAX: usize = 16;

/// A sink's position and losses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Note {
    /// Number of the first record not stored by the sink.
    pub(super) position: u64,
    /// Number of records before `position` deleted before the sink read them.
    pub(super) lost: u64,
    /// Latest gaps, in order.
    gaps: VecDeque<Gap>,
}

/// A range of record numbers that contains lost records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gap {
    /// First number in the range.
    pub(super) first: u64,
    /// First number after the range.
    pub(super) end: u64,
    /// Number of lost records in the range.
    pub(super) records: u64,
}

impl Note {
    /// Creates the note of a sink that starts at `position` without losses.
    pub(super) fn at(position: u64) -> Self {
        Self { position, ..Self::default() }
    }

    /// Moves the position past a gap and counts its losses.
    pub(super) fn pass(&mut self, gap: Gap) {
        self.lost += gap.records;
        self.position = self.position.max(gap.end);
        match self.gaps.back_mut() {
            Some(last) if last.end == gap.first => {
                (last.end, last.records) = (gap.end, last.records + gap.records);
            }
            _ if gap.records > 0 => {
                let at = self.gaps.partition_point(|known| known.first < gap.first);
                self.gaps.insert(at, gap);
            }
            _ => {}
        }
        if self.gaps.len() > GAPS_MAX {
            self.gaps.pop_front();
        }
    }

    /// Returns `position`, or the end of the gap that contains it.
    pub(super) fn after_gap(&self, position: u64) -> u64 {
        let gap = self.gaps.iter().find(|gap| (gap.first..gap.end).contains(&position));
        gap.map_or(position, |gap| gap.end)
    }

    /// Returns the number of losses already counted in `first..end`.
    pub(super) fn counted(&self, first: u64, end: u64) -> u64 {
        let within = self.gaps.iter().filter(|gap| first <= gap.first && gap.end <= end);
        within.map(|gap| gap.records).sum()
    }

    fn parse(text: &str) -> Option<Self> {
        let numbers: Vec<u64> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
        let [position, lost, gaps @ ..] = numbers.as_slice() else { return None };
        let (gaps, []) = gaps.as_chunks() else { return None };
        let gaps = gaps.iter().map(|&[first, end, records]| Gap { first, end, records }).collect();
        Some(Self { position: *position, lost: *lost, gaps })
    }
}

/// Returns the path of a sink's position file.
pub(super) fn path(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.position"))
}

/// Reads a position file, or returns `None` if it does not exist.
pub(super) fn read(path: &Path) -> io::Result<Option<Note>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    match Note::parse(&text) {
        Some(note) => Ok(Some(note)),
        None => {
            Err(io::Error::new(io::ErrorKind::InvalidData, "expected a position and a count of lost records"))
        }
    }
}

/// Replaces a position file.
pub(super) fn write(path: &Path, note: &Note) -> io::Result<()> {
    let mut text = format!("{} {}", note.position, note.lost);
    for Gap { first, end, records } in &note.gaps {
        write!(text, " {first} {end} {records}").expect("writing to a String cannot fail");
    }
    text.push('\n');
    disk::replace_unsynced(path, text.as_bytes())
}
