//! Insertion of a block into one table: inserts the rows, and verifies them if an attempt may have
//! stored the token without the rows.
//!
//! **Invariant:** rows are verified only if they are in doubt: after an attempt whose failure does
//! not prove that nothing was stored, and in a block that an earlier process may have tried to
//! insert.
//! **Invariant:** settled rows are neither inserted nor verified again.
//! **Invariant:** verification cannot delay a block forever. Each attempt has a time limit, and
//! after [`FAILURES_MAX`] failed attempts the block is accepted unverified, which is logged and
//! counted.

use std::cell::Cell;

use prometheus_client::metrics::counter::Counter;

use super::server::{Rows, STATEMENT_TIMEOUT, Server, is_denied, is_refusal};
use super::staging::VERIFY_TIME_MAX;
use super::verify::{Found, Target, verify};
use crate::error::SinkError;

/// Maximum duration of one [`Doubt::insert`] call, in seconds: the insert, the verification, and
/// the last statement started by the verification.
pub(crate) const ATTEMPT_SECONDS_MAX: u64 = 2 * STATEMENT_TIMEOUT.as_secs() + VERIFY_TIME_MAX.as_secs();
/// Number of failed or inconclusive verifications of a table after which the block is accepted
/// unverified. Callers back off between attempts. The total time exceeds the time within which
/// another writer retries.
const FAILURES_MAX: u32 = 16;

/// Verification metrics. A block is counted once for each table in which it has rows.
#[derive(Debug, Default)]
pub struct Verified {
    /// Completed verifications.
    pub blocks: Counter,
    /// Completed verifications that restored missing rows in the table or its rollup.
    pub restored: Counter,
    /// Abandoned verifications. Whether these blocks are stored is unknown.
    pub unverified: Counter,
}

/// Insertion state of a block's rows in one table.
#[derive(Debug)]
pub(crate) struct Doubt {
    is_in_doubt: bool,
    is_settled: bool,
    /// Whether a verification restored rows, even if it failed afterwards.
    was_restored: Cell<bool>,
    failures: u32,
}

impl Doubt {
    /// Creates the insertion state of a block's rows. `was_tried` states whether an earlier process
    /// may have attempted to insert them.
    pub(crate) fn of(was_tried: bool) -> Self {
        Self { is_in_doubt: was_tried, is_settled: false, was_restored: Cell::new(false), failures: 0 }
    }

    /// Inserts the rows, then verifies them if they are in doubt.
    ///
    /// # Errors
    ///
    /// Returns an error if the insert must be retried with the same rows and the same token.
    pub(crate) fn insert(
        &mut self,
        server: &Server,
        target: &Target,
        token: &str,
        rows: &Rows,
        verified: &Verified,
    ) -> Result<(), SinkError> {
        if self.is_settled {
            return Ok(());
        }
        if let Err(error) = server.insert(target.table, &target.columns, token, rows.bytes.clone()) {
            self.is_in_doubt |= !is_refusal(&error);
            return Err(error);
        }
        if self.is_in_doubt {
            self.verify(server, target, token, rows, verified)?;
        }
        self.is_settled = true;
        Ok(())
    }

    fn verify(
        &mut self,
        server: &Server,
        target: &Target,
        token: &str,
        rows: &Rows,
        verified: &Verified,
    ) -> Result<(), SinkError> {
        let error = match verify(server, target, token, rows, &self.was_restored) {
            Ok(Found::Whole) => {
                verified.blocks.inc();
                if self.was_restored.get() {
                    verified.restored.inc();
                    tracing::info!(table = target.table, token, "restored a block lost in a server crash");
                }
                return Ok(());
            }
            Ok(Found::Unclear) => SinkError {
                what: "cannot verify a block in a rollup".into(),
                is_passing: true,
                cause: "other rows are being added to the rollup".into(),
            },
            Ok(Found::Foreign) => {
                return Self::pass(target, token, "unsupported table engine", verified);
            }
            // Retrying does not help without the privilege.
            Err(error) if is_denied(&error) => {
                return Self::pass(target, token, &error.cause.to_string(), verified);
            }
            // Every other failure is temporary, because the block is accepted after the last
            // failure. A staging table may be missing because another process verifying the same
            // block dropped it.
            Err(error) => SinkError { is_passing: true, ..error },
        };
        self.failures += 1;
        if self.failures < FAILURES_MAX {
            return Err(error);
        }
        Self::pass(target, token, &format!("{error}: {}", error.cause), verified)
    }

    /// Accepts the rows without verification.
    fn pass(target: &Target, token: &str, cause: &str, verified: &Verified) -> Result<(), SinkError> {
        verified.unverified.inc();
        tracing::warn!(table = target.table, token, cause, "block not verified");
        Ok(())
    }
}
