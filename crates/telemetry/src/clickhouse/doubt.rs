//! Inserts of a block's rows into one table, as often as it takes, with a look for them where an attempt may have left its token
//! behind without them.
//!
//! **Invariant:** rows without doubt cost nothing more. There is doubt after an attempt that failed in a way that does not say
//! for certain that nothing was taken, and for a block that a process before may have tried.
//! **Invariant:** what is settled is neither inserted nor looked at again.
//! **Invariant:** no look holds a block up for good: each has an end, and after a bounded number of them it is told and counted,
//! and the block passes.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::verify::{Found, verify};
use super::{Rows, Server, Target, is_denied, is_refusal};
use crate::SinkError;

/// So many looks at a table may fail or be unclear. Callers wait longer before each: altogether for longer than another writer
/// takes to try again.
const LOOKS_MAX: u32 = 16;

/// Looks for blocks, for metrics; each table that a block has rows of counts.
#[derive(Debug, Default)]
pub struct Verified {
    /// That came to an end.
    pub blocks: AtomicU64,
    /// Of those, where the table or the rollup lacked the block, and has it now.
    pub restored: AtomicU64,
    /// That were given up: whether the block is there is not known.
    pub unverified: AtomicU64,
}

/// What is known of a block's rows in one table while they are being inserted.
#[derive(Debug)]
pub(crate) struct Doubt {
    is_there: bool,
    is_settled: bool,
    /// Whether a look has brought something, be it one that failed afterwards.
    was_restored: Cell<bool>,
    failed_looks: u32,
}

impl Doubt {
    /// Of rows that may have been tried before.
    pub(crate) fn of(was_tried: bool) -> Self {
        Self { is_there: was_tried, is_settled: false, was_restored: Cell::new(false), failed_looks: 0 }
    }

    /// Inserts the rows, and looks for them if there is doubt.
    ///
    /// # Errors
    /// When it has to be tried again, with the same rows under the same token.
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
            self.look(server, target, token, rows, verified)?;
        }
        self.is_settled = true;
        Ok(())
    }

    fn look(
        &mut self,
        server: &Server,
        target: &Target,
        token: &str,
        rows: &Rows,
        verified: &Verified,
    ) -> Result<(), SinkError> {
        let error = match verify(server, target, token, rows, &self.was_restored) {
            Ok(Found::Whole) => {
                verified.blocks.fetch_add(1, Relaxed);
                if self.was_restored.get() {
                    verified.restored.fetch_add(1, Relaxed);
                    tracing::info!(table = target.table, token, "a block was lost to a kill and is restored");
                }
                return Ok(());
            }
            Ok(Found::Unclear) => SinkError {
                what: "cannot tell whether a rollup has a block".into(),
                is_passing: true,
                cause: "other rows are on their way into it".into(),
            },
            Ok(Found::Foreign) => {
                return Self::pass(
                    target,
                    token,
                    "the table is of an engine that is not looked at",
                    verified,
                );
            }
            // It would not pass by itself.
            Err(error) if is_denied(&error) => {
                return Self::pass(target, token, &error.cause.to_string(), verified);
            }
            // The last of them lets the block pass. A table aside that is gone is one that another process took over.
            Err(error) => SinkError { is_passing: true, ..error },
        };
        self.failed_looks += 1;
        if self.failed_looks < LOOKS_MAX {
            return Err(error);
        }
        Self::pass(target, token, &format!("{error}: {}", error.cause), verified)
    }

    /// Lets the rows pass, unverified.
    fn pass(target: &Target, token: &str, cause: &str, verified: &Verified) -> Result<(), SinkError> {
        verified.unverified.fetch_add(1, Relaxed);
        tracing::warn!(table = target.table, token, cause, "a block cannot be verified");
        Ok(())
    }
}
