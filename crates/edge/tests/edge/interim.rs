//! Interim responses (RFC 9110 §15.2, RFC 8297), over real sockets.

#![allow(clippy::unwrap_used)]

use crate::support::{Backend, TestEdge};

const HINTS: &str = "HTTP/1.1 103 Early Hints\r\nLink: </b>; rel=preload\r\nVia: 1.1 far\r\n\
                     Connection: x-private\r\nX-Private: a\r\nKeep-Alive: timeout=5\r\n\r\n";

#[tokio::test]
async fn rfc8297_2_hints_go_at_once_to_the_client_that_caused_the_fetch() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let mut first = edge.client().await;
    first.request("GET", "/a", "").await;
    let mut fetch = backend.fetch().await;
    let mut joined = edge.client().await;
    joined.request("GET", "/a", "").await;
    fetch.send(format!("HTTP/1.1 100 Continue\r\n\r\n{HINTS}")).await;
    let expected =
        "HTTP/1.1 103 Early Hints\r\nLink: </b>; rel=preload\r\nVia: 1.1 far\r\nVia: 1.1 thalweg\r\n\r\n";
    assert_eq!(first.head().await, expected);
    fetch.send("HTTP/1.1 199 \r\nX-Other: 1\r\n\r\n").await;
    assert!(first.head().await.starts_with("HTTP/1.1 199 \r\nX-Other: 1\r\n"));
    fetch.respond("200 OK", "Cache-Control: max-age=60\r\nETag: \"v1\"\r\n", b"content").await;
    assert_eq!(first.response().await.content, b"content");
    let response = joined.response().await;
    assert_eq!((response.status, response.content), (200, b"content".to_vec()), "nothing before it");

    // A validation, and a request that is passed.
    first.request("GET", "/a", "Cache-Control: no-cache\r\n").await;
    fetch.next().await;
    fetch.send(HINTS).await;
    assert_eq!(first.head().await, expected);
    fetch.send("HTTP/1.1 304 Not Modified\r\nETag: \"v1\"\r\n\r\n").await;
    assert_eq!(first.response().await.content, b"content");
    first.request("DELETE", "/a", "").await;
    fetch.next().await;
    fetch.send(HINTS).await;
    assert_eq!(first.head().await, expected);
    fetch.respond("204 No Content", "", b"").await;
    assert_eq!(first.response().await.status, 204);
    edge.stop().await;
}

#[tokio::test]
async fn rfc9110_15_2_a_client_of_http_1_0_gets_none() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let mut client = edge.client().await;
    client.send(b"GET /a HTTP/1.0\r\nHost: media.example\r\n\r\n").await;
    let mut fetch = backend.fetch().await;
    fetch.send(HINTS).await;
    fetch.respond("200 OK", "", b"content").await;
    assert_eq!(client.response().await.content, b"content");
    edge.stop().await;
}

#[tokio::test]
async fn their_number_is_bounded_and_a_switch_of_protocols_is_refused() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let mut client = edge.client().await;
    client.request("GET", "/a", "Connection: upgrade\r\nUpgrade: other\r\n").await;
    let mut fetch = backend.fetch().await;
    assert!(!fetch.request.to_lowercase().contains("upgrade"), "{}", fetch.request);
    fetch.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: other\r\n\r\n").await;
    assert_eq!(client.response().await.status, 502);
    let mut client = edge.client().await;
    client.request("GET", "/a", "").await;
    let mut fetch = backend.fetch().await;
    fetch.send(HINTS.repeat(9)).await;
    for _ in 0..8 {
        assert!(client.head().await.starts_with("HTTP/1.1 103 "));
    }
    assert_eq!(client.response().await.status, 502);
    edge.stop().await;
}
