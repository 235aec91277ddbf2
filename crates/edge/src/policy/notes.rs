//! Policy notes for a request's record: log lines, and the backend used.
//!
//! The client and backend sides share the notes, because they run concurrently as separate tasks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thalweg_policy::task::LogLine;

use crate::backend::Backend;

/// Notes for the record of one request.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// Lines logged by the policy, in order.
    pub(crate) lines: Vec<LogLine>,
    /// The backend selected last.
    pub(crate) backend: Option<Arc<Backend>>,
}

/// Notes shared by both sides of a request.
pub(crate) type SharedNotes = Arc<Mutex<Notes>>;

/// Locks the notes until the guard is dropped.
pub(crate) fn lock(notes: &SharedNotes) -> MutexGuard<'_, Notes> {
    notes.lock().unwrap_or_else(PoisonError::into_inner)
}
