//! `thalweg routes` tests in separate network namespaces: kernel routes, and the algorithms of
//! connections.

mod apply;
mod blocks;
mod follow;
mod network;
mod refused;
mod windows;

use std::path::{Path, PathBuf};
use std::process::Output;

use thalweg_tcp::congestion;

use crate::namespace::Namespace;
use crate::program::{Directory, Running, thalweg};

fn program() -> String {
    thalweg(&[]).get_program().to_str().unwrap().to_owned()
}

fn run(at: &Namespace, args: &[&str]) -> Output {
    at.command(&program(), &[&["routes"], args].concat()).output().unwrap()
}

/// Runs the command successfully; returns standard output and standard error.
fn output_of(at: &Namespace, args: &[&str]) -> (String, String) {
    let output = run(at, args);
    assert!(output.status.success(), "{output:?}");
    (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
}

fn apply(at: &Namespace, bundle: &Path) -> String {
    let (out, err) = output_of(at, &["apply", bundle.to_str().unwrap()]);
    assert_eq!(err, "");
    out
}

/// Runs the command, which must fail; returns standard error.
fn failed(at: &Namespace, args: &[&str]) -> String {
    let output = run(at, args);
    assert_eq!((output.status.code(), &*output.stdout), (Some(1), &b""[..]), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// Returns the default algorithm of new namespaces, and another algorithm.
fn algorithms() -> (String, String) {
    let default = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap();
    let default = default.trim().to_owned();
    let other = congestion::available().unwrap().into_iter().map(|name| name.to_string());
    let other = other.into_iter().find(|name| *name != default).expect("every kernel has reno and another");
    (default, other)
}

/// Asserts that exactly these routes are shown, each given by the start of its line.
fn shows(at: &Namespace, expected: &[&str]) {
    let shown = output_of(at, &["show"]).0;
    let is_as_expected = shown.lines().count() == expected.len()
        && expected.iter().zip(shown.lines()).all(|(begin, line)| line.starts_with(begin));
    assert!(is_as_expected, "{shown}, not {expected:?}");
}

/// Starts `apply --follow`.
fn follow(at: &Namespace, bundle: &Path, more: &[&str]) -> Running {
    let mut args = vec!["routes", "apply", "--follow", bundle.to_str().unwrap()];
    args.extend(more);
    Running::start(at.command(&program(), &args))
}

/// Replaces the bundle file atomically.
fn replace_bundle(directory: &Directory, document: &str) -> PathBuf {
    let (next, path) = (directory.write("next", document), directory.path().join("bundle.json"));
    std::fs::rename(next, &path).unwrap();
    path
}
