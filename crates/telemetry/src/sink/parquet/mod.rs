//! The file sink for analysis: Parquet, a file for each table and span of records, for programs that read whole columns.
//!
//! ```text
//! DIR/sockets-EPOCH-FIRST.parquet   records from number FIRST on, up to the next file of any table
//! DIR/parquet.position              how far the files are
//! ```
//!
//! Batches are gathered in memory and written together; until then the spool has them.
//!
//! **Invariant:** a file is whole or not there: it is written under a passing name. Files from the noted position on are removed when
//! the sink begins, since what they are of comes again.

mod columns;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::time::{Duration, Instant};

use thalweg_record::rows::{self, Table};
use thalweg_record::{Batch, Entry, Source};

use super::files::{Files, Note, failed};
use crate::{Sink, SinkError, disk};
use columns::Columns;

/// When what was gathered is written, and when the oldest files go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gathering {
    /// So many rows of one table are there.
    pub rows: usize,
    /// They take so much memory, about.
    pub bytes: usize,
    /// The first of them is as old.
    pub age: Duration,
    /// All files together, if there is a bound: once they take more, the oldest go.
    pub total_bytes: Option<u64>,
}

/// Keeps records as Parquet files.
#[derive(Debug)]
pub struct ParquetSink {
    files: Files,
    gathering: Gathering,
    note: Option<Note>,
    /// What was gathered, if anything.
    gathered: Option<Gathered>,
}

/// Rows that are in no file yet.
#[derive(Debug)]
struct Gathered {
    source: Source,
    /// Numbers of the first record, and of the one after the last.
    first: u64,
    end: u64,
    since: Instant,
    tables: [Columns; Table::ALL.len()],
}

impl ParquetSink {
    /// Opens a directory, which is made if it is not there, and removes what a kill has left.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub fn open(dir: &Path, gathering: Gathering) -> Result<Self, SinkError> {
        let files = Files::open(dir, "parquet").map_err(failed("open", dir))?;
        let note = files.note().map_err(failed("open", dir))?;
        if let Some(note) = &note {
            files.remove_later(note).map_err(failed("clear", dir))?;
        }
        Ok(Self { files, gathering, note, gathered: None })
    }

    /// Writes what was gathered, then that it is. After a failure the same files are written again.
    fn write(&mut self) -> Result<(), SinkError> {
        let Some(gathered) = &self.gathered else { return Ok(()) };
        let dir = self.files.dir();
        let path = |table: Table| self.files.path(table.name(), gathered.source.epoch, gathered.first);
        let tables = || Table::ALL.into_iter().zip(&gathered.tables).filter(|(_, rows)| rows.count() > 0);
        for (table, rows) in tables() {
            rows.write(&Files::passing(&path(table))).map_err(failed("write to", dir))?;
        }
        for (table, _) in tables() {
            disk::rename(&Files::passing(&path(table)), &path(table))
                .map_err(failed("name a file in", dir))?;
        }
        disk::sync_dir(dir).map_err(failed("name files in", dir))?;
        let note = Note::new(&gathered.source, gathered.end);
        self.files.write_note(&note).map_err(failed("note the position in", dir))?;
        (self.note, self.gathered) = (Some(note), None);
        self.files.trim(self.gathering.total_bytes);
        Ok(())
    }

    /// What a batch is added to. Before the first record of a numbering is, there is a note of it.
    fn gathered(&mut self, source: &Source, first: u64) -> Result<&mut Gathered, SinkError> {
        if self.gathered.as_ref().is_some_and(|gathered| gathered.source != *source) {
            self.write()?;
        }
        if !self.note.as_ref().is_some_and(|note| note.is_of(source)) {
            let note = Note::new(source, first);
            self.files.write_note(&note).map_err(failed("note the position in", self.files.dir()))?;
            self.note = Some(note);
        }
        let first = self.note.as_ref().map_or(first, |note| first.max(note.position));
        Ok(self.gathered.get_or_insert_with(|| Gathered {
            source: source.clone(),
            first,
            end: first,
            since: Instant::now(),
            tables: Table::ALL.map(Columns::new),
        }))
    }
}

impl Gathered {
    /// Adds a record that it has not yet.
    fn add(&mut self, entry: &Entry) {
        if entry.number >= self.end {
            let columns = &mut self.tables[Table::of(&entry.record) as usize];
            let mut at = 0;
            rows::row(&self.source, entry, &mut |value| {
                columns.put(at, &value);
                at += 1;
            });
            self.end = entry.number + 1;
        }
    }

    fn is_due(&self, gathering: Gathering) -> bool {
        self.since.elapsed() >= gathering.age
            || self.tables.iter().any(|rows| rows.count() >= gathering.rows)
            || self.tables.iter().map(Columns::bytes).sum::<usize>() >= gathering.bytes
    }
}

impl Sink for ParquetSink {
    fn name(&self) -> &'static str {
        "parquet"
    }

    fn position(&mut self, source: &Source) -> Result<Option<u64>, SinkError> {
        Ok(self.note.as_ref().filter(|note| note.is_of(source)).map(|note| note.position))
    }

    fn keep(&mut self, batch: &Batch) -> Result<(), SinkError> {
        let Some(begin) = batch.entries.first() else { return Ok(()) };
        let gathering = self.gathering;
        let gathered = self.gathered(&batch.source, begin.number)?;
        batch.entries.iter().for_each(|entry| gathered.add(entry));
        if gathered.is_due(gathering) { self.write() } else { Ok(()) }
    }

    fn kept(&self, given: u64) -> u64 {
        self.gathered.as_ref().map_or(given, |gathered| gathered.first)
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        self.write()
    }
}
