//! Interim response tests (RFC 9110 §15.2, RFC 8297).

#![allow(clippy::unwrap_used)]

use crate::support::{Backend, TestEdge};

const HINTS: &str = "HTTP/1.1 103 Early Hints\r\nLink: </b>; rel=preload\r\nVia: 1.1 far\r\n\
                     Connection: x-private\r\nX-Private: a\r\nKeep-Alive: timeout=5\r\n\r\n";

#[tokio::test]
async fn rfc8297_2_hints_are_sent_immediately_to_client_that_caused_fetch() {
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
    assert_eq!(
        (response.status, response.content),
        (200, b"content".to_vec()),
        "a joining client gets no interim response"
    );

    // Validations and passes also forward interim responses.
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
async fn rfc9110_15_2_http_1_0_client_gets_no_interim_response() {
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
async fn interim_responses_are_limited_and_protocol_switch_is_refused() {
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
