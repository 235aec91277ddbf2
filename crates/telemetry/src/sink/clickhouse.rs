//! ClickHouse, without Kafka between: each batch a block for each table.
//!
//! **Invariant:** a batch's blocks have tokens made of its source and numbers, so a batch that comes again is in the tables once,
//! as long as it comes again before a table forgets its token (10,000 blocks of all agents together, as `schema/` sets it).
//! **Invariant:** a process looks for the first batch that it keeps, since one before may have been killed within it.

use std::sync::atomic::Ordering::Relaxed;

use thalweg_record::rows::Table;
use thalweg_record::{Batch, Source};

use crate::clickhouse::{Doubt, Rows, Server, Target, Verified, rowbinary};
use crate::{Error, Sink, SinkError};

/// The sink.
#[derive(Debug)]
pub struct ClickHouseSink {
    server: Server,
    /// Of each table, while a batch is being kept.
    doubts: [Doubt; Table::ALL.len()],
    /// The batch that could not be kept at once; empty if there is none.
    batch: String,
    verified: Verified,
}

impl ClickHouseSink {
    /// Keeps records in the tables of `schema/clickhouse` at a URL as [`Server::at`] has it.
    ///
    /// # Errors
    /// When it is no such URL.
    pub fn at(url: &str) -> Result<Self, Error> {
        let (doubts, verified) = (doubts(true), Verified::default());
        Ok(Self { server: Server::at(url)?, doubts, batch: String::new(), verified })
    }

    /// Its looks for batches that may have been lost to a kill of the server.
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

    fn keep(&mut self, batch: &Batch) -> Result<(), SinkError> {
        let (Some(first), Some(last)) = (batch.entries.first(), batch.entries.last()) else {
            return Ok(());
        };
        let Source { host, epoch, .. } = &batch.source;
        let name = format!("{host}/{epoch}/{}-{}", first.number, last.number);
        // What is settled of another batch is not of this one.
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
        self.verified.unverified.load(Relaxed)
    }
}

/// Of the tables of a batch that may have been tried before.
fn doubts(was_tried: bool) -> [Doubt; Table::ALL.len()] {
    std::array::from_fn(|_| Doubt::of(was_tried))
}
