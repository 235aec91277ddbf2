//! Tests of interrupted fills that resume with the missing content (RFC 9110 §14.2, §13.1.5).

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use crate::support::{Backend, Client, Fetch, TestEdge, config, content, field};
use thalweg_edge::{BackendUrl, Config, Timeouts};

const SIZE: usize = 300_000;
const STORED: &str = "Cache-Control: max-age=60\r\nETag: \"v1\"\r\n";

/// Starts a fill of `/a`. Returns a client that has received the head and `len` bytes, and the
/// backend side of the fetch.
async fn start_fill(backend: &Backend, edge: &TestEdge, fields: &str, len: usize) -> (Client, Fetch) {
    let mut client = edge.client().await;
    client.request("GET", "/a", "Accept-Language: de\r\n").await;
    let mut fetch = backend.fetch().await;
    fetch.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n{fields}\r\n")).await;
    fetch.send(content(0, len)).await;
    client.head().await;
    assert_eq!(client.exactly(len).await, content(0, len));
    (client, fetch)
}

/// Accepts the next fetch, which must request the content from `from` on.
async fn rest(backend: &Backend, from: usize) -> Fetch {
    let fetch = backend.fetch().await;
    let of = |name| field(&fetch.request, name);
    assert_eq!(of("range"), Some(&*format!("bytes={from}-")));
    assert_eq!(
        (of("if-range"), of("if-none-match"), of("accept-language")),
        (Some("\"v1\""), None, Some("de"))
    );
    fetch
}

/// Responds with the content from `from` on, but sends only `len` bytes.
async fn send_rest(fetch: &mut Fetch, from: usize, len: usize) {
    let head = format!(
        "HTTP/1.1 206 Partial Content\r\nContent-Length: {}\r\nContent-Range: bytes {from}-{}/{SIZE}\r\n\
         ETag: \"v1\"\r\n\r\n",
        SIZE - from,
        SIZE - 1
    );
    fetch.send(head).await;
    fetch.send(content(from, len)).await;
}

#[tokio::test]
async fn rfc9110_14_2_interruption_is_invisible_to_readers() {
    for at in [0, 1, 65_536, SIZE - 1] {
        let backend = Backend::new().await;
        let edge = TestEdge::before(&backend);
        let (mut client, fetch) = start_fill(&backend, &edge, STORED, at).await;
        let mut joined = edge.client().await;
        joined.request("GET", "/a", "Range: bytes=100-\r\nAccept-Language: de\r\n").await;
        assert!(joined.head().await.starts_with("HTTP/1.1 206 "));
        drop(fetch);
        send_rest(&mut rest(&backend, at).await, at, SIZE - at).await;
        assert!(client.exactly(SIZE - at).await == content(at, SIZE - at), "{at}");
        assert!(joined.exactly(SIZE - 100).await == content(100, SIZE - 100), "{at}");
        let hit = edge.get("/a", "").await;
        assert!(hit.whole && hit.content == content(0, SIZE) && hit.cache_status().contains("; hit"));
        edge.stop().await;
    }
}

#[tokio::test]
async fn stalled_backend_is_replaced_by_another() {
    let (first, second) = (Backend::new().await, Backend::new().await);
    let timeouts = Timeouts { between_bytes: Duration::from_millis(200), ..Timeouts::default() };
    let backends = vec![BackendUrl::at(first.address), BackendUrl::at(second.address)];
    let edge = TestEdge::start(Config { timeouts, backends, ..config(first.address) });
    let (mut client, _silent) = start_fill(&first, &edge, STORED, 1000).await;
    send_rest(&mut rest(&second, 1000).await, 1000, SIZE - 1000).await;
    assert!(client.exactly(SIZE - 1000).await == content(1000, SIZE - 1000));
    edge.stop().await;
}

#[tokio::test]
async fn interrupted_fill_is_resumed_a_limited_number_of_times() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let (mut client, fetch) = start_fill(&backend, &edge, STORED, 1000).await;
    drop(fetch);
    for number in 1..=3 {
        let mut fetch = rest(&backend, number * 1000).await;
        send_rest(&mut fetch, number * 1000, 1000).await;
        assert!(client.exactly(1000).await == content(number * 1000, 1000));
    }
    assert!(client.is_closed().await, "the client can see the failure");
    assert!(!backend.is_asked_again().await);
    // The remaining content arrives in two parts, with a failed attempt in between.
    let (mut client, fetch) = start_fill(&backend, &edge, STORED, 1000).await;
    drop(fetch);
    let mut fetch = rest(&backend, 1000).await;
    let part = format!("Content-Range: bytes 1000-1999/{SIZE}\r\nETag: \"v1\"\r\n");
    fetch.respond("206 Partial Content", &part, &content(1000, 1000)).await;
    drop(rest(&backend, 2000).await);
    send_rest(&mut rest(&backend, 2000).await, 2000, SIZE - 2000).await;
    assert!(client.exactly(SIZE - 1000).await == content(1000, SIZE - 1000));
    edge.stop().await;
}

#[tokio::test]
async fn rfc9110_13_1_5_different_content_is_not_accepted_as_rest() {
    let range =
        |from: usize, length: usize| format!("Content-Range: bytes {from}-{}/{length}\r\n", length - 1);
    let cases = [
        ("200 OK", "ETag: \"v1\"\r\n".to_owned()),
        ("200 OK", format!("ETag: \"v1\"\r\n{}", range(1000, SIZE))),
        ("206 Partial Content", format!("ETag: \"v2\"\r\n{}", range(1000, SIZE))),
        ("206 Partial Content", format!("ETag: W/\"v1\"\r\n{}", range(1000, SIZE))),
        ("206 Partial Content", range(1000, SIZE)),
        ("206 Partial Content", format!("ETag: \"v1\"\r\n{}", range(999, SIZE))),
        ("206 Partial Content", format!("ETag: \"v1\"\r\n{}", range(1001, SIZE))),
        ("206 Partial Content", format!("ETag: \"v1\"\r\n{}", range(1000, SIZE + 1))),
        ("206 Partial Content", "ETag: \"v1\"\r\n".to_owned()),
        ("416 Range Not Satisfiable", format!("ETag: \"v1\"\r\nContent-Range: bytes */{SIZE}\r\n")),
        ("503 Service Unavailable", String::new()),
    ];
    for (status, fields) in cases {
        let backend = Backend::new().await;
        let edge = TestEdge::before(&backend);
        let (mut client, fetch) = start_fill(&backend, &edge, STORED, 1000).await;
        drop(fetch);
        rest(&backend, 1000).await.respond(status, &fields, &content(1000, SIZE - 1000)).await;
        assert!(client.is_closed().await, "{status} {fields}");
        assert!(!backend.is_asked_again().await);
        let gone = edge.get("/a", "Cache-Control: only-if-cached\r\n").await;
        assert_eq!(gone.status, 504, "{status} {fields}");
        edge.stop().await;
    }
}

#[tokio::test]
async fn overlong_rest_is_not_accepted() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let (mut client, fetch) = start_fill(&backend, &edge, STORED, SIZE - 10).await;
    drop(fetch);
    let from = SIZE - 10;
    let mut fetch = rest(&backend, from).await;
    let head = "HTTP/1.1 206 Partial Content\r\nTransfer-Encoding: chunked\r\nETag: \"v1\"\r\n";
    fetch.send(format!("{head}Content-Range: bytes {from}-{}/{SIZE}\r\n\r\n", SIZE - 1)).await;
    fetch.chunk(&content(from, 11)).await;
    assert!(client.is_closed().await);
    edge.stop().await;
}

#[tokio::test]
async fn fill_that_cannot_be_resumed_fails_visibly_and_immediately() {
    for fields in [
        "Cache-Control: max-age=60\r\nETag: W/\"v1\"\r\n",
        "Cache-Control: max-age=60\r\n",
        "Cache-Control: max-age=60\r\nETag: \"v1\"\r\nAccept-Ranges: none\r\n",
        "Cache-Control: no-store\r\nETag: \"v1\"\r\n",
    ] {
        let backend = Backend::new().await;
        let edge = TestEdge::before(&backend);
        let (mut client, fetch) = start_fill(&backend, &edge, fields, 1000).await;
        drop(fetch);
        assert!(client.is_closed().await, "{fields}");
        assert!(!backend.is_asked_again().await, "{fields}");
        edge.stop().await;
    }
}
