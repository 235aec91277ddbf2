//! State of a block's insertion into one table: inserts the rows, and verifies them if an attempt
//! may have left its token behind without the rows.
//!
//! **Invariant:** only rows in doubt are verified. Rows are in doubt after an attempt whose failure
//! does not prove that nothing was stored, and in a block that an earlier process may have tried to
//! insert.
//! **Invariant:** settled rows are neither inserted nor verified again.
//! **Invariant:** verification never holds up a block forever: each attempt has a time limit, and
//! after [`FAILURES_MAX`] failed attempts the block is accepted unverified, which is logged and
//! counted.

use std::cell::Cell;

use prometheus_client::metrics::counter::Counter;

use super::server::{Rows, STATEMENT_TIMEOUT, Server, is_denied, is_refusal};
use super::staging::VERIFY_TIME_MAX;
use super::verify::{Found, Target, verify};
use crate::error::SinkError;

/// Maximum duration of one [`Doubt::insert`] call: the insert, a verification, and the last
/// statement that the verification started.
pub(crate) const ATTEMPT_SECONDS_MAX: u64 = 2 * STATEMENT_TIMEOUT.as_secs() + VERIFY_TIME_MAX.as_secs();
/// Failed or inconclusive verifications of a table before the block is accepted unverified. Callers
/// back off between attempts, in total for longer than another writer takes to retry.
const FAILURES_MAX: u32 = 16;

/// Verification metrics. A block counts once per table that it has rows for.
#[derive(Debug, Default)]
pub struct Verified {
    /// Completed verifications.
    pub blocks: Counter,
    /// Completed verifications that restored rows missing from the table or its rollup.
    pub restored: Counter,
    /// Abandoned verifications, after which it is unknown whether the block is stored.
    pub unverified: Counter,
}

/// State of a block's rows in one table during their insertion.
#[derive(Debug)]
pub(crate) struct Doubt {
    is_there: bool,
    is_settled: bool,
    /// Whether a verification restored rows, even if that verification failed afterwards.
    was_restored: Cell<bool>,
    failures: u32,
}

impl Doubt {
    /// Creates the state for a block's rows; `was_tried` if an earlier process may have tried to
    /// insert them.
    pub(crate) fn of(was_tried: bool) -> Self {
        Self { is_there: was_tried, is_settled: false, was_restored: Cell::new(false), failures: 0 }
    }

    /// Inserts the rows, then verifies them if they are in doubt.
    ///
    /// # Errors
    /// If the insert must be retried, with the same rows and the same token.
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
            self.is_there |= !is_refusal(&error);
            return Err(error);
        }
        if self.is_there {
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
            // A missing privilege is not fixed by retrying.
            Err(error) if is_denied(&error) => {
                return Self::pass(target, token, &error.cause.to_string(), verified);
            }
            // Temporary, since after the last failure the block is accepted. If a staging table is
            // missing, another process that verifies the same block has dropped it.
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
