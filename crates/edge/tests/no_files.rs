//! Startup failure test: a worker that cannot start. Runs in its own process, because the limit on
//! open files applies to the whole process.

#![allow(clippy::unwrap_used)]

#[path = "edge/support/mod.rs"]
mod support;

use std::future::pending;
use std::net::Ipv4Addr;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::{PATIENCE, config};
use thalweg_edge::Edge;

#[tokio::test]
async fn edge_exits_with_error_of_worker_that_cannot_start() {
    let edge = Edge::bind(config((Ipv4Addr::LOCALHOST, 9).into())).unwrap();
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..limit }).unwrap();
    let ended = tokio::time::timeout(PATIENCE, edge.run(pending())).await;
    setrlimit(Resource::Nofile, limit).unwrap();
    let error = ended.expect("an edge without workers must end").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::MFILE.raw_os_error()));
}
