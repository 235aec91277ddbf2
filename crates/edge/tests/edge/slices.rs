//! Tests of sliced responses as a unit: becoming stale, being served stale, and being purged and
//! updated as a whole.

#![allow(clippy::unwrap_used)]

use crate::ranges::{FRESH, asked, get, partial, start};
use crate::support::{Backend, Fetch, PATIENCE, TestEdge, content, field};

const LENGTH: usize = 1_000_000;
/// A range within the slice stored by [`sliced`].
const SEEK: &str = "Range: bytes=400010-400019\r\n";
const NEXT: &str = "Range: bytes=500010-500019\r\n";

/// Stores the head of `/a`, sent by the backend with `fields`, and one slice.
async fn sliced(backend: &Backend, edge: &TestEdge, fields: &str) -> Fetch {
    let seek = get(edge, SEEK);
    let mut fetch = backend.fetch().await;
    assert_eq!(asked(&fetch.request), Some(400_000..500_000));
    fetch.send(partial(400_000..500_000, LENGTH, fields)).await;
    assert_eq!(seek.await.unwrap().content, content(400_010, 10));
    fetch
}

/// Returns whether the response and its slices are gone, so that a seek requests a slice
/// unconditionally.
async fn is_cold(edge: &TestEdge, fetch: &mut Fetch) -> bool {
    let seek = get(edge, SEEK);
    fetch.next().await;
    let is_cold = field(&fetch.request, "if-range").or(field(&fetch.request, "if-none-match")).is_none();
    fetch.send(partial(400_000..500_000, LENGTH, FRESH)).await;
    assert_eq!(seek.await.unwrap().content, content(400_010, 10));
    is_cold
}

#[tokio::test]
async fn rfc5861_3_stale_head_is_revalidated_in_background() {
    let backend = Backend::new().await;
    let edge = start(&backend);
    let stale = "Cache-Control: max-age=10, stale-while-revalidate=60\r\nAge: 20\r\nETag: \"v1\"\r\n";
    let mut fetch = sliced(&backend, &edge, stale).await;
    let served = edge.get("/a", SEEK).await;
    assert_eq!((served.status, served.content), (206, content(400_010, 10)));
    let mut refresh = fetch;
    refresh.next().await;
    assert_eq!((field(&refresh.request, "if-none-match"), asked(&refresh.request)), (Some("\"v1\""), None));
    // During the revalidation, the next slice is fetched.
    let next = get(&edge, NEXT);
    fetch = backend.fetch().await;
    assert_eq!(
        (field(&fetch.request, "if-range"), asked(&fetch.request)),
        (Some("\"v1\""), Some(500_000..600_000))
    );
    fetch.send(partial(500_000..600_000, LENGTH, stale)).await;
    let next = next.await.unwrap();
    assert_eq!((next.status, &next.content), (206, &content(500_010, 10)));
    assert!(next.cache_status().starts_with("thalweg; fwd=partial; fwd-status=206; ttl=-1"), "{}", next.head);
    refresh.send("HTTP/1.1 304 Not Modified\r\nCache-Control: max-age=60\r\nETag: \"v1\"\r\n\r\n").await;
    // Poll, because a client cannot observe the end of background revalidation.
    let refreshed =
        async { while !edge.get("/a", SEEK).await.cache_status_from(60).contains("hit; ttl=60") {} };
    tokio::time::timeout(PATIENCE, refreshed).await.unwrap();
    assert_eq!(edge.get("/a", NEXT).await.content, content(500_010, 10));
    edge.stop().await;
}

#[tokio::test]
async fn rfc5861_4_stored_slices_are_served_when_backend_fails() {
    let backend = Backend::new().await;
    let edge = start(&backend);
    let stale = "Cache-Control: max-age=10, stale-if-error=60\r\nAge: 20\r\nETag: \"v1\"\r\n";
    let mut fetch = sliced(&backend, &edge, stale).await;
    let seek = get(&edge, SEEK);
    fetch.next().await;
    assert_eq!(field(&fetch.request, "if-none-match"), Some("\"v1\""));
    fetch.respond("503 Service Unavailable", "", b"busy").await;
    let served = seek.await.unwrap();
    assert_eq!((served.status, &served.content), (206, &content(400_010, 10)));
    assert!(
        served.cache_status().starts_with("thalweg; fwd=stale; fwd-status=503; ttl=-1"),
        "{}",
        served.head
    );
    // A missing slice cannot be served, but its failure does not affect stored slices.
    let next = get(&edge, NEXT);
    backend.fetch().await.respond("503 Service Unavailable", "", b"busy").await;
    let mut slice = backend.fetch().await;
    assert_eq!(asked(&slice.request), Some(500_000..600_000));
    slice.respond("503 Service Unavailable", "", b"busy").await;
    assert_eq!(next.await.unwrap().status, 502);
    let seek = get(&edge, SEEK);
    backend.fetch().await.respond("503 Service Unavailable", "", b"busy").await;
    assert_eq!(seek.await.unwrap().content, content(400_010, 10));
    edge.stop().await;
}

#[tokio::test]
async fn purge_removes_head_and_slices_and_soft_purge_validates() {
    let backend = Backend::new().await;
    let edge = start(&backend);
    let mut fetch = sliced(&backend, &edge, FRESH).await;
    let mut client = edge.client().await;
    client.request("PURGE", "/a", "").await;
    assert_eq!(client.response().await.content, br#"{"purged":1,"status":"ok"}"#);
    assert!(is_cold(&edge, &mut fetch).await);
    client.request("PURGE", "/a", "Soft-Purge: 1\r\n").await;
    assert_eq!(client.response().await.status, 200);
    let seek = get(&edge, SEEK);
    fetch.next().await;
    assert_eq!((field(&fetch.request, "if-none-match"), asked(&fetch.request)), (Some("\"v1\""), None));
    fetch.send("HTTP/1.1 304 Not Modified\r\nCache-Control: max-age=60\r\nETag: \"v1\"\r\n\r\n").await;
    assert_eq!(seek.await.unwrap().content, content(400_010, 10));
    assert!(!backend.is_asked_again().await, "the slice is still valid");
    edge.stop().await;
}

#[tokio::test]
async fn rfc9111_4_4_unsafe_method_purges_head_and_slices() {
    let backend = Backend::new().await;
    let edge = start(&backend);
    let mut fetch = sliced(&backend, &edge, FRESH).await;
    for (status, is_changed) in [("403 Forbidden", false), ("204 No Content", true)] {
        let mut client = edge.client().await;
        client.request("POST", "/a", "Content-Length: 0\r\n").await;
        // A POST uses a new connection.
        let mut change = backend.fetch().await;
        change.send(format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")).await;
        client.response().await;
        let only = format!("Cache-Control: only-if-cached\r\n{SEEK}");
        assert_eq!(edge.get("/a", &only).await.status, if is_changed { 504 } else { 206 }, "{status}");
    }
    assert!(is_cold(&edge, &mut fetch).await);
    edge.stop().await;
}

#[tokio::test]
async fn rfc9111_4_3_5_head_response_updates_sliced_responses_too() {
    for (length, is_same) in [(LENGTH, true), (LENGTH + 1, false)] {
        let backend = Backend::new().await;
        let edge = start(&backend);
        let mut fetch = sliced(&backend, &edge, &format!("{FRESH}Age: 30\r\n")).await;
        let mut client = edge.client().await;
        // Requests for the key are passed for a while, because a later response was uncacheable.
        client.request("GET", "/a", "Cache-Control: no-cache\r\n").await;
        fetch.next().await;
        fetch.respond("200 OK", "Cache-Control: private\r\nETag: \"v1\"\r\n", b"private").await;
        client.response().await;
        client.request("HEAD", "/a", "Cache-Control: no-cache\r\n").await;
        fetch.next().await;
        assert!(fetch.request.starts_with("HEAD /a "), "{}", fetch.request);
        fetch.send(format!("HTTP/1.1 200 OK\r\n{FRESH}Content-Length: {length}\r\nX-New: 1\r\n\r\n")).await;
        client.response_to("HEAD").await;
        let only = edge.get("/a", &format!("Cache-Control: only-if-cached\r\n{SEEK}")).await;
        if is_same {
            assert_eq!((only.status, only.field("x-new")), (206, Some("1")));
            assert!(only.cache_status_from(60).contains("hit; ttl=60"), "{}", only.head);
        } else {
            assert_eq!(only.status, 504, "{}", only.head);
        }
        edge.stop().await;
    }
}
