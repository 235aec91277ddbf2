//! Results as files of a directory: a page for people, every sample, and a summary for programs.

use std::fs;
use std::io::{Write, stderr};
use std::path::Path;

use anyhow::Context;

/// Makes the directory: before anything is measured, so that it is not in vain.
pub(crate) fn make(directory: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(directory).with_context(|| directory.display().to_string())
}

/// Writes them there, and says where the page is.
pub(crate) fn write(directory: &Path, page: &str, samples: &str, summary: &str) -> anyhow::Result<()> {
    for (name, text) in [("report.html", page), ("samples.csv", samples), ("summary.json", summary)] {
        let file = directory.join(name);
        fs::write(&file, text).with_context(|| file.display().to_string())?;
    }
    // Nobody may be there to read it, after SIGHUP.
    let _ = writeln!(stderr(), "{}", directory.join("report.html").display());
    Ok(())
}
