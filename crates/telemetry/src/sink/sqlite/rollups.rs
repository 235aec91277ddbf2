//! Cache of recent windows' aggregates. It avoids reading an aggregate from the file for each
//! record. Changed aggregates are written to the file in the same transaction as their records.
//!
//! **Invariant:** between batches, each cached aggregate equals the one in the file. After a
//! failure, the cache is empty.

use std::collections::HashMap;

use rusqlite::types::Value as Stored;
use rusqlite::{CachedStatement, Connection, OptionalExtension, Row, params_from_iter};
use thalweg_record::{Entry, Sketch, Source};

use super::hosts::Hosts;
use super::raw::stored;
use super::rollup::{Aggregate, Key, Rollup, WINDOW_S};

/// Maximum number of cached aggregates, each a few KiB in size.
const AGGREGATES_MAX: usize = 100_000;
/// Number of windows before the newest that stay cached for late records.
const WINDOWS_LATE: u64 = 1;

/// The cache of aggregates.
#[derive(Debug, Default)]
pub(super) struct Rollups {
    aggregates: HashMap<Key, Aggregate>,
    /// For each cached window, whether the file had any of its aggregates at the first look-up.
    windows: HashMap<(Rollup, u64), bool>,
    hosts: Hosts,
}

impl Rollups {
    /// Adds records to their aggregates, and writes the changed aggregates.
    pub(super) fn add(
        &mut self,
        connection: &Connection,
        source: &Source,
        entries: &[Entry],
    ) -> rusqlite::Result<()> {
        let mut changed = Vec::new();
        for entry in entries {
            let Some(mut key) = Key::of(source, entry) else { continue };
            self.hosts.limit(connection, &mut key)?;
            if !self.aggregates.contains_key(&key) {
                let aggregate = self.load(connection, &key)?;
                self.aggregates.insert(key.clone(), aggregate);
            }
            let aggregate = self.aggregates.get_mut(&key).expect("inserted above");
            aggregate.add(&entry.record);
            if !std::mem::replace(&mut aggregate.is_changed, true) {
                changed.push(key);
            }
        }
        let mut newest = 0;
        let mut statements = [const { None }; 2];
        for key in changed {
            let aggregate = self.aggregates.get_mut(&key).expect("nothing is removed in between");
            aggregate.is_changed = false;
            let statement = match &mut statements[key.rollup as usize] {
                Some(statement) => statement,
                none => none.insert(prepare_write(connection, key.rollup)?),
            };
            statement.execute(params_from_iter(values(&key, aggregate)))?;
            newest = newest.max(key.window);
        }
        // `newest` covers only this batch's records. Otherwise a single record from a clock that
        // runs ahead would make all later records count as late.
        self.shrink(newest);
        Ok(())
    }

    /// Clears the cache.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    fn shrink(&mut self, newest: u64) {
        let oldest = newest.saturating_sub(WINDOWS_LATE * WINDOW_S);
        if self.windows.keys().any(|(_, window)| *window < oldest) {
            self.windows.retain(|(_, window), _| *window >= oldest);
            self.aggregates.retain(|key, _| key.window >= oldest);
            self.hosts.shrink(oldest);
        }
        // Keep the hosts, because reading them back would scan the entire window.
        if self.aggregates.len() > AGGREGATES_MAX {
            self.aggregates.clear();
            self.windows.clear();
        }
    }

    /// Reads an aggregate from the file, or returns an empty one.
    fn load(&mut self, connection: &Connection, key: &Key) -> rusqlite::Result<Aggregate> {
        let has_others = match self.windows.get(&(key.rollup, key.window)) {
            Some(has_others) => *has_others,
            None => {
                let exists =
                    format!("SELECT EXISTS (SELECT 1 FROM {} WHERE window = ?1)", key.rollup.table());
                let has_others =
                    connection.prepare_cached(&exists)?.query_row([stored(key.window)], |row| row.get(0))?;
                self.windows.insert((key.rollup, key.window), has_others);
                has_others
            }
        };
        if has_others { read(connection, key) } else { Ok(Aggregate::default()) }
    }
}

fn read(connection: &Connection, key: &Key) -> rusqlite::Result<Aggregate> {
    let columns = [key.rollup.sums(), key.rollup.sketches()].concat().join(", ");
    let is_key: Vec<_> = key.rollup.keys().iter().map(|name| format!("{name} = ?")).collect();
    let query = format!("SELECT {columns} FROM {} WHERE {}", key.rollup.table(), is_key.join(" AND "));
    let aggregate = connection
        .prepare_cached(&query)?
        .query_row(params_from_iter(key_values(key)), |row| from_row(key.rollup, row))
        .optional()?;
    Ok(aggregate.unwrap_or_default())
}

fn from_row(rollup: Rollup, row: &Row<'_>) -> rusqlite::Result<Aggregate> {
    let mut aggregate = Aggregate::default();
    let sums = rollup.sums().len();
    for at in 0..sums {
        aggregate.sums[at] = row.get(at)?;
    }
    for at in 0..rollup.sketches().len() {
        let text = row.get_ref(sums + at)?.as_str()?;
        aggregate.sketches[at] = Sketch::from_json(text).map_err(|cause| {
            rusqlite::Error::FromSqlConversionFailure(sums + at, rusqlite::types::Type::Text, cause.into())
        })?;
    }
    Ok(aggregate)
}

fn prepare_write(connection: &Connection, rollup: Rollup) -> rusqlite::Result<CachedStatement<'_>> {
    let names = [rollup.keys(), rollup.sums(), rollup.sketches()].concat();
    let places = vec!["?"; names.len()].join(", ");
    let names = names.join(", ");
    connection
        .prepare_cached(&format!("INSERT OR REPLACE INTO {} ({names}) VALUES ({places})", rollup.table()))
}

/// Returns a row's values, in column order.
fn values(key: &Key, aggregate: &Aggregate) -> impl Iterator<Item = Stored> {
    let sums = aggregate.sums.iter().take(key.rollup.sums().len());
    let sketches = aggregate.sketches.iter().take(key.rollup.sketches().len());
    key_values(key)
        .into_iter()
        .chain(sums.map(|sum| Stored::Integer(stored(*sum))))
        .chain(sketches.map(|sketch| Stored::Text(sketch.to_json())))
}

/// Returns the values of a row's key columns, in order.
fn key_values(key: &Key) -> Vec<Stored> {
    let mut values = vec![
        Stored::Integer(stored(key.window)),
        Stored::Text(key.pop.clone()),
        Stored::Text(key.prefix()),
        Stored::Integer(key.asn.into()),
        Stored::Text(key.region.as_deref().unwrap_or_default().to_owned()),
        Stored::Text(key.congestion_control.clone()),
        Stored::Text(key.cache.to_owned()),
        Stored::Text(key.request_host.clone()),
    ];
    values.truncate(key.rollup.keys().len());
    values
}
