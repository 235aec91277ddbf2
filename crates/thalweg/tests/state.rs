//! The edge's state directory as it is without a word: private, for one edge, and nothing that the edge cannot do without.
#![allow(clippy::unwrap_used)]

mod program;

use std::fs;
use std::os::unix::fs::PermissionsExt;

use program::{Directory, Running, thalweg};
use rustix::process::Signal;

/// An edge that is started in a directory.
fn edge(directory: &Directory) -> Running {
    let args = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--backend", "http://127.0.0.1:1"];
    let mut command = thalweg(&[&["edge"], &args[..]].concat());
    command.current_dir(directory.path());
    Running::start(command)
}

#[test]
fn it_is_made_where_the_edge_starts_and_is_for_one() {
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
    assert_eq!(fs::read_dir(&state).unwrap().count(), 1, "the first had nothing to tell");
}

#[test]
fn an_edge_that_cannot_have_it_says_so_and_serves() {
    let directory = Directory::new();
    directory.write("thalweg-edge", "in the way");
    let mut edge = edge(&directory);
    edge.err_line_with("if this edge is killed, what it had not told is not counted");
    edge.listening("edge");
    edge.listening("admin");
    assert_eq!(edge.stop(Signal::TERM), Some(0));
}
