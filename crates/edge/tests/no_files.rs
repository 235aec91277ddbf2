//! A worker that cannot go on. Alone in its process: the limit of open files is the whole process's.

#![allow(clippy::unwrap_used)]

#[path = "edge/support/mod.rs"]
mod support;

use std::future::pending;
use std::net::Ipv4Addr;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::{PATIENCE, config};
use thalweg_edge::Edge;

#[tokio::test]
async fn a_worker_without_a_runtime_ends_the_edge_with_its_error() {
    let edge = Edge::bind(config((Ipv4Addr::LOCALHOST, 9).into())).unwrap();
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..limit }).unwrap();
    let ended = tokio::time::timeout(PATIENCE, edge.run(pending())).await;
    setrlimit(Resource::Nofile, limit).unwrap();
    let error = ended.expect("an edge that serves nobody goes on").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::MFILE.raw_os_error()));
}
