//! Client connection tests: pipelining, protocol versions, malformed and excessive requests, and
//! the times in records.

#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use crate::support::{Backend, Client, Fetch, PATIENCE, TestEdge, config, content};
use expect_test::expect;
use thalweg_cache::store::PASS_WINDOW_BYTES;
use thalweg_edge::{Config, Timeouts};
use thalweg_record::{CacheResult, Cmcd, Cut, StreamType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;

/// Stores `/a`.
async fn warm(backend: &Backend, edge: &TestEdge, size: usize) {
    let mut client = edge.client().await;
    client.request("GET", "/a", "").await;
    let mut fetch = backend.fetch().await;
    fetch.respond("200 OK", "Cache-Control: max-age=60\r\nConnection: close\r\n", &content(0, size)).await;
    assert!(client.response().await.content == content(0, size), "wrong content");
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
              TRACE /a HTTP/1.1\r\nHost: media.example\r\n\r\n\
              GET /a HTTP/1.1\r\nHost: media.example\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n\
              GET /a HTTP/1.1\r\nHost: media.example\r\nRange: bytes=-3\r\nConnection: close\r\n\r\n",
        )
        .await;
    assert_eq!(client.response().await.content, content(0, 10));
    let head = client.response_to("HEAD").await;
    assert_eq!((head.status, head.field("content-length")), (200, Some("100000")));
    assert_eq!(client.response().await.content, content(0, 100_000));
    let refused = client.response().await;
    assert_eq!(
        (refused.status, refused.field("allow")),
        (405, Some("GET, HEAD, POST, PUT, DELETE, PATCH, OPTIONS"))
    );
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
async fn chunked_content_of_a_get_is_discarded_up_to_a_limit() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let chunk = [b"4000\r\n", &content(0, 0x4000)[..], b"\r\n"].concat();
    let mut client = edge.client().await;
    client.request("GET", "/a", "Transfer-Encoding: chunked\r\n").await;
    for _ in 0..3 {
        client.send(&chunk).await;
    }
    client.send(b"0\r\n\r\n").await;
    backend.fetch().await.respond("200 OK", "Cache-Control: max-age=60\r\n", b"a").await;
    assert_eq!(client.response().await.content, b"a");
    // Send one more chunk, which exceeds the limit.
    client.request("GET", "/a", "Transfer-Encoding: chunked\r\n").await;
    for _ in 0..4 {
        client.send(&chunk).await;
    }
    let refused = client.response().await;
    assert_eq!((refused.status, refused.field("connection")), (413, Some("close")));
    assert!(client.is_closed().await);
    edge.stop().await;
}

#[tokio::test]
async fn malformed_request_is_refused_and_connection_closed() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let mut records = edge.records.follow();
    let long_target = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(9000));
    let long_head = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "a".repeat(40_000));
    let many_fields = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(200));
    let cases: [(&str, u16); 16] = [
        ("nonsense\r\n\r\n", 400),
        ("\u{1}\u{2} / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        ("GET / HTTP/2.5\r\nHost: a\r\n\r\n", 505),
        ("GET /../etc/passwd HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET /a/%2e%2e/b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400),
        ("CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n", 405),
        ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 10000000\r\n\r\n", 413),
        (&long_target, 414),
        (&long_head, 431),
        (&many_fields, 431),
    ];
    let mut logged = Vec::new();
    for (request, status) in cases {
        let mut client = edge.client().await;
        client.send(request.as_bytes()).await;
        client.send(b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n").await;
        let response = client.response().await;
        assert_eq!(response.status, status, "{}", &request[..request.len().min(80)]);
        assert_eq!(response.field("connection"), Some("close"));
        assert_eq!(response.field("access-control-allow-origin"), Some("*"));
        let record = records.recv().await.unwrap();
        assert_eq!(record.status, status);
        logged.push(format!("{status} {:?} {:.20?}\n", record.method, record.path));
        assert!(client.is_closed().await, "nothing after a malformed request may be served");
    }
    assert!(!backend.is_asked_again().await);
    expect![[r#"
        400 "" ""
        400 "" ""
        400 "GET" "/"
        400 "GET" "/"
        505 "GET" "/"
        400 "GET" "/../etc/passwd"
        400 "GET" "/a/%2e%2e/b"
        400 "GET" "/a"
        400 "GET" "/"
        405 "CONNECT" "a:80"
        400 "GET" "/"
        400 "GET" "/"
        413 "GET" "/"
        414 "GET" ""
        431 "GET" "/"
        431 "GET" "/"
    "#]]
    .assert_eq(&logged.concat());
    edge.stop().await;
}

#[tokio::test]
async fn unserved_host_is_421() {
    let backend = Backend::new().await;
    let edge = TestEdge::start(Config { hosts: vec!["other.example".into()], ..config(backend.address) });
    assert_eq!(edge.get("/a", "").await.status, 421);
    edge.stop().await;
}

#[tokio::test]
async fn connections_beyond_limit_are_closed_immediately() {
    let backend = Backend::new().await;
    let edge = TestEdge::start(Config { connections_max: 2, ..config(backend.address) });
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut client = edge.client().await;
        client.request("TRACE", "/a", "").await;
        assert_eq!(client.response().await.status, 405);
        open.push(client);
    }
    for _ in 0..3 {
        assert!(edge.client().await.is_closed().await);
    }
    for client in &mut open {
        client.request("TRACE", "/a", "").await;
        assert_eq!(client.response().await.status, 405, "open connections are still served");
    }
    drop(open);
    let answered = async {
        loop {
            let mut next = edge.client().await;
            let _ = next.stream.write_all(b"TRACE /a HTTP/1.1\r\nHost: a\r\n\r\n").await;
            if next.up_to(12).await == b"HTTP/1.1 405" {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, answered).await.expect("connections are accepted again");
    edge.stop().await;
}

#[tokio::test]
async fn slow_head_times_out() {
    let backend = Backend::new().await;
    let timeouts = Timeouts {
        head: Duration::from_millis(200),
        idle: Duration::from_millis(400),
        ..Timeouts::default()
    };
    let edge = TestEdge::start(Config { timeouts, ..config(backend.address) });
    let mut records = edge.records.follow();
    for (started, method, path) in [("GET /a HT", "GET", "/a"), ("GET /a", "GET", ""), ("GE", "", "")] {
        let mut trickling = edge.client().await;
        trickling.send(started.as_bytes()).await;
        assert_eq!(trickling.response().await.status, 408);
        let record = records.recv().await.unwrap();
        assert_eq!((&*record.method, &*record.path), (method, path), "only complete words are logged");
    }
    let mut idle = edge.client().await;
    assert!(idle.is_closed().await, "an idle connection closes without a response");
    edge.stop().await;
}

#[tokio::test]
async fn record_describes_each_response() {
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
    assert!(tcp.snd_cwnd > 0 && tcp.rtt_us > 0);
    edge.get("/a", "").await;
    let hit = records.recv().await.unwrap();
    assert_eq!((hit.cache, &hit.cmcd), (CacheResult::Hit, &None));

    // A player sends CMCD. Keys without a record field are ignored.
    let fields =
        "CMCD-Request: bl=0,mtp=1400,su\r\nCMCD-Status: bs,rtp=6400\r\nCMCD-Session: sid=\"a\",st=l\r\n";
    edge.get("/a", fields).await;
    let cmcd = Cmcd {
        sid: Some("a".to_owned()),
        st: Some(StreamType::Live),
        br_kbps: None,
        bl_ms: Some(0),
        mtp_kbps: Some(1400),
        bs: true,
    };
    assert_eq!(records.recv().await.unwrap().cmcd.as_ref(), Some(&cmcd));
    edge.get("/a", "CMCD-Request: su\r\n").await;
    assert_eq!(records.recv().await.unwrap().cmcd.as_ref(), None);

    // A client disconnects in the middle of a response.
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

#[tokio::test]
async fn generated_errors_keep_cors_fields_of_the_stored_response() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let mut client = edge.client().await;
    client.request("GET", "/a", "").await;
    let fields = "Cache-Control: max-age=60\r\nDate: Sun, 06 Nov 2044 08:49:37 GMT\r\n\
                  Vary: Origin\r\nAccess-Control-Allow-Origin: https://player.example\r\n\
                  Access-Control-Expose-Headers: Cache-Status\r\nTiming-Allow-Origin: *\r\n\
                  Content-Type: video/mp4\r\nETag: \"v1\"\r\n";
    backend.fetch().await.respond("200 OK", fields, b"content").await;
    client.response().await;
    for (status, fields) in [(416, "Range: bytes=100-\r\n"), (412, "If-Match: \"v2\"\r\n")] {
        client.request("GET", "/a", fields).await;
        let response = client.response().await;
        assert_eq!(response.status, status);
        let names = [
            "date",
            "vary",
            "access-control-allow-origin",
            "access-control-expose-headers",
            "timing-allow-origin",
            "via",
            "content-type",
        ];
        assert_eq!(
            names.map(|name| response.field(name)),
            [
                Some("Sun, 06 Nov 2044 08:49:37 GMT"),
                Some("Origin"),
                Some("https://player.example"),
                Some("Cache-Status"),
                Some("*"),
                Some("1.1 thalweg"),
                None
            ]
        );
    }
    edge.stop().await;
}

/// Converts to microseconds.
fn us(duration: Duration) -> u64 {
    duration.as_micros() as u64
}

#[tokio::test]
async fn record_has_times_to_first_and_last_byte() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    warm(&backend, &edge, 100_000).await;
    let mut records = edge.records.follow();
    // Let time pass by serving other requests.
    let some_time = async || {
        for _ in 0..20 {
            assert_eq!(edge.get("/a", "").await.status, 200);
        }
    };
    let mut client = edge.client().await;
    let before_request = Instant::now();
    client.request("GET", "/held", "").await;
    let mut fetch = backend.fetch().await;
    let requested = Instant::now();
    some_time().await;
    let head_held = requested.elapsed();
    fetch.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nCache-Control: max-age=60\r\n\r\na").await;
    client.head().await;
    client.exactly(1).await;
    let (first, content_held) = (before_request.elapsed(), Instant::now());
    some_time().await;
    let content_held = content_held.elapsed();
    fetch.send("b").await;
    client.exactly(1).await;
    let held = loop {
        let record = records.recv().await.unwrap();
        if record.path == "/held" {
            break record;
        }
    };
    let ttfb_us = held.ttfb_us.unwrap();
    assert!(us(head_held) <= ttfb_us && ttfb_us <= us(first), "{head_held:?}, {ttfb_us} us, {first:?}");
    assert!(us(content_held) <= held.written_us - ttfb_us, "{content_held:?}, {} us", held.written_us);
    edge.stop().await;
}

/// Connects a client with a small receive buffer.
async fn slow_client(edge: &TestEdge) -> Client {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    Client::new(socket.connect(edge.address).await.unwrap())
}

/// Starts an edge with a short send timeout.
fn impatient(backend: &Backend) -> TestEdge {
    let timeouts = Timeouts { send_stall: Duration::from_secs(1), ..Timeouts::default() };
    TestEdge::start(Config { timeouts, memory_bytes: 256 << 20, ..config(backend.address) })
}

/// Content length beyond what the kernel buffers for a client that does not read.
const TOO_MUCH: usize = 12 << 20;

#[tokio::test]
async fn first_byte_time_is_recorded_even_if_piece_never_ends() {
    let backend = Backend::new().await;
    let edge = impatient(&backend);
    let mut records = edge.records.follow();
    warm(&backend, &edge, TOO_MUCH).await;
    assert_eq!(records.recv().await.unwrap().cache, CacheResult::Miss);
    let mut client = slow_client(&edge).await;
    let asked = Instant::now();
    client.request("GET", "/a", "").await;
    client.head().await;
    let first = asked.elapsed();
    let record = records.recv().await.unwrap();
    assert_eq!(record.cut, Some(Cut::ClientStalled));
    assert!(record.ttfb_us.unwrap() <= us(first), "{record:?}, {first:?}");
    edge.stop().await;
}

const UNTIL_CLOSE: &str =
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nCache-Control: max-age=60\r\n\r\n";

/// Connects an HTTP/1.0 client and reads the head of an unfinished response, delimited by the end
/// of the connection.
async fn until_close(backend: &Backend, edge: &TestEdge, fields: &str, content: &[u8]) -> (Client, Fetch) {
    let mut client = slow_client(edge).await;
    client.send(format!("GET /a HTTP/1.0\r\nHost: media.example\r\n{fields}\r\n").as_bytes()).await;
    let mut fetch = backend.fetch().await;
    fetch.send(UNTIL_CLOSE).await;
    fetch.chunk(content).await;
    client.head().await;
    (client, fetch)
}

/// Reads all data, and returns whether the connection then ends with a reset.
async fn is_reset(mut client: Client) -> bool {
    let end = client.stream.read_to_end(&mut Vec::new()).await;
    matches!(end, Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset)
}

#[tokio::test]
async fn truncated_close_delimited_content_ends_with_a_reset() {
    for fields in ["", "Connection: keep-alive\r\n"] {
        let backend = Backend::new().await;
        let edge = impatient(&backend);
        let mut records = edge.records.follow();

        let (stalled, fetch) = until_close(&backend, &edge, fields, &content(0, TOO_MUCH)).await;
        assert_eq!(records.recv().await.unwrap().cut, Some(Cut::ClientStalled));
        assert!(is_reset(stalled).await, "a stalled client's connection is reset");
        drop(fetch);

        let (mut failed, fetch) = until_close(&backend, &edge, fields, b"begin").await;
        failed.exactly(5).await;
        drop(fetch);
        assert_eq!(records.recv().await.unwrap().cut, Some(Cut::BackendFailed));
        assert!(is_reset(failed).await, "a response of a failed backend is reset");

        let (mut stopped, _fetch) = until_close(&backend, &edge, fields, b"begin").await;
        stopped.exactly(5).await;
        edge.stop().await;
        assert!(is_reset(stopped).await, "a response cut by a stop is reset");
    }
}

#[tokio::test]
async fn response_without_follower_still_gets_number() {
    let backend = Backend::new().await;
    let edge = TestEdge::start(config(backend.address));
    let mut client = edge.client().await;
    for _ in 0..3 {
        client.request("TRACE", "/a", "").await;
        client.response().await;
    }
    // The first two responses have ended, because another request followed each. The third may end
    // only after the follower has connected.
    let mut records = edge.records.follow();
    for _ in 3..5 {
        client.request("TRACE", "/a", "").await;
        client.response().await;
    }
    let mut numbers = Vec::new();
    while numbers.last() != Some(&4) {
        numbers.push(records.recv().await.unwrap().number);
    }
    assert!(matches!(numbers[..], [3, 4] | [2, 3, 4]), "{numbers:?}");
    edge.stop().await;
}
