//! Spool marker: a small text file with the epoch of the record numbers, the ID of the boot in
//! which numbers were last assigned, the next free number, and the ranges of numbers never
//! assigned.

use std::fmt::Write as _;
use std::fs;
use std::ops::Range;
use std::path::Path;

use crate::disk;
use crate::error::Error;

/// Maximum number of unassigned ranges stored. If a sink goes back past the oldest stored range,
/// the numbers in older ranges count as lost.
const UNUSED_MAX: usize = 64;

/// Content of the marker.
pub(super) struct Mark {
    /// Creation time of the directory, in microseconds since the Unix epoch.
    pub(super) epoch: u64,
    /// ID of the boot in which numbers were last assigned.
    pub(super) boot: Option<String>,
    /// Next free number: no lower number may be assigned.
    pub(super) next: u64,
    /// Ranges below `next` that were never assigned.
    pub(super) unused: Vec<Range<u64>>,
}

/// First line of the marker: the program name and the format version of the directory.
pub(super) const MARK: &str = "thalweg spool 1";

impl Mark {
    /// Reads a directory's marker, or creates one in memory if the file is missing.
    pub(super) fn read_or_make(dir: &Path) -> Result<Self, Error> {
        let path = dir.join("spool");
        match fs::read_to_string(&path) {
            Ok(text) => Self::parse(&text).ok_or_else(|| {
                Error::refused(format!("{}: spool format not supported by this release", path.display()))
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
                let epoch = since.map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX));
                Ok(Self { epoch, boot: boot(), next: 0, unused: Vec::new() })
            }
            Err(error) => Err(Error::file("read", &path)(error)),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let (mark, epoch, boot) = (lines.next()?, lines.next()?, lines.next()?);
        let boot = boot.strip_prefix("boot ")?.to_owned();
        (mark == MARK).then_some(())?;
        // Markers written by older releases lack this line.
        let next = lines.next().and_then(|line| line.strip_prefix("next ")?.parse().ok()).unwrap_or(0);
        let span = |line: &str| {
            let (start, end) = line.strip_prefix("unused ")?.split_once(' ')?;
            Some(start.parse().ok()?..end.parse().ok()?)
        };
        let unused = lines.map_while(span).collect();
        Some(Self { epoch: epoch.strip_prefix("epoch ")?.parse().ok()?, boot: Some(boot), next, unused })
    }

    /// Skips the next `numbers` record numbers without assigning them.
    pub(super) fn skip(&mut self, numbers: u64) {
        let end = self.next.saturating_add(numbers);
        self.unused.push(self.next..end);
        if self.unused.len() > UNUSED_MAX {
            self.unused.remove(0);
        }
        self.next = end;
    }

    /// Writes the marker with the ID of the current boot.
    pub(super) fn write(&self, dir: &Path) -> Result<(), Error> {
        let path = dir.join("spool");
        let boot = boot().unwrap_or_default();
        let mut text = format!("{MARK}\nepoch {}\nboot {boot}\nnext {}\n", self.epoch, self.next);
        for Range { start, end } in &self.unused {
            writeln!(text, "unused {start} {end}").expect("writing to a String cannot fail");
        }
        disk::replace(&path, text.as_bytes()).map_err(Error::file("write", &path))
    }
}

/// Returns the ID of the current boot, or `None` if the system does not provide it. `None` is
/// treated as a new boot.
pub(super) fn boot() -> Option<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned())
}
