//! Retention: deletes rows by age, and deletes the oldest rows when the file exceeds its size
//! limit. Only a limited number of rows is deleted after each batch, so that no batch is delayed
//! for long. Free pages are reused, or returned to the file system a limited number at a time.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension};
use thalweg_record::rows::Table;

use super::raw::stored;
use super::rollup::{Rollup, WINDOW_S};

/// Minimum and maximum number of rows deleted from a table after one batch. Between these limits,
/// the number is twice the number of added rows, so that deletion catches up.
const ROWS_MIN: usize = 1000;
const ROWS_MAX: usize = 10_000;
/// Maximum number of free pages returned to the file system after one batch.
const PAGES_FREED_MAX: u32 = 1000;
/// Number of free pages kept in the file for reuse.
const PAGES_FREE: u64 = 1000;

/// Limits on the age of records and aggregates, and on the file size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Age at which a record is deleted, measured from its `time` field. Losses are kept as long as
    /// aggregates.
    pub records: Duration,
    /// Age at which an aggregate is deleted.
    pub aggregates: Duration,
    /// Maximum bytes in use in the file, not counting the write-ahead log. Above this limit, the
    /// oldest records are deleted or, once no records are left, the oldest aggregates.
    pub total_bytes: u64,
}

impl Retention {
    /// Deletes some of the expired rows, after `added` records were stored. Rows are deleted by age
    /// only if `now_us` is given.
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

/// Returns the number of bytes in use in the file, excluding free pages.
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

/// Deletes aggregates of windows before `window`, one or more complete windows at a time. If more
/// than `rows` rows qualify, it deletes only the oldest windows, up to the first window that
/// exceeds that number.
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
    // If more than `rows` rows qualify, stop after the window that contains the row at that offset.
    // At least one window is then deleted.
    let end = last.map_or(stored(window), |last| last.saturating_add(1));
    connection.prepare_cached(&delete)?.execute([end]).map(drop)
}

/// Deletes the oldest records or, if there are none, the oldest aggregates.
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
