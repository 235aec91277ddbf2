//! Tests of methods other than GET and HEAD, by RFC section. Requests are forwarded with their
//! content and never sent twice, responses are never stored, and responses that may have changed
//! are purged.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use crate::policy::File;
use crate::support::{Backend, Client, Fetch, PATIENCE, TestEdge, config, content, field};
use thalweg_edge::{Config, Timeouts};

const STORED: &str = "Cache-Control: max-age=60\r\nConnection: close\r\n";

/// Stores a response for `path`, with the path as content.
async fn store(backend: &Backend, edge: &TestEdge, path: &str) {
    let mut client = edge.client().await;
    client.request("GET", path, "").await;
    backend.fetch().await.respond("200 OK", STORED, path.as_bytes()).await;
    assert_eq!(client.response().await.content, path.as_bytes());
}

/// Returns whether the cache serves `path` without a backend.
async fn is_stored(edge: &TestEdge, path: &str) -> bool {
    edge.get(path, "Cache-Control: only-if-cached\r\n").await.status == 200
}

/// Starts a request, and returns the backend side of its fetch.
async fn start_request(backend: &Backend, client: &mut Client, method: &str, fields: &str) -> Fetch {
    client.request(method, "/a", fields).await;
    backend.fetch().await
}

#[tokio::test]
async fn rfc9110_9_unsafe_method_is_forwarded_with_content_and_not_stored() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let mut client = edge.client().await;
    for method in ["POST", "PUT", "DELETE", "PATCH", "Update"] {
        let fields = "Content-Length: 5\r\nContent-Type: text/plain\r\nIf-Match: \"v1\"\r\n";
        client.request(method, "/a?b", fields).await;
        client.send(b"hello").await;
        let mut fetch = backend.fetch().await;
        assert!(fetch.request.starts_with(&format!("{method} /a?b HTTP/1.1\r\n")), "{}", fetch.request);
        let of = |name| field(&fetch.request, name);
        assert_eq!((of("content-length"), of("content-type")), (Some("5"), Some("text/plain")));
        assert_eq!((of("if-match"), of("transfer-encoding")), (Some("\"v1\""), None));
        assert_eq!(fetch.client.exactly(5).await, b"hello");
        fetch.respond("200 OK", "Cache-Control: max-age=60\r\nETag: \"v2\"\r\n", b"done").await;
        let done = client.response().await;
        assert_eq!((done.status, &done.content[..]), (200, &b"done"[..]));
        assert!(done.cache_status().starts_with("thalweg; fwd=method; fwd-status=200"), "{}", done.head);
        assert!(!is_stored(&edge, "/a?b").await);
    }
    edge.stop().await;
}

#[tokio::test]
async fn publishing_is_refused_unless_configured() {
    let backend = Backend::new().await;
    let port = backend.address.port();
    let policy = File::new(format!(
        "vcl 4.1;\nbackend b {{ .host = \"127.0.0.1\"; .port = \"{port}\"; }}\nsub vcl_recv {{ return (pass); }}\n"
    ));
    for policy in [None, Some(policy.0.clone())] {
        let edge = TestEdge::start(Config { policy: policy.clone(), ..config(backend.address) });
        for (method, path) in [("PUT", "/ingest/a/v.cmfv"), ("POST", "/%69ngest/a"), ("DELETE", "//ingest/a")]
        {
            let mut client = edge.client().await;
            client.request(method, path, "Content-Length: 0\r\n").await;
            let refused = client.response().await;
            let words = "403 Forbidden: publishing through an edge is refused: push to the origin's ingest listener\n";
            assert_eq!((refused.status, &refused.content[..]), (403, words.as_bytes()), "{method} {path}");
        }
        edge.stop().await;
        let edge = TestEdge::start(Config { forwards_ingest: true, policy, ..config(backend.address) });
        let mut client = edge.client().await;
        client.request("PUT", "/ingest/a", "Content-Length: 0\r\n").await;
        backend.fetch().await.respond("200 OK", "", b"").await;
        assert_eq!(client.response().await.status, 200);
        edge.stop().await;
    }
}

#[tokio::test]
async fn rfc9112_7_1_chunked_content_is_rechunked() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let mut client = edge.client().await;
    let mut fetch =
        start_request(&backend, &mut client, "POST", "Transfer-Encoding: chunked\r\nTrailer: X-Sum\r\n")
            .await;
    let of = |name| field(&fetch.request, name);
    assert_eq!((of("transfer-encoding"), of("content-length"), of("trailer")), (Some("chunked"), None, None));
    client.send(b"3;extension=1\r\nabc\r\n").await;
    assert_eq!(fetch.client.chunk().await.unwrap().unwrap(), b"abc", "the chunk is forwarded at once");
    client.send(b"02\r\nde\r\n0\r\nX-Sum: 1\r\n\r\n").await;
    assert_eq!(fetch.client.chunk().await.unwrap().unwrap(), b"de");
    assert_eq!(fetch.client.chunk().await, Ok(None));
    fetch.respond("204 No Content", "", b"").await;
    assert_eq!(client.response().await.status, 204);
    // Both connections can be reused.
    client.request("GET", "/b", "").await;
    fetch.next().await;
    assert!(fetch.request.starts_with("GET /b "), "{}", fetch.request);
    fetch.respond("200 OK", "", b"b").await;
    assert_eq!(client.response().await.content, b"b");
    edge.stop().await;
}

#[tokio::test]
async fn rfc9111_4_4_successful_change_purges_target_and_locations() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let all = ["/a", "/dir/b", "/c?d", "/e"];
    for path in all {
        store(&backend, &edge, path).await;
    }
    let change = async |status: &str, fields: &str| {
        let mut client = edge.client().await;
        client.request("POST", "/a", "").await;
        backend.fetch().await.respond(status, &format!("{fields}Connection: close\r\n"), b"").await;
        client.response().await;
    };
    let elsewhere = "Location: http://other.example/e\r\nContent-Location: http://media.example:8080/e\r\n";
    for status in ["404 Not Found", "500 Internal Server Error"] {
        change(status, "Location: /dir/b\r\n").await;
        assert!(is_stored(&edge, "/a").await && is_stored(&edge, "/dir/b").await, "{status}");
    }
    change("201 Created", elsewhere).await;
    assert!(!is_stored(&edge, "/a").await && is_stored(&edge, "/e").await);
    store(&backend, &edge, "/a").await;
    change("303 See Other", "Location: http://media.example/dir/./b#x\r\nContent-Location: c?d\r\n").await;
    for (path, kept) in all.into_iter().zip([false, false, false, true]) {
        assert_eq!(is_stored(&edge, path).await, kept, "{path}");
    }
    edge.stop().await;
}

#[tokio::test]
async fn rfc9111_4_4_response_fetched_during_change_is_not_stored() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let mut reader = edge.client().await;
    reader.request("GET", "/a", "").await;
    let mut fetch = backend.fetch().await;
    let mut client = edge.client().await;
    start_request(&backend, &mut client, "DELETE", "").await.respond("204 No Content", "", b"").await;
    assert_eq!(client.response().await.status, 204);
    fetch.respond("200 OK", STORED, b"old").await;
    assert_eq!(reader.response().await.content, b"old");
    assert!(!is_stored(&edge, "/a").await);
    edge.stop().await;
}

#[tokio::test]
async fn rfc9110_10_1_1_100_continue_is_sent_once_backend_has_head() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let mut client = edge.client().await;
    let expects = "Expect: 100-Continue\r\nContent-Length: 3\r\n";
    let mut fetch = start_request(&backend, &mut client, "PUT", expects).await;
    assert_eq!(field(&fetch.request, "expect"), None);
    assert_eq!(client.head().await, "HTTP/1.1 100 Continue\r\n\r\n");
    client.send(b"abc").await;
    assert_eq!(fetch.client.exactly(3).await, b"abc");
    fetch.respond("201 Created", "", b"").await;
    assert_eq!(client.response().await.status, 201);
    client.request("PUT", "/a", "Expect: a-miracle\r\nContent-Length: 3\r\n").await;
    assert_eq!(client.response().await.status, 417);
    assert!(client.is_closed().await);
    // The edge does not request content that it cannot forward.
    let address = backend.address;
    drop((backend, fetch));
    let mut client = edge.client().await;
    client.request("PUT", "/a", expects).await;
    let down = client.response().await;
    assert_eq!((down.status, down.field("connection")), (502, Some("close")), "{address}");
    edge.stop().await;
}

#[tokio::test]
async fn rfc9112_9_5_response_may_precede_end_of_request_content() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let mut client = edge.client().await;
    let mut fetch = start_request(&backend, &mut client, "POST", "Content-Length: 6\r\n").await;
    client.send(b"abc").await;
    assert_eq!(fetch.client.exactly(3).await, b"abc");
    fetch.respond("202 Accepted", "", b"early").await;
    let early = client.response().await;
    assert_eq!((early.status, &early.content[..]), (202, &b"early"[..]));
    client.send(b"def").await;
    assert_eq!(fetch.client.exactly(3).await, b"def");
    client.request("GET", "/b", "").await;
    fetch.next().await;
    fetch.respond("200 OK", "", b"b").await;
    assert_eq!(client.response().await.content, b"b", "both connections are reused");

    // The response starts early and ends late, so that both directions are active concurrently.
    let mut fetch = start_request(&backend, &mut client, "POST", "Transfer-Encoding: chunked\r\n").await;
    fetch.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    client.head().await;
    for part in [b"one", b"two"] {
        client.send(b"3\r\n").await;
        client.send(part).await;
        client.send(b"\r\n").await;
        assert_eq!(fetch.client.chunk().await.unwrap().unwrap(), part);
        fetch.chunk(part).await;
        assert_eq!(client.chunk().await.unwrap().unwrap(), part);
    }
    client.send(b"0\r\n\r\n").await;
    assert_eq!(fetch.client.chunk().await, Ok(None));
    fetch.send("0\r\n\r\n").await;
    assert_eq!(client.chunk().await, Ok(None));

    // The backend responds and stops reading.
    let mut fetch = start_request(&backend, &mut client, "POST", "Content-Length: 6\r\n").await;
    fetch.respond("413 Content Too Large", "Connection: close\r\n", b"too large").await;
    let refused = client.response().await;
    assert_eq!((refused.status, &refused.content[..]), (413, &b"too large"[..]));
    assert!(client.is_closed().await, "the rest must not be parsed as a request");
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upload_waits_for_a_backend_that_does_not_read() {
    const TOTAL: usize = 64 << 20;
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let mut client = edge.client().await;
    let mut fetch =
        start_request(&backend, &mut client, "PUT", &format!("Content-Length: {TOTAL}\r\n")).await;
    let all = content(0, TOTAL);
    let mut sent = 0;
    let write = async |client: &mut Client, from: usize| {
        use tokio::io::AsyncWriteExt;
        client.stream.write(&all[from..]).await.unwrap()
    };
    // The backend reads nothing, so the client can send only as much as buffers hold.
    while let Ok(written) = tokio::time::timeout(Duration::from_millis(500), write(&mut client, sent)).await {
        sent += written;
        assert!(sent < TOTAL / 2, "{sent} bytes read for a backend that reads none");
    }
    let reading = tokio::spawn(async move { (fetch.client.exactly(TOTAL).await, fetch) });
    while sent < TOTAL {
        sent += write(&mut client, sent).await;
    }
    let (read, mut fetch) = reading.await.unwrap();
    assert!(read == all);
    fetch.respond("201 Created", "", b"").await;
    assert_eq!(client.response().await.status, 201);
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_that_sends_everything_before_reading_is_not_blocked() {
    const TOTAL: usize = 32 << 20;
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let mut client = edge.client().await;
    let fetch = start_request(&backend, &mut client, "POST", &format!("Content-Length: {TOTAL}\r\n")).await;
    let (mut reader, mut writer) = fetch.client.stream.into_split();
    let answering = tokio::spawn(async move {
        use tokio::io::AsyncWriteExt;
        writer
            .write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {TOTAL}\r\n\r\n").as_bytes())
            .await
            .unwrap();
        writer.write_all(&content(0, TOTAL)).await.unwrap();
        writer
    });
    let taking = tokio::spawn(async move {
        use tokio::io::AsyncReadExt;
        let mut taken = vec![0; TOTAL];
        reader.read_exact(&mut taken).await.unwrap();
        assert!(taken == content(0, TOTAL));
    });
    tokio::time::timeout(PATIENCE, client.send(&content(0, TOTAL))).await.expect("sending does not deadlock");
    taking.await.unwrap();
    client.head().await;
    assert!(client.exactly(TOTAL).await == content(0, TOTAL));
    drop(answering.await.unwrap());
    edge.stop().await;
}

#[tokio::test]
async fn rfc9110_9_2_2_request_that_may_have_been_executed_is_not_repeated() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    // This request is not idempotent.
    let mut client = edge.client().await;
    drop(start_request(&backend, &mut client, "POST", "").await);
    assert_eq!(client.response().await.status, 502);
    assert!(!backend.is_asked_again().await);
    // This request is idempotent, but its content has been sent.
    client.request("PUT", "/a", "Content-Length: 6\r\n").await;
    let mut fetch = backend.fetch().await;
    client.send(b"abc").await;
    assert_eq!(fetch.client.exactly(3).await, b"abc");
    drop(fetch);
    let lost = client.response().await;
    assert_eq!((lost.status, lost.field("connection")), (502, Some("close")));
    assert!(!backend.is_asked_again().await);
    // This request is idempotent and has no content.
    let mut client = edge.client().await;
    drop(start_request(&backend, &mut client, "DELETE", "").await);
    backend.fetch().await.respond("204 No Content", "", b"").await;
    assert_eq!(client.response().await.status, 204);
    edge.stop().await;
}

#[tokio::test]
async fn rfc9112_8_aborted_content_does_not_look_complete() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    for fields in ["Content-Length: 6\r\n", "Transfer-Encoding: chunked\r\n"] {
        let mut client = edge.client().await;
        let mut fetch = start_request(&backend, &mut client, "POST", fields).await;
        client.send(b"3\r\na").await;
        drop(client);
        let mut end = fetch.client.up_to(100).await;
        assert!(end.len() < 6 + 5 && !end.ends_with(b"0\r\n\r\n"), "{:?}", String::from_utf8_lossy(&end));
        end.clear();
    }
    let mut client = edge.client().await;
    let mut fetch = start_request(&backend, &mut client, "POST", "Transfer-Encoding: chunked\r\n").await;
    client.send(b"1\r\na\r\nnonsense\r\n").await;
    let refused = client.response().await;
    assert_eq!((refused.status, refused.field("connection")), (400, Some("close")));
    assert_eq!(fetch.client.up_to(100).await, b"1\r\na\r\n");
    edge.stop().await;
}

#[tokio::test]
async fn stalled_client_and_stalled_backend_time_out() {
    let backend = Backend::new().await;
    let short = Duration::from_millis(200);
    let timeouts =
        Timeouts { send_stall: short, first_byte: short, between_bytes: short, ..Timeouts::default() };
    let edge = TestEdge::start(Config { timeouts, ..config(backend.address) });
    let mut client = edge.client().await;
    let mut fetch = start_request(&backend, &mut client, "POST", "Content-Length: 6\r\n").await;
    assert_eq!(client.response().await.status, 408);
    assert!(fetch.client.is_closed().await);
    let mut client = edge.client().await;
    let _silent = start_request(&backend, &mut client, "POST", "Content-Length: 0\r\n").await;
    assert_eq!(client.response().await.status, 504);
    let mut client = edge.client().await;
    let _full = start_request(&backend, &mut client, "POST", "Content-Length: 100000000\r\n").await;
    let (mut reader, mut writer) = client.stream.into_split();
    let writing = tokio::spawn(async move {
        use tokio::io::AsyncWriteExt;
        while writer.write_all(&[7; 1 << 16]).await.is_ok() {}
    });
    let mut head = [0; 12];
    use tokio::io::AsyncReadExt;
    tokio::time::timeout(PATIENCE, reader.read_exact(&mut head)).await.unwrap().unwrap();
    assert_eq!(&head, b"HTTP/1.1 504");
    writing.await.unwrap();
    edge.stop().await;
}

#[tokio::test]
async fn rfc9110_15_5_9_pausing_client_gets_408() {
    let backend = Backend::new().await;
    // All other timeouts are longer, so that this one expires first.
    let timeouts = Timeouts {
        send_stall: Duration::from_millis(200),
        first_byte: 2 * PATIENCE,
        between_bytes: 2 * PATIENCE,
        head: 2 * PATIENCE,
        ..Timeouts::default()
    };
    let edge = TestEdge::start(Config { timeouts, ..config(backend.address) });
    let chunked = "Transfer-Encoding: chunked\r\n";
    let length = "Content-Length: 6\r\n";
    for (fields, content) in [(length, ""), (length, "abc"), (chunked, ""), (chunked, "1\r\na\r\n1\r\n")] {
        let mut client = edge.client().await;
        let mut fetch = start_request(&backend, &mut client, "POST", fields).await;
        client.send(content.as_bytes()).await;
        let refused = client.response().await;
        assert_eq!((refused.status, refused.whole), (408, true), "{fields} {content}");
        fetch.client.up_to(100).await;
        assert!(fetch.client.is_closed().await, "{fields} {content}");
        assert!(client.is_closed().await, "{fields} {content}");
    }
    edge.stop().await;
}

#[tokio::test]
async fn rfc9110_9_3_unsupported_methods_are_refused() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let mut client = edge.client().await;
    client.request("TRACE", "/a", "").await;
    let refused = client.response().await;
    assert_eq!(
        (refused.status, refused.field("allow")),
        (405, Some("GET, HEAD, POST, PUT, DELETE, PATCH, OPTIONS"))
    );
    client.send(b"CONNECT media.example:80 HTTP/1.1\r\nHost: media.example\r\n\r\n").await;
    let refused = client.response().await;
    assert_eq!((refused.status, refused.field("connection")), (405, Some("close")));
    assert!(refused.field("allow").is_some() && client.is_closed().await);
    assert!(!backend.is_asked_again().await);
    edge.stop().await;
}

/// The backend responds to each preflight (Fetch, "CORS-preflight request").
#[tokio::test]
async fn options_and_preflights_are_passed() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let mut client = edge.client().await;
    let preflight = "Origin: https://player.example\r\nAccess-Control-Request-Method: GET\r\n\
        Access-Control-Request-Headers: range\r\n";
    for _ in 0..2 {
        client.request("OPTIONS", "/a", preflight).await;
        let mut fetch = backend.fetch().await;
        assert!(fetch.request.starts_with("OPTIONS /a "), "{}", fetch.request);
        assert!(fetch.request.contains("Access-Control-Request-Headers: range"), "{}", fetch.request);
        let allowed = "Access-Control-Allow-Origin: *\r\nAccess-Control-Allow-Headers: Range\r\n";
        fetch.respond("204 No Content", allowed, b"").await;
        let response = client.response_to("OPTIONS").await;
        assert_eq!((response.status, response.field("access-control-allow-headers")), (204, Some("Range")));
    }
    edge.stop().await;
}

/// RFC 9110 §7.6.2: a recipient that must not forward a request responds itself.
#[tokio::test]
async fn rfc9110_7_6_2_options_with_zero_max_forwards_is_answered_here() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let mut client = edge.client().await;
    client.request("OPTIONS", "/a", "Max-Forwards: 0\r\n").await;
    let response = client.response().await;
    assert_eq!((response.status, response.field("allow").is_some()), (200, true));
    client.request("OPTIONS", "/a", "Max-Forwards: 5\r\n").await;
    let mut fetch = backend.fetch().await;
    assert!(fetch.request.contains("Max-Forwards: 4\r\n"), "{}", fetch.request);
    fetch.respond("204 No Content", "", b"").await;
    assert_eq!(client.response_to("OPTIONS").await.status, 204);
    edge.stop().await;
}

/// RFC 9110 §10.1.1: a client that waits for a 100 receives it if its content is short enough to
/// discard.
#[tokio::test]
async fn rfc9110_10_1_1_get_with_expect_and_short_content_is_answered() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let mut client = edge.client().await;
    client.request("GET", "/a", "Content-Length: 5\r\nExpect: 100-continue\r\n").await;
    assert_eq!(client.head().await, "HTTP/1.1 100 Continue\r\n\r\n");
    client.send(b"hello").await;
    let mut fetch = backend.fetch().await;
    assert!(
        !fetch.request.contains("Content-Length") && !fetch.request.contains("Expect"),
        "{}",
        fetch.request
    );
    fetch.respond("200 OK", "", b"a").await;
    assert_eq!(client.response().await.content, b"a");
    client.request("GET", "/a", "Content-Length: 99999\r\nExpect: 100-continue\r\n").await;
    assert_eq!(client.response().await.status, 413);
    edge.stop().await;
}

/// RFC 9110 §9.3.2: a response to HEAD has no content, even if the request cannot be parsed.
#[tokio::test]
async fn rfc9110_9_3_2_400_to_head_has_no_content() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let mut client = edge.client().await;
    client.send(b"HEAD / HTTP/1.1\r\nHost a\r\n\r\n").await;
    let refused = client.response_to("HEAD").await;
    assert_eq!(refused.status, 400);
    assert!(client.is_closed().await, "nothing follows the head");
    edge.stop().await;
}

#[tokio::test]
async fn unsafe_method_without_content_keeps_the_connection() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let mut client = edge.client().await;
    for method in ["POST", "PUT", "DELETE"] {
        client.request(method, "/a", "Content-Length: 0\r\n").await;
        backend.fetch().await.respond("204 No Content", "", b"").await;
        let response = client.response_to("HEAD").await;
        assert_eq!((response.status, response.field("connection")), (204, None), "{method}");
    }
    edge.stop().await;
}
