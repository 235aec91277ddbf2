//! `thalweg check FILE…`: detects the kind of each file, checks it and reports all faults.
//!
//! A file is a policy if its name ends in `.vcl`, or if its content starts like VCL and its name
//! does not end in `.toml` or `.json`. A file is a bundle if its name ends in `.json` or its
//! content starts with `{`, as no config does. Any other file is a config.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use thalweg_cli::{bundle, print_stdout};

use crate::config::Config;
use crate::{policy, report_failure, roles};

/// Error for invalid files; their faults are already reported.
#[derive(Debug)]
pub(crate) struct Failed;

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("some files have errors")
    }
}

impl std::error::Error for Failed {}

/// Checks all `files` and reports their faults.
///
/// # Errors
///
/// Returns [`Failed`] if any file has a fault.
pub(crate) fn check(files: &[PathBuf]) -> Result<(), Failed> {
    let mut has_failed = false;
    for file in files {
        match check_file(file) {
            Ok(summary) => print_stdout(&format!("{}: {summary}\n", file.display())),
            Err(failure) => {
                has_failed = true;
                report_failure(&failure);
            }
        }
    }
    if has_failed { Err(Failed) } else { Ok(()) }
}

/// Checks a single file and returns a summary if it has no fault.
fn check_file(file: &Path) -> anyhow::Result<String> {
    let is_named = |extension: &str| file.extension().is_some_and(|found| found == extension);
    let name = file.display();
    // Read a config or bundle only once, because piped input cannot be read again.
    let text = std::fs::read(file).with_context(|| format!("cannot read {name}"))?;
    if is_named("vcl") || !is_named("toml") && !is_named("json") && begins_policy(&text) {
        let (_, warnings) = policy::check(file)?;
        eprint!("{warnings}");
        return Ok("no errors found".to_owned());
    }
    if is_named("json") || text.trim_ascii_start().starts_with(b"{") {
        let (summary, warnings) = bundle::check(file, &text)?;
        eprint!("{warnings}");
        return Ok(summary);
    }
    let text = String::from_utf8(text).ok().with_context(|| format!("{name}: not UTF-8"))?;
    roles::check(&Config::from_text(file, &text)?)?;
    Ok("no errors found".to_owned())
}

/// Returns whether `text` starts like VCL, as no bundle or config does.
fn begins_policy(text: &[u8]) -> bool {
    ["vcl 4", "backend "].iter().any(|first| text.trim_ascii_start().starts_with(first.as_bytes()))
}
