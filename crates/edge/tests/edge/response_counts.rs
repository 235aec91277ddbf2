//! Response count tests: each response produces one record, and after a crash the next run reports
//! the number of responses.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use thalweg_edge::{Config, EndedRun, FollowError};

use crate::support::{Backend, TestEdge, config};

const TWO: &[u8] = b"TRACE /1 HTTP/1.1\r\nHost: a\r\n\r\nTRACE /2 HTTP/1.1\r\nHost: a\r\n\r\n";

#[tokio::test]
async fn each_accepted_request_produces_one_record() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let (mut follower, records) = (edge.records.follow(), edge.records.clone());
    let mut statuses = Vec::new();

    // Two pairs of pipelined requests on one connection, which the client closes while it is idle.
    let mut client = edge.client().await;
    for _ in 0..2 {
        client.send(TWO).await;
        assert_eq!([client.response().await.status, client.response().await.status], [405; 2]);
        statuses.extend([405; 2]);
    }
    drop(client);
    // A connection without a request and one with half a request do not count.
    drop(edge.client().await);
    let mut half = edge.client().await;
    half.send(b"GET / HTTP/1.1\r\nHo").await;
    drop(half);
    // A malformed request, a request with too much content, and a request to which the edge
    // responds itself.
    for (request, status) in [
        (&b"GET / HTTP/1.1\r\nHost a\r\n\r\n"[..], 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999\r\nExpect: 100-continue\r\n\r\n", 413),
        (b"PURGE / HTTP/1.1\r\nHost: a\r\n\r\n", 200),
    ] {
        let mut client = edge.client().await;
        client.send(request).await;
        assert_eq!(client.response().await.status, status);
        statuses.push(status);
    }
    // A safe and an unsafe request, both answered by the backend.
    for method in ["GET", "PUT"] {
        let mut client = edge.client().await;
        client.request(method, "/a", "Content-Length: 0\r\n").await;
        backend
            .fetch()
            .await
            .respond("200 OK", "Cache-Control: no-store\r\nConnection: close\r\n", b"a")
            .await;
        assert_eq!(client.response().await.status, 200);
        statuses.push(200);
    }
    // A client disconnects in the middle of a response.
    let mut client = edge.client().await;
    client.request("GET", "/b", "").await;
    let mut fetch = backend.fetch().await;
    fetch.send("HTTP/1.1 200 OK\r\nCache-Control: max-age=9\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    fetch.chunk(b"some").await;
    assert!(client.head().await.starts_with("HTTP/1.1 200"));
    drop(client);
    while fetch.try_send(b"4\r\nmore\r\n").await {}
    statuses.push(200);

    let mut recorded = Vec::new();
    for number in 0..statuses.len() as u64 {
        let record = follower.recv().await.unwrap();
        assert_eq!(record.number, number);
        recorded.push(record.status);
    }
    assert_eq!(recorded, statuses);
    assert_eq!(records.started(), statuses.len() as u64);
    edge.stop().await;
    assert_eq!(follower.recv().await.unwrap_err(), FollowError::Closed);
    assert_eq!((records.total(), records.lost()), (records.started(), 0));
}

#[tokio::test]
async fn response_cut_off_by_stop_is_counted_as_lost() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let (mut follower, records) = (edge.records.follow(), edge.records.clone());
    let mut client = edge.client().await;
    client.send(TWO).await;
    client.request("GET", "/never", "").await;
    let _awaited = backend.fetch().await;
    edge.stop().await;
    let mut numbers = Vec::new();
    while let Ok(record) = follower.recv().await {
        numbers.push(record.number);
    }
    let kept = numbers.len() as u64;
    assert!(numbers.iter().copied().eq(0..kept));
    assert_eq!((records.started(), records.total(), kept, records.lost()), (3, 3, 2, 1));
    assert_eq!(client.response().await.status, 405);
}

/// A directory, removed at the end of the test.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
async fn reconnecting_follower_learns_counts_of_earlier_runs() {
    let directory = Directory(PathBuf::from(format!("/dev/shm/thalweg-edge-{}-begun", std::process::id())));
    let backend = Backend::new().await;
    let start = || {
        let admin = Some((Ipv4Addr::LOCALHOST, 0).into());
        TestEdge::start(Config { admin, state: Some(directory.0.clone()), ..config(backend.address) })
    };
    let mut ended = Vec::new();
    for _ in 0..3 {
        let edge = start();
        let mut client = edge.client().await;
        client.send(TWO).await;
        assert_eq!([client.response().await.status, client.response().await.status], [405; 2]);
        let records = edge.records.clone();
        edge.stop().await;
        ended.push(EndedRun { epoch: records.epoch(), total: 2 });
    }
    let edge = start();
    let epoch = edge.records.epoch();
    assert_eq!(edge.records.ended_from(ended[0].epoch), ended);
    let mut client = edge.client().await;
    client.request("TRACE", "/", "").await;
    assert_eq!(client.response().await.status, 405);

    let expected_events = |ended: &[EndedRun]| {
        let event = |EndedRun { epoch, total }: &EndedRun| format!("event: ended\ndata: {epoch}-{total}\n\n");
        ended.iter().map(event).chain([format!("id: {epoch}-0\n")]).collect::<String>()
    };
    for (last, expected) in [
        (format!("{}-1", ended[0].epoch), expected_events(&ended)),
        (ended[1].epoch.to_string(), expected_events(&ended[1..])),
        (format!("{}-1", ended[2].epoch), expected_events(&ended[2..])),
        (epoch.to_string(), expected_events(&[])),
        (format!("{}-1", ended[0].epoch - 1), expected_events(&[])), // of another edge
    ] {
        let mut follower = edge.admin_client().await;
        follower.request("GET", "/records", &format!("Last-Event-ID: {last}\r\n")).await;
        assert!(follower.head().await.starts_with("HTTP/1.1 200"));
        let mut events = String::new();
        while events.len() < expected.len() {
            events += str::from_utf8(&follower.chunk().await.unwrap().unwrap()).unwrap();
        }
        assert!(events.starts_with(&expected), "after {last}: {events}");
    }
    edge.stop().await;
}
