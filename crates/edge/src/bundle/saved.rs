//! Last good bundle, saved in the state directory and loaded at the next start.
//!
//! **Invariant:** after a crash or power loss the file holds the old or the new bundle, never a
//! mix.
//! **Invariant:** a failed save is retried until it succeeds; failure and success are logged once.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use thalweg_replace::replace;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::{file, lock};
use crate::state::FILE_MODE;

/// File name. The file contains the bundle document verbatim, so that `thalweg check` can read it.
const NAME: &str = "bundle.json";
/// Delay before a failed save is retried, so that retries do not keep a full disk busy.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// The file of the last good bundle.
#[derive(Debug)]
pub(crate) struct SavedBundle {
    path: PathBuf,
}

impl SavedBundle {
    /// Creates the handle for the file in `directory`, which no other process may use.
    pub(crate) fn within(directory: &Path) -> Self {
        Self { path: directory.join(NAME) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the saved document; `None` if nothing is saved.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read.
    pub(super) fn read(&self) -> io::Result<Option<Vec<u8>>> {
        match file::read(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            read => read.map(Some),
        }
    }

    /// Saves a document, replacing the previous one.
    ///
    /// # Errors
    ///
    /// Returns an error if the document cannot be written; the previous one then remains.
    fn write(&self, document: &str) -> io::Result<()> {
        replace(&self.path, document.as_bytes(), FILE_MODE)
    }
}

/// Saves the active bundle while this edge owns the state directory.
#[derive(Debug, Default)]
pub(super) struct BundleSaver {
    target: Mutex<SaveTarget>,
    /// Notified when a save fails.
    failed: Notify,
}

#[derive(Debug, Default)]
struct SaveTarget {
    kept: Option<SavedBundle>,
    /// Whether the latest bundle is not saved.
    is_unsaved: bool,
}

impl BundleSaver {
    pub(super) fn new(kept: Option<SavedBundle>) -> Self {
        Self { target: Mutex::new(SaveTarget { kept, is_unsaved: false }), failed: Notify::new() }
    }

    /// Calls `read` with the saved bundle; returns `None` if bundles are not saved.
    pub(super) fn read<T>(&self, read: impl FnOnce(&SavedBundle) -> T) -> Option<T> {
        lock(&self.target).kept.as_ref().map(read)
    }

    /// Saves the active bundle. Saves are serialised, and each one reads the active bundle first,
    /// so the last save stores the latest bundle.
    pub(super) fn save(&self, active_document: impl FnOnce() -> Option<String>) {
        let SaveTarget { kept: Some(kept), is_unsaved } = &mut *lock(&self.target) else { return };
        let Some(document) = active_document() else { return };
        let (path, was_unsaved) = (kept.path().display().to_string(), *is_unsaved);
        let written = kept.write(&document);
        *is_unsaved = written.is_err();
        match written {
            Ok(()) if was_unsaved => tracing::info!(path, "bundle saved after a failed attempt"),
            Ok(()) => {}
            Err(error) => {
                if !was_unsaved {
                    tracing::warn!(path, %error, "bundle not saved, retrying; a restart would load an older bundle");
                }
                self.failed.notify_one();
            }
        }
    }

    /// Resolves [`RETRY_INTERVAL`] after a failed save if the bundle is still not saved.
    pub(super) async fn retry_due(&self) {
        loop {
            self.failed.notified().await;
            sleep(RETRY_INTERVAL).await;
            if self.is_unsaved() {
                return;
            }
        }
    }

    /// Returns whether the latest bundle could not be saved.
    pub(super) fn is_unsaved(&self) -> bool {
        lock(&self.target).is_unsaved
    }

    /// Stops saving. Waits for a save in progress.
    pub(super) fn end(&self) {
        lock(&self.target).kept = None;
    }
}
