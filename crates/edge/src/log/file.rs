//! Request log file, with support for rotation.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A log file. After it is renamed for rotation, a new file is created under the old name.
#[derive(Debug)]
pub(super) struct LogFile {
    file: File,
    path: PathBuf,
    checked: Instant,
}

/// Interval between checks for a renamed file.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

impl LogFile {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { file, path: path.to_owned(), checked: Instant::now() })
    }

    pub(super) fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.checked.elapsed() >= CHECK_INTERVAL {
            self.checked = Instant::now();
            if self.was_moved()? {
                *self = Self::open(&self.path)?;
            }
        }
        self.file.write_all(lines)
    }

    fn was_moved(&self) -> io::Result<bool> {
        let place = |metadata: Metadata| (metadata.dev(), metadata.ino());
        let own = place(self.file.metadata()?);
        Ok(std::fs::metadata(&self.path).map(place).ok() != Some(own))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn renamed_file_is_replaced_by_new_file() {
        let directory = std::env::temp_dir().join(format!("thalweg-log-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (path, moved) = (directory.join("log"), directory.join("log.1"));
        let mut log = LogFile::open(&path).unwrap();
        log.write(b"one\n").unwrap();
        std::fs::rename(&path, &moved).unwrap();
        log.checked -= CHECK_INTERVAL;
        log.write(b"two\n").unwrap();
        log.write(b"three\n").unwrap();
        assert_eq!(std::fs::read(&moved).unwrap(), b"one\n");
        assert_eq!(std::fs::read(&path).unwrap(), b"two\nthree\n");
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
