//! Tests of reporting under a policy: records, `Cache-Status` and status lines.

#![allow(clippy::unwrap_used)]

use thalweg_edge::Config;
use thalweg_edge::Follower;
use thalweg_record::{CacheResult, LineTag, ResponseRecord};

use crate::policy::{CACHED, edge, fetched, get, text};
use crate::support::{Backend, Client, TestEdge, config};

/// Sends a GET that does not need a working backend, and returns its record.
async fn record(client: &mut Client, records: &mut Follower, path: &str) -> thalweg_edge::NumberedRecord {
    get(client, path, "").await;
    records.recv().await.unwrap()
}

/// Returns the cache result and detail of a record.
fn cache(record: &ResponseRecord) -> (CacheResult, Option<&str>) {
    (record.cache, record.detail.as_deref())
}

fn status_line(head: &str) -> &str {
    head.split_once("\r\n").unwrap().0
}

#[tokio::test]
async fn failed_fetch_is_error_with_and_without_policy() {
    let gone = Backend::new().await;
    let policed = edge(
        &gone,
        r#"
        sub vcl_recv { if (req.url == "/pass") { return (pass); } }
        sub vcl_backend_error {
            if (bereq.url == "/kept") { set beresp.ttl = 1h; }
            set beresp.body = "sorry";
            return (deliver);
        }"#,
    );
    let plain = TestEdge::before(&gone);
    drop(gone);
    for (edge, detail) in [(&plain, "no valid response from the backend"), (&policed, "backend-error")] {
        let mut records = edge.records.follow();
        let mut client = edge.client().await;
        for path in ["/a", "/pass"] {
            let record = record(&mut client, &mut records, path).await;
            assert_eq!(cache(&record), (CacheResult::Error, Some(detail)), "{path}");
        }
    }
    let mut records = policed.records.follow();
    let mut client = policed.client().await;
    let response = get(&mut client, "/a", "").await;
    records.recv().await.unwrap();
    assert_eq!((response.status, text(&response)), (503, "sorry"));
    assert_eq!(response.cache_status(), "thalweg; fwd=uri-miss; detail=backend-error");
    // An error stored by the policy is a hit like any other response, and keeps its detail.
    for cached in [CacheResult::Error, CacheResult::Hit] {
        let record = record(&mut client, &mut records, "/kept").await;
        assert_eq!(cache(&record), (cached, Some("backend-error")));
    }
    plain.stop().await;
    policed.stop().await;
}

#[tokio::test]
async fn response_generated_by_policy_is_not_an_error() {
    let backend = Backend::new().await;
    let edge = edge(
        &backend,
        r#"
        sub vcl_backend_fetch { return (error(200, "Here")); }
        sub vcl_backend_error {
            if (bereq.url == "/kept") { set beresp.ttl = 1h; }
            set beresp.body = "made";
            return (deliver);
        }"#,
    );
    let mut records = edge.records.follow();
    let mut client = edge.client().await;
    for (path, status, cached) in [
        ("/kept", "thalweg; fwd=uri-miss; ttl=3600; stored", (CacheResult::Miss, None)),
        ("/kept", "thalweg; hit; ttl=3600", (CacheResult::Hit, None)),
        ("/once", "thalweg; fwd=uri-miss; detail=not-fresh", (CacheResult::Pass, Some("not-fresh"))),
    ] {
        let response = get(&mut client, path, "").await;
        assert_eq!((response.status, text(&response)), (200, "made"));
        // No backend responded, so there is no fwd-status.
        assert_eq!(response.cache_status_from(3600), status);
        assert_eq!(cache(&records.recv().await.unwrap()), cached, "{path}");
    }
    edge.stop().await;
}

#[tokio::test]
async fn reason_for_not_storing_is_reported() {
    let backend = Backend::new().await;
    let edge = edge(
        &backend,
        r#"
        sub vcl_recv { if (req.url == "/pass") { return (pass); } }
        sub vcl_backend_response {
            if (bereq.url == "/hit-for-pass") { return (pass(1h)); }
            if (bereq.url == "/hit-for-miss") { set beresp.uncacheable = true; set beresp.ttl = 1h; return (deliver); }
        }"#,
    );
    let mut records = edge.records.follow();
    let mut client = edge.client().await;
    for (path, details) in [
        ("/pass", ["pass", "pass"]),
        ("/hit-for-pass", ["policy", "hit-for-pass"]),
        ("/hit-for-miss", ["policy", "hit-for-miss"]),
    ] {
        for detail in details {
            let (_, response) = fetched(&backend, &mut client, path, CACHED).await;
            let record = records.recv().await.unwrap();
            assert_eq!(cache(&record), (CacheResult::Pass, Some(detail)), "{path}");
            let status = response.cache_status();
            assert!(status.ends_with(&format!("; detail={detail}")), "{status}");
        }
    }
    for name in ["Surrogate-Key", "xkey"] {
        let fields = format!("{CACHED}{name}: {}\r\n", "a ".repeat(257));
        fetched(&backend, &mut client, &format!("/{name}"), &fields).await;
        assert_eq!(cache(&records.recv().await.unwrap()), (CacheResult::Pass, Some("tags")), "{name}");
    }
    fetched(&backend, &mut client, "/a", CACHED).await;
    assert_eq!(cache(&records.recv().await.unwrap()), (CacheResult::Miss, None));
    edge.stop().await;
}

#[tokio::test]
async fn reason_phrase_reaches_client_and_is_stored() {
    let backend = Backend::new().await;
    let policed = edge(
        &backend,
        r#"
        sub vcl_recv {
            if (req.url == "/418") { return (synth(418)); }
            if (req.url == "/418-said") { return (synth(418, "Short and stout")); }
        }
        sub vcl_backend_response {
            set beresp.http.Said = beresp.reason;
            if (bereq.url == "/set") { set beresp.status = 203; set beresp.reason = {"a
Set-Cookie: b"}; }
            if (bereq.url == "/usual") { set beresp.reason = "OK"; }
        }
        sub vcl_hit { set req.http.Found = obj.reason; }
        sub vcl_deliver {
            set resp.http.Found = req.http.Found;
            if (req.http.Delivered) { set resp.reason = req.http.Delivered; }
        }"#,
    );
    let mut client = policed.client().await;
    for (path, sent, line) in [
        ("/own", "Quite Right", "HTTP/1.1 200 Quite Right"),
        ("/set", "Quite Right", "HTTP/1.1 203 a Set-Cookie: b"),
        ("/usual", "Quite Right", "HTTP/1.1 200 OK"),
        ("/none", "", "HTTP/1.1 200 OK"),
    ] {
        client.request("GET", path, "").await;
        backend.fetch().await.respond(&format!("200 {sent}"), CACHED, b"").await;
        let miss = client.response().await;
        assert_eq!(status_line(&miss.head), line);
        assert_eq!(
            (miss.field("said"), miss.field("set-cookie")),
            (Some(if sent.is_empty() { "OK" } else { sent }), None)
        );
        let hit = get(&mut client, path, "").await;
        assert_eq!(status_line(&hit.head), line);
        assert_eq!(hit.field("found"), line.get(13..));
    }
    let delivered = get(&mut client, "/own", "Delivered: Here\r\n").await;
    assert_eq!(status_line(&delivered.head), "HTTP/1.1 200 Here");
    // A 304 has its own reason phrase.
    let part = get(&mut client, "/own", "If-None-Match: *\r\n").await;
    assert_eq!(status_line(&part.head), "HTTP/1.1 304 Not Modified");
    assert_eq!(status_line(&get(&mut client, "/418", "").await.head), "HTTP/1.1 418 Unknown HTTP Status");
    assert_eq!(status_line(&get(&mut client, "/418-said", "").await.head), "HTTP/1.1 418 Short and stout");
    policed.stop().await;

    let plain = TestEdge::start(Config { ..config(backend.address) });
    let mut client = plain.client().await;
    client.request("GET", "/a", "").await;
    backend.fetch().await.respond("200 Quite Right", CACHED, b"").await;
    assert_eq!(status_line(&client.response().await.head), "HTTP/1.1 200 Quite Right");
    assert_eq!(status_line(&get(&mut client, "/a", "").await.head), "HTTP/1.1 200 Quite Right");
    plain.stop().await;
}

#[tokio::test]
async fn record_has_request_number_restarts_and_backend() {
    let backend = Backend::new().await;
    let edge = edge(
        &backend,
        r#"
        backend nobody none;
        sub vcl_recv {
            if (req.url == "/nobody") { set req.backend_hint = nobody; }
            if (req.url == "/again" && req.restarts < 2) { return (restart); }
            if (req.url == "/synth") { return (synth(200)); }
            if (req.url == "/pipe") { return (pipe); }
        }
        sub vcl_backend_fetch { set bereq.http.Number = bereq.xid; }
        sub vcl_deliver { set resp.http.Number = req.xid; }
        sub vcl_synth { set resp.http.Number = req.xid; }"#,
    );
    let mut records = edge.records.follow();
    let mut client = edge.client().await;
    let (asked, response) = fetched(&backend, &mut client, "/again", CACHED).await;
    let record = records.recv().await.unwrap();
    let number = record.xid.unwrap().to_string();
    assert!(asked.contains(&format!("Number: {number}\r\n")), "{asked}");
    assert_eq!(response.field("number"), Some(&*number));
    assert_eq!((record.restarts, record.backend.as_deref()), (2, Some("default")));
    for (path, backend) in [("/again", None), ("/synth", None), ("/nobody", Some("nobody"))] {
        let response = get(&mut client, path, "").await;
        let record = records.recv().await.unwrap();
        assert!(record.xid > number.parse().ok(), "{path}");
        assert_eq!(response.field("number"), Some(&*record.xid.unwrap().to_string()), "{path}");
        assert_eq!(record.backend.as_deref(), backend, "{path}");
    }
    client.request("GET", "/pipe", "").await;
    backend.fetch().await.respond("200 OK", CACHED, b"").await;
    client.response().await;
    drop(client);
    assert_eq!(records.recv().await.unwrap().backend.as_deref(), Some("default"));
    edge.stop().await;
}

#[tokio::test]
async fn timestamps_are_relative_to_start_and_to_previous_timestamp() {
    let backend = Backend::new().await;
    let edge = edge(
        &backend,
        r#"
        import std;
        sub vcl_recv { std.timestamp("in"); }
        sub vcl_backend_fetch { std.timestamp("asks"); }
        sub vcl_backend_response { std.timestamp("asked"); }
        sub vcl_deliver { std.timestamp("out"); }"#,
    );
    let mut records = edge.records.follow();
    let mut client = edge.client().await;
    fetched(&backend, &mut client, "/a", CACHED).await;
    let record = records.recv().await.unwrap();
    let lines = record.lines.iter().filter(|line| line.tag == LineTag::Timestamp);
    let stamps: Vec<(String, [f64; 3])> = lines
        .map(|line| {
            let (label, numbers) = line.text.split_once(": ").unwrap();
            assert!(
                numbers.split(' ').all(|number| number.rsplit_once('.').unwrap().1.len() == 6),
                "{numbers}"
            );
            let numbers: Vec<f64> = numbers.split(' ').map(|number| number.parse().unwrap()).collect();
            (label.to_owned(), numbers.try_into().unwrap())
        })
        .collect();
    let labels: Vec<_> = stamps.iter().map(|(label, _)| &**label).collect();
    assert_eq!(labels, ["in", "asks", "asked", "out"]);
    // The client side and the backend side each have their own start time.
    for side in [[0, 3], [1, 2]] {
        let [(_, first), (_, last)] = side.map(|at| &stamps[at]);
        let is_near = |left: f64, right: f64| (left - right).abs() < 5e-6;
        assert!(is_near(first[1], first[2]), "{stamps:?}");
        assert!(is_near(last[2], last[0] - first[0]) && last[2] > 0.0, "{stamps:?}");
        assert!(is_near(last[1], first[1] + last[2]), "{stamps:?}");
    }
    let received_s = record.time_unix_us as f64 / 1e6;
    let [absolute, since_start, _] = stamps[0].1;
    assert!((absolute - since_start - received_s).abs() < 0.1, "{received_s} {stamps:?}");
    edge.stop().await;
}
