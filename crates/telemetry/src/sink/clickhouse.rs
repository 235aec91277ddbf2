//! ClickHouse, without Kafka between: each batch a block for each table.
//!
//! **Invariant:** a batch's blocks have tokens made of its source and numbers, so a batch that comes again is in the tables once,
//! as long as it comes again before a table forgets its token (10,000 blocks of all agents together, as `schema/` sets it).

use thalweg_record::rows::Table;
use thalweg_record::{Batch, Source};

use crate::clickhouse::{Server, rowbinary};
use crate::{Error, Sink, SinkError};

/// The sink.
#[derive(Debug)]
pub struct ClickHouseSink {
    server: Server,
}

impl ClickHouseSink {
    /// Keeps records in the tables of `schema/clickhouse` at a URL as [`Server::at`] has it.
    ///
    /// # Errors
    /// When it is no such URL.
    pub fn at(url: &str) -> Result<Self, Error> {
        Ok(Self { server: Server::at(url)? })
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
                self.server.insert(table, &token, rows)?;
            }
        }
        Ok(())
    }
}
