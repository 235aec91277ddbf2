//! Congestion control and send option tests: records agree with the kernel's state of the socket.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::getpeername;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use thalweg_edge::Config;
use thalweg_record::{Decider, Lines};
use thalweg_tcp::{congestion, sending};

use crate::support::{Backend, Client, TestEdge, config};

/// Returns the edge's socket for a client connection, accessible because the edge runs in the test
/// process.
pub(crate) fn accepted(client: &Client) -> OwnedFd {
    let wanted = client.stream.local_addr().unwrap();
    let this = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
    fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| {
            let number = entry.unwrap().file_name().to_str()?.parse().ok()?;
            let fd = pidfd_getfd(&this, number, PidfdGetfdFlags::empty()).ok()?;
            let peer = SocketAddr::try_from(getpeername(&fd).ok()??).ok()?;
            (peer == wanted).then_some(fd)
        })
        .next()
        .expect("the edge's end is open in this process")
}

#[tokio::test]
async fn record_has_initial_and_current_congestion_control() {
    let backend = Backend::new().await;
    let system = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        congestion::get(listener.as_fd()).unwrap().to_string()
    };
    let names = congestion::allowed().unwrap().into_iter().map(Some);
    for configured in std::iter::once(None).chain(names) {
        let edge = TestEdge::start(Config { congestion_control: configured, ..config(backend.address) });
        let mut records = edge.records.follow();
        let mut client = edge.client().await;
        client.request("TRACE", "/a", "").await;
        client.response().await;
        let record = records.recv().await.unwrap();
        let tcp = record.tcp.clone().unwrap();
        assert_eq!(tcp.congestion_control, congestion::get(accepted(&client).as_fd()).unwrap().as_str());
        assert_eq!(tcp.congestion_control, configured.map_or(system.clone(), |name| name.to_string()));
        assert_eq!(tcp.congestion_control_start.as_ref(), Some(&system));
        assert_eq!((tcp.decider, &record.lines), (Some(Decider::Default), &Lines::default()));
        edge.stop().await;
    }
}

#[tokio::test]
async fn unsent_limit_applies_to_each_connection() {
    let backend = Backend::new().await;
    for bytes in [None, Some(128 << 10)] {
        let edge = TestEdge::start(Config { tcp_notsent_lowat_bytes: bytes, ..config(backend.address) });
        let mut client = edge.client().await;
        client.request("TRACE", "/a", "").await;
        client.response().await;
        let socket = accepted(&client);
        assert_eq!(sending::notsent_lowat(socket.as_fd()).unwrap(), bytes.unwrap_or(0));
        edge.stop().await;
    }
}

#[tokio::test]
async fn stats_count_congestion_control_refusals() {
    let backend = Backend::new().await;
    let edge =
        TestEdge::start(Config { admin: Some("127.0.0.1:0".parse().unwrap()), ..config(backend.address) });
    let mut admin = edge.admin_client().await;
    admin.request("GET", "/stats", "").await;
    let stats = String::from_utf8(admin.response().await.content).unwrap();
    assert!(stats.contains("\"congestion_control_refused\":0"), "{stats}");
    edge.stop().await;
}
