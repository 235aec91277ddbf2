//! State directory tests: the default directory is private, locked by one edge, and optional.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::program::{Directory, Running, thalweg};
use rustix::process::Signal;

/// Starts an edge in `directory`.
fn edge(directory: &Directory) -> Running {
    let args = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--backend", "http://127.0.0.1:1"];
    let mut command = thalweg(&[&["edge"], &args[..]].concat());
    command.current_dir(directory.path());
    Running::start(command)
}

#[test]
fn state_directory_is_created_and_locked_by_one_edge() {
    let directory = Directory::new();
    let mut first = edge(&directory);
    first.listening("edge");
    let state = directory.path().join("thalweg-edge");
    assert_eq!(fs::metadata(&state).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::read_dir(&state).unwrap().count(), 1);

    let mut second = edge(&directory);
    second.err_line_with("no state directory");
    second.listening("edge");
    assert_eq!(fs::read_dir(&state).unwrap().count(), 1);
    assert_eq!((first.stop(Signal::TERM), second.stop(Signal::TERM)), (Some(0), Some(0)));

    edge(&directory).listening("edge");
    assert_eq!(fs::read_dir(&state).unwrap().count(), 1, "a restart must not add files");
}

#[test]
fn edge_without_state_directory_warns_and_serves() {
    let directory = Directory::new();
    directory.write("thalweg-edge", "in the way");
    let mut edge = edge(&directory);
    edge.err_line_with("records not yet sent when the edge crashes are not counted");
    edge.listening("edge");
    edge.listening("admin");
    assert_eq!(edge.stop(Signal::TERM), Some(0));
}
