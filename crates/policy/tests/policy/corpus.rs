//! Example video policies that cover every language construct. All of them compile, and Debian's
//! Varnish accepts the policies without Thalweg extensions.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Bench, build};
use thalweg_policy::Sub;

fn policies() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let entries = std::fs::read_dir(directory).expect("the directory must be readable");
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.expect("the entry must be readable").path()).collect();
    paths.sort();
    assert!(paths.len() >= 8, "the corpus must have at least 8 policies");
    paths
}

/// Returns whether the first line marks a policy as using Thalweg extensions.
fn is_ours(text: &str) -> bool {
    text.lines().next().is_some_and(|line| line.contains("Thalweg only"))
}

#[test]
fn examples_compile_and_run() {
    for path in policies() {
        let text = std::fs::read_to_string(&path).expect("the policy file must be readable");
        let (mut program, report) =
            build(&text).unwrap_or_else(|report| panic!("{}\n{report}", path.display()));
        assert!(report.faults.is_empty(), "{}\n{report}", path.display());
        let mut bench = Bench::default();
        program.init(&mut bench.task()).unwrap_or_else(|failure| panic!("{}: {failure}", path.display()));
        for sub in Sub::ALL.into_iter().filter(|sub| *sub != Sub::Init) {
            bench.workspace.bytes_used = 0;
            bench.run(&program, sub).unwrap_or_else(|failure| panic!("{}: {sub}: {failure}", path.display()));
        }
    }
}

/// Varnish must accept the examples, because they are plain VCL.
#[test]
fn varnish_accepts_the_examples() {
    let home = std::env::temp_dir().join(format!("thalweg-policy-varnish-{}", std::process::id()));
    for path in policies() {
        let text = std::fs::read_to_string(&path).expect("the policy file must be readable");
        if is_ours(&text) {
            continue;
        }
        let output =
            Command::new("/usr/sbin/varnishd").arg("-C").arg("-n").arg(&home).arg("-f").arg(&path).output();
        let output = output.expect("varnishd must be installed (make setup-test)");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{}\n{}",
            path.display(),
            stderr.lines().take(12).collect::<Vec<_>>().join("\n")
        );
    }
    let _ = std::fs::remove_dir_all(home);
}
