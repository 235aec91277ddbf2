//! Files that are replaced in one step.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Puts a file of this mode in the place of another, of a link, or of none, in one step: a kill leaves the one before or this one, whole.
/// Once this returns, a loss of power leaves this one.
///
/// # Errors
/// Those of the file system. What was there still is, unless it is the directory alone that cannot be synced.
pub fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let new = path.with_added_extension("new");
    // What a kill has left, or a link that somebody has made: what that leads to is left alone.
    let _ = fs::remove_file(&new);
    let written = write_new(&new, content, mode).and_then(|()| fs::rename(&new, path));
    written.inspect_err(|_| drop(fs::remove_file(&new)))?;
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    File::open(directory.unwrap_or(".".as_ref()))?.sync_all()
}

fn write_new(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let mut file = File::options().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(content)?;
    file.sync_all()
}
