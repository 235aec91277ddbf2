//! Runs the program's `load` and reads its figures.

use std::process::{Child, Command, Stdio};

use thalweg_load::ErrorKind;
use thalweg_load::figures::Figures;
use thalweg_load::report::from_json;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_thalweg-lab");

pub(crate) fn lab(arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg("load").args(arguments).stdin(Stdio::null()).env_remove("THALWEG_LOG");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Waits for a run and returns its figures and exit status. Checks that standard error contains
/// only progress lines.
pub(crate) fn done(child: Child) -> (Figures, i32) {
    let output = child.wait_with_output().unwrap();
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(err.lines().all(|line| line.contains(" clients  ")), "{err}");
    (from_json(&out).unwrap_or_else(|error| panic!("{error:#}: {out}")), output.status.code().unwrap_or(-1))
}

/// Runs a load with `options` against `urls`.
pub(crate) fn measured(options: &str, urls: &[String]) -> (Figures, i32) {
    let arguments = options.split_whitespace().chain(["--json", "-"]).chain(urls.iter().map(String::as_str));
    done(lab(&arguments.collect::<Vec<_>>()).spawn().unwrap())
}

/// Returns the error message of a run that must fail to start.
pub(crate) fn refused(arguments: &[&str]) -> String {
    let output = lab(arguments).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    String::from_utf8(output.stderr).unwrap()
}

pub(crate) fn counts(figures: &Figures) -> Vec<(ErrorKind, u64)> {
    figures.errors.iter().map(|(kind, count)| (*kind, *count)).collect()
}
