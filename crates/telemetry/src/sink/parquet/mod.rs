//! Parquet sink: writes one file per table and range of records, for analysis programs that read
//! entire columns.
//!
//! ```text
//! DIR/sockets-EPOCH-FIRST.parquet   records from number FIRST up to any table's next file
//! DIR/parquet.position              position up to which files are complete
//! ```
//!
//! Batches are gathered in memory and written together. Until then, they remain in the spool.
//!
//! **Invariant:** a file is either complete or absent, because it is written under a temporary name
//! and then renamed. When the sink opens, it deletes files that start at or after the noted
//! position, because the spool delivers their records again.

mod columns;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::time::{Duration, Instant};

use thalweg_record::rows::{self, Table};
use thalweg_record::{Batch, Entry, Source};

use super::files::{Files, Note, failed};
use crate::disk;
use crate::error::SinkError;
use crate::sink::Sink;
use columns::Columns;

/// Limits at which gathered rows are written and the oldest files are deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gathering {
    /// Number of rows in one table at which the rows of all tables are written.
    pub rows: usize,
    /// Approximate memory use, in bytes, at which all rows are written.
    pub bytes: usize,
    /// Age of the oldest row at which all rows are written.
    pub age: Duration,
    /// Maximum total size of all files in bytes, if limited. Above it, the oldest files are
    /// deleted.
    pub total_bytes: Option<u64>,
}

/// The Parquet sink.
#[derive(Debug)]
pub struct ParquetSink {
    files: Files,
    gathering: Gathering,
    note: Option<Note>,
    /// Gathered rows, if any.
    gathered: Option<Gathered>,
}

/// Rows not yet written to a file.
#[derive(Debug)]
struct Gathered {
    source: Source,
    /// Number of the first record.
    first: u64,
    /// Number after the last record.
    end: u64,
    since: Instant,
    tables: [Columns; Table::ALL.len()],
}

impl ParquetSink {
    /// Opens a directory, creating it if missing, and deletes files left by a crash.
    ///
    /// # Errors
    ///
    /// Returns an error if the directory cannot be read or written.
    pub fn open(dir: &Path, gathering: Gathering) -> Result<Self, SinkError> {
        let files = Files::open(dir, "parquet").map_err(failed("open", dir))?;
        let note = files.note().map_err(failed("open", dir))?;
        if let Some(note) = &note {
            files.remove_later(note).map_err(failed("clear", dir))?;
        }
        Ok(Self { files, gathering, note, gathered: None })
    }

    /// Writes the gathered rows, then the position file. A retry writes the same files again.
    fn write(&mut self) -> Result<(), SinkError> {
        let Some(gathered) = &self.gathered else { return Ok(()) };
        let dir = self.files.dir();
        let path = |table: Table| self.files.path(table.name(), gathered.source.epoch, gathered.first);
        let tables = || Table::ALL.into_iter().zip(&gathered.tables).filter(|(_, rows)| rows.count() > 0);
        for (table, rows) in tables() {
            rows.write(&Files::temporary(&path(table))).map_err(failed("write to", dir))?;
        }
        for (table, _) in tables() {
            disk::rename(&Files::temporary(&path(table)), &path(table))
                .map_err(failed("rename a file in", dir))?;
        }
        disk::sync_dir(dir).map_err(failed("sync", dir))?;
        let note = Note::new(&gathered.source, gathered.end);
        self.files.write_note(&note).map_err(failed("write the position in", dir))?;
        (self.note, self.gathered) = (Some(note), None);
        self.files.trim(self.gathering.total_bytes);
        Ok(())
    }

    /// Returns the gathered rows to which a batch is to be added. The position file is written
    /// before an epoch's first record is gathered.
    fn gathered(&mut self, source: &Source, first: u64) -> Result<&mut Gathered, SinkError> {
        if self.gathered.as_ref().is_some_and(|gathered| gathered.source != *source) {
            self.write()?;
        }
        if !self.note.as_ref().is_some_and(|note| note.is_of(source)) {
            let note = Note::new(source, first);
            self.files.write_note(&note).map_err(failed("write the position in", self.files.dir()))?;
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
    /// Adds a record unless it has already been added.
    fn add(&mut self, entry: &Entry) {
        if entry.number >= self.end {
            let columns = &mut self.tables[Table::of(&entry.record) as usize];
            let mut at = 0;
            rows::row(&self.source, entry, &mut |value| {
                columns.push(at, &value);
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

    fn store(&mut self, batch: &Batch) -> Result<(), SinkError> {
        let Some(begin) = batch.entries.first() else { return Ok(()) };
        let gathering = self.gathering;
        let gathered = self.gathered(&batch.source, begin.number)?;
        batch.entries.iter().for_each(|entry| gathered.add(entry));
        if gathered.is_due(gathering) { self.write() } else { Ok(()) }
    }

    fn stored(&self, given: u64) -> u64 {
        self.gathered.as_ref().map_or(given, |gathered| gathered.first)
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        self.write()
    }
}
