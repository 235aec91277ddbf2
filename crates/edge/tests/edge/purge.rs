//! Purge and ban tests: requests from clients and from operators.

#![allow(clippy::unwrap_used)]

use std::net::Ipv4Addr;

use crate::support::{Backend, Client, Fetch, Response, TestEdge, config, field};
use thalweg_edge::Config;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// Sends a request in the background, so that the test can act as its backend.
fn get(edge: &TestEdge, path: &'static str, fields: &'static str) -> JoinHandle<Response> {
    let address = edge.address;
    tokio::spawn(async move {
        let mut client = Client::new(TcpStream::connect(address).await.unwrap());
        client.request("GET", path, fields).await;
        client.response().await
    })
}

/// Stores a response received over a new backend connection, which stays open.
async fn warm(edge: &TestEdge, backend: &Backend, path: &'static str, fields: &str) -> Fetch {
    let first = get(edge, path, "");
    let mut fetch = backend.fetch().await;
    fetch.respond("200 OK", fields, b"old").await;
    assert_eq!(first.await.unwrap().content, b"old");
    assert!(edge.get(path, "").await.cache_status().contains("hit"));
    fetch
}

/// Sends a request that must reach the backend, and responds with new content.
async fn refetch(edge: &TestEdge, fetch: &mut Fetch, path: &'static str, fields: &str) -> Response {
    let asked = get(edge, path, "");
    fetch.next().await;
    fetch.respond("200 OK", fields, b"new").await;
    let response = asked.await.unwrap();
    assert_eq!(response.content, b"new");
    response
}

async fn purge(edge: &TestEdge, path: &str, fields: &str) -> (u16, String) {
    let mut client = edge.client().await;
    client.request("PURGE", path, fields).await;
    let response = client.response().await;
    (response.status, String::from_utf8(response.content).unwrap())
}

fn ok(content: &str) -> (u16, String) {
    (200, content.to_owned())
}

/// Starts an edge with an admin interface.
fn administered(backend: &Backend) -> TestEdge {
    let admin = Some((Ipv4Addr::LOCALHOST, 0).into());
    TestEdge::start(Config { admin, ..config(backend.address) })
}

pub(crate) async fn admin(
    edge: &TestEdge,
    method: &str,
    path: &str,
    fields: &str,
    content: &str,
) -> (u16, String) {
    let mut client = edge.admin_client().await;
    let fields = format!("Content-Length: {}\r\n{fields}", content.len());
    client.request(method, path, &fields).await;
    client.send(content.as_bytes()).await;
    let response = client.response().await;
    (response.status, String::from_utf8(response.content).unwrap())
}

#[tokio::test]
async fn purged_url_is_fetched_again_unconditionally() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let mut follower = edge.records.follow();
    let fields = "Cache-Control: max-age=60\r\nETag: \"v1\"\r\n";
    let mut fetch = warm(&edge, &backend, "/a", fields).await;
    assert_eq!(purge(&edge, "/b", "").await, ok(r#"{"purged":0,"status":"ok"}"#));
    assert_eq!(purge(&edge, "/%61", "").await, ok(r#"{"purged":1,"status":"ok"}"#));
    refetch(&edge, &mut fetch, "/a", fields).await;
    assert_eq!(field(&fetch.request, "if-none-match"), None);
    assert!(edge.get("/a", "").await.cache_status().contains("hit"));
    let mut results = Vec::new();
    for _ in 0..6 {
        let record = follower.recv().await.unwrap();
        results.push(format!("{} {}", record.method, record.cache));
    }
    assert_eq!(results, ["GET miss", "GET hit", "PURGE purge", "PURGE purge", "GET miss", "GET hit"]);
    edge.stop().await;
}

#[tokio::test]
async fn all_variants_of_a_url_are_purged_and_connection_is_kept() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let fields = "Cache-Control: max-age=60\r\nVary: Accept\r\n";
    let mut fetch = warm(&edge, &backend, "/a", fields).await;
    let other = get(&edge, "/a", "Accept: text/html\r\n");
    fetch.next().await;
    fetch.respond("200 OK", fields, b"html").await;
    assert_eq!(other.await.unwrap().content, b"html");
    let mut client = edge.client().await;
    client
        .send(
            b"PURGE /a HTTP/1.1\r\nHost: media.example\r\nContent-Length: 3\r\n\r\nxyz\
              PURGE /a HTTP/1.1\r\nHost: MEDIA.example\r\n\r\n",
        )
        .await;
    assert_eq!(client.response().await.content, br#"{"purged":2,"status":"ok"}"#);
    assert_eq!(client.response().await.content, br#"{"purged":0,"status":"ok"}"#);
    refetch(&edge, &mut fetch, "/a", fields).await;
    edge.stop().await;
}

#[tokio::test]
async fn soft_purged_response_is_served_stale_during_revalidation() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let fields = "Cache-Control: max-age=60, stale-while-revalidate=60\r\nETag: \"v1\"\r\n";
    let mut fetch = warm(&edge, &backend, "/a", fields).await;
    assert_eq!(purge(&edge, "/a", "Soft-Purge: 1\r\n").await, ok(r#"{"purged":1,"status":"ok"}"#));
    let stale = edge.get("/a", "").await;
    assert_eq!((&stale.content[..], &stale.cache_status_from(0)[..]), (&b"old"[..], "thalweg; hit; ttl=0"));
    fetch.next().await;
    assert_eq!(field(&fetch.request, "if-none-match"), Some("\"v1\""));
    // Requests during revalidation still get the old response.
    assert_eq!(edge.get("/a", "").await.content, b"old");
    let mut fresh = edge.client().await;
    fresh.request("GET", "/a", "Cache-Control: no-cache\r\n").await;
    // The edge handles requests in order: once it has answered this purge, the earlier request is
    // waiting.
    purge(&edge, "/b", "").await;
    fetch.respond("200 OK", fields, b"new").await;
    assert_eq!(fresh.response().await.content, b"new");
    assert_eq!(edge.get("/a", "").await.cache_status_from(60), "thalweg; hit; ttl=60");
    edge.stop().await;
}

#[tokio::test]
async fn soft_purged_response_without_stale_while_revalidate_is_validated() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let fields = "Cache-Control: max-age=60\r\nETag: \"v1\"\r\nSurrogate-Key: a\r\n";
    let mut fetch = warm(&edge, &backend, "/a", fields).await;
    for purging in ["xkey-softpurge: a\r\n", "Surrogate-Key: a\r\nFastly-Soft-Purge: 1\r\n"] {
        assert_eq!(purge(&edge, "/", purging).await, ok(r#"{"purged":null,"status":"ok"}"#));
        let asked = get(&edge, "/a", "");
        fetch.next().await;
        assert_eq!(field(&fetch.request, "if-none-match"), Some("\"v1\""));
        fetch.send("HTTP/1.1 304 Not Modified\r\nETag: \"v1\"\r\nCache-Control: max-age=60\r\n\r\n").await;
        let validated = asked.await.unwrap();
        assert_eq!(validated.content, b"old");
        assert!(
            validated.cache_status().contains("fwd=stale; fwd-status=304"),
            "{}",
            validated.cache_status()
        );
        assert!(edge.get("/a", "").await.cache_status().contains("hit"));
    }
    edge.stop().await;
}

#[tokio::test]
async fn soft_purged_response_is_served_when_backend_fails() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let fields = "Cache-Control: max-age=60, stale-if-error=60\r\nETag: \"v1\"\r\n";
    let mut fetch = warm(&edge, &backend, "/a", fields).await;
    purge(&edge, "/a", "Soft-Purge: 1\r\n").await;
    let asked = get(&edge, "/a", "");
    fetch.next().await;
    fetch.respond("503 Service Unavailable", "", b"").await;
    let stale = asked.await.unwrap();
    assert_eq!((stale.status, &stale.content[..]), (200, &b"old"[..]));
    edge.stop().await;
}

#[tokio::test]
async fn tags_in_any_field_are_purged_and_surrogate_key_is_not_forwarded() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let one = "Cache-Control: max-age=60\r\nSurrogate-Key: a b\r\n";
    let two = "Cache-Control: max-age=60\r\nxkey: b, c\r\nxkey: d\r\n";
    let mut fetch = warm(&edge, &backend, "/1", one).await;
    refetch(&edge, &mut fetch, "/2", two).await;
    let (first, second) = (edge.get("/1", "").await, edge.get("/2", "").await);
    assert_eq!((first.field("surrogate-key"), second.field("xkey")), (None, Some("b, c")));
    assert_eq!(purge(&edge, "/", "Surrogate-Key: a d\r\n").await, ok(r#"{"purged":null,"status":"ok"}"#));
    refetch(&edge, &mut fetch, "/1", one).await;
    refetch(&edge, &mut fetch, "/2", two).await;
    purge(&edge, "/", "xkey: b\r\n").await;
    refetch(&edge, &mut fetch, "/1", one).await;
    refetch(&edge, &mut fetch, "/2", two).await;
    purge(&edge, "/", "xkey: c,x\r\n").await;
    assert!(edge.get("/1", "").await.cache_status().contains("hit"));
    refetch(&edge, &mut fetch, "/2", two).await;
    edge.stop().await;
}

#[tokio::test]
async fn validation_replaces_tags() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let fields = "Cache-Control: no-cache\r\nETag: \"v1\"\r\nSurrogate-Key: a\r\n";
    let first = get(&edge, "/a", "");
    let mut fetch = backend.fetch().await;
    fetch.respond("200 OK", fields, b"old").await;
    first.await.unwrap();
    let second = get(&edge, "/a", "");
    fetch.next().await;
    let head = "HTTP/1.1 304 Not Modified\r\nCache-Control: max-age=60\r\nSurrogate-Key: b\r\n\r\n";
    fetch.send(head).await;
    assert_eq!(second.await.unwrap().field("surrogate-key"), None);
    purge(&edge, "/", "Surrogate-Key: a\r\n").await;
    assert!(edge.get("/a", "").await.cache_status().contains("hit"));
    purge(&edge, "/", "Surrogate-Key: b\r\n").await;
    refetch(&edge, &mut fetch, "/a", fields).await;
    edge.stop().await;
}

#[tokio::test]
async fn response_with_too_many_tags_is_passed() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let asked = get(&edge, "/a", "");
    let mut fetch = backend.fetch().await;
    let fields = format!("Cache-Control: max-age=60\r\nSurrogate-Key: {}\r\n", "a ".repeat(257));
    fetch.respond("200 OK", &fields, b"all").await;
    let response = asked.await.unwrap();
    assert!(response.cache_status().contains("detail=tags"), "{}", response.cache_status());
    assert_eq!((response.field("surrogate-key"), &response.content[..]), (None, &b"all"[..]));
    edge.stop().await;
}

#[tokio::test]
async fn fetch_in_flight_during_purge_serves_only_earlier_requests() {
    for purging in ["", "Soft-Purge: 1\r\n"] {
        let backend = Backend::new().await;
        let edge = TestEdge::before(&backend);
        let asker = get(&edge, "/a", "");
        let mut before = backend.fetch().await;
        let mut joiner = edge.client().await;
        joiner.request("GET", "/a", "").await;
        // The edge handles requests in order: once it has answered this purge, the earlier request
        // is waiting.
        purge(&edge, "/b", "").await;
        assert_eq!(purge(&edge, "/a", purging).await, ok(r#"{"purged":0,"status":"ok"}"#));
        let later = get(&edge, "/a", "");
        let mut after = backend.fetch().await;
        before.respond("200 OK", "Cache-Control: max-age=60\r\n", b"old").await;
        assert_eq!(asker.await.unwrap().content, b"old");
        assert_eq!(joiner.response().await.content, b"old");
        after.respond("200 OK", "Cache-Control: max-age=60\r\n", b"new").await;
        assert_eq!(later.await.unwrap().content, b"new");
        assert_eq!(edge.get("/a", "").await.content, b"new");
        edge.stop().await;
    }
}

#[tokio::test]
async fn request_waiting_for_purged_fetch_waits_for_next_fetch() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let fields = "Cache-Control: max-age=60\r\nSurrogate-Key: a\r\n";
    let asker = get(&edge, "/a", "");
    let mut fetch = backend.fetch().await;
    purge(&edge, "/", "Surrogate-Key: a\r\n").await;
    let mut later = edge.client().await;
    later.request("GET", "/a", "").await;
    // The edge handles requests in order: once it has answered this purge, the earlier request is
    // waiting.
    purge(&edge, "/", "Surrogate-Key: b\r\n").await;
    fetch.respond("200 OK", fields, b"old").await;
    assert_eq!(asker.await.unwrap().content, b"old");
    fetch.next().await;
    fetch.respond("200 OK", fields, b"new").await;
    assert_eq!(later.response().await.content, b"new");
    edge.stop().await;
}

#[tokio::test]
async fn only_authorised_clients_may_purge() {
    let backend = Backend::new().await;
    let purge_from = vec!["10.0.0.0/8".parse().unwrap(), "::/0".parse().unwrap()];
    let edge = TestEdge::start(Config { purge_from, ..config(backend.address) });
    warm(&edge, &backend, "/a", "Cache-Control: max-age=60\r\n").await;
    let (status, content) = purge(&edge, "/a", "X-Forwarded-For: 10.0.0.1\r\n").await;
    assert_eq!((status, &content[..]), (403, "403 Forbidden: this address may not purge\n"));
    assert!(edge.get("/a", "").await.cache_status().contains("hit"));
    edge.stop().await;
}

#[tokio::test]
async fn admin_interface_purges_urls_and_tags() {
    let backend = Backend::new().await;
    let edge = administered(&backend);
    let fields = "Cache-Control: max-age=60\r\nSurrogate-Key: a\r\n";
    let mut fetch = warm(&edge, &backend, "/a?b", fields).await;
    let order = r#"{"url": "http://media.example/a?b"}"#;
    assert_eq!(admin(&edge, "POST", "/purge", "", order).await, ok(r#"{"purged":1,"status":"ok"}"#));
    refetch(&edge, &mut fetch, "/a?b", fields).await;
    let none = ok(r#"{"purged":null,"status":"ok"}"#);
    assert_eq!(admin(&edge, "POST", "/purge?tags=x+a", "", "").await, none);
    refetch(&edge, &mut fetch, "/a?b", fields).await;
    let error = (400, r#"{"error":"nothing to purge: expected url, urls, tag or tags"}"#.into());
    assert_eq!(admin(&edge, "POST", "/purge", "", "").await, error);
    let page = "Origin: https://elsewhere.example\r\n";
    assert_eq!(admin(&edge, "POST", "/purge?tag=a", page, "").await.0, 403);
    assert_eq!(admin(&edge, "POST", "/bans", page, "obj.status == 200").await.0, 403);
    assert!(edge.get("/a?b", "").await.cache_status().contains("hit"));
    edge.stop().await;
}

#[tokio::test]
async fn ban_is_listed_until_all_responses_are_checked() {
    let backend = Backend::new().await;
    let edge = administered(&backend);
    let fields = "Cache-Control: max-age=60\r\nContent-Type: video/mp4\r\n";
    let mut fetch = warm(&edge, &backend, "/live/a", fields).await;
    refetch(&edge, &mut fetch, "/vod/a", fields).await;
    // A fetch still waiting for its head keeps the ban in force.
    let waiting = get(&edge, "/live/b", "");
    fetch.next().await;
    let text = r#"req.url ~ "^/live/" && obj.http.content-type == video/mp4"#;
    assert_eq!(admin(&edge, "POST", "/bans", "", text).await, ok(r#"{"status":"ok"}"#));
    let (status, bans) = admin(&edge, "GET", "/bans", "", "").await;
    assert!(status == 200 && bans.contains(r#"req.url ~ \"^/live/\""#), "{bans}");
    assert!(edge.get("/vod/a", "").await.cache_status().contains("hit"));
    fetch.respond("200 OK", fields, b"old").await;
    waiting.await.unwrap();
    refetch(&edge, &mut fetch, "/live/b", fields).await;
    refetch(&edge, &mut fetch, "/live/a", fields).await;
    let error = r#"{"error":"column 9: = assigns, it does not compare; did you mean ==?"}"#;
    assert_eq!(admin(&edge, "POST", "/bans", "", "req.url = a").await, (400, error.into()));
    edge.stop().await;
}
