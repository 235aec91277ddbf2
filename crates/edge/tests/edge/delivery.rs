//! Delivery tests: the bytes and times that a record reports as acknowledged, compared with what
//! the client read and when.

#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use socket2::SockRef;
use thalweg_edge::Follower;
use thalweg_record::{Cut, Delivery, ResponseRecord};
use tokio::net::TcpSocket;

use crate::policy;
use crate::support::{Backend, Client, PATIENCE, Response, TestEdge, content};

/// Content length that the kernel accepts at once even if the client does not read.
const LENGTH: usize = 600_000;
/// Time for which a client does not read.
const PAUSE: Duration = Duration::from_millis(150);

/// Stores `/a`; follows the records of later responses.
async fn warm(backend: &Backend, edge: &TestEdge, size: usize) -> Follower {
    let mut records = edge.records.follow();
    let mut client = edge.client().await;
    client.request("GET", "/a", "").await;
    let mut fetch = backend.fetch().await;
    fetch.respond("200 OK", "Cache-Control: max-age=60\r\nConnection: close\r\n", &content(0, size)).await;
    assert!(client.response().await.content == content(0, size), "wrong content");
    drop(client);
    records.recv().await.unwrap();
    records
}

/// Connects a client that has a typical Internet MSS, and delays acknowledgements like an
/// established connection.
async fn delaying_client(edge: &TestEdge) -> Client {
    let socket = TcpSocket::new_v4().unwrap();
    SockRef::from(&socket).set_tcp_mss(1_448).unwrap();
    let stream = socket.connect(edge.address).await.unwrap();
    rustix::net::sockopt::set_tcp_quickack(&stream, false).unwrap();
    Client::new(stream)
}

/// Connects a client with a small receive buffer.
async fn slow_client(edge: &TestEdge) -> Client {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    Client::new(socket.connect(edge.address).await.unwrap())
}

fn delivery(record: &ResponseRecord) -> &Delivery {
    record.delivery.as_ref().unwrap_or_else(|| panic!("no delivery: {record:?}"))
}

#[tokio::test]
async fn acknowledgement_is_timed_by_the_client_and_not_by_the_write() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let mut records = warm(&backend, &edge, LENGTH).await;
    for _ in 0..3 {
        let mut client = slow_client(&edge).await;
        let requested = Instant::now();
        client.request("GET", "/a", "").await;
        tokio::time::sleep(PAUSE).await;
        assert!(client.response().await.content == content(0, LENGTH), "wrong content");
        let read_us = requested.elapsed().as_micros() as u64;
        let record = records.recv().await.unwrap();
        let delivery = delivery(&record);
        let acked_us = delivery.acked_us.unwrap();
        assert!(u64::try_from(PAUSE.as_micros()).unwrap() <= acked_us, "{record:?}");
        // The client may delay its acknowledgement by up to 40 ms. Another 5 ms are allowed for
        // scheduling.
        assert!(acked_us <= read_us + 45_000, "{read_us} us, {record:?}");
        assert_eq!(delivery.acked_bytes, LENGTH as u64);
        // The time is the client's, not the network's. The kernel counts it in ticks of up to 10
        // ms.
        let (busy_us, limited_us) = (delivery.busy_us.unwrap(), delivery.rwnd_limited_us.unwrap());
        assert!(limited_us + 20_000 >= 150_000, "{record:?}");
        assert!(busy_us + limited_us <= acked_us && busy_us < limited_us, "{record:?}");
        assert!(!delivery.is_source_limited && delivery.testable_bytes_per_s.is_some());
    }
    edge.stop().await;
}

/// The content is one packet more than the initial window. The packet arrives alone, so the client
/// waits for another one before it acknowledges: 40 ms, as long as the round trip is short.
#[tokio::test]
async fn delay_of_the_last_acknowledgement_is_not_measured() {
    const DELAY_US: u64 = 40_000;
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let mut records = warm(&backend, &edge, 14_500).await;
    let mut fastest_us = u64::MAX;
    // Another process may hold up a round.
    for _ in 0..5 {
        let mut client = delaying_client(&edge).await;
        client.request("GET", "/a", "").await;
        assert!(client.response().await.content == content(0, 14_500), "wrong content");
        tokio::time::sleep(PAUSE).await;
        drop(client);
        let record = records.recv().await.unwrap();
        let delivery = delivery(&record);
        assert_eq!(delivery.acked_bytes, 14_500);
        let acked_us = delivery.acked_us.unwrap();
        assert!(delivery.busy_us.unwrap() + record.ttfb_us.unwrap() <= acked_us + 1, "{record:?}");
        fastest_us = fastest_us.min(acked_us);
    }
    assert!(fastest_us < DELAY_US, "{fastest_us} us");
    edge.stop().await;
}

#[tokio::test]
async fn policy_reads_the_rates_of_the_response_before() {
    let backend = Backend::new().await;
    let edge = policy::edge(
        &backend,
        "sub vcl_deliver {
            set resp.http.Goodput = client.socket.goodput;
            set resp.http.Testable = client.socket.testable_rate;
        }",
    );
    // Small enough for any receive window.
    let mut records = warm(&backend, &edge, 60_000).await;
    let mut client = edge.client().await;
    let rates = |response: &Response| {
        ["goodput", "testable"].map(|name| response.field(name).unwrap().parse::<u64>().unwrap())
    };
    client.request("GET", "/a", "").await;
    assert_eq!(rates(&client.response().await), [0, 0]);
    tokio::time::sleep(PAUSE).await;
    client.request("GET", "/a", "Range: bytes=0-9\r\n").await;
    let [goodput, testable] = rates(&client.response().await);
    let record = records.recv().await.unwrap();
    assert_eq!(Some(goodput), record.goodput_bytes_per_s(), "{record:?}");
    assert_eq!(Some(testable), delivery(&record).testable_bytes_per_s);
    edge.stop().await;
}

/// A single range and multiple ranges, each of which ends before the stored content does.
#[tokio::test]
async fn ranges_are_acknowledged_to_their_end() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let mut records = warm(&backend, &edge, LENGTH).await;
    for range in ["bytes=0-99999", "bytes=1000-150999", "bytes=0-29999,100000-139999"] {
        let mut client = edge.client().await;
        client.request("GET", "/a", &format!("Range: {range}\r\n")).await;
        assert_eq!(client.response().await.status, 206);
        drop(client);
        let record = tokio::time::timeout(PATIENCE, records.recv()).await.unwrap().unwrap();
        assert!(delivery(&record).acked_us.is_some(), "{range}: {record:?}");
    }
    edge.stop().await;
}

/// Each response has 100,000 bytes and a head.
#[tokio::test]
async fn one_response_per_megabyte_is_measured() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let mut records = warm(&backend, &edge, 100_000).await;
    let mut client = edge.client().await;
    for _ in 0..40 {
        client.request("GET", "/a", "").await;
        assert_eq!(client.response().await.content.len(), 100_000);
    }
    drop(client);
    let mut measured = Vec::new();
    for at in 0..40 {
        if records.recv().await.unwrap().delivery.is_some() {
            measured.push(at);
        }
    }
    assert_eq!(measured, [0, 10, 20, 30]);
    edge.stop().await;
}

#[tokio::test]
async fn small_response_is_not_measured() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let mut records = warm(&backend, &edge, 9_999).await;
    assert_eq!(edge.get("/a", "").await.status, 200);
    assert_eq!(records.recv().await.unwrap().delivery, None);
    edge.stop().await;
}

/// A slow source must not count as a slow network: the response takes longer than its busy time.
#[tokio::test]
async fn response_that_waits_for_content_is_source_limited() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let mut records = edge.records.follow();
    let mut client = edge.client().await;
    client.request("GET", "/live", "").await;
    let mut fetch = backend.fetch().await;
    fetch.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nCache-Control: max-age=60\r\n\r\n").await;
    client.head().await;
    for _ in 0..3 {
        fetch.chunk(&content(0, 20_000)).await;
        tokio::time::sleep(PAUSE).await;
    }
    fetch.send("0\r\n\r\n").await;
    let record = records.recv().await.unwrap();
    let delivery = delivery(&record);
    assert!(delivery.is_source_limited, "{record:?}");
    assert!(delivery.busy_us.unwrap() < record.written_us, "{record:?}");
    drop(client);
    edge.stop().await;
}

#[tokio::test]
async fn bytes_that_a_leaving_client_acknowledged_are_counted() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let mut records = warm(&backend, &edge, LENGTH).await;
    let mut client = slow_client(&edge).await;
    client.request("GET", "/a", "").await;
    client.head().await;
    client.exactly(100_000).await;
    drop(client);
    let record = records.recv().await.unwrap();
    let delivery = delivery(&record);
    assert_eq!(delivery.acked_us, None, "{record:?}");
    assert!(record.cut.is_none_or(|cut| cut == Cut::ClientClosed));
    // The client's kernel may delay its last acknowledgement.
    assert!((50_000..LENGTH as u64).contains(&delivery.acked_bytes), "{record:?}");
    assert!((delivery.acked_bytes..=LENGTH as u64).contains(&record.bytes), "{record:?}");
    edge.stop().await;
}

#[tokio::test]
async fn pipelined_responses_share_the_time_of_their_delivery() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let mut records = warm(&backend, &edge, 100_000).await;
    let mut client = slow_client(&edge).await;
    client.send("GET /a HTTP/1.1\r\nHost: media.example\r\n\r\n".repeat(3).as_bytes()).await;
    let sent = Instant::now();
    tokio::time::sleep(PAUSE).await;
    for _ in 0..3 {
        assert!(client.response().await.content == content(0, 100_000), "wrong content");
    }
    let read_us = sent.elapsed().as_micros() as u64;
    drop(client);
    let (mut busy_us, mut testable) = (0, Vec::new());
    for _ in 0..3 {
        let record = records.recv().await.unwrap();
        let delivery = delivery(&record);
        busy_us += delivery.busy_us.unwrap() + delivery.rwnd_limited_us.unwrap_or(0);
        testable.push(delivery.testable_bytes_per_s.is_some());
    }
    assert!(busy_us >= 100_000, "{busy_us} us");
    // They are judged together.
    assert_eq!(testable, [false, false, true]);
    assert!(busy_us <= read_us + 60_000, "{busy_us} us of {read_us} us");
    edge.stop().await;
}
