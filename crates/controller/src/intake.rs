//! Intake of batches: drops records that the sender may not send, and records beyond the sender's
//! limits.

use std::fmt::Write as _;

use thalweg_control::Settings;
use thalweg_record::{Batch, NAME_BYTES_MAX, Record};

use crate::access::{Access, Busy, Caller, Role};
use crate::engine::now_unix_s;
use crate::metrics::Metrics;

/// Numbers of records dropped from a batch, by cause.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Dropped {
    /// The agent may not send records of this batch's host and PoP.
    pub(crate) foreign: usize,
    /// The request's host is not a valid name.
    pub(crate) invalid: usize,
    /// The agent has reached its limit on connections or prefixes.
    pub(crate) over_limit: usize,
}

impl Dropped {
    pub(crate) fn total(&self) -> usize {
        self.foreign + self.invalid + self.over_limit
    }

    /// Describes the causes for the agent's log.
    pub(crate) fn reason(&self) -> String {
        let causes = [
            (self.foreign, "of a host or PoP that is not the agent's"),
            (self.invalid, "with an invalid host name"),
            (self.over_limit, "beyond the agent's limit on connections or networks"),
        ];
        let mut text = String::new();
        for (count, cause) in causes.into_iter().filter(|(count, _)| *count > 0) {
            let mark = if text.is_empty() { "" } else { ", " };
            write!(text, "{mark}{count} {cause}").expect("writing to a String cannot fail");
        }
        text
    }
}

/// Removes from a batch the records that are not accepted, and returns their numbers by cause.
///
/// # Errors
///
/// Returns an error if the agent has sent too many records.
pub(crate) fn filter(
    access: &Access,
    caller: &Caller,
    settings: &Settings,
    batch: &mut Batch,
) -> Result<Dropped, Busy> {
    let key = caller.key(Role::Agent, &batch.source.pop, &batch.source.host);
    let mut dropped = Dropped::default();
    access.quotas.take_records(&key, batch.entries.len())?;
    if !caller.reports(&batch.source.pop, &batch.source.host) {
        dropped.foreign = std::mem::take(&mut batch.entries).len();
        return Ok(dropped);
    }
    dropped.invalid = drop_invalid(batch);
    let window = now_unix_s() / settings.window_s.max(1);
    dropped.over_limit = access.quotas.limit_clients(&key, window, &mut batch.entries);
    Ok(dropped)
}

/// Removes records whose request has an invalid host, because hosts name tenants in logs and
/// tables. Returns their number.
pub(crate) fn drop_invalid(batch: &mut Batch) -> usize {
    let before = batch.entries.len();
    batch.entries.retain(|entry| match &entry.record {
        Record::Response(response) => is_host(&response.host),
        Record::Socket(_) | Record::Loss(_) => true,
    });
    before - batch.entries.len()
}

/// Counts dropped records.
pub(crate) fn count(metrics: &Metrics, dropped: &Dropped) {
    metrics.foreign.inc_by(dropped.foreign as u64);
    metrics.invalid.inc_by(dropped.invalid as u64);
    metrics.over_limit.inc_by(dropped.over_limit as u64);
}

/// Returns whether `text` is short enough for a host name, and free of control characters and
/// spaces.
pub(crate) fn is_host(text: &str) -> bool {
    text.len() <= NAME_BYTES_MAX && !text.contains(|char: char| char.is_control() || char.is_whitespace())
}
