//! The bundle in force: read from a file, looked at again and again, replaced at once.
//!
//! **Invariant:** a bundle that is refused changes nothing: the last good one stays in force, and why is told.
//! **Invariant:** a worker reads the bundle without a lock.

use std::convert::Infallible;
use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::{ArcSwapOption, Guard};
use serde_json::{Value, json};
use thalweg_bundle::{BYTES_MAX, Bundle};
use tokio::time::{MissedTickBehavior, interval};

use crate::now_ms;

/// How often it is looked whether there is another.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A bundle that was taken.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) bundle: Bundle,
    at_ms: u64,
}

/// A file that was refused.
#[derive(Debug)]
struct Refused {
    reason: String,
    at_ms: u64,
}

/// What a file was when it was last looked at: one that is replaced, or written to, has another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: (u64, u64),
    modified: (i64, i64),
    /// Also of who may read it.
    changed: (i64, i64),
    bytes: u64,
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            inode: (metadata.dev(), metadata.ino()),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            bytes: metadata.len(),
        }
    }
}

/// Which bundle is in force, and where the next one comes from.
#[derive(Debug, Default)]
pub(crate) struct Bundles {
    path: Option<PathBuf>,
    active: ArcSwapOption<Taken>,
    refused: Mutex<Option<Refused>>,
    seen: Mutex<Option<Result<Stamp, io::ErrorKind>>>,
}

impl Bundles {
    /// With what lies at `path` now. There may be nothing yet.
    pub(crate) fn new(path: Option<PathBuf>) -> Self {
        let bundles = Self { path, ..Self::default() };
        bundles.look();
        bundles
    }

    /// The bundle in force.
    pub(crate) fn active(&self) -> Guard<Option<Arc<Taken>>> {
        self.active.load()
    }

    /// Takes each new bundle, for as long as it is polled.
    pub(crate) async fn watch(self: Arc<Self>) -> Infallible {
        if self.path.is_none() {
            return std::future::pending().await;
        }
        let mut tick = interval(LOOK_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            let bundles = self.clone();
            let looked = tokio::task::spawn_blocking(move || bundles.look()).await;
            if let Err(error) = looked {
                self.refuse(format!("not looked at: {error}"));
            }
        }
    }

    /// Takes what lies there, if it has changed since the last look.
    fn look(&self) {
        let Some(path) = &self.path else { return };
        let found =
            std::fs::metadata(path).map(|metadata| Stamp::of(&metadata)).map_err(|error| error.kind());
        if lock(&self.seen).replace(found) == Some(found) {
            return;
        }
        match found {
            Err(io::ErrorKind::NotFound) => {
                tracing::info!(path = %path.display(), "no bundle there; what there was stays in force");
            }
            Err(kind) => self.refuse(kind.to_string()),
            Ok(_) => match read_file(path) {
                Ok(bytes) => match Bundle::decode(&bytes) {
                    Ok(bundle) => self.take(bundle),
                    Err(faults) => self.refuse(faults.to_string()),
                },
                Err(error) => {
                    // The file may be right: it is tried again.
                    *lock(&self.seen) = None;
                    self.refuse(format!("cannot read it: {error}"));
                }
            },
        }
    }

    fn take(&self, bundle: Bundle) {
        let content = bundle.content();
        let (number, rules, experiments) = (content.number, content.rules.len(), content.experiments.len());
        tracing::info!(number, rules, experiments, reason = content.reason, "bundle taken");
        self.active.store(Some(Arc::new(Taken { bundle, at_ms: now_ms() })));
    }

    fn refuse(&self, reason: String) {
        let in_force = self.active().as_ref().map(|taken| taken.bundle.content().number);
        let mut refused = lock(&self.refused);
        if refused.as_ref().is_none_or(|last| last.reason != reason) {
            let path = self.path.as_deref().map(|path| tracing::field::display(path.display()));
            tracing::warn!(path, reason, in_force, "bundle refused");
        }
        *refused = Some(Refused { reason, at_ms: now_ms() });
    }

    /// What the admin interface tells; null where no bundle is configured.
    pub(crate) fn told(&self) -> Value {
        if self.path.is_none() {
            return Value::Null;
        }
        let refused = lock(&self.refused)
            .as_ref()
            .map(|refused| json!({"reason": refused.reason, "unix_ms": refused.at_ms}));
        let active = self.active();
        let content = active.as_ref().map(|taken| taken.bundle.content());
        json!({
            "number": content.map(|content| content.number),
            "reason": content.map(|content| &content.reason),
            "rules": content.map(|content| content.rules.len()),
            "experiments": content.map(|content| content.experiments.len()),
            "checksum": active.as_ref().map(|taken| taken.bundle.checksum()),
            "taken_unix_ms": active.as_ref().map(|taken| taken.at_ms),
            "refused": refused,
        })
    }
}

/// A regular file, and no more of it than shows that it is too long.
fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    // Not to wait for a writer, should it be a pipe.
    let nonblock = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().read(true).custom_flags(nonblock).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails where something is not as it has to be")]
mod tests {
    use thalweg_bundle::Content;

    use super::*;

    /// A file that is gone with the test.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let directory =
                std::env::temp_dir().join(format!("thalweg-bundle-{}-{name}", std::process::id()));
            std::fs::create_dir_all(&directory).unwrap();
            Self(directory.join("bundle.json"))
        }

        /// Replaces the file as one ought to: by another.
        fn put(&self, document: &str) {
            let next = self.0.with_extension("next");
            std::fs::write(&next, document).unwrap();
            std::fs::rename(&next, &self.0).unwrap();
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(self.0.parent().unwrap());
        }
    }

    fn document(number: u64) -> String {
        Bundle::new(Content { number, ..Content::default() }).unwrap().encode()
    }

    fn told(bundles: &Bundles) -> (Value, String) {
        let told = bundles.told();
        (told["number"].clone(), told["refused"]["reason"].as_str().unwrap_or_default().to_owned())
    }

    #[test]
    fn the_last_good_one_stays_in_force() {
        let place = Place::new("last");
        let bundles = Bundles::new(Some(place.0.clone()));
        assert_eq!(told(&bundles), (Value::Null, String::new()));
        place.put(&document(7));
        bundles.look();
        assert_eq!(told(&bundles), (7.into(), String::new()));
        place.put(&document(8).replace(":8,", ":9,"));
        bundles.look();
        let (number, reason) = told(&bundles);
        assert_eq!(number, 7);
        assert!(reason.starts_with("/checksum: not that of the content, which is sha256:"), "{reason}");
        std::fs::remove_file(&place.0).unwrap();
        bundles.look();
        assert_eq!(told(&bundles).0, 7);
        std::fs::create_dir(&place.0).unwrap();
        bundles.look();
        assert_eq!(told(&bundles), (7.into(), "cannot read it: not a regular file".into()));
        std::fs::remove_dir(&place.0).unwrap();
        place.put(&document(6));
        bundles.look();
        assert_eq!(told(&bundles).0, 6);
    }

    #[test]
    fn a_file_is_read_once() {
        let place = Place::new("once");
        place.put(&document(1));
        let bundles = Bundles::new(Some(place.0.clone()));
        let first = bundles.active.load_full().unwrap();
        bundles.look();
        assert!(Arc::ptr_eq(&first, &bundles.active.load_full().unwrap()));
        place.put(&document(1));
        bundles.look();
        assert!(!Arc::ptr_eq(&first, &bundles.active.load_full().unwrap()));
    }

    #[test]
    fn what_is_too_long_is_not_read_to_its_end() {
        let place = Place::new("long");
        File::create(&place.0).unwrap().set_len(1 << 40).unwrap();
        let bundles = Bundles::new(Some(place.0.clone()));
        assert_eq!(told(&bundles), (Value::Null, format!("longer than {BYTES_MAX} bytes")));
    }
}
