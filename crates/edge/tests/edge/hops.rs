//! Message hop tests: requests and responses that pass through several nodes (RFC 9110 §7.6, RFC
//! 8586).

#![allow(clippy::unwrap_used)]

use crate::support::{Backend, TestEdge, config, field};

#[tokio::test]
async fn rfc9110_7_6_1_hop_by_hop_fields_are_not_forwarded() {
    const HOP: &str = "Connection: close, X-Private, via\r\nX-Private: 1\r\nProxy-Connection: keep-alive\r\n\
                       Keep-Alive: timeout=5\r\nUpgrade: h2c\r\nX-Kept: 1\r\n";
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let mut client = edge.client().await;
    client.request("GET", "/a", &format!("{HOP}TE: gzip\r\n")).await;
    let mut fetch = backend.fetch().await;
    let gone = ["x-private", "proxy-connection", "keep-alive", "upgrade"];
    for name in gone {
        assert_eq!(field(&fetch.request, name), None, "{name}");
    }
    let of = |name| field(&fetch.request, name);
    assert_eq!((of("connection"), of("te"), of("x-kept")), (Some("TE"), Some("trailers"), Some("1")));
    fetch.respond("200 OK", &format!("{HOP}TE: gzip\r\n"), b"content").await;
    let response = client.response().await;
    for name in gone.into_iter().chain(["te"]) {
        assert_eq!(response.field(name), None, "{name}");
    }
    assert_eq!((response.field("connection"), response.field("x-kept")), (Some("close"), Some("1")));
    edge.stop().await;
}

#[tokio::test]
async fn rfc9110_7_6_3_via_grows_in_both_directions() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let mut client = edge.client().await;
    client.request("GET", "/a", "Via: 1.0 first, 1.1 second\r\n").await;
    let mut fetch = backend.fetch().await;
    assert_eq!(field(&fetch.request, "via"), Some("1.0 first, 1.1 second, 1.1 thalweg"));
    fetch.respond("200 OK", "Via: 1.1 origin\r\nCache-Control: max-age=60\r\n", b"content").await;
    for _ in ["miss", "hit"] {
        let response = client.response().await;
        let via: Vec<_> = response.head.lines().filter(|line| line.starts_with("Via: ")).collect();
        assert_eq!(via, ["Via: 1.1 origin", "Via: 1.1 thalweg"]);
        client.request("GET", "/a", "").await;
    }
    client.response().await;
    client.send(b"GET /b HTTP/1.0\r\nHost: media.example\r\n\r\n").await;
    fetch.next().await;
    assert_eq!(field(&fetch.request, "via"), Some("1.0 thalweg"));
    fetch.send("HTTP/1.0 200 OK\r\nContent-Length: 0\r\nCache-Control: max-age=60\r\n\r\n").await;
    assert_eq!(client.response().await.field("via"), Some("1.0 thalweg"), "Via names the received version");
    assert_eq!(
        edge.get("/b", "").await.field("via"),
        Some("1.0 thalweg"),
        "the stored response keeps its Via"
    );
    edge.stop().await;
}

#[tokio::test]
async fn rfc8586_2_request_loop_is_refused() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let mut client = edge.client().await;
    client.request("GET", "/a", "CDN-Loop: other; a=1\r\n").await;
    let mut fetch = backend.fetch().await;
    let signed = field(&fetch.request, "cdn-loop").unwrap().to_owned();
    let node = signed.strip_prefix("other; a=1, ").unwrap();
    assert!(node.starts_with("thalweg-") && node.len() == 8 + 16, "{node}");
    for method in ["GET", "POST"] {
        let mut again = edge.client().await;
        again.request(method, "/b", &format!("CDN-Loop: other\r\nCDN-Loop: {node};b=2, last\r\n")).await;
        let refused = again.response().await;
        assert_eq!(refused.status, 508);
        let text = "508 Loop Detected: the request has already passed through this node\n";
        assert_eq!(String::from_utf8(refused.content).unwrap(), text);
    }
    fetch.respond("200 OK", "", b"content").await;
    assert_eq!(client.response().await.status, 200);
    assert!(!backend.is_asked_again().await);
    edge.stop().await;
}

#[tokio::test]
async fn rfc8586_cycle_is_refused_but_tiers_are_not() {
    let backend = Backend::new().await;
    let far = TestEdge::before(&backend);
    let near = TestEdge::start(config(far.address));
    let mut client = near.client().await;
    client.request("GET", "/a", "").await;
    let mut fetch = backend.fetch().await;
    let loops = field(&fetch.request, "cdn-loop").unwrap();
    assert_eq!(loops.split(", ").count(), 2, "{loops}");
    assert_eq!(field(&fetch.request, "via"), Some("1.1 thalweg, 1.1 thalweg"));
    fetch.respond("200 OK", "Cache-Control: max-age=60\r\n", b"content").await;
    let response = client.response().await;
    assert_eq!(response.content, b"content");
    assert_eq!(response.head.matches("Via: 1.1 thalweg").count(), 2, "{}", response.head);

    // The far edge uses the near edge as its backend.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let first = TestEdge::start(config(port));
    let second = TestEdge::start(thalweg_edge::Config { listen: port, ..config(first.address) });
    let looped = first.get("/a", "").await;
    assert_eq!(looped.status, 508);
    let posted = {
        let mut client = first.client().await;
        client.request("POST", "/a", "Content-Length: 3\r\n").await;
        client.send(b"abc").await;
        client.response().await.status
    };
    assert_eq!(posted, 508);
    for edge in [near, far, first, second] {
        edge.stop().await;
    }
}

#[tokio::test]
async fn rfc9110_7_6_1_removed_field_does_not_select_variant() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let mut first = edge.client().await;
    first.request("GET", "/a", "Origin: https://a\r\nConnection: Origin\r\n").await;
    let mut fetch = backend.fetch().await;
    assert_eq!(field(&fetch.request, "origin"), None);
    fetch.respond("200 OK", "Cache-Control: max-age=60\r\nVary: Origin\r\n", b"without").await;
    assert_eq!(first.response().await.content, b"without");
    let mut second = edge.client().await;
    second.request("GET", "/a", "Origin: https://a\r\n").await;
    fetch.next().await;
    assert_eq!(field(&fetch.request, "origin"), Some("https://a"));
    fetch.respond("200 OK", "Cache-Control: max-age=60\r\nVary: Origin\r\n", b"with").await;
    assert_eq!(second.response().await.content, b"with");
    edge.stop().await;
}

#[tokio::test]
async fn rfc3875_4_1_18_field_that_shadows_another_is_dropped() {
    // As CGI variables, these fields would collide with fields whose names contain hyphens. Most of
    // those are set by this node and one is set by the client; `X_Own` has no such counterpart.
    const FIELDS: &str = "Content_Length: 7\r\nTransfer_encoding: chunked\r\nX-Forwarded_For: 10.0.0.1\r\n\
                          CDN_Loop: other\r\nIf_None_Match: \"a\"\r\nAccept_Language: fr\r\n\
                          Accept-Language: de\r\nX_Own: 1\r\nX-Forwarded-For: 10.0.0.2\r\n";
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    for (method, length) in [("GET", None), ("POST", Some("0"))] {
        let mut client = edge.client().await;
        let framed = length.map_or(String::new(), |length| format!("Content-Length: {length}\r\n"));
        client.request(method, "/a", &format!("{FIELDS}{framed}")).await;
        let mut fetch = backend.fetch().await;
        let of = |name| field(&fetch.request, name);
        let dropped = ["content_length", "transfer_encoding", "x-forwarded_for", "cdn_loop", "if_none_match"];
        for name in dropped.into_iter().chain(["accept_language"]) {
            assert_eq!(of(name), None, "{method} {name}");
        }
        assert_eq!((of("accept-language"), of("x_own")), (Some("de"), Some("1")), "{method}");
        assert_eq!((of("x-forwarded-for"), of("content-length")), (Some("10.0.0.2, 127.0.0.1"), length));
        fetch.respond("200 OK", "Connection: close\r\n", b"content").await;
        assert_eq!(client.response().await.status, 200);
    }
    edge.stop().await;
}
