//! Backends of one loaded policy, indexed as in its program.

use std::fmt;
use std::sync::Arc;

use thalweg_policy::program::{BackendRow, ProbeRow};

use super::choice::Backends;
use super::server::Backend;

/// The backends of one policy. A probe runs until the last policy that uses its backend is dropped.
#[derive(Debug)]
pub(crate) struct PolicyBackends {
    list: Vec<Arc<Backend>>,
}

/// Reasons why a policy's backends cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoadError(Vec<String>);

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("; "))
    }
}

impl std::error::Error for LoadError {}

impl PolicyBackends {
    /// Resolves the backends' host names, and starts the probes on the current runtime.
    ///
    /// # Errors
    ///
    /// Returns an error that lists all names that cannot be resolved, if any.
    pub(crate) async fn load(
        backends: &Backends,
        rows: &[BackendRow],
        probes: &[ProbeRow],
    ) -> Result<Self, LoadError> {
        let probe_of = |row: &BackendRow| probes.get(usize::try_from(row.probe?).ok()?);
        let list: Vec<_> = rows.iter().map(|row| backends.declared(row, probe_of(row))).collect();
        let mut faults = Vec::new();
        for backend in &list {
            if let Err(error) = backend.endpoint.look_up_first().await {
                faults.push(format!("backend {}: {error}", backend.name()));
            }
        }
        if !faults.is_empty() {
            return Err(LoadError(faults));
        }
        for backend in &list {
            backend.start_probe();
        }
        Ok(Self { list })
    }

    /// Returns the backend with this index.
    pub(crate) fn get(&self, index: u32) -> Option<&Arc<Backend>> {
        self.list.get(usize::try_from(index).ok()?)
    }

    /// Returns whether the backend is healthy; false if it does not exist.
    pub(crate) fn is_healthy(&self, index: u32) -> bool {
        self.get(index).is_some_and(|backend| backend.is_healthy())
    }

    /// Returns when the backend's health last changed, in Unix seconds.
    pub(crate) fn changed_s(&self, index: u32) -> f64 {
        self.get(index).map_or(0.0, |backend| backend.changed_ms() as f64 / 1000.0)
    }
}
