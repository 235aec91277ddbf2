//! The way of a message over several nodes (RFC 9110 §7.6, RFC 8586), over real sockets.

#![allow(clippy::unwrap_used)]

use crate::support::{Backend, TestEdge, config, field};

#[tokio::test]
async fn rfc9110_7_6_1_what_is_for_one_connection_stays_on_it() {
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
async fn rfc9110_7_6_3_via_grows_on_both_ways() {
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
    assert_eq!(client.response().await.field("via"), Some("1.0 thalweg"), "as it was received");
    assert_eq!(edge.get("/b", "").await.field("via"), Some("1.0 thalweg"), "also when it is stored");
    edge.stop().await;
}

#[tokio::test]
async fn rfc8586_2_a_request_that_goes_in_a_circle_is_ended() {
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
        let text = "508 Loop Detected: the request has come through this node before\n";
        assert_eq!(String::from_utf8(refused.content).unwrap(), text);
    }
    fetch.respond("200 OK", "", b"content").await;
    assert_eq!(client.response().await.status, 200);
    assert!(!backend.is_asked_again().await);
    edge.stop().await;
}

#[tokio::test]
async fn rfc8586_tiers_of_nodes_are_no_loop_and_a_node_before_itself_is() {
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

    // The far one takes the near one for its origin.
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
async fn rfc9110_7_6_1_what_the_backend_does_not_see_selects_nothing() {
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
