//! Tests of policies that control storage and freshness: hit-for-pass and hit-for-miss, sub-second
//! times, forced fetches, and failed fetches.

#![allow(clippy::unwrap_used)]

use thalweg_record::CacheResult;

use crate::policy::{CACHED, edge, fetched, get, text};
use crate::support::{Backend, Client, Fetch, Response, TestEdge, content, field};

const FRESH: &str = "Cache-Control: max-age=60\r\n";

/// A policy that reports a key's hit-for-miss and hit-for-pass markers in responses.
const REPORT_MARKS: &str = r#"
    sub vcl_deliver {
        set resp.http.hitmiss = req.is_hitmiss;
        set resp.http.hitpass = req.is_hitpass;
    }
"#;

fn marks(response: &Response) -> (&str, &str) {
    (response.field("hitmiss").unwrap(), response.field("hitpass").unwrap())
}

/// Responds to `fetch`, and returns the response received by the client.
async fn answered(mut fetch: Fetch, client: &mut Client, fields: &str, content: &str) -> Response {
    fetch.respond("200 OK", &format!("{fields}Connection: close\r\n"), content.as_bytes()).await;
    client.response().await
}

/// Repeats a request until it reaches the backend. Returns that fetch.
async fn until_fetched(backend: &Backend, client: &mut Client, path: &str) -> Fetch {
    loop {
        client.request("GET", path, "").await;
        tokio::select! {
            fetch = backend.fetch() => return fetch,
            response = client.response() => assert_eq!(response.status, 200),
        }
    }
}

#[tokio::test]
async fn hit_for_pass_lasts_as_long_as_set() {
    let backend = Backend::new().await;
    let text_of_policy = r#"
        sub vcl_backend_response {
            if (beresp.http.For == "hour") { return (pass(1h)); }
            if (beresp.http.For == "moment") { return (pass(1ms)); }
            if (beresp.http.For == "ttl") { set beresp.ttl = 1h; return (pass); }
        }
        sub vcl_backend_fetch { set bereq.http.Told = bereq.is_hitpass + " " + bereq.uncacheable; }
    "#;
    let edge = edge(&backend, &format!("{text_of_policy}{REPORT_MARKS}"));
    let mut client = edge.client().await;
    for (path, lasts) in [("/hour", "For: hour\r\n"), ("/ttl", "For: ttl\r\n")] {
        let (_, first) = fetched(&backend, &mut client, path, &format!("{FRESH}{lasts}")).await;
        assert_eq!(marks(&first), ("false", "false"));
        for _ in 0..2 {
            let (asked, passed) = fetched(&backend, &mut client, path, FRESH).await;
            assert!(asked.contains("Told: true true\r\n"), "{asked}");
            assert_eq!(marks(&passed), ("false", "true"), "even a cacheable response must be passed");
        }
    }
    // Once hit-for-pass has expired, the response is stored.
    fetched(&backend, &mut client, "/moment", &format!("{FRESH}For: moment\r\n")).await;
    loop {
        let (_, response) = fetched(&backend, &mut client, "/moment", FRESH).await;
        if marks(&response) == ("false", "false") {
            break;
        }
    }
    assert_eq!(text(&get(&mut client, "/moment", "").await), "/moment");
    edge.stop().await;
}

#[tokio::test]
async fn hit_for_miss_allows_parallel_fetches_until_one_is_stored() {
    let backend = Backend::new().await;
    let policy = r#"
        sub vcl_recv { if (req.method == "PURGE") { return (purge); } }
        sub vcl_backend_response {
            if (beresp.http.Not) { set beresp.uncacheable = true; set beresp.ttl = 1h; return (deliver); }
        }
        sub vcl_backend_fetch { set bereq.http.Told = bereq.is_hitmiss + " " + bereq.uncacheable; }
    "#;
    let edge = edge(&backend, &format!("{policy}{REPORT_MARKS}"));
    let (mut first, mut second) = (edge.client().await, edge.client().await);
    fetched(&backend, &mut first, "/a", &format!("{FRESH}Not: 1\r\n")).await;
    first.request("GET", "/a", "").await;
    let of_first = backend.fetch().await;
    assert!(of_first.request.contains("Told: true false\r\n"), "{}", of_first.request);
    second.request("GET", "/a", "").await;
    let of_second = backend.fetch().await;
    let response = answered(of_second, &mut second, FRESH, "second").await;
    assert_eq!((text(&response), marks(&response)), ("second", ("true", "false")));
    let hit = get(&mut second, "/a", "").await;
    assert_eq!((text(&hit), marks(&hit)), ("second", ("false", "false")));
    answered(of_first, &mut first, "Not: 1\r\n", "first").await;
    // The response is uncacheable again, which invalidates the stored one.
    let (_, again) = fetched(&backend, &mut second, "/a", &format!("{FRESH}Not: 1\r\n")).await;
    assert_eq!(marks(&again), ("true", "false"));
    second.request("PURGE", "/a", "").await;
    assert_eq!(second.response().await.status, 200);
    let (_, purged) = fetched(&backend, &mut second, "/a", FRESH).await;
    assert_eq!(marks(&purged), ("false", "false"), "a purge also removes the marker");
    edge.stop().await;
}

#[tokio::test]
async fn hit_for_miss_applies_to_one_variant() {
    let backend = Backend::new().await;
    let policy = r#"
        sub vcl_backend_response {
            if (bereq.http.Device == "phone") { return (pass(1h)); }
        }
    "#;
    let edge = edge(&backend, &format!("{policy}{REPORT_MARKS}"));
    let mut client = edge.client().await;
    let vary = format!("{CACHED}Vary: Device\r\n");
    for (device, hitpass) in [("phone", "false"), ("desk", "false"), ("phone", "true")] {
        client.request("GET", "/a", &format!("Device: {device}\r\n")).await;
        backend.fetch().await.respond("200 OK", &vary, device.as_bytes()).await;
        assert_eq!(client.response().await.field("hitpass"), Some(hitpass), "{device}");
    }
    assert_eq!(text(&get(&mut client, "/a", "Device: desk\r\n").await), "desk");
    edge.stop().await;
}

#[tokio::test]
async fn subsecond_times_are_exact() {
    let backend = Backend::new().await;
    let edge = edge(
        &backend,
        r#"
        sub vcl_backend_response {
            if (bereq.url == "/a") { set beresp.ttl = 20.4s; set beresp.grace = 250ms; }
            else { set beresp.ttl = 5ms; set beresp.grace = 0s; }
        }
        sub vcl_deliver { set resp.http.life = obj.ttl + obj.age; set resp.http.grace = obj.grace; }
        "#,
    );
    let mut client = edge.client().await;
    fetched(&backend, &mut client, "/a", "").await;
    let hit = get(&mut client, "/a", "").await;
    let life_s: f64 = hit.field("life").unwrap().parse().unwrap();
    assert!((20.4..25.0).contains(&life_s) && life_s.fract() != 0.0, "{life_s}");
    assert_eq!(hit.field("grace"), Some("0.250"));
    fetched(&backend, &mut client, "/b", "").await;
    let again = until_fetched(&backend, &mut client, "/b").await;
    assert_eq!(text(&answered(again, &mut client, "", "anew").await), "anew");
    edge.stop().await;
}

#[tokio::test]
async fn always_miss_request_does_not_wait_and_replaces_stored_response() {
    let backend = Backend::new().await;
    let edge = edge(
        &backend,
        r#"
        sub vcl_recv {
            if (req.http.Anew) { set req.hash_always_miss = true; }
            if (req.http.Busy) { set req.hash_ignore_busy = true; }
            if (req.http.Young) { set req.ttl = 1ms; }
        }
        sub vcl_miss { set req.http.Missed = "yes"; }
        sub vcl_deliver { set resp.http.missed = req.http.Missed; }
        "#,
    );
    let (mut first, mut second) = (edge.client().await, edge.client().await);
    let validated = format!("{FRESH}ETag: \"a\"\r\n");
    fetched(&backend, &mut first, "/a", &validated).await;
    second.request("GET", "/a", "Anew: 1\r\n").await;
    let anew = backend.fetch().await;
    assert!(!anew.request.contains("If-None-Match"), "{}", anew.request);
    assert_eq!(text(&get(&mut first, "/a", "").await), "/a", "the stored response is still served");
    let response = answered(anew, &mut second, &validated, "second").await;
    assert_eq!((text(&response), response.field("missed")), ("second", Some("yes")));
    assert_eq!(text(&get(&mut first, "/a", "").await), "second");

    // A request with `hash_always_miss` or `hash_ignore_busy` does not wait for a fetch in
    // progress.
    for fields in ["Anew: 1\r\n", "Busy: 1\r\n"] {
        let path = format!("/{}", &fields[..4]);
        first.request("GET", &path, "").await;
        let slow = backend.fetch().await;
        second.request("GET", &path, fields).await;
        let other = backend.fetch().await;
        assert_eq!(text(&answered(other, &mut second, FRESH, "fast").await), "fast");
        assert_eq!(text(&get(&mut second, &path, "").await), "fast", "stored");
        assert_eq!(text(&answered(slow, &mut first, FRESH, "slow").await), "slow");
    }

    // A fresh response that only exceeds the policy's own age limit is not validated.
    let fetch = loop {
        first.request("GET", "/a", "Young: 1\r\n").await;
        tokio::select! {
            fetch = backend.fetch() => break fetch,
            response = first.response() => assert_eq!(text(&response), "second"),
        }
    };
    assert!(!fetch.request.contains("If-None-Match"), "{}", fetch.request);
    assert_eq!(text(&answered(fetch, &mut first, FRESH, "third").await), "third");
    edge.stop().await;
}

/// Starts an edge whose responses are stale immediately and have an hour of grace. A request can
/// refuse stale responses with `Strict`.
fn with_grace(backend: &Backend) -> TestEdge {
    edge(
        backend,
        r#"
        sub vcl_recv { if (req.http.Strict) { set req.grace = 0s; } }
        sub vcl_backend_response {
            set beresp.ttl = 0s;
            set beresp.grace = 1h;
            return (deliver);
        }
        sub vcl_backend_error {
            if (bereq.is_bgfetch && bereq.retries == 0) { return (retry); }
            set beresp.body = "sorry";
            return (deliver);
        }
        "#,
    )
}

#[tokio::test]
async fn policy_handles_backend_errors_and_stale_response_survives_them() {
    let backend = Backend::new().await;
    let edge = with_grace(&backend);
    let mut client = edge.client().await;
    fetched(&backend, &mut client, "/a", CACHED).await;
    for _ in 0..2 {
        assert_eq!(text(&get(&mut client, "/a", "").await), "/a");
        // Background revalidation fails, is retried by the policy, and fails again.
        drop(backend.fetch().await);
        drop(backend.fetch().await);
    }
    // A request that refuses stale responses gets the error.
    client.request("GET", "/a", "Strict: 1\r\n").await;
    drop(backend.fetch().await);
    let failed = client.response().await;
    assert_eq!((failed.status, text(&failed)), (503, "sorry"));
    assert_eq!(text(&get(&mut client, "/a", "").await), "/a", "the response is still stored");
    edge.stop().await;
}

#[tokio::test]
async fn failed_revalidation_is_not_logged_in_another_clients_record() {
    /// Content length beyond what the socket buffers hold.
    const SIZE: usize = 12 << 20;
    let backend = Backend::new().await;
    let edge = with_grace(&backend);
    let mut records = edge.records.follow();
    let mut client = edge.client().await;
    client.request("GET", "/a", "").await;
    backend.fetch().await.respond("200 OK", CACHED, &content(0, SIZE)).await;
    client.response().await;
    records.recv().await.unwrap();
    client.request("GET", "/a", "").await;
    client.head().await;
    drop(backend.fetch().await);
    // The retry shows that revalidation has failed while the response is still being sent.
    let again = backend.fetch().await;
    client.exactly(SIZE).await;
    let record = records.recv().await.unwrap();
    assert_eq!(record.cache, CacheResult::Stale);
    assert_eq!(record.lines.iter().next(), None);
    drop(again);
    edge.stop().await;
}

#[tokio::test]
async fn waiting_requests_get_same_error() {
    let backend = Backend::new().await;
    let edge = with_grace(&backend);
    let mut records = edge.records.follow();
    let mut client = edge.client().await;
    fetched(&backend, &mut client, "/stored", CACHED).await;
    let mut waiting = [edge.client().await, edge.client().await, edge.client().await];
    waiting[0].request("GET", "/a", "").await;
    let fetch = backend.fetch().await;
    for other in &mut waiting[1..] {
        other.request("GET", "/a", "").await;
    }
    // Once this response arrives, the edge's only thread has handled the other requests.
    assert_eq!(get(&mut client, "/stored", "").await.status, 200);
    let mut refresh = backend.fetch().await;
    refresh.respond("200 OK", CACHED, b"stored").await;
    drop(fetch);
    for client in &mut waiting {
        let response = client.response().await;
        assert_eq!((response.status, text(&response)), (503, "sorry"));
    }
    // All four responses are errors, but the last request finds the error stored.
    get(&mut client, "/a", "").await;
    let mut results = Vec::new();
    while results.len() < 4 {
        let record = records.recv().await.unwrap();
        if record.path == "/a" {
            assert_eq!(record.detail.as_deref(), Some("backend-error"));
            results.push(record.cache);
        }
    }
    let error = CacheResult::Error;
    assert_eq!(results, [error, error, error, CacheResult::Hit]);
    assert!(!backend.is_asked_again().await);
    edge.stop().await;
}

#[tokio::test]
async fn policy_fields_apply_to_responses_without_content_too() {
    let backend = Backend::new().await;
    let edge = edge(
        &backend,
        r#"
        sub vcl_recv { if (req.url == "/made") { return (synth(304)); } }
        sub vcl_deliver { set resp.http.Made = "here"; set resp.http.X-Old = "new"; unset resp.http.Via; }
        sub vcl_synth { set resp.http.Made = "here"; return (deliver); }
        "#,
    );
    let mut client = edge.client().await;
    let fields = format!("{FRESH}ETag: \"a\"\r\nX-Old: old\r\nX-Other: other\r\n");
    fetched(&backend, &mut client, "/a", &fields).await;
    for (asked, status, other) in [
        ("If-None-Match: \"a\"\r\n", 304, Some("other")),
        ("If-Match: \"b\"\r\n", 412, None),
        ("Range: bytes=100-\r\n", 416, None),
        ("Range: bytes=0-0\r\n", 206, Some("other")),
    ] {
        let response = get(&mut client, "/a", asked).await;
        let of = |name| response.field(name);
        assert_eq!((response.status, of("made"), of("x-old")), (status, Some("here"), Some("new")));
        assert_eq!((of("via"), of("x-other")), (None, other), "{status}");
    }
    let made = get(&mut client, "/made", "").await;
    assert_eq!((made.status, made.field("made")), (304, Some("here")));
    edge.stop().await;
}

#[tokio::test]
async fn policy_can_close_connection_after_response() {
    let backend = Backend::new().await;
    let edge = edge(
        &backend,
        r#"
        sub vcl_recv { if (req.url == "/synth") { return (synth(200)); } }
        sub vcl_deliver { if (req.http.Last) { set resp.http.Connection = "close"; } }
        sub vcl_synth { set resp.http.Connection = "close"; set resp.body = ""; return (deliver); }
        "#,
    );
    let mut client = edge.client().await;
    fetched(&backend, &mut client, "/a", FRESH).await;
    for (path, fields) in [("/a", "Last: 1\r\n"), ("/synth", ""), ("/a", "Last: 1\r\nIf-None-Match: *\r\n")] {
        let mut client = edge.client().await;
        assert_eq!(get(&mut client, "/a", "").await.field("connection"), None);
        let response = get(&mut client, path, fields).await;
        assert_eq!(response.field("connection"), Some("close"), "{path}");
        assert!(client.is_closed().await);
    }
    edge.stop().await;
}

#[tokio::test]
async fn response_to_changed_method_is_not_stored() {
    let backend = Backend::new().await;
    let edge = edge(
        &backend,
        r#"
        sub vcl_recv { if (req.http.Pass) { return (pass); } }
        sub vcl_backend_fetch { if (bereq.http.As) { set bereq.method = bereq.http.As; } return (fetch); }
        "#,
    );
    let mut client = edge.client().await;
    for fields in ["As: HEAD\r\n", "As: HEAD\r\nPass: 1\r\n"] {
        client.request("GET", "/a", fields).await;
        let mut fetch = backend.fetch().await;
        assert!(fetch.request.starts_with("HEAD "), "{}", fetch.request);
        fetch.send(format!("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n{CACHED}\r\n")).await;
        let response = client.response().await;
        assert_eq!((response.status, text(&response), response.whole), (200, "", true));
    }
    let (_, whole) = fetched(&backend, &mut client, "/a", FRESH).await;
    assert_eq!(text(&whole), "/a");
    edge.stop().await;
}

/// A policy whose stored responses are stale immediately but have `stale-if-error`.
const STALE_AT_ONCE: &str = r#"
    sub vcl_backend_response {
        if (beresp.status == 200) {
            set beresp.ttl = 5ms;
            set beresp.http.Cache-Control = beresp.http.Cache-Control + ", stale-if-error=60";
        }
    }
"#;

#[tokio::test]
async fn rfc5861_4_stale_response_is_served_without_vcl_backend_error() {
    let backend = Backend::new().await;
    let edge = edge(&backend, STALE_AT_ONCE);
    let mut client = edge.client().await;
    let fields = format!("{CACHED}ETag: \"v1\"\r\n");
    fetched(&backend, &mut client, "/a", &fields).await;
    // The backend first sends an error response, then no response at all.
    let mut again = until_fetched(&backend, &mut client, "/a").await;
    again.respond("503 Service Unavailable", "Connection: close\r\n", b"busy").await;
    let stale = client.response().await;
    assert_eq!((stale.status, text(&stale)), (200, "/a"));
    assert!(stale.cache_status().contains("fwd=stale; fwd-status=503"), "{}", stale.cache_status());
    client.request("GET", "/a", "").await;
    drop(backend.fetch().await);
    let stale = client.response().await;
    assert_eq!((stale.status, text(&stale)), (200, "/a"));
    // Any other response is delivered.
    client.request("GET", "/a", "").await;
    backend.fetch().await.respond("404 Not Found", "Connection: close\r\n", b"").await;
    assert_eq!(client.response().await.status, 404);
    edge.stop().await;
}

#[tokio::test]
async fn vcl_backend_error_replaces_stale_on_error() {
    let backend = Backend::new().await;
    let own = "sub vcl_backend_error { set beresp.status = 599; return (deliver); }";
    let edge = edge(&backend, &format!("{STALE_AT_ONCE}{own}"));
    let mut client = edge.client().await;
    fetched(&backend, &mut client, "/a", CACHED).await;
    drop(until_fetched(&backend, &mut client, "/a").await);
    assert_eq!(client.response().await.status, 599);
    client.request("GET", "/a", "").await;
    backend.fetch().await.respond("503 Service Unavailable", "Connection: close\r\n", b"busy").await;
    let response = client.response().await;
    assert_eq!((response.status, text(&response)), (503, "busy"));
    edge.stop().await;
}

#[tokio::test]
async fn rfc9111_4_1_vary_star_is_not_stored_even_if_policy_stores_it() {
    let backend = Backend::new().await;
    let edge = edge(&backend, "sub vcl_backend_response { set beresp.ttl = 1h; return (deliver); }");
    let mut client = edge.client().await;
    for (path, vary) in [("/a", "Vary: *\r\n"), ("/b", "Vary: A, *\r\n"), ("/c", "Vary: A\r\nVary: *\r\n")] {
        for _ in 0..2 {
            let (_, response) = fetched(&backend, &mut client, path, vary).await;
            assert_eq!(text(&response), path);
        }
    }
    fetched(&backend, &mut client, "/d", "Vary: A\r\n").await;
    assert!(get(&mut client, "/d", "").await.cache_status().contains("; hit"));
    edge.stop().await;
}

#[tokio::test]
async fn rfc9111_4_1_vary_star_is_passed_immediately_even_if_large() {
    let backend = Backend::new().await;
    let edge = edge(&backend, "sub vcl_backend_response { return (deliver); }");
    let mut client = edge.client().await;
    client.request("GET", "/film", "").await;
    let mut fetch = backend.fetch().await;
    // Without `Vary: *`, such a large response with an entity tag and ranges would be stored in
    // slices.
    let fields = format!("{FRESH}ETag: \"v1\"\r\nAccept-Ranges: bytes\r\nVary: *\r\n");
    fetch.send(format!("HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n{fields}\r\n")).await;
    let head = client.head().await;
    assert!(field(&head, "cache-status").unwrap().ends_with("; detail=vary"), "{head}");
    assert!(!backend.is_asked_again().await);
    drop((client, fetch));
    edge.stop().await;
}

#[tokio::test]
async fn every_cache_control_line_applies_under_policy() {
    let backend = Backend::new().await;
    for (policy, seconds) in [
        ("", &["private", "no-store", "no-cache"][..]),
        ("sub vcl_backend_response { return (deliver); }", &["no-cache", "s-maxage=0"]),
    ] {
        let edge = edge(&backend, policy);
        let mut client = edge.client().await;
        for second in seconds {
            let fields = format!("{FRESH}Cache-Control: {second}\r\n");
            for _ in 0..2 {
                // Each request must reach the backend; otherwise, the test times out.
                let path = format!("/{second}");
                let (_, response) = fetched(&backend, &mut client, &path, &fields).await;
                assert_eq!(text(&response), path);
            }
        }
        edge.stop().await;
    }
}

#[tokio::test]
async fn ban_on_request_field_is_evaluated_at_look_up() {
    let backend = Backend::new().await;
    let edge = edge(
        &backend,
        r#"sub vcl_recv {
            if (req.method == "BAN") { ban("req.http.X-Device == tv && req.url ~ ^/a"); return (synth(200)); }
        }"#,
    );
    let mut client = edge.client().await;
    for path in ["/a/tv", "/a/phone", "/b/tv"] {
        fetched(&backend, &mut client, path, FRESH).await;
    }
    client.request("BAN", "/", "").await;
    assert_eq!(client.response().await.status, 200);
    assert_eq!(text(&get(&mut client, "/a/phone", "X-Device: phone\r\n").await), "/a/phone");
    assert_eq!(text(&get(&mut client, "/b/tv", "X-Device: tv\r\n").await), "/b/tv");
    client.request("GET", "/a/tv", "X-Device: tv\r\n").await;
    backend.fetch().await.respond("200 OK", FRESH, b"new").await;
    assert_eq!(text(&client.response().await), "new");
    edge.stop().await;
}
