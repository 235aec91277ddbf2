//! Bundle files: validated as on an edge, and converted for other servers (`thalweg bundle`).

pub mod args;
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

use crate::print_stdout;
use args::BundleCommand;

/// Mode of files written for other servers: readable and writable by all, minus the umask.
const FILE_MODE: u32 = 0o666;
/// Maximum number of symbolic links to follow, as in the kernel.
const LINKS_MAX: usize = 40;

/// Rejected bundle, displayed as one line per fault.
#[derive(Debug)]
pub struct Refused {
    file: String,
    faults: Faults,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for fault in self.faults.all() {
            // Print FILE:LINE:COLUMN without a space, so that editors can jump to it.
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

/// Reads a file up to one byte beyond the maximum bundle size, which is enough for the decoder to
/// reject a file that is too large.
fn read_document(file: &Path) -> io::Result<Vec<u8>> {
    let mut document = Vec::new();
    File::open(file)?.take(BYTES_MAX as u64 + 1).read_to_end(&mut document)?;
    Ok(document)
}

/// Decodes the bundle in `document`, which was read from `file`.
///
/// # Errors
///
/// Returns [`Refused`] with all faults if the bundle is invalid.
pub fn decode(file: &Path, document: &[u8]) -> Result<Bundle, Refused> {
    Bundle::decode(document).map_err(|faults| Refused { file: file.display().to_string(), faults })
}

/// Reads the bundle in a file.
///
/// # Errors
///
/// Returns [`Refused`] if the bundle is invalid, or another error if the file cannot be read.
pub fn read(file: &Path) -> anyhow::Result<Bundle> {
    let document = read_document(file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(decode(file, &document)?)
}

/// Runs `thalweg bundle nginx` or `thalweg bundle varnish`.
///
/// # Errors
///
/// Returns an error if [`read`] fails, if the other server's language cannot express the bundle, or
/// if the output file cannot be written.
pub fn run(command: &BundleCommand) -> anyhow::Result<()> {
    let (output, text) = match command {
        BundleCommand::Nginx(written) => (&written.output, nginx::text(&read(&written.bundle)?)),
        BundleCommand::Varnish(written) => (&written.output, varnish::text(&read(&written.bundle)?)?),
    };
    match output {
        Some(path) => {
            replace(path, text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))
        }
        None => {
            print_stdout(&text);
            Ok(())
        }
    }
}

/// Escapes host names for use in regular expressions.
fn escaped(hosts: &[String]) -> impl Iterator<Item = String> {
    hosts.iter().map(|host| host.replace('.', r"\."))
}

/// Replaces a file atomically: concurrent readers see either the old or the new content. If the
/// path is a symbolic link, replaces or creates its target.
///
/// # Errors
///
/// Returns an error if the path exists and is not a regular file, or if the file cannot be written.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let path = resolve_links(path)?;
    if fs::metadata(&path).is_ok_and(|metadata| !metadata.is_file()) {
        return Err(io::Error::other("not a regular file"));
    }
    thalweg_replace::replace(&path, content, FILE_MODE)
}

/// Resolves symbolic links to the final path.
fn resolve_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(next) = fs::read_link(&path) else { return Ok(path) };
        path = path.parent().unwrap_or("".as_ref()).join(next);
    }
    Err(io::Error::other("too many symbolic links"))
}

/// Checks the bundle in `document`, which was read from `file`. Returns a summary, and warnings
/// about algorithms that this machine lacks.
///
/// # Errors
///
/// Returns [`Refused`] with all faults if the bundle is invalid.
pub fn check(file: &Path, document: &[u8]) -> anyhow::Result<(String, String)> {
    let bundle = decode(file, document)?;
    let content = bundle.content();
    let (rules, experiments) = (content.rules.len(), content.experiments.len());
    let number = content.number;
    let summary = format!("no errors found: bundle {number}, rules: {rules}, experiments: {experiments}");
    Ok((summary, warnings(&file.display().to_string(), content)))
}

/// Formats a line for each algorithm that this machine lacks, with the first rule or arm that uses
/// it.
fn warnings(file: &str, content: &Content) -> String {
    let rules = content.rules.iter().map(|rule| (format!("rule {}", rule.prefix), &rule.congestion_control));
    let arms = content.experiments.iter().flat_map(|experiment| {
        let arms = experiment.arms.iter();
        arms.filter_map(|arm| {
            Some((format!("arm {}/{}", experiment.name, arm.name), arm.congestion_control.as_ref()?))
        })
    });
    let mut first_places = BTreeMap::new();
    for (place, algorithm) in rules.chain(arms) {
        first_places.entry(algorithm).or_insert(place);
    }
    let mut warnings = String::new();
    for (algorithm, place) in first_places {
        // Parsing cannot fail, because decoding a bundle validates the names of its algorithms.
        if let Ok(Err(error)) = algorithm.parse().map(congestion::check) {
            writeln!(warnings, "{file}: warning: {place}: {error}").expect("writing to a String cannot fail");
        }
    }
    warnings
}
