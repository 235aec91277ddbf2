//! `thalweg check FILE.json`: reads a bundle as an edge would.

use std::fmt;

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

/// Reads the bundle that `file` holds; what it is, for people.
///
/// # Errors
/// [`Refused`], with every fault.
pub(crate) fn check(file: &str, document: &[u8]) -> anyhow::Result<String> {
    let bundle = Bundle::decode(document).map_err(|faults| Refused { file: file.to_owned(), faults })?;
    let content = bundle.content();
    let (rules, experiments) = (content.rules.len(), content.experiments.len());
    let number = content.number;
    Ok(format!("no fault found: bundle {number}, rules: {rules}, experiments: {experiments}"))
}
