//! Range tests: multipart responses, ranges from unfinished fills, and ranges from slices of
//! content that is too large or requested far ahead.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::support::{Backend, Client, Response, TestEdge, config, content, field};
use thalweg_edge::Config;
use tokio::task::JoinHandle;

pub(crate) const SLICE: usize = 100_000;
pub(crate) const FRESH: &str = "Cache-Control: max-age=60\r\nETag: \"v1\"\r\nAccept-Ranges: bytes\r\n";

pub(crate) fn start(backend: &Backend) -> TestEdge {
    TestEdge::start(Config { slice_bytes: SLICE as u64, ..config(backend.address) })
}

pub(crate) fn get(edge: &TestEdge, fields: &'static str) -> JoinHandle<Response> {
    let address = edge.address;
    tokio::spawn(async move {
        let mut client = Client::new(tokio::net::TcpStream::connect(address).await.unwrap());
        client.request("GET", "/a", fields).await;
        client.response().await
    })
}

/// Formats a 206 with the content of `range`, out of `length` bytes.
pub(crate) fn partial(range: std::ops::Range<usize>, length: usize, fields: &str) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 206 Partial Content\r\nContent-Length: {}\r\nContent-Range: bytes {}-{}/{length}\r\n{fields}\r\n",
        range.len(),
        range.start,
        range.end - 1,
    );
    [head.as_bytes(), &content(range.start, range.len())].concat()
}

/// Returns the range requested in `request`.
pub(crate) fn asked(request: &str) -> Option<std::ops::Range<usize>> {
    let (first, last) = field(request, "range")?.strip_prefix("bytes=")?.split_once('-')?;
    Some(first.parse().unwrap()..last.parse::<usize>().unwrap() + 1)
}

/// Makes `backend` serve ranges of content of `length` bytes. Returns a counter of its requests.
fn serve_ranges(backend: Backend, length: usize) -> Arc<AtomicUsize> {
    let asked_for = Arc::new(AtomicUsize::new(0));
    let counter = asked_for.clone();
    tokio::spawn(async move {
        loop {
            let mut fetch = backend.fetch().await;
            let counter = counter.clone();
            tokio::spawn(async move {
                loop {
                    counter.fetch_add(1, Relaxed);
                    let answer = match asked(&fetch.request) {
                        Some(range) => partial(range.start..range.end.min(length), length, FRESH),
                        None => {
                            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n{FRESH}\r\n");
                            [head.as_bytes(), &content(0, length)].concat()
                        }
                    };
                    if !fetch.try_send(&answer).await || !fetch.try_next().await {
                        return;
                    }
                }
            });
        }
    });
    asked_for
}

#[tokio::test]
async fn rfc9110_14_6_several_ranges_become_multipart() {
    let backend = Backend::new().await;
    let edge = start(&backend);
    let first = get(&edge, "Range: bytes=500-599,0-9\r\n");
    let mut fetch = backend.fetch().await;
    assert_eq!(field(&fetch.request, "range"), None);
    // Arrived content is sent before the rest arrives.
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\nContent-Type: video/mp4\r\n{FRESH}\r\n");
    fetch.send([head.as_bytes(), &content(0, 700)].concat()).await;
    let response = first.await.unwrap();
    fetch.send(content(700, 300)).await;
    assert_eq!(response.status, 206);
    assert_eq!(response.field("content-range"), None);
    let boundary =
        response.field("content-type").unwrap().strip_prefix("multipart/byteranges; boundary=").unwrap();
    let mut expected =
        format!("--{boundary}\r\nContent-Type: video/mp4\r\nContent-Range: bytes 500-599/1000\r\n\r\n")
            .into_bytes();
    expected.extend(content(500, 100));
    expected.extend(
        format!("\r\n--{boundary}\r\nContent-Type: video/mp4\r\nContent-Range: bytes 0-9/1000\r\n\r\n")
            .bytes(),
    );
    expected.extend(content(0, 10));
    expected.extend(format!("\r\n--{boundary}--\r\n").bytes());
    assert!(response.whole && response.content == expected);
    assert_eq!(edge.get("/a", "Range: bytes=1000-,2000-\r\n").await.status, 416);
    let one = edge.get("/a", "Range: bytes=0-9,5-19\r\n").await;
    assert_eq!((one.status, one.field("content-range")), (206, Some("bytes 0-19/1000")));
    edge.stop().await;
}

#[tokio::test]
async fn seek_into_uncached_content_does_not_wait_for_its_start() {
    const LENGTH: usize = 4_000_000_000;
    const START: usize = 2_000_000_000;
    let backend = Backend::new().await;
    let edge = start(&backend);
    let seek = get(&edge, "Range: bytes=2000000010-2000000019\r\n");
    let mut fetch = backend.fetch().await;
    assert_eq!(asked(&fetch.request), Some(START..START + SLICE));
    assert_eq!(field(&fetch.request, "if-range"), None);
    fetch.send(partial(START..START + SLICE, LENGTH, FRESH)).await;
    let response = seek.await.unwrap();
    assert_eq!(
        (response.status, response.field("content-range")),
        (206, Some("bytes 2000000010-2000000019/4000000000"))
    );
    assert_eq!(response.content, content(START + 10, 10));
    assert_eq!(response.cache_status_from(60), "thalweg; fwd=uri-miss; fwd-status=206; ttl=60; stored");
    // Request the same slice again, then the head alone.
    let hit = edge.get("/a", "Range: bytes=2000099990-2000099999\r\n").await;
    assert_eq!((hit.content, hit.head.contains("thalweg; hit")), (content(START + 99_990, 10), true));
    let mut client = edge.client().await;
    client.request("HEAD", "/a", "").await;
    assert_eq!(client.response_to("HEAD").await.field("content-length"), Some("4000000000"));
    // Read into the next slice, which must be of the same representation.
    let next = get(&edge, "Range: bytes=2000099990-2000100009\r\n");
    fetch.next().await;
    assert_eq!(asked(&fetch.request), Some(START + SLICE..START + 2 * SLICE));
    assert_eq!(field(&fetch.request, "if-range"), Some("\"v1\""));
    fetch.send(partial(START + SLICE..START + 2 * SLICE, LENGTH, FRESH)).await;
    assert_eq!(next.await.unwrap().content, content(START + 99_990, 20));
    // The length is known by now.
    let end = get(&edge, "Range: bytes=-5\r\n");
    fetch.next().await;
    assert_eq!(asked(&fetch.request), Some(LENGTH - SLICE..LENGTH));
    fetch.send(partial(LENGTH - SLICE..LENGTH, LENGTH, FRESH)).await;
    assert_eq!(end.await.unwrap().content, content(LENGTH - 5, 5));
    edge.stop().await;
}

#[tokio::test]
async fn only_far_range_is_fetched_separately() {
    let backend = Backend::new().await;
    let edge = start(&backend);
    let mut first = edge.client().await;
    first.request("GET", "/a", "").await;
    let mut fill = backend.fetch().await;
    fill.send(format!("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n{FRESH}\r\n")).await;
    fill.send(content(0, 1000)).await;
    first.head().await;
    first.exactly(1000).await;
    let far = get(&edge, "Range: bytes=500000-500009\r\n");
    let mut slice = backend.fetch().await;
    assert_eq!(asked(&slice.request), Some(500_000..600_000));
    slice.send(partial(500_000..600_000, 1_000_000, FRESH)).await;
    let far = far.await.unwrap();
    assert_eq!(far.content, content(500_000, 10));
    assert_eq!(far.cache_status_from(60), "thalweg; fwd=partial; fwd-status=206; ttl=60; stored");
    let near = get(&edge, "Range: bytes=90000-90009\r\n");
    fill.send(content(1000, 100_000)).await;
    assert_eq!(near.await.unwrap().content, content(90_000, 10));
    assert!(!backend.is_asked_again().await);
    fill.send(content(101_000, 899_000)).await;
    assert!(first.exactly(999_000).await == content(1000, 999_000));
    assert!(edge.get("/a", "").await.content == content(0, 1_000_000));
    edge.stop().await;
}

#[tokio::test]
async fn content_too_large_to_store_whole_is_stored_in_slices() {
    const LENGTH: usize = 17_000_001;
    let backend = Backend::new().await;
    // A response may use at most a quarter of the 64 MiB of memory.
    let slice_bytes = 4 << 20;
    let edge = TestEdge::start(Config { slice_bytes, ..config(backend.address) });
    let asked_for = serve_ranges(backend, LENGTH);
    let whole = edge.get("/a", "").await;
    assert!(whole.whole && whole.content == content(0, LENGTH));
    assert_eq!(asked_for.load(Relaxed), 5, "the initial request, and four slices");
    assert_eq!(whole.cache_status_from(60), "thalweg; fwd=uri-miss; fwd-status=200; ttl=60; stored");
    let again = edge.get("/a", "").await;
    assert!(again.cache_status().starts_with("thalweg; hit"), "{}", again.cache_status());
    assert!(again.whole && again.content == content(0, LENGTH));
    let parts = edge.get("/a", "Range: bytes=16999000-,4194300-4194309\r\n").await;
    let found = |part: &[u8]| parts.content.windows(part.len()).any(|bytes| bytes == part);
    assert!(parts.whole && found(&content(16_999_000, 1001)) && found(&content(4_194_300, 10)));
    assert_eq!(asked_for.load(Relaxed), 5);
    edge.stop().await;
}

#[tokio::test]
async fn concurrent_readers_fetch_each_slice_once() {
    const LENGTH: usize = 1_000_001;
    let backend = Backend::new().await;
    let edge = start(&backend);
    let asked_for = serve_ranges(backend, LENGTH);
    let readers: Vec<_> = (0..20).map(|_| get(&edge, "Range: bytes=150000-\r\n")).collect();
    for reader in readers {
        let response = reader.await.unwrap();
        assert!(response.whole && response.content == content(150_000, LENGTH - 150_000));
    }
    assert_eq!(asked_for.load(Relaxed), 10);
    // Every slice but the first is already stored.
    assert!(edge.get("/a", "").await.content == content(0, LENGTH));
    assert_eq!(asked_for.load(Relaxed), 11);
    edge.stop().await;
}

#[tokio::test]
async fn whole_content_is_requested_from_backend_without_ranges() {
    let length = 500_000;
    let other_range = partial(SLICE..SLICE + 10, length, FRESH);
    let no_etag = partial(400_000..500_000, length, "Cache-Control: max-age=60\r\n");
    let unsatisfied = b"HTTP/1.1 416 Range Not Satisfiable\r\nContent-Length: 0\r\n\r\n".to_vec();
    for refusal in [Some(other_range), Some(no_etag), Some(unsatisfied), None] {
        let backend = Backend::new().await;
        let edge = start(&backend);
        let seek = get(&edge, "Range: bytes=400000-400009\r\n");
        let mut fetch = backend.fetch().await;
        assert!(asked(&fetch.request).is_some());
        if let Some(refusal) = refusal {
            fetch.send(refusal).await;
            fetch = backend.fetch().await;
            assert_eq!(asked(&fetch.request), None);
        }
        fetch.respond("200 OK", FRESH, &content(0, length)).await;
        let response = seek.await.unwrap();
        assert_eq!((response.status, response.content), (206, content(400_000, 10)));
        assert!(edge.get("/a", "").await.content == content(0, length));
        edge.stop().await;
    }
}

#[tokio::test]
async fn slices_of_two_representations_are_never_mixed() {
    let changed = FRESH.replace("v1", "v2");
    let backend = Backend::new().await;
    let edge = start(&backend);
    let seek = get(&edge, "Range: bytes=400000-400009\r\n");
    let mut fetch = backend.fetch().await;
    fetch.send(partial(400_000..500_000, 1_000_000, FRESH)).await;
    seek.await.unwrap();
    // Nothing has been sent yet, so the edge can switch to the new representation.
    let seek = get(&edge, "Range: bytes=600000-600009\r\n");
    fetch.next().await;
    fetch.send(partial(600_000..700_000, 1_000_000, &changed)).await;
    let mut fetch = backend.fetch().await;
    assert_eq!((asked(&fetch.request), field(&fetch.request, "if-range")), (Some(600_000..700_000), None));
    fetch.send(partial(600_000..700_000, 1_000_000, &changed)).await;
    let response = seek.await.unwrap();
    assert_eq!((response.field("etag"), &response.content), (Some("\"v2\""), &content(600_000, 10)));
    // Once content has been sent, a change is a failure visible to the client.
    let cut = get(&edge, "Range: bytes=600000-800000\r\n");
    fetch.next().await;
    fetch.send(format!("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n{FRESH}\r\n")).await;
    let cut = cut.await.unwrap();
    assert!(!cut.whole && cut.content == content(600_000, 100_000));
    edge.stop().await;
}

#[tokio::test]
async fn rfc9111_4_3_stale_head_is_validated_and_keeps_slices() {
    let stale = "Cache-Control: max-age=60\r\nAge: 70\r\nETag: \"v1\"\r\n";
    let backend = Backend::new().await;
    let edge = start(&backend);
    let seek = get(&edge, "Range: bytes=400000-400009\r\n");
    let mut fetch = backend.fetch().await;
    fetch.send(partial(400_000..500_000, 1_000_000, stale)).await;
    seek.await.unwrap();
    let seek = get(&edge, "Range: bytes=400010-400019\r\n");
    fetch.next().await;
    assert_eq!((field(&fetch.request, "if-none-match"), asked(&fetch.request)), (Some("\"v1\""), None));
    fetch.send("HTTP/1.1 304 Not Modified\r\nCache-Control: max-age=60\r\nETag: \"v1\"\r\n\r\n").await;
    assert_eq!(seek.await.unwrap().content, content(400_010, 10));
    assert!(edge.get("/a", "Range: bytes=400020-400029\r\n").await.cache_status().contains("hit"));
    edge.stop().await;
}

#[tokio::test]
async fn rfc9111_5_2_2_7_seek_does_not_expose_fields_withheld_for_first_client() {
    let backend = Backend::new().await;
    let edge = start(&backend);
    let own =
        format!("Cache-Control: max-age=60, no-cache=\"Set-Cookie\"\r\nSet-Cookie: session=first\r\n{FRESH}");
    let seek = get(&edge, "Range: bytes=400000-400009\r\n");
    let mut fetch = backend.fetch().await;
    fetch.send(partial(400_000..500_000, 1_000_000, &own)).await;
    assert_eq!(seek.await.unwrap().field("set-cookie"), Some("session=first"));
    let seek = get(&edge, "Range: bytes=600000-600009\r\n");
    fetch.next().await;
    fetch.send(partial(600_000..700_000, 1_000_000, &own)).await;
    let response = seek.await.unwrap();
    assert_eq!((response.status, response.field("set-cookie")), (206, None));
    edge.stop().await;
}

#[tokio::test]
async fn rfc9111_5_2_1_7_only_if_cached_does_not_fetch_a_missing_slice() {
    let backend = Backend::new().await;
    let edge = start(&backend);
    let seek = get(&edge, "Range: bytes=400000-400009\r\n");
    let mut fetch = backend.fetch().await;
    fetch.send(partial(400_000..500_000, 1_000_000, FRESH)).await;
    seek.await.unwrap();
    let only = "Cache-Control: only-if-cached\r\nRange: bytes=";
    assert_eq!(edge.get("/a", &format!("{only}400010-400019\r\n")).await.status, 206);
    assert_eq!(edge.get("/a", &format!("{only}499990-500009\r\n")).await.status, 504);
    edge.stop().await;
}

#[tokio::test]
async fn broken_slice_is_fetched_again() {
    let backend = Backend::new().await;
    let edge = start(&backend);
    let seek = get(&edge, "Range: bytes=400000-499999\r\n");
    let mut fetch = backend.fetch().await;
    let mut broken = partial(400_000..500_000, 1_000_000, FRESH);
    broken.truncate(50_000);
    fetch.send(broken).await;
    drop(fetch);
    let mut fetch = backend.fetch().await;
    assert_eq!(asked(&fetch.request), Some(400_000..500_000));
    fetch.send(partial(400_000..500_000, 1_000_000, FRESH)).await;
    let response = seek.await.unwrap();
    assert!(response.whole && response.content == content(400_000, 100_000));
    edge.stop().await;
}

#[tokio::test]
async fn changed_length_with_same_tag_is_different_content() {
    let backend = Backend::new().await;
    let edge = start(&backend);
    let seek = get(&edge, "Range: bytes=400000-\r\n");
    let mut fetch = backend.fetch().await;
    let stale = FRESH.replace("max-age=60", "max-age=0");
    fetch.send(partial(400_000..450_000, 450_000, &stale)).await;
    assert_eq!(seek.await.unwrap().content, content(400_000, 50_000));
    let seek = get(&edge, "Range: bytes=400000-499999\r\n");
    fetch.next().await;
    fetch.send(format!("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n{FRESH}\r\n")).await;
    let mut slice = backend.fetch().await;
    assert_eq!(asked(&slice.request), Some(400_000..500_000));
    slice.send(partial(400_000..500_000, 1_000_000, FRESH)).await;
    assert!(seek.await.unwrap().content == content(400_000, 100_000));
    edge.stop().await;
}

#[tokio::test]
async fn backend_that_claims_but_does_not_serve_ranges_is_passed_after_failure() {
    const LENGTH: usize = 5_000_000;
    let backend = Backend::new().await;
    let edge =
        TestEdge::start(Config { slice_bytes: 1 << 20, memory_bytes: 16 << 20, ..config(backend.address) });
    tokio::spawn(async move {
        loop {
            let mut fetch = backend.fetch().await;
            tokio::spawn(async move {
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n{FRESH}\r\n");
                while fetch.try_send(&[head.as_bytes(), &content(0, LENGTH)].concat()).await
                    && fetch.try_next().await
                {}
            });
        }
    });
    let cut = edge.get("/a", "").await;
    assert!(!cut.whole && cut.content == content(0, cut.content.len()));
    for _ in 0..2 {
        let passed = edge.get("/a", "").await;
        assert!(passed.whole && passed.content == content(0, LENGTH));
    }
    edge.stop().await;
}

#[tokio::test]
async fn fill_abandoned_for_slices_keeps_head() {
    const LENGTH: usize = 10_000_000;
    let backend = Backend::new().await;
    let edge = start(&backend);
    let end = get(&edge, "Range: bytes=-5\r\n");
    let mut fill = backend.fetch().await;
    fill.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n{FRESH}\r\n")).await;
    let mut slice = backend.fetch().await;
    assert_eq!(asked(&slice.request), Some(LENGTH - SLICE..LENGTH));
    slice.send(partial(LENGTH - SLICE..LENGTH, LENGTH, FRESH)).await;
    assert_eq!(end.await.unwrap().content, content(LENGTH - 5, 5));
    // The edge cancels the fetch of the whole response.
    assert!(!fill.try_next().await);
    let again = edge.get("/a", "Range: bytes=-5\r\n").await;
    assert!(again.cache_status().starts_with("thalweg; hit"), "{}", again.cache_status());
    assert_eq!(again.content, content(LENGTH - 5, 5));
    edge.stop().await;
}
