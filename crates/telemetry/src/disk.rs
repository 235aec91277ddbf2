//! Files and directories as telemetry makes them. Only their owner may read them, whatever the umask is: they say which clients were
//! there. What is there already keeps its mode, which an operator may have widened. And they are written in steps whose order
//! holds over a loss of power.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

const FILE_MODE: u32 = 0o600;
const DIR_MODE: u32 = 0o700;

/// Makes a directory, and those that it lies in, if they are not there.
pub(crate) fn create_dir_all(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIR_MODE).create(path)
}

/// Options to open a file for writing, which may have to be made.
pub(crate) fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).mode(FILE_MODE);
    options
}

/// Makes a file, or empties the one that is there.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    options().truncate(true).open(path)
}

/// Writes a whole file.
pub(crate) fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    create(path)?.write_all(content)
}

/// Replaces a file by way of a passing one: after a loss of power it is the old one or the new one, and once this returns the
/// new one.
pub(crate) fn replace(path: &Path, passing: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = create(passing)?;
    file.write_all(content)?;
    sync(&file)?;
    rename(passing, path)?;
    sync_dir(path.parent().unwrap_or(Path::new(".")))
}

/// Writes to the disk what a file has.
pub(crate) fn sync(file: &File) -> io::Result<()> {
    #[cfg(test)]
    steps::note("sync", &steps::path_of(file));
    file.sync_data()
}

/// Gives a file another name.
pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    #[cfg(test)]
    steps::note("name", to);
    fs::rename(from, to)
}

/// Writes to the disk which names a directory has.
pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    #[cfg(test)]
    steps::note("sync", Path::new("names"));
    File::open(dir)?.sync_all()
}

/// The steps that a thread took, for tests of their order.
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

    /// The steps since the last call, a line each.
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
    fn only_the_owner_may_read() {
        let dir = Dir::absent("disk-modes");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        create_dir_all(&dir.file("a/b")).unwrap();
        write(&dir.file("a/b/file"), b"x").unwrap();
        replace(&dir.file("a/b/other"), &dir.file("a/b/other.new"), b"x").unwrap();
        assert_eq!([dir.file("a"), dir.file("a/b")].map(|path| mode(&path)), [0o700; 2]);
        assert_eq!([dir.file("a/b/file"), dir.file("a/b/other")].map(|path| mode(&path)), [0o600; 2]);
        fs::set_permissions(dir.file("a/b/file"), fs::Permissions::from_mode(0o640)).unwrap();
        write(&dir.file("a/b/file"), b"y").unwrap();
        assert_eq!(mode(&dir.file("a/b/file")), 0o640, "an operator's choice stays");
    }
}
