//! Relay tests: many clients read one fill as its content arrives, and a broken fill fails for all
//! of them.

#![allow(clippy::unwrap_used)]

use crate::support::{Backend, Client, PATIENCE, Response, TestEdge, content};
use tokio::sync::mpsc;

const CLIENTS: usize = 200;
const CHUNK: usize = 40_000;
const HEAD: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nCache-Control: max-age=60\r\n\r\n";

/// Reads chunks and reports the number of bytes read so far.
async fn watch(mut client: Client, seen: mpsc::Sender<usize>) -> Result<usize, usize> {
    let mut bytes = 0;
    loop {
        match client.chunk().await {
            Ok(Some(chunk)) => {
                assert_eq!(chunk, content(bytes, chunk.len()));
                bytes += chunk.len();
                seen.send(bytes).await.unwrap();
            }
            Ok(None) => return Ok(bytes),
            Err(()) => return Err(bytes),
        }
    }
}

/// Waits until all clients have received `bytes` bytes.
async fn all_have(seen: &mut [mpsc::Receiver<usize>], bytes: usize) {
    for client in seen {
        while tokio::time::timeout(PATIENCE, client.recv()).await.expect("data flows").unwrap() < bytes {}
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_client_receives_each_chunk_before_next_is_sent() {
    let backend = Backend::new().await;
    let edge = TestEdge::with_two_threads(&backend);
    let (mut seen, mut watching) = (Vec::new(), Vec::new());
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = edge.client().await;
        client.request("GET", "/segment", "").await;
        clients.push(client);
    }
    let mut fetch = backend.fetch().await;
    fetch.send(HEAD).await;
    fetch.chunk(&content(0, CHUNK)).await;
    for mut client in clients {
        assert!(client.head().await.starts_with("HTTP/1.1 200"));
        let (sender, receiver) = mpsc::channel(64);
        seen.push(receiver);
        watching.push(tokio::spawn(watch(client, sender)));
    }
    all_have(&mut seen, CHUNK).await;

    // A client that joins now gets the content received so far at once.
    let mut late = edge.client().await;
    late.request("GET", "/segment", "").await;
    let head = late.head().await;
    assert!(head.contains("collapsed"), "{head}");
    let (sender, receiver) = mpsc::channel(64);
    seen.push(receiver);
    watching.push(tokio::spawn(watch(late, sender)));
    all_have(&mut seen[CLIENTS..], CHUNK).await;

    for number in 1..4 {
        fetch.chunk(&content(number * CHUNK, CHUNK)).await;
        all_have(&mut seen, (number + 1) * CHUNK).await;
    }
    fetch.send("0\r\n\r\n").await;
    for client in watching {
        assert_eq!(client.await.unwrap(), Ok(4 * CHUNK));
    }
    assert!(!backend.is_asked_again().await, "one fetch serves all clients");
    let hit = edge.get("/segment", "").await;
    assert!(hit.cache_status().contains("hit") && hit.content == content(0, 4 * CHUNK));
    assert_eq!(hit.field("content-length"), Some("160000"));
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_response_fails_for_every_client_and_is_not_stored() {
    let backend = Backend::new().await;
    let edge = TestEdge::with_two_threads(&backend);
    let (mut seen, mut watching) = (Vec::new(), Vec::new());
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = edge.client().await;
        client.request("GET", "/segment", "").await;
        clients.push(client);
    }
    let mut fetch = backend.fetch().await;
    fetch.send(HEAD).await;
    fetch.chunk(&content(0, CHUNK)).await;
    for mut client in clients {
        client.head().await;
        let (sender, receiver) = mpsc::channel(64);
        seen.push(receiver);
        watching.push(tokio::spawn(watch(client, sender)));
    }
    all_have(&mut seen, CHUNK).await;
    drop(fetch);
    for client in watching {
        assert_eq!(client.await.unwrap(), Err(CHUNK), "a failed response must not end cleanly");
    }

    let again = tokio::spawn(async move { (edge.get("/segment", "").await, edge) });
    let mut fetch = backend.fetch().await;
    fetch.respond("200 OK", "Cache-Control: max-age=60\r\n", &content(0, CHUNK)).await;
    let (response, edge) = again.await.unwrap();
    assert_eq!((response.status, response.content), (200, content(0, CHUNK)));
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn truncated_response_with_length_is_never_completed() {
    let backend = Backend::new().await;
    let edge = TestEdge::with_two_threads(&backend);
    let mut client = edge.client().await;
    client.request("GET", "/a", "").await;
    let mut fetch = backend.fetch().await;
    fetch.send("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\nCache-Control: max-age=60\r\n\r\n").await;
    fetch.send(content(0, 60_000)).await;
    client.head().await;
    assert_eq!(client.exactly(60_000).await, content(0, 60_000));
    drop(fetch);
    assert!(client.is_closed().await);
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn range_is_sent_as_soon_as_it_has_arrived() {
    let backend = Backend::new().await;
    let edge = TestEdge::with_two_threads(&backend);
    let mut first = edge.client().await;
    first.request("GET", "/a", "").await;
    let mut fetch = backend.fetch().await;
    fetch.send(HEAD).await;
    fetch.chunk(&content(0, 1000)).await;
    first.head().await;
    assert_eq!(first.chunk().await.unwrap().unwrap(), content(0, 1000));

    let ranged = |response: &Response| (response.status, response.field("content-range").map(str::to_owned));
    let there = edge.get("/a", "Range: bytes=100-199\r\n").await;
    assert_eq!(ranged(&there), (206, Some("bytes 100-199/*".into())));
    assert_eq!(there.content, content(100, 100));

    let mut waiting = edge.client().await;
    waiting.request("GET", "/a", "Range: bytes=900-1099\r\n").await;
    let mut suffix = edge.client().await;
    suffix.request("GET", "/a", "Range: bytes=-10\r\n").await;
    fetch.chunk(&content(1000, 1000)).await;
    let arrived = waiting.response().await;
    assert_eq!(ranged(&arrived), (206, Some("bytes 900-1099/*".into())));
    assert_eq!(arrived.content, content(900, 200));
    fetch.send("0\r\n\r\n").await;
    let end = suffix.response().await;
    assert_eq!(ranged(&end), (206, Some("bytes 1990-1999/2000".into())));
    assert_eq!(end.content, content(1990, 10));
    let beyond = edge.get("/a", "Range: bytes=2000-\r\n").await;
    assert_eq!(ranged(&beyond), (416, Some("bytes */2000".into())));
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn range_of_known_length_gets_head_before_its_bytes_arrive() {
    let backend = Backend::new().await;
    let edge = TestEdge::with_two_threads(&backend);
    let mut client = edge.client().await;
    client.request("GET", "/a", "Range: bytes=50000-\r\n").await;
    let mut fetch = backend.fetch().await;
    assert!(!fetch.request.to_lowercase().contains("range"), "the whole response is fetched");
    fetch.send("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\nCache-Control: max-age=60\r\n\r\n").await;
    let head = client.head().await;
    assert!(head.contains("206") && head.contains("bytes 50000-99999/100000"), "{head}");
    fetch.send(content(0, 100_000)).await;
    assert_eq!(client.exactly(50_000).await, content(50_000, 50_000));
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fill_continues_after_client_leaves() {
    let backend = Backend::new().await;
    let edge = TestEdge::with_two_threads(&backend);
    let mut client = edge.client().await;
    client.request("GET", "/a", "").await;
    let mut fetch = backend.fetch().await;
    fetch.send(HEAD).await;
    fetch.chunk(&content(0, 1000)).await;
    client.head().await;
    drop(client);
    let mut joined = edge.client().await;
    joined.request("GET", "/a", "").await;
    joined.head().await;
    fetch.chunk(&content(1000, 1000)).await;
    fetch.send("0\r\n\r\n").await;
    let mut all = Vec::new();
    while let Ok(Some(chunk)) = joined.chunk().await {
        all.extend(chunk);
    }
    assert_eq!(all, content(0, 2000));
    edge.stop().await;
}
