//! Backend tests: limits on connections and head size, and the operator's health override.

#![allow(clippy::unwrap_used)]

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use crate::support::{Backend, Response, TestEdge, config};
use serde_json::{Value, json};
use thalweg_edge::{BackendUrl, Config, Timeouts};
use thalweg_http::Limits;

async fn admin(edge: &TestEdge, method: &str, fields: &str, content: &str) -> Response {
    let mut client = edge.admin_client().await;
    let length = content.len();
    client.request(method, "/backends", &format!("Content-Length: {length}\r\n{fields}")).await;
    client.send(content.as_bytes()).await;
    client.response().await
}

#[tokio::test]
async fn fetches_beyond_connection_limit_wait_their_turn() {
    let backend = Backend::new().await;
    let edge = TestEdge::start(Config { backend_connections_max: 1, ..config(backend.address) });
    let mut first = edge.client().await;
    first.request("GET", "/first", "").await;
    let mut fetch = backend.fetch().await;
    let mut second = edge.client().await;
    second.request("GET", "/second", "").await;
    assert_eq!(edge.get("/refused", "Host: twice\r\n").await.status, 400, "other requests are served");
    fetch.respond("200 OK", "Cache-Control: max-age=60\r\n", b"first").await;
    assert_eq!(first.response().await.content, b"first");
    // Without the limit, this request would have opened its own connection.
    fetch.next().await;
    assert!(fetch.request.starts_with("GET /second "), "{}", fetch.request);
    fetch.respond("200 OK", "Cache-Control: max-age=60\r\n", b"second").await;
    assert_eq!(second.response().await.content, b"second");
    edge.stop().await;
}

#[tokio::test]
async fn fetch_waits_for_connection_up_to_connect_timeout() {
    let backend = Backend::new().await;
    let timeouts = Timeouts { connect: Duration::from_millis(100), ..Timeouts::default() };
    let edge = TestEdge::start(Config { backend_connections_max: 1, timeouts, ..config(backend.address) });
    let mut first = edge.client().await;
    first.request("GET", "/first", "").await;
    let mut fetch = backend.fetch().await;
    let refused = edge.get("/second", "").await;
    assert!(refused.status == 503 && refused.cache_status().contains("fwd=uri-miss"), "{}", refused.head);
    fetch.respond("200 OK", "Cache-Control: max-age=60\r\n", b"first").await;
    assert_eq!(first.response().await.content, b"first");
    assert!(!backend.is_asked_again().await);
    edge.stop().await;
}

#[tokio::test]
async fn head_limit_applies_to_responses() {
    let long = format!("X-Long: {}\r\n", "a".repeat(40_000));
    for (head_bytes_max, status) in [(1024, 502), (Limits::default().head_bytes_max, 502), (64 * 1024, 200)] {
        let backend = Backend::new().await;
        let head = Limits { head_bytes_max, ..Limits::default() };
        let edge = TestEdge::start(Config { head, ..config(backend.address) });
        let mut client = edge.client().await;
        client.request("GET", "/a", "").await;
        let mut fetch = backend.fetch().await;
        // The edge may close the connection before it has read everything.
        fetch.try_send(format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{long}\r\n").as_bytes()).await;
        assert_eq!(client.response().await.status, status, "{head_bytes_max}");
        edge.stop().await;
    }
}

#[tokio::test]
async fn operator_disables_and_enables_backend() {
    let backend = Backend::new().await;
    let at = Some((Ipv4Addr::LOCALHOST, 0).into());
    let edge = TestEdge::start(Config { admin: at, ..config(backend.address) });
    let name = format!("http://{}", backend.address);
    let order = |health: &str| json!({"name": name, "health": health}).to_string();

    let set = admin(&edge, "POST", "", &order("sick")).await;
    assert_eq!((set.status, set.content), (200, br#"{"backends":1,"status":"ok"}"#.to_vec()));
    let mut listed: Value = serde_json::from_slice(&admin(&edge, "GET", "", "").await.content).unwrap();
    assert!(listed["backends"][0]["changed_unix_ms"].take().is_u64());
    let state = json!({
        "name": name,
        "address": backend.address.to_string(),
        "set_health": "sick",
        "is_healthy": false,
        "probe": null,
        "changed_unix_ms": null,
    });
    assert_eq!(listed, json!({ "backends": [state] }));
    assert_eq!(edge.get("/a", "").await.status, 502);
    assert!(!backend.is_asked_again().await);

    assert_eq!(admin(&edge, "POST", "", &order("auto")).await.status, 200);
    let mut client = edge.client().await;
    client.request("GET", "/a", "").await;
    backend.fetch().await.respond("200 OK", "", b"back").await;
    assert_eq!(client.response().await.content, b"back");

    for (fields, order, status) in [
        ("", order("ill"), 400),
        ("", "{}".into(), 400),
        ("", order("sick").replace("http", "ftp"), 404),
        ("Origin: http://evil.example\r\n", order("sick"), 403),
    ] {
        assert_eq!(admin(&edge, "POST", fields, &order).await.status, status, "{fields}{order}");
    }
    edge.stop().await;
}

#[tokio::test]
async fn ipv6_address_is_accepted_in_every_spelling() {
    let backend = Backend::at((Ipv6Addr::LOCALHOST, 0).into()).await;
    for host in ["[::1]", "[0:0:0:0:0:0:0:1]"] {
        let url = format!("http://{host}:{}", backend.address.port());
        let parsed: BackendUrl = url.parse().unwrap();
        assert_eq!(parsed.to_string(), url);
        let edge = TestEdge::start(Config { backends: vec![parsed], ..config(backend.address) });
        let mut client = edge.client().await;
        client.request("GET", "/a", "").await;
        backend.fetch().await.respond("200 OK", "Connection: close\r\n", b"a").await;
        assert_eq!(client.response().await.content, b"a");
        edge.stop().await;
    }
}
