//! What policies say of storing, and for how long, over real sockets: hit-for-pass and hit-for-miss, times below a second,
//! what is fetched anew, and what becomes of a fetch that fails.

#![allow(clippy::unwrap_used)]

use thalweg_record::CacheResult;

use crate::policy::{CACHED, edge, fetched, get, text};
use crate::support::{Backend, Client, Fetch, Response, TestEdge, content};

const FRESH: &str = "Cache-Control: max-age=60\r\n";

/// Tells in responses what a key is known for.
const TELL_MARKS: &str = r#"
    sub vcl_deliver {
        set resp.http.hitmiss = req.is_hitmiss;
        set resp.http.hitpass = req.is_hitpass;
    }
"#;

fn marks(response: &Response) -> (&str, &str) {
    (response.field("hitmiss").unwrap(), response.field("hitpass").unwrap())
}

/// Answers `fetch`, and gives what the client has got of it.
async fn answered(mut fetch: Fetch, client: &mut Client, fields: &str, content: &str) -> Response {
    fetch.respond("200 OK", &format!("{fields}Connection: close\r\n"), content.as_bytes()).await;
    client.response().await
}

/// Asks again and again until the backend is asked; gives that.
async fn until_asked(backend: &Backend, client: &mut Client, path: &str) -> Fetch {
    loop {
        client.request("GET", path, "").await;
        tokio::select! {
            fetch = backend.fetch() => return fetch,
            response = client.response() => assert_eq!(response.status, 200),
        }
    }
}

#[tokio::test]
async fn a_hit_for_pass_passes_for_as_long_as_it_says() {
    let backend = Backend::new().await;
    let text_of_policy = r#"
        sub vcl_backend_response {
            if (beresp.http.For == "hour") { return (pass(1h)); }
            if (beresp.http.For == "moment") { return (pass(1ms)); }
            if (beresp.http.For == "ttl") { set beresp.ttl = 1h; return (pass); }
        }
        sub vcl_backend_fetch { set bereq.http.Told = bereq.is_hitpass + " " + bereq.uncacheable; }
    "#;
    let edge = edge(&backend, &format!("{text_of_policy}{TELL_MARKS}"));
    let mut client = edge.client().await;
    for (path, lasts) in [("/hour", "For: hour\r\n"), ("/ttl", "For: ttl\r\n")] {
        let (_, first) = fetched(&backend, &mut client, path, &format!("{FRESH}{lasts}")).await;
        assert_eq!(marks(&first), ("false", "false"));
        for _ in 0..2 {
            let (asked, passed) = fetched(&backend, &mut client, path, FRESH).await;
            assert!(asked.contains("Told: true true\r\n"), "{asked}");
            assert_eq!(marks(&passed), ("false", "true"), "what could be stored is passed too");
        }
    }
    // Once it is over the response is stored.
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
async fn a_hit_for_miss_lets_each_fetch_and_the_first_that_may_be_shared_takes_its_place() {
    let backend = Backend::new().await;
    let policy = r#"
        sub vcl_recv { if (req.method == "PURGE") { return (purge); } }
        sub vcl_backend_response {
            if (beresp.http.Not) { set beresp.uncacheable = true; set beresp.ttl = 1h; return (deliver); }
        }
        sub vcl_backend_fetch { set bereq.http.Told = bereq.is_hitmiss + " " + bereq.uncacheable; }
    "#;
    let edge = edge(&backend, &format!("{policy}{TELL_MARKS}"));
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
    // Again for one client alone: what was stored is not what there is any more.
    let (_, again) = fetched(&backend, &mut second, "/a", &format!("{FRESH}Not: 1\r\n")).await;
    assert_eq!(marks(&again), ("true", "false"));
    second.request("PURGE", "/a", "").await;
    assert_eq!(second.response().await.status, 200);
    let (_, purged) = fetched(&backend, &mut second, "/a", FRESH).await;
    assert_eq!(marks(&purged), ("false", "false"), "a purge takes that away too");
    edge.stop().await;
}

#[tokio::test]
async fn hit_for_miss_is_about_one_variant() {
    let backend = Backend::new().await;
    let policy = r#"
        sub vcl_backend_response {
            if (bereq.http.Device == "phone") { return (pass(1h)); }
        }
    "#;
    let edge = edge(&backend, &format!("{policy}{TELL_MARKS}"));
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
async fn times_below_a_second_count() {
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
    let again = until_asked(&backend, &mut client, "/b").await;
    assert_eq!(text(&answered(again, &mut client, "", "anew").await), "anew");
    edge.stop().await;
}

#[tokio::test]
async fn a_request_that_always_misses_waits_for_nobody_and_replaces_what_is_stored() {
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
    assert_eq!(text(&get(&mut first, "/a", "").await), "/a", "what is stored is there meanwhile");
    let response = answered(anew, &mut second, &validated, "second").await;
    assert_eq!((text(&response), response.field("missed")), ("second", Some("yes")));
    assert_eq!(text(&get(&mut first, "/a", "").await), "second");

    // Neither does it wait for a fetch that is under way.
    for fields in ["Anew: 1\r\n", "Busy: 1\r\n"] {
        let path = format!("/{}", &fields[..4]);
        first.request("GET", &path, "").await;
        let slow = backend.fetch().await;
        second.request("GET", &path, fields).await;
        let other = backend.fetch().await;
        assert_eq!(text(&answered(other, &mut second, FRESH, "fast").await), "fast");
        assert_eq!(text(&get(&mut second, &path, "").await), "fast", "it is stored");
        assert_eq!(text(&answered(slow, &mut first, FRESH, "slow").await), "slow");
    }

    // What is too old for the policy alone is not asked about either.
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

/// An edge whose responses are stale at once and have an hour of grace, which a request may refuse.
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
async fn an_error_of_the_backend_is_the_policys_to_make_and_grace_outlives_it() {
    let backend = Backend::new().await;
    let edge = with_grace(&backend);
    let mut client = edge.client().await;
    fetched(&backend, &mut client, "/a", CACHED).await;
    for _ in 0..2 {
        assert_eq!(text(&get(&mut client, "/a", "").await), "/a");
        // The refresh fails, is tried again because the policy says so, and fails.
        drop(backend.fetch().await);
        drop(backend.fetch().await);
    }
    // Who does not want what is stale gets the error.
    client.request("GET", "/a", "Strict: 1\r\n").await;
    drop(backend.fetch().await);
    let failed = client.response().await;
    assert_eq!((failed.status, text(&failed)), (503, "sorry"));
    assert_eq!(text(&get(&mut client, "/a", "").await), "/a", "it is still there");
    edge.stop().await;
}

#[tokio::test]
async fn the_failure_of_a_refresh_is_not_told_of_who_does_not_wait_for_it() {
    /// More than the sockets on the way take.
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
    // It is tried again, so it has failed, and the response is still going out.
    let again = backend.fetch().await;
    client.exactly(SIZE).await;
    let record = records.recv().await.unwrap();
    assert_eq!(record.cache, CacheResult::Stale);
    assert_eq!(record.lines.iter().next(), None);
    drop(again);
    edge.stop().await;
}

#[tokio::test]
async fn those_who_wait_get_the_error_too() {
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
    // The edge's one thread has come to them when it has answered this.
    assert_eq!(get(&mut client, "/stored", "").await.status, 200);
    let mut refresh = backend.fetch().await;
    refresh.respond("200 OK", CACHED, b"stored").await;
    drop(fetch);
    for client in &mut waiting {
        let response = client.response().await;
        assert_eq!((response.status, text(&response)), (503, "sorry"));
    }
    // It is the error of all of them, and that of who comes later is one that was found.
    get(&mut client, "/a", "").await;
    let mut told = Vec::new();
    while told.len() < 4 {
        let record = records.recv().await.unwrap();
        if record.path == "/a" {
            assert_eq!(record.detail.as_deref(), Some("backend-error"));
            told.push(record.cache);
        }
    }
    let error = CacheResult::Error;
    assert_eq!(told, [error, error, error, CacheResult::Hit]);
    assert!(!backend.is_asked_again().await);
    edge.stop().await;
}

#[tokio::test]
async fn fields_that_a_policy_makes_hold_for_what_is_not_the_content() {
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
async fn a_policy_ends_a_connection_with_its_response() {
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
async fn what_another_method_brings_is_not_stored() {
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

/// Stores what is stale at once, for a minute of errors.
const STALE_AT_ONCE: &str = r#"
    sub vcl_backend_response {
        if (beresp.status == 200) {
            set beresp.ttl = 5ms;
            set beresp.http.Cache-Control = beresp.http.Cache-Control + ", stale-if-error=60";
        }
    }
"#;

#[tokio::test]
async fn rfc5861_4_what_is_stale_answers_where_no_vcl_backend_error_is_written() {
    let backend = Backend::new().await;
    let edge = edge(&backend, STALE_AT_ONCE);
    let mut client = edge.client().await;
    let fields = format!("{CACHED}ETag: \"v1\"\r\n");
    fetched(&backend, &mut client, "/a", &fields).await;
    // One that answers with a failure, and one that does not answer.
    let mut again = until_asked(&backend, &mut client, "/a").await;
    again.respond("503 Service Unavailable", "Connection: close\r\n", b"busy").await;
    let stale = client.response().await;
    assert_eq!((stale.status, text(&stale)), (200, "/a"));
    assert!(stale.cache_status().contains("fwd=stale; fwd-status=503"), "{}", stale.cache_status());
    client.request("GET", "/a", "").await;
    drop(backend.fetch().await);
    let stale = client.response().await;
    assert_eq!((stale.status, text(&stale)), (200, "/a"));
    // Other answers are answers.
    client.request("GET", "/a", "").await;
    backend.fetch().await.respond("404 Not Found", "Connection: close\r\n", b"").await;
    assert_eq!(client.response().await.status, 404);
    edge.stop().await;
}

#[tokio::test]
async fn a_vcl_backend_error_of_the_policy_answers_in_place_of_what_is_stale() {
    let backend = Backend::new().await;
    let own = "sub vcl_backend_error { set beresp.status = 599; return (deliver); }";
    let edge = edge(&backend, &format!("{STALE_AT_ONCE}{own}"));
    let mut client = edge.client().await;
    fetched(&backend, &mut client, "/a", CACHED).await;
    drop(until_asked(&backend, &mut client, "/a").await);
    assert_eq!(client.response().await.status, 599);
    client.request("GET", "/a", "").await;
    backend.fetch().await.respond("503 Service Unavailable", "Connection: close\r\n", b"busy").await;
    let response = client.response().await;
    assert_eq!((response.status, text(&response)), (503, "busy"));
    edge.stop().await;
}
