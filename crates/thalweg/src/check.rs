//! `thalweg check FILE…`: each file is read as what it is, and the faults of all of them are told.
//!
//! A policy is a file named `.vcl`, or whose text begins as one; a bundle is one named `.json`, or whose text begins with `{`, which no config does; any
//! other is a config.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::config::Config;
use crate::{bundle, policy, print_or_gone, roles, tell};

/// Some file has a fault; each was told.
#[derive(Debug)]
pub(crate) struct Failed;

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not all of it is right")
    }
}

impl std::error::Error for Failed {}

/// Checks each of `files`, and tells what is wrong.
///
/// # Errors
/// [`Failed`], if anything is.
pub(crate) fn check(files: &[PathBuf]) -> Result<(), Failed> {
    let mut has_failed = false;
    for file in files {
        match one(file) {
            Ok(said) => print_or_gone(&format!("{}: {said}\n", file.display())),
            Err(failure) => {
                has_failed = true;
                tell(&failure);
            }
        }
    }
    if has_failed { Err(Failed) } else { Ok(()) }
}

/// What a file without a fault is.
fn one(file: &Path) -> anyhow::Result<String> {
    let is_named = |extension: &str| file.extension().is_some_and(|found| found == extension);
    let name = file.display();
    // Once: what is piped in is there only once.
    let text = std::fs::read(file).map_err(|error| anyhow::anyhow!("{name}: {error}"))?;
    if is_named("vcl") || !is_named("toml") && !is_named("json") && begins_policy(&text) {
        let (_, warnings) = policy::check(file)?;
        eprint!("{warnings}");
        return Ok("no error found".to_owned());
    }
    if is_named("json") || text.trim_ascii_start().starts_with(b"{") {
        let (said, warnings) = bundle::check(file, &text)?;
        eprint!("{warnings}");
        return Ok(said);
    }
    let text = String::from_utf8(text).map_err(|_| anyhow::anyhow!("{name}: not UTF-8"))?;
    roles::check(&Config::from_text(file, &text)?)?;
    Ok("no fault found".to_owned())
}

/// Whether a text without a telling name is VCL: no other file that is checked begins so.
fn begins_policy(text: &[u8]) -> bool {
    ["vcl 4", "backend "].iter().any(|first| text.trim_ascii_start().starts_with(first.as_bytes()))
}
