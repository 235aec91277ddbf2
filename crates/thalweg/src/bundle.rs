//! Bundles of files: read and checked as an edge would, and written in the languages of other servers (`thalweg bundle`).

pub(crate) mod args;
mod nginx;
mod varnish;

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use anyhow::Context;
use thalweg_bundle::{BYTES_MAX, Bundle, Content, Faults, Place};
use thalweg_tcp::congestion;

use crate::print_or_gone;
use args::BundleCommand;

/// Who may read and write what is written for other servers: anybody, less the umask.
const FILE_MODE: u32 = 0o666;
/// Symbolic links that are followed, as by the kernel.
const LINKS_MAX: usize = 40;

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

/// What a file has, and no more of it than shows that it is too long.
fn read_document(file: &Path) -> io::Result<Vec<u8>> {
    let mut document = Vec::new();
    File::open(file)?.take(BYTES_MAX as u64 + 1).read_to_end(&mut document)?;
    Ok(document)
}

/// The bundle that `document`, of `file`, is.
///
/// # Errors
/// Every fault of it.
pub(crate) fn decode(file: &Path, document: &[u8]) -> Result<Bundle, Refused> {
    Bundle::decode(document).map_err(|faults| Refused { file: file.display().to_string(), faults })
}

/// The bundle in a file.
///
/// # Errors
/// [`Refused`]; a file that cannot be read.
pub(crate) fn read(file: &Path) -> anyhow::Result<Bundle> {
    let document = read_document(file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(decode(file, &document)?)
}

/// `thalweg bundle nginx` and `thalweg bundle varnish`.
///
/// # Errors
/// As [`read`]; what cannot be said in that language; a file that cannot be written.
pub(crate) fn run(command: &BundleCommand) -> anyhow::Result<()> {
    let (output, text) = match command {
        BundleCommand::Nginx(written) => (&written.output, nginx::text(&read(&written.bundle)?)),
        BundleCommand::Varnish(written) => (&written.output, varnish::text(&read(&written.bundle)?)?),
    };
    match output {
        Some(path) => {
            replace(path, text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))
        }
        None => {
            print_or_gone(&text);
            Ok(())
        }
    }
}

/// Names of hosts as regular expressions.
fn escaped(hosts: &[String]) -> impl Iterator<Item = String> {
    hosts.iter().map(|host| host.replace('.', r"\."))
}

/// Puts a file in the place of another, whole: a server that reads it meanwhile has the one or the other. Of a symbolic link, in the
/// place of what that leads to, or would.
///
/// # Errors
/// Those of the file system; what is there and is no file.
pub(crate) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let path = led_to(path)?;
    if fs::metadata(&path).is_ok_and(|metadata| !metadata.is_file()) {
        return Err(io::Error::other("not a regular file"));
    }
    thalweg_edge::replace(&path, content, FILE_MODE)
}

/// What a path leads to, over symbolic links.
fn led_to(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(next) = fs::read_link(&path) else { return Ok(path) };
        path = path.parent().unwrap_or("".as_ref()).join(next);
    }
    Err(io::Error::other("too many symbolic links"))
}

/// Reads the bundle that `file` holds; what it is, and what this machine cannot do of it, for people.
///
/// # Errors
/// [`Refused`], with every fault.
pub(crate) fn check(file: &Path, document: &[u8]) -> anyhow::Result<(String, String)> {
    let bundle = decode(file, document)?;
    let content = bundle.content();
    let (rules, experiments) = (content.rules.len(), content.experiments.len());
    let number = content.number;
    let told = format!("no fault found: bundle {number}, rules: {rules}, experiments: {experiments}");
    Ok((told, warnings(&file.display().to_string(), content)))
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
