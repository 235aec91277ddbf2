//! Outcome of a response, reported by its session for the record.

use std::time::Instant;

use thalweg_record::{CacheResult, Cut};

use crate::policy::notes::Notes;

/// Outcome of a response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    pub(crate) status: u16,
    pub(crate) cache: CacheResult,
    /// Short reason for the cache result; the `detail` parameter of `Cache-Status`.
    pub(crate) detail: Option<&'static str>,
    /// Content bytes written to the kernel.
    pub(crate) bytes: u64,
    /// When the first byte was written to the kernel; `None` if nothing was written.
    pub(crate) first_byte: Option<Instant>,
    pub(crate) cut: Option<Cut>,
}

/// The readable parts of a malformed request line.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct MalformedLine {
    /// The request method; empty if missing.
    pub(crate) method: String,
    /// The request target; empty if missing.
    pub(crate) target: String,
}

/// A policy's contribution to a record.
#[derive(Debug)]
pub(crate) struct PolicyNotes {
    /// `req.xid`.
    pub(crate) xid: u64,
    pub(crate) restarts: u32,
    pub(crate) notes: Notes,
}
