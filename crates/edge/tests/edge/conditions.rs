//! HEAD and precondition tests, by RFC section.

#![allow(clippy::unwrap_used)]

use crate::support::{Backend, Client, Fetch, TestEdge, field};

const DATE: &str = "Thu, 01 Jan 2026 00:00:00 GMT";
const BEFORE: &str = "Wed, 31 Dec 2025 00:00:00 GMT";

/// Stores `/a`, to which the backend responds with `fields`. Returns the connections used.
async fn stored(backend: &Backend, edge: &TestEdge, fields: &str) -> (Client, Fetch) {
    let mut client = edge.client().await;
    client.request("GET", "/a", "").await;
    let mut fetch = backend.fetch().await;
    fetch.respond("200 OK", fields, b"content").await;
    assert_eq!(client.response().await.content, b"content");
    (client, fetch)
}

#[tokio::test]
async fn rfc9110_9_3_2_head_is_served_from_stored_get() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let mut client = edge.client().await;
    client.request("HEAD", "/a", "").await;
    let mut fetch = backend.fetch().await;
    assert!(fetch.request.starts_with("GET /a "), "{}", fetch.request);
    fetch.respond("200 OK", "Cache-Control: max-age=60\r\nETag: \"v1\"\r\n", b"content").await;
    let head = client.response_to("HEAD").await;
    assert_eq!(
        (head.status, head.field("content-length"), head.field("etag")),
        (200, Some("7"), Some("\"v1\""))
    );
    client.request("GET", "/a", "").await;
    let hit = client.response().await;
    assert!(hit.content == b"content" && hit.cache_status().contains("; hit"), "{}", hit.head);
    client.request("HEAD", "/a", "If-None-Match: \"v1\"\r\n").await;
    assert_eq!(client.response_to("HEAD").await.status, 304);
    edge.stop().await;
}

/// Stores a fresh `/a`, then lets a later uncacheable response mark the key as passed.
async fn stored_and_passed(backend: &Backend, edge: &TestEdge) -> (Client, Fetch) {
    let fields =
        format!("Cache-Control: max-age=600\r\nAge: 500\r\nETag: \"v1\"\r\nLast-Modified: {DATE}\r\n");
    let (mut client, mut fetch) = stored(backend, edge, &fields).await;
    client.request("GET", "/a", "Cache-Control: no-cache\r\n").await;
    fetch.next().await;
    fetch.respond("200 OK", "Cache-Control: private\r\nETag: \"v1\"\r\n", b"content").await;
    client.response().await;
    client.request("HEAD", "/a", "Cache-Control: no-cache\r\n").await;
    fetch.next().await;
    assert!(fetch.request.starts_with("HEAD /a "), "{}", fetch.request);
    (client, fetch)
}

#[tokio::test]
async fn rfc9111_4_3_5_matching_head_updates_stored_response() {
    for agrees in [
        format!("ETag: \"v1\"\r\nContent-Length: 7\r\nLast-Modified: {DATE}\r\n"),
        "ETag: \"v1\"\r\n".into(),
        String::new(),
    ] {
        let backend = Backend::new().await;
        let edge = TestEdge::before(&backend);
        let (mut client, mut fetch) = stored_and_passed(&backend, &edge).await;
        let fields = "Cache-Control: max-age=60\r\nX-New: 1\r\n";
        fetch.send(format!("HTTP/1.1 200 OK\r\n{fields}{agrees}\r\n")).await;
        let head = client.response_to("HEAD").await;
        assert!(head.status == 200 && head.cache_status().contains("fwd=bypass"), "{}", head.head);
        client.request("GET", "/a", "").await;
        let hit = client.response().await;
        assert!(hit.cache_status_from(60).contains("; hit; ttl=60"), "{}", hit.cache_status());
        assert_eq!((hit.field("x-new"), hit.field("etag")), (Some("1"), Some("\"v1\"")));
        assert_eq!(hit.content, b"content");
        edge.stop().await;
    }
}

#[tokio::test]
async fn rfc9111_4_3_5_differing_head_makes_stored_response_stale() {
    for (differs, stale) in [
        ("ETag: \"v2\"\r\n".to_owned(), true),
        ("ETag: W/\"v1\"\r\n".to_owned(), true),
        (format!("ETag: \"v1\"\r\nLast-Modified: {BEFORE}\r\n"), true),
        ("ETag: \"v1\"\r\nContent-Length: 8\r\n".to_owned(), true),
        ("ETag: \"v1\"\r\nContent-Length: 7\r\nCache-Control: no-store\r\n".to_owned(), true),
        // Only a 200 has any effect.
        ("404 ETag: \"v2\"\r\n".to_owned(), false),
    ] {
        let backend = Backend::new().await;
        let edge = TestEdge::before(&backend);
        let (mut client, mut fetch) = stored_and_passed(&backend, &edge).await;
        let (status, fields) = match differs.strip_prefix("404 ") {
            Some(fields) => ("404 Not Found", fields),
            None => ("200 OK", &*differs),
        };
        fetch.send(format!("HTTP/1.1 {status}\r\n{fields}\r\n")).await;
        client.response_to("HEAD").await;
        client.request("GET", "/a", "Cache-Control: only-if-cached\r\n").await;
        assert_eq!(client.response().await.status == 504, stale, "{differs}");
        edge.stop().await;
    }
}

#[tokio::test]
async fn rfc9110_13_2_2_preconditions_are_evaluated_in_order() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let fields = format!("Cache-Control: max-age=60\r\nETag: \"v1\"\r\nLast-Modified: {DATE}\r\n");
    let (mut client, _fetch) = stored(&backend, &edge, &fields).await;
    let (match_1, match_2) = ("If-Match: \"v1\"", "If-Match: \"v0\", \"v2\"");
    let (none_1, none_2) = ("If-None-Match: \"v0\", W/\"v1\"", "If-None-Match: \"v2\"");
    let (unmodified, modified) =
        (format!("If-Unmodified-Since: {DATE}"), format!("If-Unmodified-Since: {BEFORE}"));
    let (since, since_before) =
        (format!("If-Modified-Since: {DATE}"), format!("If-Modified-Since: {BEFORE}"));
    let (unmodified, modified, since, since_before) = (&*unmodified, &*modified, &*since, &*since_before);
    let cases: [(&[&str], u16); 17] = [
        (&[match_1], 200),
        (&["If-Match: *"], 200),
        (&[match_2], 412),
        // If-Match uses strong comparison, If-None-Match weak comparison.
        (&["If-Match: W/\"v1\""], 412),
        (&[none_1], 304),
        (&["If-None-Match: *"], 304),
        (&[none_2], 200),
        (&[unmodified], 200),
        (&[modified], 412),
        (&[since], 304),
        (&[since_before], 200),
        // If-Match precedes If-Unmodified-Since. Both precede If-None-Match, which precedes
        // If-Modified-Since.
        (&[modified, match_1], 200),
        (&[none_1, match_2], 412),
        (&[none_1, modified], 412),
        (&[none_1, match_1], 304),
        (&[since, none_2], 200),
        (&[since_before, none_1], 304),
    ];
    for (conditions, status) in cases {
        let fields = format!("{}\r\n", conditions.join("\r\n"));
        for method in ["GET", "HEAD"] {
            client.request(method, "/a", &fields).await;
            let response = client.response_to(method).await;
            assert_eq!(response.status, status, "{method} {conditions:?}");
        }
        // All preconditions precede Range and If-Range.
        client.request("GET", "/a", &format!("{fields}Range: bytes=0-0\r\nIf-Range: \"v1\"\r\n")).await;
        let expected = if status == 200 { 206 } else { status };
        assert_eq!(client.response().await.status, expected, "{conditions:?} with a range");
    }
    edge.stop().await;
}

#[tokio::test]
async fn rfc9110_8_8_3_2_weak_entity_tag_never_matches_strongly() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let (mut client, _fetch) =
        stored(&backend, &edge, "Cache-Control: max-age=60\r\nETag: W/\"v1\"\r\n").await;
    for (fields, status) in [
        ("If-None-Match: \"v1\"\r\n", 304),
        ("If-None-Match: W/\"v1\"\r\n", 304),
        ("If-Match: \"v1\"\r\n", 412),
        ("If-Match: W/\"v1\"\r\n", 412),
        ("If-Match: *\r\n", 200),
        ("Range: bytes=0-0\r\nIf-Range: W/\"v1\"\r\n", 200),
        ("Range: bytes=0-0\r\nIf-Range: \"v1\"\r\n", 200),
    ] {
        client.request("GET", "/a", fields).await;
        assert_eq!(client.response().await.status, status, "{fields}");
    }
    edge.stop().await;
}

#[tokio::test]
async fn rfc9111_4_3_2_conditions_apply_to_the_validated_response() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let (mut client, mut fetch) =
        stored(&backend, &edge, "Cache-Control: max-age=0\r\nETag: \"v1\"\r\n").await;
    for (asked, news, status) in [
        ("If-Match: \"v2\"\r\n", "304 Not Modified\r\nETag: \"v1\"\r\nCache-Control: max-age=0\r\n", 412),
        (
            "If-None-Match: \"v1\"\r\n",
            "304 Not Modified\r\nETag: \"v1\"\r\nCache-Control: max-age=0\r\n",
            304,
        ),
        (
            "If-Match: \"v2\"\r\n",
            "200 OK\r\nETag: \"v2\"\r\nCache-Control: max-age=0\r\nContent-Length: 0\r\n",
            200,
        ),
        (
            "If-None-Match: \"v1\"\r\n",
            "304 Not Modified\r\nETag: \"v2\"\r\nCache-Control: max-age=60\r\n",
            200,
        ),
        ("If-Match: \"v1\"\r\n", "", 412),
    ] {
        client.request("GET", "/a", asked).await;
        if !news.is_empty() {
            fetch.next().await;
            assert_eq!(field(&fetch.request, "if-match"), None);
            let ours = field(&fetch.request, "if-none-match").unwrap();
            assert!(ours == "\"v1\"" || ours == "\"v2\"", "{ours}");
            fetch.send(format!("HTTP/1.1 {news}\r\n")).await;
        }
        assert_eq!(client.response().await.status, status, "{asked} {news}");
    }
    edge.stop().await;
}
