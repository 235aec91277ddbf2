//! The backends of one loaded policy, by the indices that its program has for them.

use std::fmt;
use std::sync::Arc;

use thalweg_policy::program::{BackendRow, ProbeRow};

use super::{Backend, Backends};

/// The backends of one policy. Their probes run for as long as some policy has them.
#[derive(Debug)]
pub(crate) struct PolicyBackends {
    list: Vec<Arc<Backend>>,
}

/// The backends of a policy that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoadError(Vec<String>);

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("; "))
    }
}

impl std::error::Error for LoadError {}

impl PolicyBackends {
    /// Looks the names up, and starts the probes on the runtime that this is called on.
    ///
    /// # Errors
    /// When names are not found: all of them.
    pub(crate) async fn load(
        backends: &Backends,
        rows: &[BackendRow],
        probes: &[ProbeRow],
    ) -> Result<Self, LoadError> {
        let probe_of = |row: &BackendRow| probes.get(usize::try_from(row.probe?).ok()?);
        let list: Vec<_> = rows.iter().map(|row| backends.declared(row, probe_of(row))).collect();
        let mut faults = Vec::new();
        for backend in &list {
            if let Err(error) = backend.place.look_up_first().await {
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

    /// The backend of an index.
    pub(crate) fn get(&self, index: u32) -> Option<&Arc<Backend>> {
        self.list.get(usize::try_from(index).ok()?)
    }

    /// Whether it may be asked now; what does not exist may not.
    pub(crate) fn is_healthy(&self, index: u32) -> bool {
        self.get(index).is_some_and(|backend| backend.is_healthy())
    }

    /// Since when it has been so, unix seconds.
    pub(crate) fn changed_s(&self, index: u32) -> f64 {
        self.get(index).map_or(0.0, |backend| backend.changed_ms() as f64 / 1000.0)
    }
}
