//! `thalweg check FILE.json`: reads a bundle as an edge would.

use std::fmt;
use std::path::Path;

use thalweg_bundle::{Bundle, Faults, Place};

/// A bundle that was refused; its text is a line for each fault.
#[derive(Debug)]
pub(crate) struct Refused {
    file: String,
    faults: Faults,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for fault in self.faults.all() {
            // FILE:LINE:COLUMN is what editors jump to.
            let space = if matches!(fault.place, Place::Text { .. }) { "" } else { " " };
            writeln!(f, "{}:{space}{fault}", self.file)?;
        }
        match self.faults.more() {
            0 => Ok(()),
            more => writeln!(f, "{}: and {more} more", self.file),
        }
    }
}

impl std::error::Error for Refused {}

/// Reads the bundle in `path`; what it is, for people.
pub(crate) fn check(path: &Path) -> anyhow::Result<String> {
    let file = path.display().to_string();
    let document = std::fs::read(path).map_err(|error| anyhow::anyhow!("{file}: {error}"))?;
    let bundle = Bundle::decode(&document).map_err(|faults| Refused { file: file.clone(), faults })?;
    let content = bundle.content();
    let (rules, experiments) = (content.rules.len(), content.experiments.len());
    let number = content.number;
    Ok(format!("{file}: no fault found: bundle {number}, rules: {rules}, experiments: {experiments}\n"))
}
