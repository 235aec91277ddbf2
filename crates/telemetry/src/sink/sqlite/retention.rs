//! What goes from the file, and when: by age, and the oldest where it outgrows its bound. A little after each batch, so that no
//! batch waits long; free pages are used again, and given back to the system a few at a time.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension};
use thalweg_record::rows::Table;

use super::rollup::{Rollup, WINDOW_S};
use super::stored;

/// Rows of a table that go after one batch, at least as many as may: twice what came, so that it ends.
const ROWS_MIN: usize = 1000;
const ROWS_MAX: usize = 10_000;
/// Pages given back to the system after one batch.
const PAGES_FREED_MAX: u32 = 1000;
/// Free pages that stay for what comes next.
const PAGES_FREE: u64 = 1000;

/// How long, and in how many bytes, records are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Age, by its own time, at which a record goes. Losses stay as long as aggregates.
    pub records: Duration,
    /// Age at which an aggregate goes.
    pub aggregates: Duration,
    /// Bytes in use in the file, beside its write-ahead log: above that the oldest records go, and without those the oldest
    /// aggregates.
    pub total_bytes: u64,
}

impl Retention {
    /// Removes some of what is due, after `added` records came: by age if there is a clock to be believed.
    pub(super) fn trim(
        &self,
        connection: &Connection,
        now_us: Option<u64>,
        added: usize,
    ) -> rusqlite::Result<()> {
        let rows = (2 * added).clamp(ROWS_MIN, ROWS_MAX);
        if let Some(now_us) = now_us {
            self.delete_aged(connection, now_us, rows)?;
        }
        if used_bytes(connection)? > self.total_bytes {
            delete_oldest(connection, rows)?;
        }
        if number(connection, "freelist_count")? > PAGES_FREE {
            let mut free =
                connection.prepare_cached(&format!("PRAGMA incremental_vacuum({PAGES_FREED_MAX})"))?;
            let mut freed = free.query([])?;
            while freed.next()?.is_some() {}
        }
        Ok(())
    }

    fn delete_aged(&self, connection: &Connection, now_us: u64, rows: usize) -> rusqlite::Result<()> {
        let before =
            |age: Duration| now_us.saturating_sub(u64::try_from(age.as_micros()).unwrap_or(u64::MAX));
        for table in Table::ALL {
            let age = if table == Table::Losses { self.aggregates } else { self.records };
            delete_before(connection, table, before(age), rows)?;
        }
        for rollup in [Rollup::Sockets, Rollup::Responses] {
            let window = (before(self.aggregates) / 1_000_000).saturating_sub(WINDOW_S);
            delete_windows_before(connection, rollup, window, rows)?;
        }
        Ok(())
    }
}

fn number(connection: &Connection, name: &str) -> rusqlite::Result<u64> {
    connection.prepare_cached(&format!("PRAGMA {name}"))?.query_row([], |row| row.get(0))
}

/// Bytes in use.
fn used_bytes(connection: &Connection) -> rusqlite::Result<u64> {
    let pages = number(connection, "page_count")?.saturating_sub(number(connection, "freelist_count")?);
    Ok(pages.saturating_mul(number(connection, "page_size")?))
}

fn delete_before(connection: &Connection, table: Table, time_us: u64, rows: usize) -> rusqlite::Result<()> {
    let name = table.name();
    let delete = format!(
        "DELETE FROM {name} WHERE rowid IN (SELECT rowid FROM {name} WHERE time < ?1 ORDER BY time LIMIT ?2)"
    );
    connection.prepare_cached(&delete)?.execute((stored(time_us), rows)).map(drop)
}

/// Removes aggregates of whole windows, and no more of them than it takes for so many rows.
fn delete_windows_before(
    connection: &Connection,
    rollup: Rollup,
    window: u64,
    rows: usize,
) -> rusqlite::Result<()> {
    let name = rollup.table();
    let oldest = format!("SELECT window FROM {name} WHERE window < ?1 ORDER BY window LIMIT 1 OFFSET ?2");
    let last: Option<i64> =
        connection.prepare_cached(&oldest)?.query_row((stored(window), rows), |row| row.get(0)).optional()?;
    let delete = format!("DELETE FROM {name} WHERE window < ?1");
    // With more rows than that, up to the window of the last one, itself included so that something goes.
    let end = last.map_or(stored(window), |last| last.saturating_add(1));
    connection.prepare_cached(&delete)?.execute([end]).map(drop)
}

/// Removes the oldest records, without records the oldest aggregates.
fn delete_oldest(connection: &Connection, rows: usize) -> rusqlite::Result<()> {
    let mut oldest = None;
    for table in [Table::Sockets, Table::Responses] {
        let time = format!("SELECT min(time) FROM {}", table.name());
        let time: Option<i64> = connection.prepare_cached(&time)?.query_row([], |row| row.get(0))?;
        let older = |(_, known): &(Table, i64)| time.is_some_and(|time| time < *known);
        if oldest.as_ref().is_none_or(older) {
            oldest = time.map(|time| (table, time)).or(oldest);
        }
    }
    match oldest {
        Some((table, _)) => delete_before(connection, table, u64::MAX, rows),
        None => [Rollup::Sockets, Rollup::Responses].into_iter().try_for_each(|rollup| {
            let window = format!("SELECT min(window) FROM {}", rollup.table());
            let window: Option<u64> = connection.prepare_cached(&window)?.query_row([], |row| row.get(0))?;
            window.map_or(Ok(()), |window| delete_windows_before(connection, rollup, window + 1, rows))
        }),
    }
}
