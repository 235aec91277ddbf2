//! Limit on the number of hosts with their own aggregates. Clients choose the Host field, and each
//! new host name adds aggregates. In each window and site, the first [`HOSTS_MAX`] hosts therefore
//! get their own aggregates, and all others share one name.
//!
//! **Invariant:** a window's hosts can be read from the file, so a restart continues with the same
//! hosts.

use std::collections::{HashMap, HashSet};

use rusqlite::Connection;

use super::raw::stored;
use super::rollup::{Key, Rollup};

/// Maximum number of hosts with their own aggregates, per window and site.
pub(super) const HOSTS_MAX: usize = 1000;
/// Maximum length of a host name in bytes (RFC 1035 §2.3.4).
pub(super) const HOST_BYTES_MAX: usize = 255;
/// Name shared by all other hosts.
pub(super) const OTHER: &str = "(other)";

/// Hosts with their own aggregates, by window and site.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    known: HashMap<(u64, String), HashSet<String>>,
}

impl Hosts {
    /// Replaces the key's host with [`OTHER`] if the limit is reached and the host does not have
    /// its own aggregates yet.
    pub(super) fn limit(&mut self, connection: &Connection, key: &mut Key) -> rusqlite::Result<()> {
        if key.rollup != Rollup::Responses {
            return Ok(());
        }
        let of = (key.window, key.pop.clone());
        if !self.known.contains_key(&of) {
            self.known.insert(of.clone(), read(connection, key)?);
        }
        let known = self.known.get_mut(&of).expect("inserted above");
        if known.contains(&key.request_host) {
            return Ok(());
        }
        if known.len() < HOSTS_MAX && key.request_host.len() <= HOST_BYTES_MAX {
            known.insert(key.request_host.clone());
        } else {
            OTHER.clone_into(&mut key.request_host);
        }
        Ok(())
    }

    /// Forgets the hosts of windows before `oldest`.
    pub(super) fn shrink(&mut self, oldest: u64) {
        self.known.retain(|(window, _), _| *window >= oldest);
    }
}

/// Reads the hosts that have aggregates for the key's window and site.
fn read(connection: &Connection, key: &Key) -> rusqlite::Result<HashSet<String>> {
    let hosts = "SELECT DISTINCT request_host FROM responses_5m WHERE window = ?1 AND pop = ?2 AND request_host <> ?3";
    let mut query = connection.prepare_cached(hosts)?;
    query.query_map((stored(key.window), &key.pop, OTHER), |row| row.get(0))?.collect()
}
