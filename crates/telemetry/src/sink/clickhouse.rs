//! ClickHouse sink, for delivery without Kafka: inserts each batch as one block per table.
//!
//! **Invariant:** a block's token consists of the batch's source and record numbers, and the table
//! name. A repeated batch is therefore stored once, as long as the table still remembers its token.
//! The tables in `schema/` are configured to remember the last 10,000 tokens across all agents.
//! **Invariant:** a process verifies the first batch that it stores, because an earlier process may
//! have crashed while storing the same batch.

use thalweg_record::rows::Table;
use thalweg_record::{Batch, Source};

use crate::clickhouse::{Doubt, Rows, Server, Target, Verified, rowbinary};
use crate::error::{Error, SinkError};
use crate::sink::Sink;

/// The ClickHouse sink.
#[derive(Debug)]
pub struct ClickHouseSink {
    server: Server,
    /// Insertion state of the current batch in each table.
    doubts: [Doubt; Table::ALL.len()],
    /// Name of the failed batch that will be retried; empty if no batch has failed.
    batch: String,
    verified: Verified,
}

impl ClickHouseSink {
    /// Creates a sink for the tables in `schema/clickhouse`. [`Server::at`] documents the form of
    /// the URL.
    ///
    /// # Errors
    ///
    /// Returns an error if the URL is invalid.
    pub fn at(url: &str) -> Result<Self, Error> {
        let (doubts, verified) = (doubts(true), Verified::default());
        Ok(Self { server: Server::at(url)?, doubts, batch: String::new(), verified })
    }

    /// Returns the verification metrics.
    pub fn verified(&self) -> &Verified {
        &self.verified
    }
}

impl Sink for ClickHouseSink {
    fn name(&self) -> &'static str {
        "clickhouse"
    }

    fn position(&mut self, _: &Source) -> Result<Option<u64>, SinkError> {
        Ok(None)
    }

    fn store(&mut self, batch: &Batch) -> Result<(), SinkError> {
        let (Some(first), Some(last)) = (batch.entries.first(), batch.entries.last()) else {
            return Ok(());
        };
        let Source { host, epoch, .. } = &batch.source;
        let name = format!("{host}/{epoch}/{}-{}", first.number, last.number);
        // The insertion state of a different batch does not apply to this one.
        if self.batch != name && !self.batch.is_empty() {
            self.doubts = doubts(true);
        }
        for (table, doubt) in Table::ALL.into_iter().zip(&mut self.doubts) {
            let mut rows = Rows::default();
            for entry in batch.entries.iter().filter(|entry| Table::of(&entry.record) == table) {
                rowbinary::append_row(&batch.source, entry, &mut rows.bytes);
                rows.count += 1;
            }
            if rows.count > 0 {
                let token = format!("{name}/{}", table.name());
                let inserted = doubt.insert(&self.server, &Target::of(table), &token, &rows, &self.verified);
                if inserted.is_err() {
                    self.batch = name;
                    return inserted;
                }
            }
        }
        self.batch.clear();
        self.doubts = doubts(false);
        Ok(())
    }

    fn unverified(&self) -> u64 {
        self.verified.unverified.get()
    }
}

/// Creates a batch's insertion state for each table. `was_tried` states that an earlier process may
/// have attempted the insert.
fn doubts(was_tried: bool) -> [Doubt; Table::ALL.len()] {
    std::array::from_fn(|_| Doubt::of(was_tried))
}
