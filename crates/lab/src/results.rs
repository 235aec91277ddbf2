//! Result output: a table on standard output and, optionally, a directory with a page, all samples
//! and a summary.

use std::fs;
use std::io::{Write, stderr, stdout};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;

/// Rendered results of one command.
pub(crate) struct Results {
    pub(crate) table: String,
    pub(crate) page: String,
    pub(crate) samples: String,
    pub(crate) summary: String,
    pub(crate) exit_status: u8,
}

impl Results {
    /// Prints the table. If `directory` is set, also writes the other files to it and prints the
    /// page's path.
    pub(crate) fn write(&self, directory: Option<&Path>) -> anyhow::Result<ExitCode> {
        print(&self.table);
        let Some(directory) = directory else { return Ok(ExitCode::from(self.exit_status)) };
        let files =
            [("report.html", &self.page), ("samples.csv", &self.samples), ("summary.json", &self.summary)];
        for (name, text) in files {
            let file = directory.join(name);
            fs::write(&file, text).with_context(|| file.display().to_string())?;
        }
        // Ignore errors: after SIGHUP, standard error may be closed.
        let _ = writeln!(stderr(), "{}", directory.join("report.html").display());
        Ok(ExitCode::from(self.exit_status))
    }
}

/// Creates the directory, if set. Called before measuring, so that a bad path fails early.
pub(crate) fn create_directory(directory: Option<&Path>) -> anyhow::Result<()> {
    let Some(directory) = directory else { return Ok(()) };
    fs::create_dir_all(directory).with_context(|| directory.display().to_string())
}

/// Prints to standard output, ignoring errors: a reader such as `head` may close the pipe early.
pub(crate) fn print(text: &str) {
    let _ = stdout().write_all(text.as_bytes());
}
