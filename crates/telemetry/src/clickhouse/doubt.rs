//! Inserts of a block, as often as it takes, with a look for it where an attempt may have left its token behind without it.
//!
//! **Invariant:** a block without doubt costs nothing more. There is doubt after an attempt that failed in a way that does not say
//! for certain that nothing was taken, and for a block that a process before may have tried.
//! **Invariant:** no look holds a block up for good: after a bounded number of them it is told and counted, and the block passes.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::verify::{Found, verify};
use super::{Server, Target, is_refusal};
use crate::SinkError;

/// So many looks at a block may fail or be unclear. Callers wait longer before each: altogether for longer than another writer
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

/// What is known of a block while it is being inserted.
#[derive(Debug)]
pub(crate) struct Doubt {
    is_there: Cell<bool>,
    failed_looks: Cell<u32>,
}

impl Doubt {
    /// Of a block that may have been tried before.
    pub(crate) fn of(was_tried: bool) -> Self {
        Self { is_there: Cell::new(was_tried), failed_looks: Cell::new(0) }
    }

    /// Inserts rows of the block, and looks for them if there is doubt.
    ///
    /// # Errors
    /// When it has to be tried again, with the same rows under the same token.
    pub(crate) fn insert(
        &self,
        server: &Server,
        target: &Target,
        token: &str,
        rows: &[u8],
        verified: &Verified,
    ) -> Result<(), SinkError> {
        let inserted = server.insert(target.table, &target.columns, token, rows.to_vec());
        if let Err(error) = inserted {
            if !is_refusal(&error) {
                self.is_there.set(true);
            }
            return Err(error);
        }
        if !self.is_there.get() {
            return Ok(());
        }
        let error = match verify(server, target, token, rows) {
            Ok(Found::Unclear) => SinkError {
                what: "cannot tell whether a rollup has a block".into(),
                is_passing: true,
                cause: "other rows are on their way into it".into(),
            },
            Ok(Found::Foreign) => {
                verified.unverified.fetch_add(1, Relaxed);
                tracing::warn!(
                    table = target.table,
                    token,
                    "a block cannot be verified in a table of this engine"
                );
                return Ok(());
            }
            Ok(found) => {
                verified.blocks.fetch_add(1, Relaxed);
                if found == Found::Restored {
                    verified.restored.fetch_add(1, Relaxed);
                    tracing::info!(table = target.table, token, "a block was lost to a kill and is restored");
                }
                return Ok(());
            }
            // The last of them lets the block pass. A table aside that is gone is one that another process took over.
            Err(error) => SinkError { is_passing: true, ..error },
        };
        self.failed_looks.set(self.failed_looks.get() + 1);
        if self.failed_looks.get() < LOOKS_MAX {
            return Err(error);
        }
        verified.unverified.fetch_add(1, Relaxed);
        tracing::warn!(table = target.table, token, %error, cause = %error.cause, "a block cannot be verified");
        Ok(())
    }
}
