//! Trailer tests (RFC 9110 §6.5): trailers from the backend and from storage, sent to clients that
//! accept them.

#![allow(clippy::unwrap_used)]

use crate::support::{Backend, Client, TestEdge, field};

const HEAD: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n";
const TRAILER: &str =
    "0\r\nX-Sum: 7\r\nSet-Cookie: a=b\r\nX-Named: 1\r\nX-Hop: 1\r\nContent-Length: 1\r\nAge: 9\r\n\r\n";
const TAKES: &str = "TE: trailers\r\nConnection: TE\r\n";

/// Reads the rest of a chunked response. Returns its trailer section.
async fn end(client: &mut Client) -> String {
    while let Ok(Some(_)) = next_chunk(client).await {}
    client.head().await
}

/// Reads one chunk. Returns `None` for the last chunk, after which the trailer section can be read
/// like a head.
async fn next_chunk(client: &mut Client) -> Result<Option<()>, ()> {
    let mut size = Vec::new();
    while !size.ends_with(b"\r\n") {
        size.extend(client.exactly(1).await);
    }
    let size = usize::from_str_radix(str::from_utf8(&size).unwrap().trim(), 16).unwrap();
    if size == 0 {
        return Ok(None);
    }
    client.exactly(size + 2).await;
    Ok(Some(()))
}

#[tokio::test]
async fn rfc9110_6_5_trailers_are_forwarded_and_stored() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let (mut takes, mut plain) = (edge.client().await, edge.client().await);
    takes.request("GET", "/a", TAKES).await;
    let mut fetch = backend.fetch().await;
    assert_eq!(field(&fetch.request, "te"), Some("trailers"));
    assert_eq!(field(&fetch.request, "connection"), Some("TE"));
    plain.request("GET", "/a", "").await;
    let fields = "Connection: x-hop\r\nCache-Control: max-age=60, private=\"x-named\"\r\n\r\n";
    fetch.send(format!("{HEAD}{fields}")).await;
    fetch.chunk(b"content").await;
    takes.head().await;
    fetch.send(TRAILER).await;
    assert_eq!(
        end(&mut takes).await,
        "X-Sum: 7\r\n\r\n",
        "the client accepts trailers, and only permitted fields are sent"
    );
    let response = plain.response().await;
    assert!(response.whole && response.content == b"content");

    // Later requests are served from storage.
    takes.request("GET", "/a", TAKES).await;
    let hit = takes.head().await;
    assert!(field(&hit, "cache-status").unwrap().contains("hit"), "{hit}");
    assert_eq!((field(&hit, "transfer-encoding"), field(&hit, "content-length")), (Some("chunked"), None));
    assert_eq!(end(&mut takes).await, "X-Sum: 7\r\n\r\n");
    for fields in ["Range: bytes=0-3\r\nTE: trailers\r\n", "TE: gzip\r\n", ""] {
        plain.request("GET", "/a", fields).await;
        let response = plain.response().await;
        assert!(response.whole && response.field("content-length").is_some(), "{fields:?}");
    }
    plain.request("HEAD", "/a", TAKES).await;
    assert_eq!(plain.response_to("HEAD").await.status, 200);
    plain.send(format!("GET /a HTTP/1.0\r\nHost: media.example\r\n{TAKES}\r\n").as_bytes()).await;
    assert_eq!(plain.response().await.content, b"content");
    edge.stop().await;
}

#[tokio::test]
async fn rfc9110_6_5_trailers_of_passed_and_empty_responses_are_forwarded() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let mut client = edge.client().await;
    client.request("GET", "/a", TAKES).await;
    let mut fetch = backend.fetch().await;
    fetch.send(format!("{HEAD}Cache-Control: no-store\r\n\r\n")).await;
    fetch.chunk(b"content").await;
    fetch.send(TRAILER).await;
    client.head().await;
    assert_eq!(end(&mut client).await, "X-Sum: 7\r\nX-Named: 1\r\nX-Hop: 1\r\n\r\n");
    // The response has a trailer but no content.
    client.request("GET", "/b", TAKES).await;
    fetch.next().await;
    fetch.send(format!("{HEAD}Cache-Control: max-age=60\r\n\r\n{TRAILER}")).await;
    client.head().await;
    assert_eq!(end(&mut client).await, "X-Sum: 7\r\nX-Named: 1\r\nX-Hop: 1\r\n\r\n");
    client.request("GET", "/b", TAKES).await;
    client.head().await;
    assert_eq!(end(&mut client).await, "X-Sum: 7\r\nX-Named: 1\r\nX-Hop: 1\r\n\r\n");
    client.request("GET", "/b", "").await;
    let empty = client.response().await;
    assert_eq!((empty.field("content-length"), empty.content.len()), (Some("0"), 0));
    edge.stop().await;
}

#[tokio::test]
async fn oversized_trailer_fails_response() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    for trailer in ["X-Many: 1\r\n".repeat(33), format!("X-Long: {}\r\n", "a".repeat(9000))] {
        let mut client = edge.client().await;
        client.request("GET", "/a", TAKES).await;
        let mut fetch = backend.fetch().await;
        fetch.send(format!("{HEAD}Cache-Control: max-age=60\r\n\r\n")).await;
        fetch.chunk(b"content").await;
        fetch.try_send(format!("0\r\n{trailer}\r\n").as_bytes()).await;
        assert!(!client.response().await.whole);
    }
    edge.stop().await;
}
