//! The controller's file: SQLite in WAL mode, with the tables of `schema/control.sql`.
//!
//! **Invariant:** what happens together is in it together, or not at all.

use std::collections::HashMap;
use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{CachedStatement, Connection, OpenFlags, OptionalExtension, Transaction};
use serde_json::Value;
use thalweg_control::{Rollout, State, StateError, Tenants, Transition, Whom};
use thalweg_record::Prefix;

use crate::pop::{Pop, out};
use crate::round::Told;

/// Rounds that the ledger keeps of each tenant of a PoP: four weeks of five minutes.
pub const ROUNDS_KEPT: u64 = 8_064;
/// Events that are kept of each PoP.
const EVENTS_KEPT: u32 = 1_000;
/// Bundles that are kept of each PoP.
const BUNDLES_KEPT: u64 = 100;
/// Changes of a prefix that are told, the newest.
const CHANGES_TOLD_MAX: u32 = 100;
/// Readers beside the engine wait for it so long,
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);
/// and the engine for others: there are none but those who look into the file by hand.
const WRITER_BUSY_TIMEOUT: Duration = Duration::from_millis(100);
/// What marks a file as one of these (`application_id`): "Thlc".
const APPLICATION: u32 = 0x5468_6c63;
/// The version of the tables (`user_version`).
const SCHEMA_VERSION: u32 = 2;
const SCHEMA: &str = include_str!("../../../schema/control.sql");

/// Why the file cannot be used.
#[derive(Debug)]
pub struct StoreError {
    path: PathBuf,
    why: String,
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot use {}: {}", self.path.display(), self.why)
    }
}

impl std::error::Error for StoreError {}

/// Something that has changed of a prefix.
#[derive(Debug)]
pub(crate) struct Changed {
    pub(crate) window: u64,
    pub(crate) unix_s: u64,
    pub(crate) what: String,
    pub(crate) reason: String,
}

/// The file, opened.
#[derive(Debug)]
pub(crate) struct Store {
    connection: Connection,
    path: PathBuf,
    /// Held by who writes, until its end: a file beside it, since SQLite has locks of its own on this one.
    _lock: Option<File>,
}

impl Store {
    /// Opens a file, or makes it, with its directory.
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        let refused = |why| StoreError { path: path.to_owned(), why };
        let beside = path.with_added_extension("lock");
        let made = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| File::create(&beside));
        let lock = made.map_err(|error| refused(format!("{}: {error}", beside.display())))?;
        lock.try_lock()
            .map_err(|_| refused("another controller has it: give this one a file of its own".to_owned()))?;
        let opened = Connection::open(path).and_then(|mut connection| {
            connection.busy_timeout(WRITER_BUSY_TIMEOUT)?;
            let why = prepare(&mut connection)?;
            Ok((connection, why))
        });
        match opened {
            Ok((connection, None)) => Ok(Self { connection, path: path.to_owned(), _lock: Some(lock) }),
            Ok((_, Some(why))) => Err(refused(why)),
            Err(error) => Err(refused(error.to_string())),
        }
    }

    /// Opens it once more, to read what the engine writes.
    pub(crate) fn reader(path: &Path) -> rusqlite::Result<Self> {
        let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        Ok(Self { connection, path: path.to_owned(), _lock: None })
    }

    /// What chance goes by.
    pub(crate) fn seed(&self) -> Result<u64, StoreError> {
        let seed = self.connection.query_row("SELECT seed FROM seed", [], |row| row.get::<_, i64>(0));
        seed.map(i64::cast_unsigned).map_err(|error| self.refused(error.to_string()))
    }

    /// What is known of each PoP. What cannot be read is a fault: to begin anew in silence would forget which networks were harmed.
    pub(crate) fn pops(&self) -> Result<Vec<(String, Pop)>, StoreError> {
        let failed = |error: rusqlite::Error| self.refused(error.to_string());
        let mut states = self.states()?;
        let mut statement = self.connection.prepare("SELECT pop, rollout FROM pops").map_err(failed)?;
        let rows = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, Vec<u8>>(1)?)));
        let mut pops = Vec::new();
        for row in rows.map_err(failed)? {
            let (name, rollout) = row.map_err(failed)?;
            let rollout = match Rollout::decode(&rollout) {
                Err(error @ StateError::Bundles { .. }) => {
                    tracing::warn!(pop = name, %error, "goes on without them: all edges get new ones");
                    Rollout::decode_without_bundles(&rollout)
                }
                read => read,
            };
            let rollout = rollout.map_err(|error| {
                self.refused(format!("the rollout of PoP {name:?}: {}", with_cause(&error)))
            })?;
            let tenants = states.remove(&name).unwrap_or_default();
            pops.push((name, Pop::of(tenants, rollout)));
        }
        Ok(pops)
    }

    /// The states of each PoP.
    fn states(&self) -> Result<HashMap<String, Tenants>, StoreError> {
        let failed = |error: rusqlite::Error| self.refused(error.to_string());
        let mut statement =
            self.connection.prepare("SELECT pop, tenant, state FROM states").map_err(failed)?;
        let rows = statement.query_map([], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, Vec<u8>>(2)?))
        });
        let mut pops: HashMap<String, Vec<(String, State)>> = HashMap::new();
        for row in rows.map_err(failed)? {
            let (name, tenant, state) = row.map_err(failed)?;
            let state = State::decode(&state).map_err(|error| {
                self.refused(format!("the state of PoP {name:?}, {tenant:?}: {}", with_cause(&error)))
            })?;
            pops.entry(name).or_default().push((tenant, state));
        }
        Ok(pops.into_iter().map(|(name, states)| (name, Tenants::from_iter(states))).collect())
    }

    /// Writes what is not written of a PoP, with all that is known of it.
    pub(crate) fn keep(&mut self, name: &str, pop: &Pop, now_unix_s: u64) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction()?;
        transaction
            .prepare_cached("INSERT OR REPLACE INTO pops VALUES (?1, ?2)")?
            .execute((name, pop.rollout.encode().as_bytes()))?;
        if pop.unwritten.states {
            keep_states(&transaction, name, pop)?;
        }
        for told in &pop.unwritten.rounds {
            keep_round(&transaction, name, told)?;
        }
        for bundle in out(&pop.rollout) {
            let number = bundle.content().number;
            transaction.prepare_cached("INSERT OR IGNORE INTO bundles VALUES (?1, ?2, ?3)")?.execute((
                name,
                number.cast_signed(),
                bundle.encode(),
            ))?;
            transaction
                .prepare_cached("DELETE FROM bundles WHERE pop = ?1 AND number <= ?2")?
                .execute((name, number.saturating_sub(BUNDLES_KEPT).cast_signed()))?;
        }
        for transition in &pop.unwritten.transitions {
            let (Transition::RolledBack { withdrawn, .. } | Transition::Rejected { withdrawn, .. }) =
                transition
            else {
                continue;
            };
            let window = pop.tenants.window().unwrap_or(0);
            let mut change = change(&transaction)?;
            for Whom { tenant, prefix } in withdrawn {
                let at = (window, now_unix_s);
                keep_change(&mut change, name, tenant, at, (*prefix, "left", "rolled_back"))?;
            }
        }
        for transition in &pop.unwritten.transitions {
            transaction
                .prepare_cached("INSERT INTO events (pop, unix_s, told) VALUES (?1, ?2, ?3)")?
                .execute((name, now_unix_s.cast_signed(), transition.to_string()))?;
        }
        if !pop.unwritten.transitions.is_empty() {
            transaction
                .prepare_cached(
                    "DELETE FROM events WHERE pop = ?1 AND id <= \
                     (SELECT id FROM events WHERE pop = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)",
                )?
                .execute((name, EVENTS_KEPT))?;
        }
        transaction.commit()
    }

    /// Writes what is known of a tenant that is none under these settings; removes it where that is `None`.
    pub(crate) fn set_aside(
        &mut self,
        pop: &str,
        tenant: &str,
        state: Option<&State>,
    ) -> Result<(), StoreError> {
        let transaction = self.connection.transaction();
        let written = transaction.and_then(|transaction| {
            match state {
                Some(state) => keep_state(&transaction, pop, tenant, state),
                None => forget(&transaction, pop, tenant),
            }?;
            transaction.commit()
        });
        written.map_err(|error| self.refused(error.to_string()))
    }

    /// What became of bundles and edges of a PoP, the newest `limit`, oldest first.
    pub(crate) fn events(&self, pop: &str, limit: u32) -> rusqlite::Result<Vec<(u64, String)>> {
        let mut statement = self
            .connection
            .prepare_cached("SELECT unix_s, told FROM events WHERE pop = ?1 ORDER BY id DESC LIMIT ?2")?;
        let events = statement
            .query_map((pop, limit), |row| Ok((row.get::<_, i64>(0)?.cast_unsigned(), row.get(1)?)))?;
        let mut events: Vec<_> = events.collect::<rusqlite::Result<_>>()?;
        events.reverse();
        Ok(events)
    }

    /// The rounds of a tenant whose windows ended later than that, the newest `limit` of them, oldest first.
    pub(crate) fn rounds(
        &self,
        (pop, tenant): (&str, &str),
        since_unix_s: u64,
        limit: u32,
    ) -> rusqlite::Result<Vec<Value>> {
        let mut statement = self.connection.prepare_cached(
            "SELECT told FROM rounds WHERE pop = ?1 AND tenant = ?2 AND unix_s > ?3 ORDER BY unix_s DESC LIMIT ?4",
        )?;
        let rows = statement
            .query_map((pop, tenant, since_unix_s.cast_signed(), limit), |row| row.get::<_, String>(0))?;
        let mut rounds = Vec::new();
        for row in rows {
            rounds.push(serde_json::from_str(&row?).unwrap_or_default());
        }
        rounds.reverse();
        Ok(rounds)
    }

    /// What has changed of a tenant's prefix, oldest first.
    pub(crate) fn changes(
        &self,
        (pop, tenant): (&str, &str),
        prefix: Prefix,
    ) -> rusqlite::Result<Vec<Changed>> {
        let mut statement = self.connection.prepare_cached(
            "SELECT window, unix_s, what, reason FROM changes WHERE pop = ?1 AND tenant = ?2 AND prefix = ?3 \
             ORDER BY unix_s DESC, what LIMIT ?4",
        )?;
        let changed = statement.query_map((pop, tenant, prefix.to_string(), CHANGES_TOLD_MAX), |row| {
            Ok(Changed {
                window: row.get::<_, i64>(0)?.cast_unsigned(),
                unix_s: row.get::<_, i64>(1)?.cast_unsigned(),
                what: row.get(2)?,
                reason: row.get(3)?,
            })
        })?;
        let mut changed: Vec<_> = changed.collect::<rusqlite::Result<_>>()?;
        changed.reverse();
        Ok(changed)
    }

    fn refused(&self, why: String) -> StoreError {
        StoreError { path: self.path.clone(), why }
    }
}

/// An error and its cause on one line.
fn with_cause(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

/// Writes the states of a PoP. Those of others in the file stay: what is no tenant under these settings may be one again, whose networks were
/// harmed.
fn keep_states(transaction: &Transaction<'_>, name: &str, pop: &Pop) -> rusqlite::Result<()> {
    pop.unwritten.forgotten.iter().try_for_each(|gone| forget(transaction, name, gone))?;
    pop.tenants.states().iter().try_for_each(|(tenant, state)| keep_state(transaction, name, tenant, state))
}

fn keep_state(connection: &Connection, pop: &str, tenant: &str, state: &State) -> rusqlite::Result<()> {
    connection.prepare_cached("INSERT OR REPLACE INTO states VALUES (?1, ?2, ?3)")?.execute((
        pop,
        tenant,
        state.encode().as_bytes(),
    ))?;
    Ok(())
}

/// Removes all that is known of a tenant.
fn forget(transaction: &Transaction<'_>, pop: &str, tenant: &str) -> rusqlite::Result<()> {
    for table in ["states", "rounds", "changes"] {
        transaction
            .prepare_cached(&format!("DELETE FROM {table} WHERE pop = ?1 AND tenant = ?2"))?
            .execute([pop, tenant])?;
    }
    Ok(())
}

fn change<'a>(transaction: &'a Transaction<'_>) -> rusqlite::Result<CachedStatement<'a>> {
    transaction.prepare_cached("INSERT OR REPLACE INTO changes VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")
}

fn keep_change(
    change: &mut CachedStatement<'_>,
    pop: &str,
    tenant: &str,
    (window, unix_s): (u64, u64),
    (prefix, what, reason): (Prefix, &str, &str),
) -> rusqlite::Result<()> {
    let (window, unix_s) = (window.cast_signed(), unix_s.cast_signed());
    change.execute((pop, tenant, prefix.to_string(), window, unix_s, what, reason))?;
    Ok(())
}

fn keep_round(transaction: &Transaction<'_>, pop: &str, told: &Told) -> rusqlite::Result<()> {
    let (tenant, unix_s) = (told.tenant.as_str(), told.unix_s.cast_signed());
    // Rounds of a clock that was ahead would be the newest until it has come to them.
    for table in ["rounds", "changes"] {
        transaction
            .prepare_cached(&format!("DELETE FROM {table} WHERE pop = ?1 AND tenant = ?2 AND unix_s > ?3"))?
            .execute((pop, tenant, unix_s))?;
    }
    transaction.prepare_cached("INSERT OR REPLACE INTO rounds VALUES (?1, ?2, ?3, ?4)")?.execute((
        pop,
        tenant,
        unix_s,
        told.json.to_string(),
    ))?;
    let mut change = change(transaction)?;
    for changed in &told.changes {
        keep_change(&mut change, pop, tenant, (told.window, told.unix_s), *changed)?;
    }
    // By their count: a clock that was wrong for a moment is no reason to forget.
    let oldest = transaction
        .prepare_cached(
            "SELECT unix_s FROM rounds WHERE pop = ?1 AND tenant = ?2 ORDER BY unix_s DESC LIMIT 1 OFFSET ?3",
        )?
        .query_row((pop, tenant, ROUNDS_KEPT.cast_signed()), |row| row.get::<_, i64>(0))
        .optional()?;
    if let Some(oldest) = oldest {
        for table in ["rounds", "changes"] {
            transaction
                .prepare_cached(&format!(
                    "DELETE FROM {table} WHERE pop = ?1 AND tenant = ?2 AND unix_s <= ?3"
                ))?
                .execute((pop, tenant, oldest))?;
        }
    }
    Ok(())
}

/// Sets a connection up, and makes the tables of an empty file; gives why a file is not to be used.
fn prepare(connection: &mut Connection) -> rusqlite::Result<Option<String>> {
    let number = |name| connection.pragma_query_value(None, name, |row| row.get::<_, u32>(0));
    let (application, version) = (number("application_id")?, number("user_version")?);
    let first = connection.query_row("SELECT 1 FROM sqlite_schema LIMIT 1", [], |_| Ok(())).optional()?;
    if first.is_some() && application != APPLICATION {
        return Ok(Some("it is no file of a controller: give another one".to_owned()));
    }
    if first.is_some() && version != SCHEMA_VERSION {
        let other = if version > SCHEMA_VERSION { "use a newer release" } else { "give another file" };
        let why = format!("its version is {version}, and this program reads {SCHEMA_VERSION}: {other}");
        return Ok(Some(why));
    }
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    if first.is_none() {
        let transaction = connection.transaction()?;
        transaction.execute_batch(SCHEMA)?;
        transaction.pragma_update(None, "application_id", APPLICATION)?;
        transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
        transaction.commit()?;
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
