//! Shutdown tests: open record streams and idle connections.

#![allow(clippy::unwrap_used)]

use std::net::Ipv4Addr;

use crate::support::{Backend, Client, PATIENCE, TestEdge, config};
use thalweg_edge::{Config, Edge};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

#[tokio::test]
async fn record_follower_does_not_delay_stop_and_gets_the_last_record() {
    let backend = Backend::new().await;
    let admin = (Ipv4Addr::LOCALHOST, 0).into();
    let edge = Edge::bind(Config { admin: Some(admin), ..config(backend.address) }).unwrap();
    let (address, admin, records) = (edge.local_addr(), edge.admin_addr().unwrap(), edge.records());
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(edge.run(async {
        let _ = stopped.await;
    }));
    let mut follower = Client::of_admin(admin).await;
    follower.request("GET", "/records", "").await;
    assert!(follower.head().await.starts_with("HTTP/1.1 200"));
    let mut idle = Client::of_admin(admin).await;
    idle.request("GET", "/stats", "").await;
    assert_eq!(idle.response().await.status, 200);

    let mut client = Client::new(TcpStream::connect(address).await.unwrap());
    client.request("TRACE", "/a", "").await;
    assert_eq!(client.response().await.status, 405);
    stop.send(()).unwrap();
    tokio::time::timeout(PATIENCE, running).await.expect("the edge stops in time").unwrap().unwrap();

    let record = follower.chunk().await.unwrap().expect("the record is sent before the end");
    assert!(String::from_utf8(record).unwrap().contains("\"status\":405"));
    let end = follower.chunk().await.unwrap().expect("an end event follows the record");
    assert_eq!(String::from_utf8(end).unwrap(), format!("event: end\ndata: {}-1\n\n", records.epoch()));
    assert_eq!(follower.chunk().await, Ok(None), "the stream ends cleanly");
    assert!(follower.is_closed().await && idle.is_closed().await);
    assert_eq!(records.follow().recv().await.unwrap_err(), thalweg_edge::FollowError::Closed);
}

#[tokio::test]
async fn stop_closes_idle_connections_immediately() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let mut idle = edge.client().await;
    idle.request("TRACE", "/a", "").await;
    assert_eq!(idle.response().await.status, 405);
    edge.stop().await;
    assert!(idle.is_closed().await);
}
