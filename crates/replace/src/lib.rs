//! Atomic replacement of files.
//!
//! The new content is written to `PATH.new`, which is then renamed to `PATH`. An existing
//! `PATH.new`, such as one left by a killed process, is removed first. If it is a symbolic link,
//! the link's target is not touched.
//!
//! **Invariant:** a reader that opens the file at any time, including after the process has
//! crashed, sees either the old or the new content, never a mix.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Creates or replaces a file with the given content and mode. If `path` is a symbolic link, the
/// link itself is replaced. Once this function returns, the new content survives a power loss.
///
/// # Errors
///
/// Returns an error if a file system operation fails. The old file then still exists, unless only
/// the final directory sync failed, after the file was replaced.
pub fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    write_and_rename(path, content, mode, File::sync_all)?;
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    File::open(directory.unwrap_or(".".as_ref()))?.sync_all()
}

/// Like [`replace`], but does not sync. After a power loss, the file may be old, empty or torn.
///
/// # Errors
///
/// Returns an error if a file system operation fails. The old file then still exists.
pub fn replace_unsynced(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    write_and_rename(path, content, mode, |_| Ok(()))
}

fn write_and_rename(
    path: &Path,
    content: &[u8],
    mode: u32,
    sync: fn(&File) -> io::Result<()>,
) -> io::Result<()> {
    let new = path.with_added_extension("new");
    let _ = fs::remove_file(&new);
    let created = File::options().write(true).create_new(true).mode(mode).open(&new);
    let written = created.and_then(|mut file| {
        file.write_all(content)?;
        sync(&file)?;
        fs::rename(&new, path)
    });
    written.inspect_err(|_| drop(fs::remove_file(&new)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn file_is_replaced_atomically_and_nothing_else_is_touched() {
        let directory = std::env::temp_dir().join(format!("thalweg-replace-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let (path, new, other) = (directory.join("a"), directory.join("a.new"), directory.join("other"));
        fs::write(&other, "other").unwrap();
        for (content, replace) in [("one", replace as fn(&Path, &[u8], u32) -> _), ("two", replace_unsynced)]
        {
            symlink(&other, &new).unwrap();
            replace(&path, content.as_bytes(), 0o600).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
            assert_eq!((fs::read_to_string(&other).unwrap().as_str(), new.exists()), ("other", false));
        }
        let sync = |file: &File| match file.metadata()?.len() {
            5 => Err(io::Error::other("failed before the rename")),
            bytes => panic!("unexpected sync of {bytes} bytes"),
        };
        write_and_rename(&path, b"three", 0o600, sync).unwrap_err();
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), new.exists()), ("two", false));
        fs::create_dir(&new).unwrap();
        replace(&path, b"three", 0o600).unwrap_err();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        fs::remove_dir_all(directory).unwrap();
    }
}
