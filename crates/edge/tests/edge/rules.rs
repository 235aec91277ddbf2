//! Tests of stale responses, request directives, targeted fields, and fields for one client only,
//! by RFC section.
//!
//! Responses have an `Age`, so that no test has to wait until a response is stale.

#![allow(clippy::unwrap_used)]

use crate::support::{Backend, Fetch, Response, TestEdge, config, field};
use thalweg_edge::{Config, Rules};
use tokio::task::JoinHandle;

/// Sends a request in the background, so that the test can act as its backend.
fn get(edge: &TestEdge, fields: &'static str) -> JoinHandle<Response> {
    let address = edge.address;
    tokio::spawn(async move {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let mut client = crate::support::Client::new(stream);
        client.request("GET", "/a", fields).await;
        client.response().await
    })
}

/// Stores `/a`, to which the backend responds with `fields`.
async fn stored(backend: &Backend, edge: &TestEdge, fields: &str) -> (Fetch, Response) {
    let first = get(edge, "");
    let mut fetch = backend.fetch().await;
    fetch.respond("200 OK", fields, b"old").await;
    (fetch, first.await.unwrap())
}

#[tokio::test]
async fn rfc5861_3_stale_response_is_served_during_one_revalidation() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let fields = "Cache-Control: max-age=10, stale-while-revalidate=60\r\nAge: 20\r\nETag: \"v1\"\r\n";
    let (mut fetch, _) = stored(&backend, &edge, fields).await;
    // Several requests share one connection; revalidation must delay none of them.
    let mut client = edge.client().await;
    for _ in 0..3 {
        client.request("GET", "/a", "").await;
        let stale = client.response().await;
        assert_eq!(stale.content, b"old");
        assert!(stale.cache_status().starts_with("thalweg; hit; ttl=-1"), "{}", stale.cache_status());
    }
    fetch.next().await;
    assert_eq!(field(&fetch.request, "if-none-match"), Some("\"v1\""));
    assert!(!backend.is_asked_again().await, "only one revalidation is in flight");
    fetch.send("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 3\r\n\r\nn").await;
    let mut joined = edge.client().await;
    joined.request("GET", "/a", "").await;
    joined.head().await;
    assert_eq!(joined.exactly(1).await, b"n", "the part of the new response received so far");
    fetch.send("ew").await;
    assert_eq!(joined.exactly(2).await, b"ew");
    edge.stop().await;
}

#[tokio::test]
async fn rfc5861_4_stale_response_is_served_when_backend_fails() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let fields = "Cache-Control: max-age=10, stale-if-error=60\r\nAge: 20\r\nETag: \"v1\"\r\n";
    let (mut fetch, _) = stored(&backend, &edge, fields).await;
    let (failed, waiting) = (get(&edge, ""), get(&edge, ""));
    fetch.next().await;
    fetch.respond("503 Service Unavailable", "", b"busy").await;
    for answer in [failed, waiting] {
        let answer = answer.await.unwrap();
        assert_eq!((answer.status, &answer.content[..]), (200, &b"old"[..]));
    }
    // Any other response is delivered.
    let gone = get(&edge, "");
    let mut fetch = backend.fetch().await;
    fetch.respond("404 Not Found", "Cache-Control: no-store\r\n", b"").await;
    assert_eq!(gone.await.unwrap().status, 404);
    edge.stop().await;
}

#[tokio::test]
async fn rfc5861_4_stale_response_without_validator_is_refetched_or_served_on_failure() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let fields = "Cache-Control: max-age=10, stale-if-error=60\r\nAge: 20\r\n";
    let (mut fetch, _) = stored(&backend, &edge, fields).await;
    let failed = get(&edge, "");
    fetch.next().await;
    assert_eq!(field(&fetch.request, "if-none-match"), None);
    fetch.respond("503 Service Unavailable", "", b"busy").await;
    let answer = failed.await.unwrap();
    assert_eq!((answer.status, &answer.content[..]), (200, &b"old"[..]));
    // Without a validator in the request, a 304 confirms nothing.
    let answer = get(&edge, "");
    let mut fetch = backend.fetch().await;
    fetch.send("HTTP/1.1 304 Not Modified\r\nCache-Control: max-age=60\r\n\r\n").await;
    assert!(answer.await.unwrap().cache_status().contains("fwd=stale"));
    let answer = get(&edge, "");
    let mut fetch = backend.fetch().await;
    fetch.respond("200 OK", "Cache-Control: max-age=60\r\n", b"new").await;
    assert_eq!(answer.await.unwrap().content, b"new");
    edge.stop().await;
}

#[tokio::test]
async fn rfc9111_4_2_4_must_revalidate_is_an_error_when_backend_fails() {
    let backend = Backend::new().await;
    let rules = Rules { stale_if_error_s: 600, grace_s: 600, ..Rules::default() };
    let edge = TestEdge::start(Config { rules, ..config(backend.address) });
    let fields = "Cache-Control: max-age=10, must-revalidate\r\nAge: 20\r\nETag: \"v1\"\r\n";
    let (mut fetch, _) = stored(&backend, &edge, fields).await;
    let failed = get(&edge, "Cache-Control: max-stale\r\n");
    fetch.next().await;
    fetch.respond("503 Service Unavailable", "Cache-Control: no-store\r\n", b"busy").await;
    assert_eq!(failed.await.unwrap().status, 503);
    edge.stop().await;
}

#[tokio::test]
async fn default_grace_applies_to_responses_without_own_grace() {
    let backend = Backend::new().await;
    let rules = Rules { grace_s: 600, ..Rules::default() };
    let edge = TestEdge::start(Config { rules, ..config(backend.address) });
    let (_fetch, _) =
        stored(&backend, &edge, "Cache-Control: max-age=10\r\nAge: 20\r\nETag: \"a\"\r\n").await;
    assert_eq!(edge.get("/a", "").await.content, b"old");
    edge.stop().await;
}

#[tokio::test]
async fn rfc9111_5_2_1_request_directives_bypass_or_require_the_cache() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let nothing = edge.get("/a", "Cache-Control: only-if-cached\r\n").await;
    assert_eq!(nothing.status, 504);
    let (mut fetch, _) = stored(&backend, &edge, "Cache-Control: max-age=60\r\nETag: \"v1\"\r\n").await;
    assert_eq!(edge.get("/a", "Cache-Control: only-if-cached\r\n").await.content, b"old");
    for asks in ["Cache-Control: no-cache\r\n", "Pragma: no-cache\r\n"] {
        let reload = get(&edge, asks);
        fetch.next().await;
        assert_eq!(field(&fetch.request, "if-none-match"), Some("\"v1\""));
        fetch.send("HTTP/1.1 304 Not Modified\r\nCache-Control: max-age=60\r\nETag: \"v1\"\r\n\r\n").await;
        let reloaded = reload.await.unwrap();
        assert_eq!(reloaded.content, b"old");
        assert!(
            reloaded.cache_status().contains("fwd=request; fwd-status=304"),
            "{}",
            reloaded.cache_status()
        );
    }
    edge.stop().await;
    let rules = Rules { request_directives: false, ..Rules::default() };
    let edge = TestEdge::start(Config { rules, ..config(backend.address) });
    let (_fetch, _) = stored(&backend, &edge, "Cache-Control: max-age=60\r\n").await;
    assert_eq!(edge.get("/a", "Cache-Control: no-cache\r\n").await.content, b"old");
    edge.stop().await;
}

#[tokio::test]
async fn rfc9110_5_3_every_cache_control_line_applies() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let mut client = edge.client().await;
    for second in ["private", "no-store", "no-cache", "s-maxage=0"] {
        for _ in 0..2 {
            // Each request must reach the backend; otherwise, the test times out.
            client.request("GET", &format!("/{second}"), "").await;
            let lines = format!("Cache-Control: max-age=60\r\nCache-Control: {second}\r\n");
            backend.fetch().await.respond("200 OK", &format!("{lines}Connection: close\r\n"), b"a").await;
            assert_eq!(client.response().await.content, b"a", "{second}");
        }
    }
    edge.stop().await;
}

#[tokio::test]
async fn rfc9213_targeted_field_takes_precedence() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let fields = "Cache-Control: no-store\r\nCDN-Cache-Control: max-age=60\r\nExpires: 0\r\n";
    let (_fetch, first) = stored(&backend, &edge, fields).await;
    assert_eq!(first.field("cache-control"), Some("no-store"), "Cache-Control is left to downstream caches");
    let hit = edge.get("/a", "").await;
    assert!(hit.cache_status().starts_with("thalweg; hit"), "{}", hit.cache_status());
    edge.stop().await;
}

#[tokio::test]
async fn rfc9111_5_2_2_7_named_fields_are_sent_only_to_first_client() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let fields = "Cache-Control: max-age=60, private=\"x-user\", no-cache=\"set-cookie\"\r\n\
                  X-User: alice\r\nSet-Cookie: a=b\r\n";
    let (_fetch, first) = stored(&backend, &edge, fields).await;
    assert_eq!((first.field("x-user"), first.field("set-cookie")), (Some("alice"), Some("a=b")));
    let hit = edge.get("/a", "").await;
    assert_eq!((hit.field("x-user"), hit.field("set-cookie")), (None, None));
    assert!(hit.cache_status().starts_with("thalweg; hit"), "{}", hit.cache_status());
    edge.stop().await;
}

#[tokio::test]
async fn negative_response_is_fresh_briefly() {
    let backend = Backend::new().await;
    let rules = Rules { negative_s: 60, ..Rules::default() };
    let edge = TestEdge::start(Config { rules, ..config(backend.address) });
    let first = get(&edge, "");
    let mut fetch = backend.fetch().await;
    fetch.respond("404 Not Found", "", b"no").await;
    assert_eq!(first.await.unwrap().status, 404);
    let hit = edge.get("/a", "").await;
    assert_eq!((hit.status, &hit.content[..]), (404, &b"no"[..]));
    edge.stop().await;
}

#[tokio::test]
async fn error_with_validator_is_neither_validated_nor_served_stale() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let fields = "Cache-Control: max-age=10, stale-while-revalidate=60, stale-if-error=60\r\nAge: 20\r\nETag: \"v1\"\r\n";
    let first = get(&edge, "");
    let mut fetch = backend.fetch().await;
    fetch.respond("503 Service Unavailable", fields, b"busy").await;
    assert_eq!(first.await.unwrap().status, 503);
    let second = get(&edge, "");
    fetch.next().await;
    assert_eq!(field(&fetch.request, "if-none-match"), None);
    fetch.respond("200 OK", "Cache-Control: max-age=60\r\nETag: \"v1\"\r\n", b"back").await;
    assert_eq!(second.await.unwrap().content, b"back");
    edge.stop().await;
}

/// A 304 that confirms the stored response.
const STILL_GOOD: &str = "HTTP/1.1 304 Not Modified\r\nETag: \"v1\"\r\n";

#[tokio::test]
async fn rfc8246_2_reload_of_immutable_response_is_a_hit_while_fresh() {
    let backend = Backend::new().await;
    let edge = TestEdge::before(&backend);
    let fields = "Cache-Control: max-age=60, immutable\r\nAge: 20\r\nETag: \"v1\"\r\n";
    let (mut fetch, _) = stored(&backend, &edge, fields).await;
    let reload = "Cache-Control: max-age=0\r\n";
    let hit = edge.get("/a", reload).await;
    assert!(hit.cache_status().starts_with("thalweg; hit"), "{}", hit.head);
    // A forced reload validates the response. The 304 lacks `immutable`, so the response becomes
    // mutable.
    let forced = get(&edge, "Cache-Control: no-cache\r\n");
    fetch.next().await;
    fetch.send(format!("{STILL_GOOD}Cache-Control: max-age=60\r\nAge: 20\r\n\r\n")).await;
    assert!(forced.await.unwrap().cache_status().contains("fwd=request; fwd-status=304"));
    // A response is also mutable once its freshness lifetime has ended.
    for (now, why) in [("max-age=10, immutable", "request"), ("max-age=60", "stale")] {
        let reloaded = get(&edge, reload);
        fetch.next().await;
        fetch.send(format!("{STILL_GOOD}Cache-Control: {now}\r\nAge: 20\r\n\r\n")).await;
        let reloaded = reloaded.await.unwrap();
        assert!(reloaded.cache_status().contains(&format!("fwd={why}; fwd-status=304")), "{}", reloaded.head);
    }
    edge.stop().await;
}

#[tokio::test]
async fn rfc9111_5_2_1_3_min_fresh_forces_validation() {
    let backend = Backend::new().await;
    let rules = Rules { grace_s: 600, ..Rules::default() };
    let edge = TestEdge::start(Config { rules, ..config(backend.address) });
    let fields = "Cache-Control: max-age=600\r\nAge: 500\r\nETag: \"v1\"\r\n";
    let (mut fetch, _) = stored(&backend, &edge, fields).await;
    let hit = edge.get("/a", "Cache-Control: min-fresh=50\r\n").await;
    assert!(hit.cache_status().starts_with("thalweg; hit"), "{}", hit.head);
    let only = edge.get("/a", "Cache-Control: min-fresh=200, only-if-cached\r\n").await;
    assert_eq!(only.status, 504);
    let longer = get(&edge, "Cache-Control: min-fresh=200\r\n");
    fetch.next().await;
    assert_eq!(field(&fetch.request, "if-none-match"), Some("\"v1\""));
    fetch.send(format!("{STILL_GOOD}Cache-Control: max-age=600\r\nAge: 700\r\n\r\n")).await;
    assert!(longer.await.unwrap().cache_status().contains("fwd=request; fwd-status=304"));
    // The response is stale. Within its grace, it satisfies only requests without min-fresh.
    let strict = get(&edge, "Cache-Control: min-fresh=0\r\n");
    fetch.next().await;
    fetch.send(format!("{STILL_GOOD}Cache-Control: max-age=600\r\n\r\n")).await;
    assert!(strict.await.unwrap().cache_status().contains("fwd=stale; fwd-status=304"));
    edge.stop().await;
}

#[tokio::test]
async fn rfc9111_5_2_2_8_proxy_revalidate_applies_to_this_cache() {
    let backend = Backend::new().await;
    let rules = Rules { stale_if_error_s: 600, grace_s: 600, ..Rules::default() };
    let edge = TestEdge::start(Config { rules, ..config(backend.address) });
    let fields = "Cache-Control: max-age=10, stale-while-revalidate=60, stale-if-error=60, proxy-revalidate\r\n\
                  Age: 20\r\nETag: \"v1\"\r\n";
    let (mut fetch, _) = stored(&backend, &edge, fields).await;
    for asks in ["", "Cache-Control: max-stale\r\n"] {
        let failed = get(&edge, asks);
        fetch.next().await;
        assert_eq!(field(&fetch.request, "if-none-match"), Some("\"v1\""));
        // An uncacheable error does not replace the stored response.
        fetch.respond("404 Not Found", "Cache-Control: no-store\r\n", b"").await;
        assert_eq!(failed.await.unwrap().status, 404);
    }
    let failed = get(&edge, "");
    fetch.next().await;
    fetch.respond("503 Service Unavailable", "Cache-Control: no-store\r\n", b"busy").await;
    assert_eq!(failed.await.unwrap().status, 503);
    edge.stop().await;
}

#[tokio::test]
async fn surrogate_control_ranks_between_targeted_field_and_cache_control() {
    for (set, fields, lifetime_s) in [
        (true, "Surrogate-Control: max-age=60\r\nCache-Control: no-store\r\n", Some(60)),
        (true, "Surrogate-Control: no-store\r\nCache-Control: max-age=60\r\n", None),
        (true, "Surrogate-Control: max-age=60\r\nCDN-Cache-Control: max-age=70\r\n", Some(70)),
        (true, "Surrogate-Control: max-age=60, content=\"ESI/1.0\"\r\nExpires: 0\r\n", Some(60)),
        (false, "Surrogate-Control: no-store\r\nCache-Control: max-age=60\r\n", Some(60)),
        (false, "Surrogate-Control: max-age=60\r\nCache-Control: no-store\r\n", None),
    ] {
        let backend = Backend::new().await;
        let rules = Rules { surrogate_control: set, ..Rules::default() };
        let edge = TestEdge::start(Config { rules, ..config(backend.address) });
        let (_fetch, first) = stored(&backend, &edge, fields).await;
        match lifetime_s {
            Some(lifetime_s) => {
                let told = format!("thalweg; fwd=uri-miss; fwd-status=200; ttl={lifetime_s}; stored");
                assert_eq!(first.cache_status_from(lifetime_s), told, "{set} {fields}");
                assert_eq!(edge.get("/a", "Cache-Control: only-if-cached\r\n").await.status, 200);
            }
            None => {
                assert!(first.cache_status().ends_with("detail=no-store"), "{set} {fields}");
                assert_eq!(edge.get("/a", "Cache-Control: only-if-cached\r\n").await.status, 504);
            }
        }
        edge.stop().await;
    }
}
