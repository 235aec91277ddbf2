//! The spool's mark: what the numbers of a directory are counted from, which were never given, and the boot in which they were
//! given last.

use std::fmt::Write as _;
use std::fs;
use std::ops::Range;
use std::path::Path;

use crate::{Error, disk};

/// Spans of numbers that were never given, of which the directory knows. Older ones count as lost to a sink that goes back so far.
const UNUSED_MAX: usize = 64;

/// What the numbers of a directory are counted from.
pub(super) struct Mark {
    /// When the directory was made, microseconds since the Unix epoch.
    pub(super) epoch: u64,
    /// The boot in which numbers were given last.
    pub(super) boot: Option<String>,
    /// No number before this is free.
    pub(super) next: u64,
    /// Of those before it, spans that were never given.
    pub(super) unused: Vec<Range<u64>>,
}

/// The first line of a mark: what wrote it, and the version of all that is in the directory.
pub(super) const MARK: &str = "thalweg spool 1";

impl Mark {
    /// Reads the mark of a directory, or begins one.
    pub(super) fn read_or_make(dir: &Path) -> Result<Self, Error> {
        let path = dir.join("spool");
        match fs::read_to_string(&path) {
            Ok(text) => Self::parse(&text).ok_or_else(|| {
                Error::refused(format!("{} is not of a spool that this release can read", path.display()))
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
        // Marks of before have no such line.
        let next = lines.next().and_then(|line| line.strip_prefix("next ")?.parse().ok()).unwrap_or(0);
        let span = |line: &str| {
            let (start, end) = line.strip_prefix("unused ")?.split_once(' ')?;
            Some(start.parse().ok()?..end.parse().ok()?)
        };
        let unused = lines.map_while(span).collect();
        Some(Self { epoch: epoch.strip_prefix("epoch ")?.parse().ok()?, boot: Some(boot), next, unused })
    }

    /// Goes on with higher numbers.
    pub(super) fn leave_out(&mut self, numbers: u64) {
        let end = self.next.saturating_add(numbers);
        self.unused.push(self.next..end);
        if self.unused.len() > UNUSED_MAX {
            self.unused.remove(0);
        }
        self.next = end;
    }

    /// Writes the mark with the boot of now.
    pub(super) fn write(&self, dir: &Path) -> Result<(), Error> {
        let path = dir.join("spool");
        let passing = dir.join("spool.new");
        let boot = boot().unwrap_or_default();
        let mut text = format!("{MARK}\nepoch {}\nboot {boot}\nnext {}\n", self.epoch, self.next);
        for Range { start, end } in &self.unused {
            writeln!(text, "unused {start} {end}").expect("a String takes every write");
        }
        disk::replace(&path, &passing, text.as_bytes()).map_err(Error::file("write", &path))
    }
}

/// What tells this boot of the machine from all others; absent where the system does not say, which is as another each time.
pub(super) fn boot() -> Option<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned())
}
