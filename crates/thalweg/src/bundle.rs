//! `thalweg check FILE.json`: reads a bundle as an edge would.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use thalweg_bundle::{Bundle, Content, Faults, Place};
use thalweg_tcp::congestion;

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

/// Reads the bundle that `file` holds; what it is, and what this machine cannot do of it, for people.
///
/// # Errors
/// [`Refused`], with every fault.
pub(crate) fn check(file: &str, document: &[u8]) -> anyhow::Result<(String, String)> {
    let bundle = Bundle::decode(document).map_err(|faults| Refused { file: file.to_owned(), faults })?;
    let content = bundle.content();
    let (rules, experiments) = (content.rules.len(), content.experiments.len());
    let number = content.number;
    let told = format!("no fault found: bundle {number}, rules: {rules}, experiments: {experiments}");
    Ok((told, warnings(file, content)))
}

/// A line for each algorithm that this machine refuses, with the first place that asks for it.
fn warnings(file: &str, content: &Content) -> String {
    let rules = content.rules.iter().map(|rule| (format!("rule {}", rule.prefix), &rule.congestion_control));
    let arms = content.experiments.iter().flat_map(|experiment| {
        let arms = experiment.arms.iter();
        arms.filter_map(|arm| {
            Some((format!("arm {}/{}", experiment.name, arm.name), arm.congestion_control.as_ref()?))
        })
    });
    let mut asked = BTreeMap::new();
    for (place, algorithm) in rules.chain(arms) {
        asked.entry(algorithm).or_insert(place);
    }
    let mut warnings = String::new();
    for (algorithm, place) in asked {
        // A bundle's names have the form of the kernel's.
        if let Ok(Err(error)) = algorithm.parse().map(congestion::check) {
            writeln!(warnings, "{file}: warning: {place}: {error}").expect("a String takes every write");
        }
    }
    warnings
}
