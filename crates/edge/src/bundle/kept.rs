//! The last good bundle in the edge's state directory, with which the next start begins.
//!
//! **Invariant:** a kill, or a loss of power, leaves the bundle before or this one, whole.
//! **Invariant:** what could not be kept is tried again until it is; both are told once.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

use super::{file, lock};
use crate::replace::replace;
use crate::state::FILE_MODE;

/// The bundle's document as it is, so that `thalweg check` reads it.
const NAME: &str = "bundle.json";
/// Between two tries to keep a bundle that could not be kept: a disk that is full is not made so by them.
pub(super) const AGAIN_AFTER: Duration = Duration::from_secs(10);

/// The place of the last good bundle.
#[derive(Debug)]
pub(crate) struct Kept {
    path: PathBuf,
}

impl Kept {
    /// In a directory that this process alone uses.
    pub(crate) fn within(directory: &Path) -> Self {
        Self { path: directory.join(NAME) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The document that was kept, if one was.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) fn read(&self) -> io::Result<Option<Vec<u8>>> {
        match file::read(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            read => read.map(Some),
        }
    }

    /// Keeps a document in the place of the one before.
    ///
    /// # Errors
    /// When it cannot be written; the one before is kept.
    fn write(&self, document: &str) -> io::Result<()> {
        replace(&self.path, document.as_bytes(), FILE_MODE)
    }
}

/// What keeps the bundle in force, as long as the state directory is this edge's.
#[derive(Debug, Default)]
pub(super) struct Keeping {
    to: Mutex<To>,
    /// The newest could not be kept.
    failed: Notify,
}

#[derive(Debug, Default)]
struct To {
    kept: Option<Kept>,
    /// The newest is not kept.
    is_behind: bool,
}

impl Keeping {
    pub(super) fn new(kept: Option<Kept>) -> Self {
        Self { to: Mutex::new(To { kept, is_behind: false }), failed: Notify::new() }
    }

    /// What `read` finds, if anything may be kept.
    pub(super) fn read<T>(&self, read: impl FnOnce(&Kept) -> T) -> Option<T> {
        lock(&self.to).kept.as_ref().map(read)
    }

    /// Keeps what is in force once it is its turn: of two that come at the same time the last has the newest.
    pub(super) fn keep(&self, in_force: impl FnOnce() -> Option<String>) {
        let To { kept: Some(kept), is_behind } = &mut *lock(&self.to) else { return };
        let Some(document) = in_force() else { return };
        let (path, was_behind) = (kept.path().display().to_string(), *is_behind);
        let written = kept.write(&document);
        *is_behind = written.is_err();
        match written {
            Ok(()) if was_behind => tracing::info!(path, "the bundle is kept again"),
            Ok(()) => {}
            Err(error) => {
                if !was_behind {
                    tracing::warn!(path, %error, "bundle not kept; a start now begins with one before it; tried again and again");
                }
                self.failed.notify_one();
            }
        }
    }

    /// Resolves a while after a bundle could not be kept, if it still is not.
    pub(super) async fn is_due_again(&self) {
        loop {
            self.failed.notified().await;
            sleep(AGAIN_AFTER).await;
            if self.is_behind() {
                return;
            }
        }
    }

    /// Whether the newest is not kept, though it was to be.
    pub(super) fn is_behind(&self) -> bool {
        lock(&self.to).is_behind
    }

    /// Keeps nothing from now on; what is being kept has been once this returns.
    pub(super) fn end(&self) {
        lock(&self.to).kept = None;
    }
}
