//! The client's connection: pipelining, versions, malformed and excessive requests, never a state in doubt.

#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use support::{Backend, TestEdge, config, content};
use thalweg_cache::store::PASS_WINDOW_BYTES;
use thalweg_edge::{Config, Timeouts};
use thalweg_record::{CacheResult, Cut};

/// An edge with `/a` stored.
async fn warm(backend: &Backend, edge: &TestEdge, size: usize) {
    let mut client = edge.client().await;
    client.request("GET", "/a", "").await;
    let mut fetch = backend.fetch().await;
    fetch.respond("200 OK", "Cache-Control: max-age=60\r\nConnection: close\r\n", &content(0, size)).await;
    assert_eq!(client.response().await.content, content(0, size));
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    warm(&backend, &edge, 100_000).await;
    let mut client = edge.client().await;
    client
        .send(
            b"GET /a HTTP/1.1\r\nHost: media.example\r\nRange: bytes=0-9\r\n\r\n\
              HEAD /a HTTP/1.1\r\nHost: media.example\r\n\r\n\
              GET /a HTTP/1.1\r\nHost: media.example\r\nContent-Length: 5\r\n\r\nhello\
              POST /a HTTP/1.1\r\nHost: media.example\r\n\r\n\
              GET /a HTTP/1.1\r\nHost: media.example\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n\
              GET /a HTTP/1.1\r\nHost: media.example\r\nRange: bytes=-3\r\nConnection: close\r\n\r\n",
        )
        .await;
    assert_eq!(client.response().await.content, content(0, 10));
    let head = client.response_to("HEAD").await;
    assert_eq!((head.status, head.field("content-length")), (200, Some("100000")));
    assert_eq!(client.response().await.content, content(0, 100_000));
    let refused = client.response().await;
    assert_eq!((refused.status, refused.field("allow")), (405, Some("GET, HEAD")));
    assert_eq!(client.response().await.content, content(0, 100_000));
    let last = client.response().await;
    assert_eq!((last.status, last.content, last.head.contains("close")), (206, content(99_997, 3), true));
    assert!(client.is_closed().await);
    edge.stop().await;
}

#[tokio::test]
async fn http_1_0_gets_no_chunked_coding() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let mut client = edge.client().await;
    client.send(b"GET /a HTTP/1.0\r\nHost: media.example\r\n\r\n").await;
    let mut fetch = backend.fetch().await;
    fetch.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nCache-Control: max-age=60\r\n\r\n").await;
    fetch.chunk(b"content").await;
    fetch.send("0\r\n\r\n").await;
    let response = client.response().await;
    assert_eq!((response.field("transfer-encoding"), &response.content[..]), (None, &b"content"[..]));
    let mut client = edge.client().await;
    client.send(b"GET /a HTTP/1.0\r\nHost: media.example\r\nConnection: keep-alive\r\n\r\n").await;
    let response = client.response().await;
    assert_eq!(
        (response.field("connection"), response.field("content-length")),
        (Some("keep-alive"), Some("7"))
    );
    edge.stop().await;
}

#[tokio::test]
async fn what_is_malformed_is_refused_and_closed() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let long_target = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(9000));
    let long_head = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "a".repeat(40_000));
    let many_fields = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(200));
    let cases: [(&str, u16); 15] = [
        ("nonsense\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        ("GET / HTTP/2.5\r\nHost: a\r\n\r\n", 505),
        ("GET /../etc/passwd HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET /a/%2e%2e/b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400),
        ("CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n", 501),
        ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 10000000\r\n\r\n", 413),
        (&long_target, 414),
        (&long_head, 431),
        (&many_fields, 431),
    ];
    for (request, status) in cases {
        let mut client = edge.client().await;
        client.send(request.as_bytes()).await;
        client.send(b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n").await;
        let response = client.response().await;
        assert_eq!(response.status, status, "{}", &request[..request.len().min(80)]);
        assert_eq!(response.field("connection"), Some("close"));
        assert!(client.is_closed().await, "nothing after a request in doubt is answered");
    }
    assert!(!backend.is_asked_again().await);
    edge.stop().await;
}

#[tokio::test]
async fn hosts_that_are_not_served_are_421() {
    let backend = Backend::new().await;
    let edge = TestEdge::start(Config { hosts: vec!["other.example".into()], ..config(backend.address) });
    assert_eq!(edge.get("/a", "").await.status, 421);
    edge.stop().await;
}

#[tokio::test]
async fn a_head_that_trickles_is_cut_off() {
    let backend = Backend::new().await;
    let timeouts = Timeouts {
        head: Duration::from_millis(200),
        idle: Duration::from_millis(400),
        ..Timeouts::default()
    };
    let edge = TestEdge::start(Config { timeouts, ..config(backend.address) });
    let mut trickling = edge.client().await;
    trickling.send(b"GET / HT").await;
    assert_eq!(trickling.response().await.status, 408);
    let mut idle = edge.client().await;
    assert!(idle.is_closed().await, "no answer to no request");
    edge.stop().await;
}

#[tokio::test]
async fn records_say_how_each_response_went() {
    let backend = Backend::new().await;
    let cubic = "cubic".parse().unwrap();
    let edge = TestEdge::start(Config { congestion_control: Some(cubic), ..config(backend.address) });
    let mut records = edge.records.follow();
    warm(&backend, &edge, 100_000).await;
    let miss = records.recv().await.unwrap();
    assert_eq!((miss.cache, miss.status, miss.bytes, miss.cut), (CacheResult::Miss, 200, 100_000, None));
    assert_eq!((&*miss.path, &*miss.host, &*miss.method), ("/a", "media.example", "GET"));
    let tcp = miss.tcp.clone().unwrap();
    assert_eq!(tcp.congestion_control, "cubic");
    assert!(tcp.snd_cwnd > 0 && tcp.rtt_us > 0 && miss.ttfb_us.unwrap() <= miss.duration_us);
    edge.get("/a", "").await;
    assert_eq!(records.recv().await.unwrap().cache, CacheResult::Hit);

    // A client that leaves in the middle.
    let mut client = edge.client().await;
    client.request("GET", "/b", "").await;
    let mut fetch = backend.fetch().await;
    fetch.send("HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\nCache-Control: no-store\r\n\r\n").await;
    client.head().await;
    drop(client);
    while fetch.try_send(&vec![0; PASS_WINDOW_BYTES]).await {}
    let left = records.recv().await.unwrap();
    assert_eq!((left.cache, left.cut), (CacheResult::Pass, Some(Cut::ClientClosed)));
    edge.stop().await;
}
