//! Controller database: a SQLite file in WAL mode, with the tables in `schema/control.sql`.
//!
//! **Invariant:** changes made together are stored in one transaction.

use std::collections::HashMap;
use std::fmt;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{CachedStatement, Connection, OpenFlags, OptionalExtension, Transaction};
use serde_json::Value;
use thalweg_control::{Rollout, RuleKey, State, StateError, Tenants, Transition};
use thalweg_record::Prefix;

use crate::pop::{Pop, active_bundles};
use crate::round::{LedgerChange, RoundRecord};

/// Number of rounds kept in the ledger for each tenant of a PoP: four weeks of 5-minute windows.
pub const ROUNDS_KEPT: u64 = 8_064;
/// Number of events kept for each PoP.
const EVENTS_KEPT: u32 = 1_000;
/// Number of bundles kept for each PoP.
const BUNDLES_KEPT: u64 = 100;
/// Maximum number of a prefix's changes in one response. The newest are returned.
const CHANGES_SHOWN_MAX: u32 = 100;
/// Maximum time for which a reader waits for the database lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum time for which the engine waits for the database lock. Only someone who inspects the
/// database by hand can hold that lock.
const WRITER_BUSY_TIMEOUT: Duration = Duration::from_millis(100);
/// Permissions of the database and its companions: readable by their owner only, because they show
/// the networks of clients.
const MODE: u32 = 0o600;
/// Permission bits of users other than the owner.
const MODE_OF_OTHERS: u32 = 0o077;
/// `application_id` that identifies a controller database: the ASCII string "Thlc".
const APPLICATION: u32 = 0x5468_6c63;
/// Schema version, stored as the file's `user_version`.
const SCHEMA_VERSION: u32 = 2;
const SCHEMA: &str = include_str!("../../../schema/control.sql");

/// Failure to open or read the database.
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

/// A prefix's change in the ledger.
#[derive(Debug)]
pub(crate) struct PrefixChange {
    pub(crate) window: u64,
    pub(crate) unix_s: u64,
    pub(crate) what: String,
    pub(crate) reason: String,
}

/// An open database.
#[derive(Debug)]
pub(crate) struct Store {
    connection: Connection,
    path: PathBuf,
    /// Lock file, locked by the writer for its lifetime. It is a separate file, because SQLite
    /// places its own locks on the database file.
    _lock: Option<File>,
}

impl Store {
    /// Opens the database for writing, creating it and its directory if missing.
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        let refused = |why| StoreError { path: path.to_owned(), why };
        let lock_path = path.with_added_extension("lock");
        let made = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| private_file(&lock_path));
        let lock = made.map_err(|error| refused(format!("{}: {error}", lock_path.display())))?;
        lock.try_lock().map_err(|_| {
            refused("another controller is using this file: configure a separate file".to_owned())
        })?;
        // SQLite creates further files with the permissions of the database.
        let beside = ["-wal", "-shm"].map(|end| PathBuf::from(format!("{}{end}", path.display())));
        let tightened = private_file(path).and_then(|_| beside.iter().try_for_each(|file| tighten(file)));
        tightened.map_err(|error| refused(error.to_string()))?;
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

    /// Opens a read-only connection to the database that the engine writes.
    pub(crate) fn reader(path: &Path) -> rusqlite::Result<Self> {
        let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        Ok(Self { connection, path: path.to_owned(), _lock: None })
    }

    /// Returns the seed of all random choices.
    pub(crate) fn seed(&self) -> Result<u64, StoreError> {
        let seed = self.connection.query_row("SELECT seed FROM seed", [], |row| row.get::<_, i64>(0));
        seed.map(i64::cast_unsigned).map_err(|error| self.refused(error.to_string()))
    }

    /// Loads the state of each PoP. Unreadable data is an error, because starting over silently
    /// would lose the record of networks harmed by steering.
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
                    tracing::warn!(pop = name, %error, "stored bundles dropped: all edges get new ones");
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

    /// Loads the tenant states of each PoP.
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

    /// Stores a PoP's unwritten changes and its current state.
    pub(crate) fn save(&mut self, name: &str, pop: &Pop, now_unix_s: u64) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction()?;
        transaction
            .prepare_cached("INSERT OR REPLACE INTO pops VALUES (?1, ?2)")?
            .execute((name, pop.rollout.encode().as_bytes()))?;
        if pop.unwritten.states {
            save_states(&transaction, name, pop)?;
        }
        for record in &pop.unwritten.rounds {
            insert_round(&transaction, name, record)?;
        }
        for bundle in active_bundles(&pop.rollout) {
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
            for RuleKey { tenant, prefix } in withdrawn {
                let entry = LedgerChange { prefix: *prefix, what: "left", reason: "rolled_back" };
                insert_change(&mut change, name, tenant, window, now_unix_s, &entry)?;
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

    /// Deletes all data stored about a PoP.
    pub(crate) fn remove_pop(&mut self, pop: &str) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction()?;
        for table in ["pops", "states", "rounds", "changes", "bundles", "events"] {
            transaction.prepare_cached(&format!("DELETE FROM {table} WHERE pop = ?1"))?.execute([pop])?;
        }
        transaction.commit()
    }

    /// Stores the state of a tenant removed from the settings, or deletes the tenant's data if
    /// `state` is `None`.
    pub(crate) fn set_aside(
        &mut self,
        pop: &str,
        tenant: &str,
        state: Option<&State>,
    ) -> Result<(), StoreError> {
        let transaction = self.connection.transaction();
        let written = transaction.and_then(|transaction| {
            match state {
                Some(state) => save_state(&transaction, pop, tenant, state),
                None => forget(&transaction, pop, tenant),
            }?;
            transaction.commit()
        });
        written.map_err(|error| self.refused(error.to_string()))
    }

    /// Returns the newest `limit` events of a PoP's bundles and edges, oldest first.
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

    /// Returns a tenant's newest `limit` rounds whose windows ended after `since_unix_s`, oldest
    /// first.
    pub(crate) fn rounds(
        &self,
        pop: &str,
        tenant: &str,
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

    /// Returns the newest changes of a tenant's prefix, oldest first.
    pub(crate) fn changes(
        &self,
        pop: &str,
        tenant: &str,
        prefix: Prefix,
    ) -> rusqlite::Result<Vec<PrefixChange>> {
        let mut statement = self.connection.prepare_cached(
            "SELECT window, unix_s, what, reason FROM changes WHERE pop = ?1 AND tenant = ?2 AND prefix = ?3 \
             ORDER BY unix_s DESC, what LIMIT ?4",
        )?;
        let changed = statement.query_map((pop, tenant, prefix.to_string(), CHANGES_SHOWN_MAX), |row| {
            Ok(PrefixChange {
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

/// Opens a file for writing, and creates it if it is missing, readable by its owner only.
fn private_file(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(MODE).open(path)?;
    tighten(path)?;
    Ok(file)
}

/// Removes the permissions of other users from a file, if it exists.
fn tighten(path: &Path) -> io::Result<()> {
    let mode = match fs::metadata(path) {
        Ok(metadata) => metadata.permissions().mode(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if mode & MODE_OF_OTHERS != 0 {
        let had = format!("{:o}", mode & 0o777);
        tracing::warn!(path = %path.display(), had, "other users had access to the file, which is now private");
        fs::set_permissions(path, Permissions::from_mode(MODE))?;
    }
    Ok(())
}

/// Formats an error, followed by its cause if it has one, on one line.
fn with_cause(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

/// Stores a PoP's tenant states. The states of other tenants remain in the file, because a removed
/// tenant may return, and the networks harmed by its steering must still be known.
fn save_states(transaction: &Transaction<'_>, name: &str, pop: &Pop) -> rusqlite::Result<()> {
    pop.unwritten.forgotten.iter().try_for_each(|gone| forget(transaction, name, gone))?;
    pop.tenants.states().iter().try_for_each(|(tenant, state)| save_state(transaction, name, tenant, state))
}

fn save_state(connection: &Connection, pop: &str, tenant: &str, state: &State) -> rusqlite::Result<()> {
    connection.prepare_cached("INSERT OR REPLACE INTO states VALUES (?1, ?2, ?3)")?.execute((
        pop,
        tenant,
        state.encode().as_bytes(),
    ))?;
    Ok(())
}

/// Deletes all data stored about a tenant.
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

fn insert_change(
    change: &mut CachedStatement<'_>,
    pop: &str,
    tenant: &str,
    window: u64,
    unix_s: u64,
    LedgerChange { prefix, what, reason }: &LedgerChange,
) -> rusqlite::Result<()> {
    let (window, unix_s) = (window.cast_signed(), unix_s.cast_signed());
    change.execute((pop, tenant, prefix.to_string(), window, unix_s, what, reason))?;
    Ok(())
}

fn insert_round(transaction: &Transaction<'_>, pop: &str, record: &RoundRecord) -> rusqlite::Result<()> {
    let (tenant, unix_s) = (record.tenant.as_str(), record.unix_s.cast_signed());
    // Delete rounds stored while the clock was ahead. Otherwise, they would remain the newest until
    // the clock reached their times.
    for table in ["rounds", "changes"] {
        transaction
            .prepare_cached(&format!("DELETE FROM {table} WHERE pop = ?1 AND tenant = ?2 AND unix_s > ?3"))?
            .execute((pop, tenant, unix_s))?;
    }
    transaction.prepare_cached("INSERT OR REPLACE INTO rounds VALUES (?1, ?2, ?3, ?4)")?.execute((
        pop,
        tenant,
        unix_s,
        record.json.to_string(),
    ))?;
    let mut change = change(transaction)?;
    for changed in &record.changes {
        insert_change(&mut change, pop, tenant, record.window, record.unix_s, changed)?;
    }
    // Delete old rounds by count, not by age, so that a clock that is briefly wrong deletes
    // nothing.
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

/// Configures a connection, and creates the tables if the file is empty. If the file is not usable
/// as a controller database, returns the reason.
fn prepare(connection: &mut Connection) -> rusqlite::Result<Option<String>> {
    let number = |name| connection.pragma_query_value(None, name, |row| row.get::<_, u32>(0));
    let (application, version) = (number("application_id")?, number("user_version")?);
    let first = connection.query_row("SELECT 1 FROM sqlite_schema LIMIT 1", [], |_| Ok(())).optional()?;
    if first.is_some() && application != APPLICATION {
        return Ok(Some("not a controller database: configure another file".to_owned()));
    }
    if first.is_some() && version != SCHEMA_VERSION {
        let other = if version > SCHEMA_VERSION { "use a newer release" } else { "configure another file" };
        let why = format!(
            "its schema version is {version}, but this program reads version {SCHEMA_VERSION}: {other}"
        );
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
