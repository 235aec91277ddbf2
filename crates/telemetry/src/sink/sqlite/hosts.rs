//! Which hosts have aggregates of their own. Clients choose what stands in Host, and each name would be one more key of all that an
//! aggregate is named by: of each window and site the first ones have their own, the others share one.
//!
//! **Invariant:** those of a window are in the file: who begins anew goes on with the same.

use std::collections::{HashMap, HashSet};

use rusqlite::Connection;

use super::rollup::{Key, Rollup};
use super::stored;

/// Hosts of a window and site that have aggregates of their own.
pub(super) const HOSTS_MAX: usize = 1000;
/// No host's name is longer (RFC 1035 section 2.3.4).
pub(super) const HOST_BYTES_MAX: usize = 255;
/// What the others are called.
pub(super) const OTHER: &str = "(other)";

/// The hosts with aggregates of their own, by window and site.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    known: HashMap<(u64, String), HashSet<String>>,
}

impl Hosts {
    /// Puts a key under the others' name, unless its host has aggregates of its own, or gets them.
    pub(super) fn bound(&mut self, connection: &Connection, key: &mut Key) -> rusqlite::Result<()> {
        if key.rollup != Rollup::Responses {
            return Ok(());
        }
        let of = (key.window, key.pop.clone());
        if !self.known.contains_key(&of) {
            self.known.insert(of.clone(), read(connection, key)?);
        }
        let known = self.known.get_mut(&of).expect("it was just made sure of");
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

    /// Forgets windows before `oldest`.
    pub(super) fn shrink(&mut self, oldest: u64) {
        self.known.retain(|(window, _), _| *window >= oldest);
    }
}

/// The hosts that the file has aggregates of.
fn read(connection: &Connection, key: &Key) -> rusqlite::Result<HashSet<String>> {
    let hosts = "SELECT DISTINCT request_host FROM responses_5m WHERE window = ?1 AND pop = ?2 AND request_host <> ?3";
    let mut query = connection.prepare_cached(hosts)?;
    query.query_map((stored(key.window), &key.pop, OTHER), |row| row.get(0))?.collect()
}
