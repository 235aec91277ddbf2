//! Methods other than GET and HEAD, over real sockets, by rule: passed on with their content, never stored, never sent
//! twice, and what they change is forgotten.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use crate::support::{Backend, Client, Fetch, PATIENCE, TestEdge, config, content, field};
use thalweg_edge::{Config, Timeouts};

const STORED: &str = "Cache-Control: max-age=60\r\nConnection: close\r\n";

/// Has `path` stored, with its own name as content.
async fn store(backend: &Backend, edge: &TestEdge, path: &str) {
    let mut client = edge.client().await;
    client.request("GET", path, "").await;
    backend.fetch().await.respond("200 OK", STORED, path.as_bytes()).await;
    assert_eq!(client.response().await.content, path.as_bytes());
}

/// Whether `path` is answered without asking anybody.
async fn is_stored(edge: &TestEdge, path: &str) -> bool {
    edge.get(path, "Cache-Control: only-if-cached\r\n").await.status == 200
}

/// A request begun, and the backend's end of it.
async fn begun(backend: &Backend, client: &mut Client, method: &str, fields: &str) -> Fetch {
    client.request(method, "/a", fields).await;
    backend.fetch().await
}

#[tokio::test]
async fn rfc9110_9_a_change_is_passed_on_with_its_content_and_not_stored() {
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
async fn rfc9112_7_1_chunked_content_is_framed_anew() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let mut client = edge.client().await;
    let mut fetch =
        begun(&backend, &mut client, "POST", "Transfer-Encoding: chunked\r\nTrailer: X-Sum\r\n").await;
    let of = |name| field(&fetch.request, name);
    assert_eq!((of("transfer-encoding"), of("content-length"), of("trailer")), (Some("chunked"), None, None));
    client.send(b"3;extension=1\r\nabc\r\n").await;
    assert_eq!(fetch.client.chunk().await.unwrap().unwrap(), b"abc", "at once");
    client.send(b"02\r\nde\r\n0\r\nX-Sum: 1\r\n\r\n").await;
    assert_eq!(fetch.client.chunk().await.unwrap().unwrap(), b"de");
    assert_eq!(fetch.client.chunk().await, Ok(None));
    fetch.respond("204 No Content", "", b"").await;
    assert_eq!(client.response().await.status, 204);
    // What came with the content does not stand in the way of the next request, nor the connection of the next fetch.
    client.request("GET", "/b", "").await;
    fetch.next().await;
    assert!(fetch.request.starts_with("GET /b "), "{}", fetch.request);
    fetch.respond("200 OK", "", b"b").await;
    assert_eq!(client.response().await.content, b"b");
    edge.stop().await;
}

#[tokio::test]
async fn rfc9111_4_4_a_successful_change_invalidates_what_it_names() {
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
async fn rfc9111_4_4_what_is_being_fetched_is_from_before_the_change() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let mut reader = edge.client().await;
    reader.request("GET", "/a", "").await;
    let mut fetch = backend.fetch().await;
    let mut client = edge.client().await;
    begun(&backend, &mut client, "DELETE", "").await.respond("204 No Content", "", b"").await;
    assert_eq!(client.response().await.status, 204);
    fetch.respond("200 OK", STORED, b"old").await;
    assert_eq!(reader.response().await.content, b"old");
    assert!(!is_stored(&edge, "/a").await);
    edge.stop().await;
}

#[tokio::test]
async fn rfc9110_10_1_1_content_is_asked_for_once_the_backend_has_the_head() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let mut client = edge.client().await;
    let expects = "Expect: 100-Continue\r\nContent-Length: 3\r\n";
    let mut fetch = begun(&backend, &mut client, "PUT", expects).await;
    assert_eq!(field(&fetch.request, "expect"), None);
    assert_eq!(client.head().await, "HTTP/1.1 100 Continue\r\n\r\n");
    client.send(b"abc").await;
    assert_eq!(fetch.client.exactly(3).await, b"abc");
    fetch.respond("201 Created", "", b"").await;
    assert_eq!(client.response().await.status, 201);
    client.request("PUT", "/a", "Expect: a-miracle\r\nContent-Length: 3\r\n").await;
    assert_eq!(client.response().await.status, 417);
    assert!(client.is_closed().await);
    // Nobody is asked for content that has nowhere to go.
    let address = backend.address;
    drop((backend, fetch));
    let mut client = edge.client().await;
    client.request("PUT", "/a", expects).await;
    let down = client.response().await;
    assert_eq!((down.status, down.field("connection")), (502, Some("close")), "{address}");
    edge.stop().await;
}

#[tokio::test]
async fn rfc9112_9_5_a_response_may_come_before_the_content_has_ended() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let mut client = edge.client().await;
    let mut fetch = begun(&backend, &mut client, "POST", "Content-Length: 6\r\n").await;
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
    assert_eq!(client.response().await.content, b"b", "the connections go on, both");

    // A response that begins early and ends late: both ways at once.
    let mut fetch = begun(&backend, &mut client, "POST", "Transfer-Encoding: chunked\r\n").await;
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

    // A backend that answers and wants no more.
    let mut fetch = begun(&backend, &mut client, "POST", "Content-Length: 6\r\n").await;
    fetch.respond("413 Content Too Large", "Connection: close\r\n", b"too large").await;
    let refused = client.response().await;
    assert_eq!((refused.status, &refused.content[..]), (413, &b"too large"[..]));
    assert!(client.is_closed().await, "what follows is no request");
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn content_waits_for_a_backend_that_does_not_take_it() {
    const TOTAL: usize = 64 << 20;
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let mut client = edge.client().await;
    let mut fetch = begun(&backend, &mut client, "PUT", &format!("Content-Length: {TOTAL}\r\n")).await;
    let all = content(0, TOTAL);
    let mut sent = 0;
    let write = async |client: &mut Client, from: usize| {
        use tokio::io::AsyncWriteExt;
        client.stream.write(&all[from..]).await.unwrap()
    };
    // What the client can send is bounded by buffers, not by the content.
    while let Ok(written) = tokio::time::timeout(Duration::from_millis(500), write(&mut client, sent)).await {
        sent += written;
        assert!(sent < TOTAL / 2, "{sent} bytes taken for a backend that reads none");
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
async fn a_client_that_reads_nothing_before_it_has_sent_all_is_not_held_up_by_the_response() {
    const TOTAL: usize = 32 << 20;
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let mut client = edge.client().await;
    let fetch = begun(&backend, &mut client, "POST", &format!("Content-Length: {TOTAL}\r\n")).await;
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
    tokio::time::timeout(PATIENCE, client.send(&content(0, TOTAL))).await.expect("both wait for each other");
    taking.await.unwrap();
    client.head().await;
    assert!(client.exactly(TOTAL).await == content(0, TOTAL));
    drop(answering.await.unwrap());
    edge.stop().await;
}

#[tokio::test]
async fn rfc9110_9_2_2_what_may_have_been_done_is_not_done_again() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    // Not idempotent.
    let mut client = edge.client().await;
    drop(begun(&backend, &mut client, "POST", "").await);
    assert_eq!(client.response().await.status, 502);
    assert!(!backend.is_asked_again().await);
    // Idempotent, but its content has gone out.
    client.request("PUT", "/a", "Content-Length: 6\r\n").await;
    let mut fetch = backend.fetch().await;
    client.send(b"abc").await;
    assert_eq!(fetch.client.exactly(3).await, b"abc");
    drop(fetch);
    let lost = client.response().await;
    assert_eq!((lost.status, lost.field("connection")), (502, Some("close")));
    assert!(!backend.is_asked_again().await);
    // Idempotent, without content.
    let mut client = edge.client().await;
    drop(begun(&backend, &mut client, "DELETE", "").await);
    backend.fetch().await.respond("204 No Content", "", b"").await;
    assert_eq!(client.response().await.status, 204);
    edge.stop().await;
}

#[tokio::test]
async fn rfc9112_8_content_that_is_broken_off_does_not_end_as_if_it_were_whole() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    for fields in ["Content-Length: 6\r\n", "Transfer-Encoding: chunked\r\n"] {
        let mut client = edge.client().await;
        let mut fetch = begun(&backend, &mut client, "POST", fields).await;
        client.send(b"3\r\na").await;
        drop(client);
        let mut end = fetch.client.up_to(100).await;
        assert!(end.len() < 6 + 5 && !end.ends_with(b"0\r\n\r\n"), "{:?}", String::from_utf8_lossy(&end));
        end.clear();
    }
    let mut client = edge.client().await;
    let mut fetch = begun(&backend, &mut client, "POST", "Transfer-Encoding: chunked\r\n").await;
    client.send(b"1\r\na\r\nnonsense\r\n").await;
    let refused = client.response().await;
    assert_eq!((refused.status, refused.field("connection")), (400, Some("close")));
    assert_eq!(fetch.client.up_to(100).await, b"1\r\na\r\n");
    edge.stop().await;
}

#[tokio::test]
async fn a_client_that_sends_nothing_and_a_backend_that_takes_or_says_nothing_are_given_up() {
    let backend = Backend::new().await;
    let short = Duration::from_millis(200);
    let timeouts =
        Timeouts { send_stall: short, first_byte: short, between_bytes: short, ..Timeouts::default() };
    let edge = TestEdge::start(Config { timeouts, ..config(backend.address) });
    let mut client = edge.client().await;
    let mut fetch = begun(&backend, &mut client, "POST", "Content-Length: 6\r\n").await;
    assert_eq!(client.response().await.status, 408);
    assert!(fetch.client.is_closed().await);
    let mut client = edge.client().await;
    let _silent = begun(&backend, &mut client, "POST", "Content-Length: 0\r\n").await;
    assert_eq!(client.response().await.status, 504);
    let mut client = edge.client().await;
    let _full = begun(&backend, &mut client, "POST", "Content-Length: 100000000\r\n").await;
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
async fn rfc9110_15_5_9_a_client_that_pauses_hears_of_it_when_it_has() {
    let backend = Backend::new().await;
    // Nothing else may have to end before.
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
        let mut fetch = begun(&backend, &mut client, "POST", fields).await;
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
async fn rfc9110_9_3_some_methods_are_refused() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let mut client = edge.client().await;
    for method in ["OPTIONS", "TRACE"] {
        client.request(method, "/a", "").await;
        let refused = client.response().await;
        assert_eq!(
            (refused.status, refused.field("allow")),
            (405, Some("GET, HEAD, POST, PUT, DELETE, PATCH"))
        );
    }
    client.send(b"CONNECT media.example:80 HTTP/1.1\r\nHost: media.example\r\n\r\n").await;
    let refused = client.response().await;
    assert_eq!((refused.status, refused.field("connection")), (405, Some("close")));
    assert!(refused.field("allow").is_some() && client.is_closed().await);
    assert!(!backend.is_asked_again().await);
    edge.stop().await;
}
