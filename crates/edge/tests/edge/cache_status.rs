//! `Cache-Status` tests (RFC 9211): why a request was forwarded, the backend's status, and whether
//! the response was stored.

#![allow(clippy::unwrap_used)]

use crate::support::{Backend, Client, Response, TestEdge, config, field};
use thalweg_edge::Config;
use tokio::task::JoinHandle;

fn get(edge: &TestEdge, fields: &'static str) -> JoinHandle<Response> {
    let address = edge.address;
    tokio::spawn(async move {
        let mut client = Client::new(tokio::net::TcpStream::connect(address).await.unwrap());
        client.request("GET", "/a", fields).await;
        client.response().await
    })
}

/// Makes a request join the fetch of `/a` in progress. The edge has only one thread, so a response
/// to a later request shows that this one has joined.
async fn wait_behind(edge: &TestEdge, client: &mut Client) {
    client.request("GET", "/a", "").await;
    assert_eq!(edge.get("/b", "Cache-Control: only-if-cached\r\n").await.status, 504);
}

#[tokio::test]
async fn rfc9211_2_2_missing_variant_is_a_vary_miss() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let first = get(&edge, "X-A: 1\r\n");
    let mut fetch = backend.fetch().await;
    let fields = "Cache-Control: max-age=60\r\nVary: X-A\r\n";
    fetch.respond("200 OK", fields, b"1").await;
    assert_eq!(
        first.await.unwrap().cache_status_from(60),
        "thalweg; fwd=uri-miss; fwd-status=200; ttl=60; stored"
    );
    let other = get(&edge, "X-A: 2\r\n");
    fetch.next().await;
    fetch.respond("200 OK", fields, b"2").await;
    assert_eq!(
        other.await.unwrap().cache_status_from(60),
        "thalweg; fwd=vary-miss; fwd-status=200; ttl=60; stored"
    );
    // Purged variants are ignored.
    let mut client = edge.client().await;
    client.request("PURGE", "/a", "").await;
    client.response().await;
    let anew = get(&edge, "X-A: 3\r\n");
    fetch.next().await;
    fetch.respond("200 OK", fields, b"3").await;
    assert!(anew.await.unwrap().cache_status().contains("fwd=uri-miss"));
    edge.stop().await;
}

#[tokio::test]
async fn rfc9211_2_3_refused_slice_reports_its_own_status() {
    let backend = Backend::new().await;
    let edge = TestEdge::start(Config { slice_bytes: 100_000, ..config(backend.address) });
    let seek = get(&edge, "Range: bytes=400000-400009\r\n");
    let mut fetch = backend.fetch().await;
    let head = "HTTP/1.1 206 Partial Content\r\nContent-Length: 100000\r\nETag: \"v1\"\r\n\
                Content-Range: bytes 400000-499999/1000000\r\nCache-Control: max-age=60\r\n\r\n";
    fetch.send([head.as_bytes(), &[0; 100_000]].concat()).await;
    assert_eq!(
        seek.await.unwrap().cache_status_from(60),
        "thalweg; fwd=uri-miss; fwd-status=206; ttl=60; stored"
    );
    let next = get(&edge, "Range: bytes=500000-500009\r\n");
    fetch.next().await;
    fetch.respond("503 Service Unavailable", "", b"busy").await;
    let next = next.await.unwrap();
    assert_eq!(next.status, 502);
    assert!(
        next.cache_status().starts_with("thalweg; fwd=partial; fwd-status=503; detail="),
        "{}",
        next.head
    );
    edge.stop().await;
}

#[tokio::test]
async fn rfc9211_2_3_whole_response_to_slice_request_reports_own_status() {
    let backend = Backend::new().await;
    let edge = TestEdge::start(Config { slice_bytes: 100_000, ..config(backend.address) });
    // The client gets a 304. No slice is read, so the whole response's status must be reported.
    let seek = get(&edge, "Range: bytes=400000-400009\r\nIf-None-Match: \"v1\"\r\n");
    let mut fetch = backend.fetch().await;
    assert_eq!(field(&fetch.request, "range"), Some("bytes=400000-499999"));
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 17000001\r\nETag: \"v1\"\r\n\
                Accept-Ranges: bytes\r\nCache-Control: max-age=60\r\n\r\n";
    fetch.send(head).await;
    let seek = seek.await.unwrap();
    assert_eq!(seek.status, 304);
    assert_eq!(seek.cache_status_from(60), "thalweg; fwd=uri-miss; fwd-status=200; ttl=60; stored");
    edge.stop().await;
}

#[tokio::test]
async fn rfc9211_2_6_request_waiting_for_a_failed_fetch_was_collapsed() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let (mut asking, mut waiting) = (edge.client().await, edge.client().await);
    asking.request("GET", "/a", "").await;
    let mut fetch = backend.fetch().await;
    wait_behind(&edge, &mut waiting).await;
    fetch.send("HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n").await;
    for (client, expected) in
        [(asking, "thalweg; fwd=uri-miss; detail="), (waiting, "thalweg; fwd=miss; collapsed; ")]
    {
        let mut client = client;
        let response = client.response().await;
        assert_eq!(response.status, 502);
        assert!(response.cache_status().starts_with(expected), "{}", response.head);
    }
    edge.stop().await;
}

#[tokio::test]
async fn rfc9211_2_5_response_purged_while_being_fetched_is_not_stored() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let mut first = edge.client().await;
    first.request("GET", "/a", "").await;
    let mut fetch = backend.fetch().await;
    let mut client = edge.client().await;
    client.request("PURGE", "/a", "").await;
    client.response().await;
    fetch.respond("200 OK", "Cache-Control: max-age=60\r\n", b"old").await;
    let response = first.response().await;
    assert_eq!(response.cache_status_from(60), "thalweg; fwd=uri-miss; fwd-status=200; ttl=60");
    edge.stop().await;
}

#[tokio::test]
async fn rfc9211_2_2_stale_on_error_was_forwarded() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let first = get(&edge, "");
    let mut fetch = backend.fetch().await;
    let fields = "Cache-Control: max-age=10, stale-if-error=60\r\nAge: 20\r\nETag: \"v1\"\r\n";
    fetch.respond("200 OK", fields, b"old").await;
    first.await.unwrap();
    let mut asking = edge.client().await;
    asking.request("GET", "/a", "").await;
    fetch.next().await;
    let mut waiting = edge.client().await;
    wait_behind(&edge, &mut waiting).await;
    fetch.respond("503 Service Unavailable", "", b"busy").await;
    let asked = asking.response().await;
    assert!(asked.cache_status().starts_with("thalweg; fwd=stale; fwd-status=503; ttl=-1"), "{}", asked.head);
    let waited = waiting.response().await;
    assert!(
        waited.cache_status().starts_with("thalweg; fwd=stale; fwd-status=503; ttl=-1"),
        "{}",
        waited.head
    );
    assert!(waited.cache_status().ends_with("; collapsed"), "{}", waited.head);
    // Without a response, there is no `fwd-status`.
    let asked = get(&edge, "");
    drop(fetch);
    for _ in 0..2 {
        drop(backend.fetch().await);
    }
    let asked = asked.await.unwrap();
    assert!(asked.cache_status().starts_with("thalweg; fwd=stale; ttl=-1"), "{}", asked.head);
    edge.stop().await;
}

#[tokio::test]
async fn rfc9211_2_6_request_waiting_for_a_validation_was_collapsed() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let first = get(&edge, "");
    let mut fetch = backend.fetch().await;
    let fields = "Cache-Control: max-age=10\r\nAge: 20\r\nETag: \"v1\"\r\n";
    fetch.respond("200 OK", fields, b"old").await;
    first.await.unwrap();
    let (mut asking, mut waiting) = (edge.client().await, edge.client().await);
    asking.request("GET", "/a", "").await;
    fetch.next().await;
    wait_behind(&edge, &mut waiting).await;
    fetch.send("HTTP/1.1 304 Not Modified\r\nCache-Control: max-age=60\r\n\r\n").await;
    let of_stale = "thalweg; fwd=stale; fwd-status=304; ttl=60";
    assert_eq!(asking.response().await.cache_status_from(60), of_stale);
    assert_eq!(waiting.response().await.cache_status_from(60), format!("{of_stale}; collapsed"));
    edge.stop().await;
}
