//! Result output: a table on standard output and, optionally, a directory with a page, its charts,
//! all samples and a summary.

use std::fs;
use std::io::{Write, stderr, stdout};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use thalweg_lab::report::charts;

/// Directory of the charts in the directory of results.
const CHARTS: &str = "charts";

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
        write_charts(&self.page, &directory.join(CHARTS))?;
        // Ignore errors: after SIGHUP, standard error may be closed.
        let _ = writeln!(stderr(), "{}", directory.join("report.html").display());
        Ok(ExitCode::from(self.exit_status))
    }
}

/// Writes each chart of a page as an SVG file, and deletes the charts of an earlier run.
fn write_charts(page: &str, directory: &Path) -> anyhow::Result<()> {
    let write = || {
        fs::create_dir_all(directory)?;
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "svg") {
                fs::remove_file(path)?;
            }
        }
        let mut charts = charts(page).into_iter();
        charts.try_for_each(|(name, svg)| fs::write(directory.join(format!("{name}.svg")), svg))
    };
    write().with_context(|| directory.display().to_string())
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

#[cfg(test)]
mod tests {
    use thalweg_lab::report::Page;

    use super::*;

    #[test]
    fn charts_replace_those_of_an_earlier_run() {
        let directory = std::env::temp_dir().join(format!("thalweg-lab-charts-{}", std::process::id()));
        let page = |charts: &[&str]| {
            let mut page = Page::new("t");
            charts.iter().for_each(|title| page.chart(&format!("<svg><title>{title}</title></svg>\n")));
            page.finish()
        };
        let names = || {
            let names = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name());
            let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
            names.sort();
            names
        };
        write_charts(&page(&["waits", "shares"]), &directory).unwrap();
        fs::write(directory.join("notes.txt"), "").unwrap();
        assert_eq!(names(), ["01-waits.svg", "02-shares.svg", "notes.txt"]);
        write_charts(&page(&["delays"]), &directory).unwrap();
        assert_eq!(names(), ["01-delays.svg", "notes.txt"]);
        let svg = fs::read_to_string(directory.join("01-delays.svg")).unwrap();
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(svg, "<svg><title>delays</title></svg>\n");
    }
}
