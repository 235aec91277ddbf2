//! Directory of finished runs. A series that was ended continues where it stopped, as long as it
//! measures the same build of the program.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::Figures;

/// A directory of finished runs.
#[derive(Debug)]
pub(super) struct Finished {
    directory: PathBuf,
    program: Program,
}

/// Identity of a build: runs of different builds are not comparable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Program {
    bytes: u64,
    modified_unix_s: u64,
}

/// A finished run, as in its file.
#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    program: Program,
    figures: Figures,
}

impl Finished {
    /// Opens the directory for runs of `program`, and creates it if necessary.
    ///
    /// # Errors
    ///
    /// Returns an error if the directory cannot be created or the program cannot be read.
    pub(super) fn open(directory: &Path, program: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
        let read = || {
            let metadata = fs::metadata(program)?;
            let modified = metadata.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
            std::io::Result::Ok(Program { bytes: metadata.len(), modified_unix_s: modified.as_secs() })
        };
        let identity = read().with_context(|| program.display().to_string())?;
        Ok(Self { directory: directory.to_owned(), program: identity })
    }

    /// Returns the figures of a finished run; `None` if it was not finished, or with another build.
    pub(super) fn read(&self, name: &str) -> Option<Figures> {
        let text = fs::read_to_string(self.file(name)).ok()?;
        let entry: Entry = serde_json::from_str(&text).ok()?;
        (entry.program == self.program).then_some(entry.figures)
    }

    /// Writes the figures of a run. A run that is interrupted while writing counts as not finished.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be written.
    pub(super) fn write(&self, name: &str, figures: &Figures) -> anyhow::Result<()> {
        let entry = Entry { program: self.program, figures: figures.clone() };
        let text = serde_json::to_string(&entry).context("cannot format the figures")?;
        let file = self.file(name);
        fs::write(&file, text).with_context(|| file.display().to_string())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}.json"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_another_build_are_not_read() {
        let directory = std::env::temp_dir().join(format!("thalweg-lab-finished-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let program = directory.join("program");
        fs::write(&program, "a").unwrap();
        let finished = Finished::open(&directory.join("runs"), &program).unwrap();
        let figures = Figures { requests: 7, ..Figures::default() };
        finished.write("one", &figures).unwrap();
        assert_eq!((finished.read("one"), finished.read("two")), (Some(figures), None));
        fs::write(finished.file("two"), "{\"program\":").unwrap();
        assert_eq!(finished.read("two"), None, "a run that was interrupted while writing");
        fs::write(&program, "bb").unwrap();
        let other = Finished::open(&directory.join("runs"), &program).unwrap();
        assert_eq!(other.read("one"), None);
        fs::remove_dir_all(&directory).unwrap();
    }
}
