//! File and directory helpers. New files are readable only by their owner, whatever the umask,
//! because they contain client addresses. Existing files keep their mode, which an operator may
//! have widened. Syncs are separate operations, so that callers can order them to survive a power
//! loss.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

const FILE_MODE: u32 = 0o600;
const DIR_MODE: u32 = 0o700;

/// Creates a directory and its missing parents.
pub(crate) fn create_dir_all(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIR_MODE).create(path)
}

/// Returns options that open a file for writing and create it if missing.
pub(crate) fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).mode(FILE_MODE);
    options
}

/// Creates a file, or truncates an existing one.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    options().truncate(true).open(path)
}

/// Replaces a file atomically; once this returns, the new content survives a power loss.
pub(crate) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    #[cfg(test)]
    steps::note("replace", path);
    thalweg_replace::replace(path, content, FILE_MODE)
}

/// Replaces a file atomically but without syncing, so a power loss may leave it incomplete.
pub(crate) fn replace_unsynced(path: &Path, content: &[u8]) -> io::Result<()> {
    thalweg_replace::replace_unsynced(path, content, FILE_MODE)
}

/// Syncs a file's data to disk.
pub(crate) fn sync(file: &File) -> io::Result<()> {
    #[cfg(test)]
    steps::note("sync", &steps::path_of(file));
    file.sync_data()
}

/// Renames a file.
pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    #[cfg(test)]
    steps::note("name", to);
    fs::rename(from, to)
}

/// Syncs a directory to disk.
pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    #[cfg(test)]
    steps::note("sync", Path::new("names"));
    File::open(dir)?.sync_all()
}

/// Log of a thread's disk operations, for tests of their order.
#[cfg(test)]
pub(crate) mod steps {
    use std::cell::RefCell;
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::path::{Path, PathBuf};

    thread_local! {
        static STEPS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    }

    pub(super) fn note(step: &str, path: &Path) {
        let name = path.file_name().unwrap().to_string_lossy();
        STEPS.with_borrow_mut(|steps| steps.push(format!("{step} {name}\n")));
    }

    pub(super) fn path_of(file: &File) -> PathBuf {
        std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap()
    }

    /// Returns the operations since the last call, one per line.
    pub(crate) fn take() -> String {
        STEPS.take().concat()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::testing::Dir;

    #[test]
    fn new_files_are_private_and_existing_files_keep_their_mode() {
        let dir = Dir::absent("disk-modes");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        create_dir_all(&dir.file("a/b")).unwrap();
        create(&dir.file("a/b/file")).unwrap();
        replace(&dir.file("a/b/other"), b"x").unwrap();
        assert_eq!([dir.file("a"), dir.file("a/b")].map(|path| mode(&path)), [0o700; 2]);
        assert_eq!([dir.file("a/b/file"), dir.file("a/b/other")].map(|path| mode(&path)), [0o600; 2]);
        fs::set_permissions(dir.file("a/b/file"), fs::Permissions::from_mode(0o640)).unwrap();
        create(&dir.file("a/b/file")).unwrap();
        assert_eq!(mode(&dir.file("a/b/file")), 0o640, "a mode set by an operator must be kept");
    }
}
