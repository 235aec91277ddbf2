//! What the numbers of a directory are counted from, and the boot in which they were given last: the file `spool`.

use std::fs::{self, File};
use std::path::Path;

use crate::Error;

/// What the numbers of a directory are counted from.
pub(super) struct Mark {
    /// When the directory was made, microseconds since the Unix epoch.
    pub(super) epoch: u64,
    /// The boot in which numbers were given last.
    pub(super) boot: Option<String>,
    /// No number before this is free.
    pub(super) next: u64,
}

/// The first line of a mark: what wrote it, and the version of all that is in the directory.
pub(super) const MARK: &str = "thalweg spool 1";

impl Mark {
    pub(super) fn read_or_make(dir: &Path) -> Result<Self, Error> {
        let path = dir.join("spool");
        match fs::read_to_string(&path) {
            Ok(text) => Self::parse(&text).ok_or_else(|| {
                Error::refused(format!("{} is not of a spool that this release can read", path.display()))
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
                let epoch = since.map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX));
                Ok(Self { epoch, boot: boot(), next: 0 })
            }
            Err(error) => Err(Error::file("read", &path)(error)),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let (mark, epoch, boot) = (lines.next()?, lines.next()?, lines.next()?);
        let boot = boot.strip_prefix("boot ")?.to_owned();
        (mark == MARK).then_some(())?;
        // Marks of before have no such line.
        let next = lines.next().and_then(|line| line.strip_prefix("next ")?.parse().ok()).unwrap_or(0);
        Some(Self { epoch: epoch.strip_prefix("epoch ")?.parse().ok()?, boot: Some(boot), next })
    }

    /// Writes the mark with the boot of now.
    pub(super) fn write(&self, dir: &Path) -> Result<(), Error> {
        let path = dir.join("spool");
        let passing = dir.join("spool.new");
        let boot = boot().unwrap_or_default();
        let text = format!("{MARK}\nepoch {}\nboot {boot}\nnext {}\n", self.epoch, self.next);
        fs::write(&passing, text)
            .and_then(|()| File::open(&passing)?.sync_all())
            .and_then(|()| fs::rename(&passing, &path))
            .and_then(|()| File::open(dir)?.sync_all())
            .map_err(Error::file("write", &path))
    }
}

/// What tells this boot of the machine from all others; absent where the system does not say, which is as another each time.
pub(super) fn boot() -> Option<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned())
}
