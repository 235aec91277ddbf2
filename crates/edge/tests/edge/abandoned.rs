//! Tests of fills that lose their readers, and of endless responses.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use crate::support::{Backend, Fetch, PATIENCE, TestEdge, config, content};
use thalweg_edge::{AbandonedFills, Config};
use thalweg_record::Cut;

/// Content length, large enough that its midpoint and its last mebibyte are far apart.
const SIZE: usize = 8 << 20;
const MIB: usize = 1 << 20;
const PIECE: usize = 64 * 1024;
const STORED: &str = "Cache-Control: max-age=60\r\nConnection: close\r\n";

fn edge(backend: &Backend, abandoned_fills: AbandonedFills) -> TestEdge {
    TestEdge::start(Config { abandoned_fills, ..config(backend.address) })
}

/// Starts a fill of `/a` whose only reader leaves after `len` bytes, then sends one more piece to
/// the edge.
async fn abandon_fill(
    backend: &Backend,
    edge: &TestEdge,
    length: Option<usize>,
    len: usize,
) -> (Fetch, usize) {
    let mut records = edge.records.follow();
    let mut client = edge.client().await;
    client.request("GET", "/a", "").await;
    let mut fetch = backend.fetch().await;
    let framing = length.map(|length| format!("Content-Length: {length}\r\n")).unwrap_or_default();
    fetch.send(format!("HTTP/1.1 200 OK\r\n{framing}{STORED}\r\n")).await;
    let (head, ()) = tokio::join!(client.head(), fetch.send(content(0, len)));
    assert!(head.starts_with("HTTP/1.1 200 "));
    if length.is_some() {
        assert!(client.exactly(len).await == content(0, len));
    }
    // The edge detects a reset at its next send.
    socket2::SockRef::from(&client.stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(client);
    fetch.try_send(&content(len, PIECE)).await;
    let record = tokio::time::timeout(PATIENCE, records.recv()).await.unwrap().unwrap();
    assert_eq!(record.cut, Some(Cut::ClientClosed));
    (fetch, len + PIECE)
}

/// Sends content up to offset `to`. If the edge closes the connection, returns the offset reached
/// as an error.
async fn send_on(fetch: &mut Fetch, from: usize, to: usize) -> Result<(), usize> {
    for at in (from..to).step_by(PIECE) {
        if !fetch.try_send(&content(at, PIECE.min(to - at))).await {
            return Err(at);
        }
    }
    Ok(())
}

/// Waits until the stored content of `/a` ends, and returns whether it is complete.
async fn is_stored(edge: &TestEdge, len: usize) -> bool {
    let response = edge.get("/a", "Cache-Control: only-if-cached\r\n").await;
    response.status == 200 && response.whole && response.content == content(0, len)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn abandoned_fill_is_finished_if_worthwhile() {
    let half = AbandonedFills::Half;
    for (policy, length, read) in
        [(half, SIZE, SIZE / 2), (half, 3 * MIB / 2, MIB * 6 / 10), (AbandonedFills::Finish, SIZE, 1000)]
    {
        let backend = Backend::new().await;
        let edge = edge(&backend, policy);
        let (mut fetch, sent) = abandon_fill(&backend, &edge, Some(length), read).await;
        assert_eq!(send_on(&mut fetch, sent, length).await, Ok(()), "{policy:?} {length} {read}");
        assert!(is_stored(&edge, length).await, "{policy:?} {length} {read}");
        edge.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn abandoned_fill_is_otherwise_cancelled_and_next_request_starts_over() {
    for (policy, read) in
        [(AbandonedFills::Half, MIB), (AbandonedFills::Cancel, MIB), (AbandonedFills::Cancel, 7 * MIB)]
    {
        let backend = Backend::new().await;
        let edge = edge(&backend, policy);
        let (mut fetch, sent) = abandon_fill(&backend, &edge, Some(SIZE), read).await;
        // The edge closes the connection without waiting for more data.
        assert!(fetch.client.is_closed().await);
        assert!(send_on(&mut fetch, sent, SIZE).await.is_err(), "{policy:?} {read}");
        assert_eq!(edge.get("/a", "Cache-Control: only-if-cached\r\n").await.status, 504);
        let mut client = edge.client().await;
        client.request("GET", "/a", "").await;
        backend.fetch().await.respond("200 OK", STORED, b"afresh").await;
        assert_eq!(client.response().await.content, b"afresh");
        edge.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn abandoned_fill_without_length_is_bounded() {
    let backend = Backend::new().await;
    let edge = edge(&backend, AbandonedFills::Half);
    let (mut fetch, sent) = abandon_fill(&backend, &edge, None, 1000).await;
    assert_eq!(send_on(&mut fetch, sent, 3 * MIB).await, Ok(()));
    drop(fetch);
    // A request that joins before the end of the content waits for the rest.
    assert!(is_stored(&edge, 3 * MIB).await);
    edge.stop().await;

    let edge = self::edge(&backend, AbandonedFills::Half);
    let (mut fetch, sent) = abandon_fill(&backend, &edge, None, 1000).await;
    assert!(send_on(&mut fetch, sent, 64 * MIB).await.is_err());
    assert_eq!(edge.get("/a", "Cache-Control: only-if-cached\r\n").await.status, 504);
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn remaining_reader_keeps_fill_alive() {
    let backend = Backend::new().await;
    let edge = edge(&backend, AbandonedFills::Cancel);
    let mut stays = edge.client().await;
    stays.request("GET", "/a", "").await;
    let fetching = backend.fetch();
    let mut fetch = fetching.await;
    fetch.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n{STORED}\r\n")).await;
    stays.head().await;
    let mut leaves = edge.client().await;
    leaves.request("GET", "/a", "").await;
    leaves.head().await;
    drop(leaves);
    let (sent, read) = tokio::join!(send_on(&mut fetch, 0, SIZE), stays.exactly(SIZE));
    assert_eq!(sent, Ok(()));
    assert!(read == content(0, SIZE));
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rfc5861_3_background_revalidation_is_finished() {
    let backend = Backend::new().await;
    let edge = edge(&backend, AbandonedFills::Cancel);
    let mut client = edge.client().await;
    client.request("GET", "/a", "").await;
    let fields = "Cache-Control: max-age=10, stale-while-revalidate=60\r\nAge: 20\r\nConnection: close\r\n";
    backend.fetch().await.respond("200 OK", fields, b"old").await;
    assert_eq!(client.response().await.content, b"old");
    client.request("GET", "/a", "").await;
    assert_eq!(client.response().await.content, b"old");
    let mut fetch = backend.fetch().await;
    fetch.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n{STORED}\r\n")).await;
    assert_eq!(send_on(&mut fetch, 0, SIZE).await, Ok(()));
    // A look-up finds the new response once its head is stored.
    let refreshed = async { while !is_stored(&edge, SIZE).await {} };
    tokio::time::timeout(PATIENCE, refreshed).await.expect("the response is stored in time");
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_response_fails_visibly_at_a_quarter_of_memory() {
    const MEMORY: usize = 16 * MIB;
    for with_reader in [true, false] {
        let backend = Backend::new().await;
        let edge = TestEdge::start(Config {
            memory_bytes: MEMORY as u64,
            abandoned_fills: AbandonedFills::Finish,
            ..config(backend.address)
        });
        let mut fetch = if with_reader {
            let mut client = edge.client().await;
            client.request("GET", "/a", "").await;
            let mut fetch = backend.fetch().await;
            fetch.send(format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n{STORED}\r\n")).await;
            let sending = tokio::spawn(async move {
                let chunk = [&b"10000\r\n"[..], &content(0, PIECE), b"\r\n"].concat();
                while fetch.try_send(&chunk).await {}
                fetch
            });
            let response = client.response().await;
            assert!(!response.whole);
            assert!((MEMORY / 4 - 2 * PIECE..=MEMORY / 4).contains(&response.content.len()));
            sending.await.unwrap()
        } else {
            let (mut fetch, sent) = abandon_fill(&backend, &edge, None, 1000).await;
            assert!(send_on(&mut fetch, sent, 64 * MIB).await.is_err());
            fetch
        };
        let mut client = edge.client().await;
        client.request("GET", "/a", "").await;
        fetch = tokio::join!(async { backend.fetch().await }, async { drop(fetch) }).0;
        fetch.respond("200 OK", STORED, b"passed").await;
        let passed = client.response().await;
        assert_eq!(passed.content, b"passed");
        assert!(passed.cache_status().contains("fwd=bypass"), "{}", passed.cache_status());
        edge.stop().await;
    }
}
