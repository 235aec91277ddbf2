//! ClickHouse, without Kafka between: each batch a block for each table.
//!
//! **Invariant:** a batch's blocks have tokens made of its source and numbers, so a batch that comes again is in the tables once,
//! as long as it comes again before a table forgets its token (10,000 blocks of all agents together, as `schema/` sets it).
//! **Invariant:** a process looks for the first batch that it keeps, since one before may have been killed within it.

use std::sync::atomic::Ordering::Relaxed;

use thalweg_record::rows::Table;
use thalweg_record::{Batch, Source};

use crate::clickhouse::{Doubt, Server, Target, Verified, rowbinary};
use crate::{Error, Sink, SinkError};

/// The sink.
#[derive(Debug)]
pub struct ClickHouseSink {
    server: Server,
    /// Of the batch that is being kept.
    doubt: Doubt,
    verified: Verified,
}

impl ClickHouseSink {
    /// Keeps records in the tables of `schema/clickhouse` at a URL as [`Server::at`] has it.
    ///
    /// # Errors
    /// When it is no such URL.
    pub fn at(url: &str) -> Result<Self, Error> {
        Ok(Self { server: Server::at(url)?, doubt: Doubt::of(true), verified: Verified::default() })
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
        for table in Table::ALL {
            let mut rows = Vec::new();
            for entry in batch.entries.iter().filter(|entry| Table::of(&entry.record) == table) {
                rowbinary::append_row(&batch.source, entry, &mut rows);
            }
            if !rows.is_empty() {
                let token = format!("{host}/{epoch}/{}-{}/{}", first.number, last.number, table.name());
                let target = Target::of(table);
                self.doubt.insert(&self.server, &target, &token, &rows, &self.verified)?;
            }
        }
        self.doubt = Doubt::of(false);
        Ok(())
    }

    fn unverified(&self) -> u64 {
        self.verified.unverified.load(Relaxed)
    }
}
