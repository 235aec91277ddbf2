//! A sink's note: how far it has kept the spool's records, and how many it has lost. A line of text in a file of its own:
//! `POSITION LOST`, then `FIRST END RECORDS` of the last gaps.
//!
//! **Invariant:** a note is replaced as a whole: a killed process leaves a whole one. A loss of power may tear it, since it is
//! not synced, which would take longer than most batches; the sink is then given all that is in the spool.
//! **Invariant:** a sink that goes back over the gaps that are noted does not count them again.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::disk;

/// Gaps that a note has. One that goes back over more counts the older ones again.
pub(super) const GAPS_MAX: usize = 16;

/// How far a sink is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Note {
    /// Number of the first record that it has not kept.
    pub(super) position: u64,
    /// Records before that which were gone before it read them.
    pub(super) lost: u64,
    /// Where the last of those were, in order.
    gaps: VecDeque<Gap>,
}

/// Where records are gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gap {
    /// Number of the first of them.
    pub(super) first: u64,
    /// Number of the record after the last.
    pub(super) end: u64,
    /// How many there were.
    pub(super) records: u64,
}

impl Note {
    /// That a sink has nothing before `position`.
    pub(super) fn at(position: u64) -> Self {
        Self { position, ..Self::default() }
    }

    /// Goes past a gap, and counts what is lost in it.
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

    /// The first number from `position` on that is in no gap.
    pub(super) fn after_gap(&self, position: u64) -> u64 {
        let gap = self.gaps.iter().find(|gap| (gap.first..gap.end).contains(&position));
        gap.map_or(position, |gap| gap.end)
    }

    /// How many records are counted as lost between two numbers.
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

/// The file of a sink's note.
pub(super) fn path(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.position"))
}

/// Reads a note, if there is one.
pub(super) fn read(path: &Path) -> io::Result<Option<Note>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    match Note::parse(&text) {
        Some(note) => Ok(Some(note)),
        None => {
            Err(io::Error::new(io::ErrorKind::InvalidData, "not a position and a number of lost records"))
        }
    }
}

/// Replaces a note.
pub(super) fn write(path: &Path, note: &Note) -> io::Result<()> {
    let passing = path.with_extension("position.new");
    let mut text = format!("{} {}", note.position, note.lost);
    for Gap { first, end, records } in &note.gaps {
        write!(text, " {first} {end} {records}").expect("a String takes every write");
    }
    disk::write(&passing, format!("{text}\n").as_bytes())?;
    fs::rename(passing, path)
}
