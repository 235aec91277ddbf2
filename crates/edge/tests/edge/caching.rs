//! Caching tests, by RFC section: which responses are reused, validated, passed and refused.

#![allow(clippy::unwrap_used)]

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::support::{Backend, Client, Fetch, Response, TestEdge, config, content, field};
use thalweg_edge::{BackendUrl, Config, Timeouts};
use tokio::task::JoinHandle;

/// Sends a request in the background, so that the test can act as its backend.
fn get(edge: &TestEdge, path: &'static str, fields: &'static str) -> JoinHandle<Response> {
    let address = edge.address;
    tokio::spawn(async move {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let mut client = crate::support::Client::new(stream);
        client.request("GET", path, fields).await;
        client.response().await
    })
}

#[tokio::test]
async fn rfc9111_4_fresh_response_is_reused_with_its_age() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let first = get(&edge, "/a", "");
    let mut fetch = backend.fetch().await;
    fetch.respond("200 OK", "Cache-Control: s-maxage=60, max-age=0\r\nAge: 7\r\n", b"content").await;
    let first = first.await.unwrap();
    assert_eq!(first.cache_status_from(53), "thalweg; fwd=uri-miss; fwd-status=200; ttl=53; stored");
    assert_eq!(first.field("via"), Some("1.1 thalweg"));
    let second = edge.get("/a", "").await;
    assert_eq!(second.content, b"content");
    assert!(second.cache_status_from(53).starts_with("thalweg; hit; ttl=53"), "{}", second.cache_status());
    assert!(second.field("age").unwrap().parse::<u64>().unwrap() >= 7);
    edge.stop().await;
}

#[tokio::test]
async fn rfc9111_4_3_stale_response_is_validated() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let first = get(&edge, "/a", "");
    let mut fetch = backend.fetch().await;
    fetch.respond("200 OK", "Cache-Control: no-cache\r\nETag: \"v1\"\r\nX-Kept: yes\r\n", b"content").await;
    assert_eq!(first.await.unwrap().content, b"content");

    let second = get(&edge, "/a", "");
    fetch.next().await;
    assert_eq!(field(&fetch.request, "if-none-match"), Some("\"v1\""));
    fetch
        .send("HTTP/1.1 304 Not Modified\r\nETag: \"v1\"\r\nCache-Control: max-age=60\r\nX-New: yes\r\n\r\n")
        .await;
    let second = second.await.unwrap();
    assert_eq!((second.status, &second.content[..]), (200, &b"content"[..]));
    assert_eq!((second.field("x-kept"), second.field("x-new")), (Some("yes"), Some("yes")));
    assert!(second.cache_status().contains("fwd=stale; fwd-status=304"), "{}", second.cache_status());
    assert!(edge.get("/a", "").await.cache_status().contains("hit"), "the validated response is fresh");
    edge.stop().await;
}

#[tokio::test]
async fn rfc9111_4_3_4_validation_that_makes_response_private_removes_it() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let first = get(&edge, "/a", "");
    let mut fetch = backend.fetch().await;
    fetch.respond("200 OK", "Cache-Control: max-age=0\r\nETag: \"v1\"\r\n", b"content").await;
    first.await.unwrap();
    let second = get(&edge, "/a", "");
    fetch.next().await;
    fetch
        .send("HTTP/1.1 304 Not Modified\r\nCache-Control: max-age=60, private\r\nSet-Cookie: session=alice\r\n\r\n")
        .await;
    let second = second.await.unwrap();
    assert_eq!((&second.content[..], second.field("set-cookie")), (&b"content"[..], Some("session=alice")));
    let third = get(&edge, "/a", "");
    fetch.next().await;
    assert_eq!(field(&fetch.request, "if-none-match"), None, "nothing is stored");
    fetch.respond("200 OK", "Cache-Control: private\r\n", b"bob's").await;
    let third = third.await.unwrap();
    assert_eq!((&third.content[..], third.field("set-cookie")), (&b"bob's"[..], None));
    edge.stop().await;
}

#[tokio::test]
async fn key_known_as_uncacheable_is_passed_with_client_fields() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let first = get(&edge, "/a", "Range: bytes=2-3\r\n");
    let mut fetch = backend.fetch().await;
    assert_eq!(
        field(&fetch.request, "range"),
        None,
        "the whole response is fetched, because it may be cacheable"
    );
    fetch.respond("200 OK", "Cache-Control: no-store\r\n", b"content").await;
    let first = first.await.unwrap();
    assert_eq!((first.status, first.content), (206, b"nt".to_vec()));
    let second = get(&edge, "/a", "Range: bytes=2-3\r\nIf-Range: \"v1\"\r\n");
    fetch.next().await;
    assert_eq!(field(&fetch.request, "range"), Some("bytes=2-3"));
    assert_eq!(field(&fetch.request, "if-range"), Some("\"v1\""));
    let fields = "Cache-Control: no-store\r\nContent-Range: bytes 2-3/7\r\n";
    fetch.respond("206 Partial Content", fields, b"nt").await;
    let second = second.await.unwrap();
    assert_eq!((second.status, second.field("content-range")), (206, Some("bytes 2-3/7")));
    assert!(second.cache_status().contains("fwd=bypass"), "{}", second.cache_status());
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_clients_filling_memory_do_not_break_other_responses() {
    const SIZE: usize = 4 << 20;
    let backend = Backend::new().await;
    let edge = TestEdge::start(Config { memory_bytes: 16 << 20, ..config(backend.address) });
    let mut slow = Vec::new();
    for path in ["/1", "/2", "/3", "/4"] {
        let mut client = edge.client().await;
        client.request("GET", path, "").await;
        let mut fetch = backend.fetch().await;
        fetch
            .respond("200 OK", "Cache-Control: max-age=60\r\nConnection: close\r\n", &content(0, SIZE))
            .await;
        client.head().await;
        slow.push(client);
    }
    for path in ["/5", "/6", "/7"] {
        let asked = get(&edge, path, "");
        let mut fetch = backend.fetch().await;
        let sending = tokio::spawn(async move {
            fetch
                .respond("200 OK", "Cache-Control: max-age=60\r\nConnection: close\r\n", &content(0, SIZE))
                .await;
        });
        let response = asked.await.unwrap();
        sending.await.unwrap();
        assert!(response.whole && response.content == content(0, SIZE), "{path}: {}", response.content.len());
    }
    for mut client in slow {
        assert!(client.up_to(SIZE).await == content(0, SIZE));
    }
    edge.stop().await;
}

#[tokio::test]
async fn rfc9111_4_3_4_304_for_another_representation_updates_nothing() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let first = get(&edge, "/a", "");
    let mut fetch = backend.fetch().await;
    fetch.respond("200 OK", "Cache-Control: max-age=0\r\nETag: \"v1\"\r\n", b"old").await;
    first.await.unwrap();
    let second = get(&edge, "/a", "");
    fetch.next().await;
    fetch.send("HTTP/1.1 304 Not Modified\r\nCache-Control: max-age=60\r\nETag: \"v2\"\r\n\r\n").await;
    let mut fetch = backend.fetch().await;
    assert_eq!(field(&fetch.request, "if-none-match"), None);
    fetch.respond("200 OK", "Cache-Control: max-age=60\r\nETag: \"v2\"\r\n", b"new").await;
    let second = second.await.unwrap();
    assert_eq!((second.field("etag"), &second.content[..]), (Some("\"v2\""), &b"new"[..]));
    edge.stop().await;
}

#[tokio::test]
async fn rfc9111_3_2_304_updates_content_type_and_defaults_date_to_now() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let first = get(&edge, "/a", "");
    let mut fetch = backend.fetch().await;
    let old = "Cache-Control: max-age=60\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\nETag: \"v1\"\r\nContent-Type: a/a\r\n";
    fetch.respond("200 OK", old, b"old").await;
    first.await.unwrap();
    let second = get(&edge, "/a", "");
    fetch.next().await;
    fetch.send("HTTP/1.1 304 Not Modified\r\nContent-Type: b/b\r\nETag: \"v1\"\r\n\r\n").await;
    assert_eq!(second.await.unwrap().field("content-type"), Some("b/b"));
    let third = edge.get("/a", "").await;
    assert!(third.cache_status().starts_with("thalweg; hit"), "{}", third.cache_status());
    edge.stop().await;
}

#[tokio::test]
async fn rfc9111_4_3_3_new_response_replaces_the_stale_one() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let first = get(&edge, "/a", "");
    let mut fetch = backend.fetch().await;
    fetch.respond("200 OK", "Cache-Control: max-age=0\r\nETag: \"v1\"\r\n", b"old").await;
    first.await.unwrap();
    let second = get(&edge, "/a", "");
    fetch.next().await;
    fetch.respond("200 OK", "Cache-Control: max-age=60\r\nETag: \"v2\"\r\n", b"new").await;
    assert_eq!(second.await.unwrap().content, b"new");
    assert_eq!(edge.get("/a", "").await.content, b"new");
    edge.stop().await;
}

#[tokio::test]
async fn rfc9110_13_client_conditions_are_evaluated_by_the_edge() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let first = get(&edge, "/a", "If-None-Match: \"v1\"\r\n");
    let mut fetch = backend.fetch().await;
    assert_eq!(field(&fetch.request, "if-none-match"), None, "the whole response is fetched");
    let fields =
        "Cache-Control: max-age=60\r\nETag: \"v1\"\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n";
    fetch.respond("200 OK", fields, b"content").await;
    let first = first.await.unwrap();
    assert_eq!((first.status, first.field("etag")), (304, Some("\"v1\"")));
    assert_eq!(first.field("content-length"), None);
    let status = async |fields: &str| edge.get("/a", fields).await.status;
    assert_eq!(status("If-None-Match: \"v2\"\r\n").await, 200);
    assert_eq!(status("If-None-Match: W/\"v1\"\r\n").await, 304);
    assert_eq!(status("If-Modified-Since: Thu, 01 Jan 2026 00:00:00 GMT\r\n").await, 304);
    assert_eq!(status("If-Modified-Since: Wed, 31 Dec 2025 00:00:00 GMT\r\n").await, 200);
    assert_eq!(status("If-Match: \"v2\"\r\n").await, 412);
    assert_eq!(status("Range: bytes=0-2\r\nIf-Range: \"v1\"\r\n").await, 206);
    assert_eq!(status("Range: bytes=0-2\r\nIf-Range: \"v2\"\r\n").await, 200);
    edge.stop().await;
}

#[tokio::test]
async fn rfc9111_4_1_variants_are_stored_separately() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let mut fetch = None;
    for language in ["de", "fr"] {
        let fields = if language == "de" { "Accept-Language: de\r\n" } else { "Accept-Language: fr\r\n" };
        let asked = get(&edge, "/a", fields);
        match &mut fetch {
            None => fetch = Some(backend.fetch().await),
            Some(fetch) => fetch.next().await,
        }
        let fetch = fetch.as_mut().unwrap();
        fetch
            .respond("200 OK", "Cache-Control: max-age=60\r\nVary: Accept-Language\r\n", language.as_bytes())
            .await;
        asked.await.unwrap();
    }
    for language in ["de", "fr"] {
        let hit = edge.get("/a", &format!("Accept-Language: {language}\r\n")).await;
        assert_eq!(hit.content, language.as_bytes());
        assert!(hit.cache_status().contains("hit"));
    }
    edge.stop().await;
}

/// Returns the language requested by a fetch, which the test backend sends as content.
fn language(fetch: &Fetch) -> String {
    field(&fetch.request, "accept-language").unwrap().to_owned()
}

async fn answer_varied(fetch: &mut Fetch) {
    let fields = "Cache-Control: max-age=60\r\nVary: Accept-Language\r\nConnection: close\r\n";
    let language = language(fetch);
    fetch.respond("200 OK", fields, language.as_bytes()).await;
}

/// Sends a request from each of two clients per language.
async fn request_all<'a>(edge: &TestEdge, languages: &[&'a str], fields: &str) -> Vec<(&'a str, Client)> {
    let mut clients = Vec::new();
    for language in [languages, languages].concat() {
        let mut client = edge.client().await;
        client.request("GET", "/a", &format!("Accept-Language: {language}\r\n{fields}")).await;
        clients.push((language, client));
    }
    clients
}

async fn fetches(backend: &Backend, count: usize) -> Vec<Fetch> {
    let mut fetches = Vec::new();
    for _ in 0..count {
        fetches.push(backend.fetch().await);
    }
    fetches
}

/// Checks that each language has exactly one fetch, then responds to all fetches.
async fn respond_in_parallel(mut fetches: Vec<Fetch>, languages: &[&str], clients: Vec<(&str, Client)>) {
    let mut asked: Vec<_> = fetches.iter().map(language).collect();
    asked.sort_unstable();
    assert_eq!(asked, languages);
    for fetch in &mut fetches {
        answer_varied(fetch).await;
    }
    for (language, mut client) in clients {
        assert_eq!(client.response().await.content, language.as_bytes());
    }
}

#[tokio::test]
async fn variants_are_fetched_in_parallel_and_once_each() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let languages = ["de", "en", "fr", "it"];
    // Variants are unknown until the first head arrives, so all requests must wait for it.
    let first = get(&edge, "/a", "Accept-Language: ab\r\n");
    let mut fetch = backend.fetch().await;
    let clients = request_all(&edge, &languages, "").await;
    // The edge handles requests in order: once it fetches this response, it has handled the other
    // requests.
    let last = get(&edge, "/last", "");
    let mut fetch_of_last = backend.fetch().await;
    assert!(fetch_of_last.request.starts_with("GET /last "), "unexpected: {}", fetch_of_last.request);
    answer_varied(&mut fetch).await;
    let started = fetches(&backend, languages.len()).await;
    respond_in_parallel(started, &languages, clients).await;
    assert_eq!(first.await.unwrap().content, b"ab");
    // With variants known, a request for another variant does not wait.
    let clients = request_all(&edge, &languages, "Cache-Control: no-cache\r\n").await;
    let last_again = get(&edge, "/last-again", "");
    let mut started = fetches(&backend, languages.len() + 1).await;
    let is_last = |fetch: &mut Fetch| fetch.request.starts_with("GET /last-again ");
    fetch_of_last.respond("200 OK", "Connection: close\r\n", b"").await;
    for mut fetch in started.extract_if(.., is_last) {
        fetch.respond("200 OK", "Connection: close\r\n", b"").await;
    }
    respond_in_parallel(started, &languages, clients).await;
    assert!(!backend.is_asked_again().await);
    last.await.unwrap();
    last_again.await.unwrap();
    edge.stop().await;
}

#[tokio::test]
async fn uncacheable_response_is_fetched_per_client_in_parallel() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let first = get(&edge, "/a", "");
    let mut one = backend.fetch().await;
    let (mut second, mut third) = (edge.client().await, edge.client().await);
    second.request("GET", "/a", "").await;
    third.request("GET", "/a", "").await;
    // The edge handles requests in order: once it has refused this request, the other two are
    // waiting for the first head.
    let mut barrier = edge.client().await;
    barrier.request("TRACE", "/", "").await;
    assert_eq!(barrier.response().await.status, 405);
    one.send("HTTP/1.1 200 OK\r\nCache-Control: private, max-age=60\r\nContent-Length: 5\r\n\r\n").await;
    let mut two = backend.fetch().await;
    let mut three = backend.fetch().await;
    two.respond("200 OK", "Cache-Control: private\r\n", b"two").await;
    three.respond("200 OK", "Cache-Control: private\r\n", b"three").await;
    let others = [second.response().await.content, third.response().await.content];
    assert!(others.contains(&b"two".to_vec()) && others.contains(&b"three".to_vec()), "{others:?}");
    one.send("first").await;
    let first = first.await.unwrap();
    assert_eq!(first.content, b"first");
    assert!(first.cache_status().ends_with("detail=private"), "{}", first.cache_status());
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_client_throttles_its_passed_response() {
    const TOTAL: usize = 64 << 20;
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let mut client = edge.client().await;
    client.request("GET", "/a", "").await;
    let mut fetch = backend.fetch().await;
    fetch
        .send(format!("HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: {TOTAL}\r\n\r\n"))
        .await;
    client.head().await;
    // The client reads nothing, so the backend can send only as much as buffers hold.
    let mut sent = 0;
    let piece = vec![7; 1 << 20];
    while let Ok(written) = tokio::time::timeout(Duration::from_millis(500), fetch.write(&piece)).await {
        sent += written;
        assert!(sent < TOTAL / 2, "{sent} bytes read from the backend for a client that reads none");
    }
    let sending = tokio::spawn(async move {
        while sent < TOTAL {
            sent += fetch.write(&piece[..piece.len().min(TOTAL - sent)]).await;
        }
        fetch
    });
    assert!(client.exactly(TOTAL).await.iter().all(|byte| *byte == 7));
    drop(sending.await.unwrap());
    edge.stop().await;
}

#[tokio::test]
async fn unreachable_backend_is_502_immediately_until_it_returns() {
    let backend = Backend::new().await;
    let address = backend.address;
    drop(backend);
    let edge = TestEdge::start(config(address));
    let down = edge.get("/a", "").await;
    assert_eq!((down.status, down.field("cache-control")), (502, Some("no-store")));
    assert_eq!(down.cache_status(), "thalweg; fwd=uri-miss; detail=\"no valid response from the backend\"");
    let backend = Backend::at(address).await;
    let up = get(&edge, "/a", "");
    backend.fetch().await.respond("200 OK", "", b"content").await;
    assert_eq!(up.await.unwrap().status, 200);
    edge.stop().await;
}

#[tokio::test]
async fn silent_backend_is_504_for_all_waiting_clients() {
    let backend = Backend::new().await;
    let timeouts = Timeouts { first_byte: Duration::from_millis(300), ..Timeouts::default() };
    let edge = TestEdge::start(Config { timeouts, ..config(backend.address) });
    let waiting = [get(&edge, "/a", ""), get(&edge, "/a", "")];
    let _silent = backend.fetch().await;
    for response in waiting {
        assert_eq!(response.await.unwrap().status, 504);
    }
    assert!(!backend.is_asked_again().await);
    edge.stop().await;
}

#[tokio::test]
async fn second_backend_takes_over() {
    let gone = Backend::new().await;
    let backend = Backend::new().await;
    let mut config = config(gone.address);
    config.backends.push(BackendUrl::at(backend.address));
    drop(gone);
    let edge = TestEdge::start(config);
    for path in ["/a", "/b", "/c"] {
        let asked = get(&edge, path, "");
        let mut fetch = backend.fetch().await;
        fetch.respond("200 OK", "Connection: close\r\n", path.as_bytes()).await;
        assert_eq!(asked.await.unwrap().content, path.as_bytes());
    }
    edge.stop().await;
}

#[tokio::test]
async fn idle_connection_closed_by_backend_costs_no_request() {
    let backend = Backend::new().await;
    let edge = TestEdge::start(config(backend.address));
    let first = get(&edge, "/a", "");
    let mut fetch = backend.fetch().await;
    fetch.respond("200 OK", "", b"a").await;
    first.await.unwrap();
    drop(fetch);
    let second = get(&edge, "/b", "");
    backend.fetch().await.respond("200 OK", "", b"b").await;
    assert_eq!(second.await.unwrap().content, b"b");
    edge.stop().await;
}

#[tokio::test]
async fn malformed_responses_are_502() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    for response in [
        "not HTTP at all\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nConte",
    ] {
        let asked = get(&edge, "/a", "");
        let mut fetch = backend.fetch().await;
        fetch.send(response).await;
        drop(fetch);
        assert_eq!(asked.await.unwrap().status, 502, "{response:?}");
    }
    let asked = get(&edge, "/chunked", "");
    let mut fetch = backend.fetch().await;
    fetch
        .send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nCache-Control: max-age=60\r\n\r\nzz\r\n")
        .await;
    assert!(!asked.await.unwrap().whole);
    edge.stop().await;
}

#[tokio::test]
async fn backend_lost_before_response_is_retried_once_preferably_elsewhere() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let asked = get(&edge, "/a", "");
    drop(backend.fetch().await);
    drop(backend.fetch().await);
    assert_eq!(asked.await.unwrap().status, 502, "there is no third attempt");

    let other = Backend::new().await;
    let mut both = config(backend.address);
    both.backends.push(BackendUrl::at(other.address));
    let edge = TestEdge::start(both);
    let asked = get(&edge, "/b", "");
    drop(backend.fetch().await);
    other.fetch().await.respond("200 OK", "", b"content").await;
    assert_eq!(asked.await.unwrap().content, b"content");
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_readers_get_correct_bytes_despite_tiny_memory() {
    const SIZE: usize = 3 << 20;
    let backend = Backend::new().await;
    let edge = TestEdge::start(Config { memory_bytes: 16 << 20, ..config(backend.address) });
    let serving = tokio::spawn(async move {
        let mut fetches = Vec::new();
        for number in 0..12 {
            let mut fetch = backend.fetch().await;
            let start: usize = field(&fetch.request, "x-start").unwrap().parse().unwrap();
            fetches.push(tokio::spawn(async move {
                let fields = "Cache-Control: max-age=60\r\nConnection: close\r\n";
                fetch.respond("200 OK", fields, &content(start, SIZE)).await;
                (number, fetch)
            }));
        }
        for fetch in fetches {
            fetch.await.unwrap();
        }
    });
    // Each client reads a little of its own response, then all continue. By then, content has been
    // evicted and its slabs reused, but the clients must still receive it unchanged.
    let mut clients = Vec::new();
    for number in 0..12_usize {
        let mut client = edge.client().await;
        client.request("GET", &format!("/{number}"), &format!("X-Start: {}\r\n", number * 1_234_567)).await;
        assert!(client.head().await.starts_with("HTTP/1.1 200"));
        assert_eq!(client.exactly(1000).await, content(number * 1_234_567, 1000));
        clients.push((number, client));
    }
    for (number, mut client) in clients {
        let start = number * 1_234_567;
        assert!(client.up_to(SIZE - 1000).await == content(start + 1000, SIZE - 1000), "{number}");
    }
    serving.await.unwrap();
    edge.stop().await;
}

#[test]
fn port_in_use_is_reported() {
    let taken = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = taken.local_addr().unwrap();
    let error = thalweg_edge::Edge::bind(Config { listen: address, ..config(address) }).unwrap_err();
    assert!(error.to_string().starts_with(&format!("cannot listen on {address}")), "{error}");
}
