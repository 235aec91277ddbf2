//! Policy routing tests: requests sent to a backend, through a pipe, in slices, or to another
//! policy. Also tests policy loading.

#![allow(clippy::unwrap_used)]

use thalweg_edge::{BindError, Config, Edge, LoadError};
use thalweg_record::{CacheResult, LineTag};

use crate::policy::{CACHED, File, edge, fetched, get};
use crate::ranges::{FRESH, partial};
use crate::support::{Backend, PATIENCE, TestEdge, config, content, field};

#[tokio::test]
async fn vcl_pipe_selects_the_backend() {
    let (backend, other) = (Backend::new().await, Backend::new().await);
    let port = other.address.port();
    let text = format!(
        r#"
        backend other {{ .host = "127.0.0.1"; .port = "{port}"; }}
        sub vcl_recv {{ return (pipe); }}
        sub vcl_pipe {{
            set bereq.http.was = bereq.backend;
            if (req.http.Other) {{ set bereq.backend = other; }}
        }}
        "#
    );
    let edge = edge(&backend, &text);
    for (fields, leads_to) in [("", &backend), ("Other: 1\r\n", &other)] {
        let mut client = edge.client().await;
        client.request("GET", "/a", fields).await;
        let mut piped = leads_to.fetch().await;
        assert_eq!(field(&piped.request, "was"), Some("default"));
        piped.send("HTTP/1.1 200 OK\r\n\r\nhello").await;
        assert!(client.head().await.starts_with("HTTP/1.1 200 "));
        assert_eq!(client.exactly(5).await, b"hello");
    }
    edge.stop().await;
}

#[tokio::test]
async fn policy_named_by_another_cannot_be_discarded() {
    let backend = Backend::new().await;
    let port = backend.address.port();
    let file = |text: &str| {
        let backend = format!("backend default {{ .host = \"127.0.0.1\"; .port = \"{port}\"; }}");
        File::new(format!("vcl 4.1; {backend} {text}"))
    };
    let (boot, behind) = (file(""), file("sub vcl_recv { return (synth(204)); }"));
    let before = file("sub vcl_recv { return (vcl(behind)); }");
    let bound =
        Edge::bind(Config { policy: Some(boot.0.clone()), backends: Vec::new(), ..config(backend.address) });
    let edge = bound.unwrap();
    let policies = edge.policies();
    let edge = TestEdge::run(edge);
    policies.load("behind", &behind.0, false).await.unwrap();
    policies.load("before", &before.0, false).await.unwrap();
    policies.activate("before").unwrap();
    let refused = policies.discard("behind").unwrap_err();
    assert!(matches!(&refused, LoadError::Named(..)));
    assert_eq!(refused.to_string(), "\"before\" sends requests to \"behind\": discard \"before\" first");
    assert_eq!(edge.get("/a", "").await.status, 204);
    policies.activate("boot").unwrap();
    policies.discard("before").unwrap();
    policies.discard("behind").unwrap();
    edge.stop().await;
}

#[tokio::test]
async fn vcl_backend_fetch_runs_for_slice_fetches() {
    const LENGTH: usize = 1_000_000;
    let backend = Backend::new().await;
    let port = backend.address.port();
    let file = File::new(format!(
        r#"vcl 4.1; import std;
        backend default {{ .host = "127.0.0.1"; .port = "{port}"; }}
        sub vcl_backend_fetch {{ set bereq.http.Asked = "1"; std.log("asked"); }}"#
    ));
    let edge = TestEdge::start(Config {
        policy: Some(file.0.clone()),
        backends: Vec::new(),
        slice_bytes: 100_000,
        ..config(backend.address)
    });
    let mut log = edge.records.follow();
    let seek = "Range: bytes=400010-400019\r\n";
    let mut client = edge.client().await;
    client.request("GET", "/a", seek).await;
    let mut fetch = backend.fetch().await;
    assert_eq!(field(&fetch.request, "asked"), Some("1"));
    fetch.send(partial(400_000..500_000, LENGTH, FRESH)).await;
    assert_eq!(client.response().await.content, content(400_010, 10));
    assert_eq!(log.recv().await.unwrap().lines.iter().count(), 1);
    // A hit does not run `vcl_backend_fetch`.
    assert_eq!(get(&mut client, "/a", seek).await.content, content(400_010, 10));
    assert_eq!(log.recv().await.unwrap().lines.iter().count(), 0);
    // Fetching the next slice runs `vcl_backend_fetch` again.
    client.request("GET", "/a", "Range: bytes=500010-500019\r\n").await;
    fetch.next().await;
    assert_eq!(field(&fetch.request, "asked"), Some("1"));
    fetch.send(partial(500_000..600_000, LENGTH, FRESH)).await;
    assert_eq!(client.response().await.content, content(500_010, 10));
    assert_eq!(log.recv().await.unwrap().lines.iter().count(), 1);
    edge.stop().await;
}

#[tokio::test]
async fn head_validated_under_policy_keeps_its_slices() {
    const LENGTH: usize = 1_000_000;
    const SEEK: &str = "Range: bytes=400010-400019\r\n";
    let backend = Backend::new().await;
    let port = backend.address.port();
    let file = File::new(format!(
        r#"vcl 4.1; backend default {{ .host = "127.0.0.1"; .port = "{port}"; }}
        sub vcl_backend_response {{ set beresp.ttl = 0s; set beresp.grace = 1h; return (deliver); }}"#
    ));
    let edge = TestEdge::start(Config {
        policy: Some(file.0.clone()),
        backends: Vec::new(),
        slice_bytes: 100_000,
        ..config(backend.address)
    });
    let mut client = edge.client().await;
    client.request("GET", "/a", SEEK).await;
    let mut fetch = backend.fetch().await;
    fetch.send(partial(400_000..500_000, LENGTH, FRESH)).await;
    assert_eq!(client.response().await.content, content(400_010, 10));
    // The head is stale immediately, so it is served while it is validated in the background.
    assert_eq!(get(&mut client, "/a", SEEK).await.content, content(400_010, 10));
    fetch.next().await;
    assert_eq!(field(&fetch.request, "if-none-match"), Some("\"v1\""));
    fetch.send("HTTP/1.1 304 Not Modified\r\nETag: \"v1\"\r\nX-New: 1\r\n\r\n").await;
    let validated = async {
        loop {
            let served = get(&mut client, "/a", SEEK).await;
            assert_eq!((served.status, &served.content), (206, &content(400_010, 10)), "{}", served.head);
            if served.field("x-new").is_some() {
                break;
            }
        }
    };
    tokio::time::timeout(PATIENCE, validated).await.unwrap();
    edge.stop().await;
}

#[tokio::test]
async fn failed_fetch_is_logged_but_not_shown_to_the_client() {
    let backend = Backend::new().await;
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let port = gone.port();
    let text = format!(
        r#"backend gone {{ .host = "127.0.0.1"; .port = "{port}"; }}
        sub vcl_recv {{ set req.backend_hint = gone; }}"#
    );
    let edge = edge(&backend, &text);
    let mut log = edge.records.follow();
    let response = edge.get("/a", "").await;
    let page = String::from_utf8(response.content.clone()).unwrap();
    assert!(response.status == 503 && page.contains("Backend fetch failed"), "{page}");
    assert!(!page.contains("127.0.0.1"), "{page}");
    let record = log.recv().await.unwrap();
    let line = record.lines.iter().next().unwrap();
    assert_eq!(line.tag, LineTag::FetchError);
    assert!(line.text.contains(&gone.to_string()), "{}", line.text);
    edge.stop().await;
}

#[tokio::test]
async fn pipe_copies_both_ways() {
    let backend = Backend::new().await;
    let edge = edge(&backend, r#"sub vcl_recv { if (req.http.Upgrade) { return (pipe); } }"#);
    let mut client = edge.client().await;
    client.request("GET", "/a", "Upgrade: echo\r\n").await;
    let mut fetch = backend.fetch().await;
    assert!(fetch.request.contains("Connection: close\r\n"), "{}", fetch.request);
    fetch.send("HTTP/1.1 101 Switching Protocols\r\n\r\nhello").await;
    assert!(client.head().await.starts_with("HTTP/1.1 101 "));
    assert_eq!(client.exactly(5).await, b"hello");
    client.send(b"and back").await;
    assert_eq!(fetch.client.exactly(8).await, b"and back");
    drop(fetch);
    assert!(client.is_closed().await);
    edge.stop().await;
}

#[tokio::test]
async fn pipe_keeps_framing_fields_and_detects_loops() {
    let backend = Backend::new().await;
    let edge = edge(
        &backend,
        r#"
        sub vcl_recv { return (pipe); }
        sub vcl_pipe { if (req.http.Own) { set bereq.http.Connection = "upgrade"; } }
        "#,
    );
    let content = b"3\r\nabc\r\n0\r\n\r\n";
    let mut client = edge.client().await;
    client.request("POST", "/a", "Transfer-Encoding: chunked\r\nUpgrade: echo\r\nVia: 1.0 first\r\n").await;
    client.send(content).await;
    let mut fetch = backend.fetch().await;
    let of = |name| field(&fetch.request, name);
    assert_eq!((of("transfer-encoding"), of("upgrade")), (Some("chunked"), Some("echo")));
    assert_eq!((of("connection"), of("via")), (Some("close"), Some("1.0 first, 1.1 thalweg")));
    assert_eq!(fetch.client.exactly(content.len()).await, content);

    let mut back = edge.client().await;
    back.send(fetch.request.as_bytes()).await;
    assert_eq!(back.response().await.status, 508);

    let mut own = edge.client().await;
    own.request("GET", "/a", "Own: 1\r\nContent-Length: 3\r\n").await;
    own.send(b"abc").await;
    let mut fetch = backend.fetch().await;
    let of = |name| field(&fetch.request, name);
    assert_eq!(
        (of("connection"), of("content-length")),
        (Some("upgrade"), None),
        "the content was discarded"
    );
    own.send(b"x").await;
    assert_eq!(fetch.client.exactly(1).await, b"x");
    edge.stop().await;
}

#[tokio::test]
async fn pipe_identifies_the_client_and_has_one_length() {
    let backend = Backend::new().await;
    let edge = edge(&backend, "sub vcl_recv { return (pipe); }");
    for lengths in ["Content-Length: 3\r\nContent-Length: 3\r\n", "Content-Length: 3, 3\r\n"] {
        let mut client = edge.client().await;
        let forged =
            "X-Forwarded-For: 10.0.0.1\r\nX_Forwarded_For: 10.0.0.2\r\nTransfer_Encoding: chunked\r\n";
        client.request("POST", "/a", &format!("{lengths}{forged}")).await;
        client.send(b"abc").await;
        let mut fetch = backend.fetch().await;
        let of = |name| field(&fetch.request, name);
        assert_eq!(of("x-forwarded-for"), Some("10.0.0.1, 127.0.0.1"));
        assert_eq!((of("x_forwarded_for"), of("transfer_encoding")), (None, None));
        assert_eq!((of("content-length"), fetch.request.matches("Content-Length").count()), (Some("3"), 1));
        assert_eq!(fetch.client.exactly(3).await, b"abc");
    }
    edge.stop().await;
}

#[tokio::test]
async fn pipes_leave_backend_connections_for_other_requests() {
    let backend = Backend::new().await;
    let port = backend.address.port();
    let file = File::new(format!(
        r#"vcl 4.1; backend default {{ .host = "127.0.0.1"; .port = "{port}"; }}
        sub vcl_recv {{ if (req.url == "/pipe") {{ return (pipe); }} }}"#
    ));
    let edge = TestEdge::start(Config {
        policy: Some(file.0.clone()),
        backends: Vec::new(),
        backend_connections_max: 2,
        ..config(backend.address)
    });
    let mut first = edge.client().await;
    first.request("GET", "/pipe", "").await;
    let _piped = backend.fetch().await;
    let mut second = edge.client().await;
    second.request("GET", "/pipe", "").await;
    assert_eq!(second.response().await.status, 503);
    let mut other = edge.client().await;
    assert_eq!(fetched(&backend, &mut other, "/a", CACHED).await.1.status, 200);
    edge.stop().await;
}

#[tokio::test]
async fn new_requests_get_new_policy_and_requests_in_progress_keep_theirs() {
    let backend = Backend::new().await;
    let port = backend.address.port();
    let file = |word: &str| {
        File::new(format!(
            "vcl 4.1; backend default {{ .host = \"127.0.0.1\"; .port = \"{port}\"; }}
            sub vcl_deliver {{ set resp.http.policy = \"{word}\"; }}"
        ))
    };
    let (first, second) = (file("first"), file("second"));
    let edge =
        Edge::bind(Config { policy: Some(first.0.clone()), backends: Vec::new(), ..config(backend.address) })
            .unwrap();
    let policies = edge.policies();
    let edge = TestEdge::run(edge);
    let mut client = edge.client().await;
    client.request("GET", "/a", "").await;
    let mut under_way = backend.fetch().await;
    policies.load("second", &second.0, false).await.unwrap();
    policies.activate("second").unwrap();
    assert_eq!(
        policies.list().iter().map(|it| (&*it.name, it.in_use > 0)).collect::<Vec<_>>(),
        [("boot", true), ("second", false)]
    );
    policies.discard("boot").unwrap();
    policies.discard("second").unwrap_err();
    under_way.respond("200 OK", "Cache-Control: max-age=60\r\n", b"a").await;
    assert_eq!(client.response().await.field("policy"), Some("first"));
    assert_eq!(get(&mut client, "/a", "").await.field("policy"), Some("second"));
    edge.stop().await;
}

#[tokio::test]
async fn include_is_relative_to_the_including_file() {
    let directory = std::env::temp_dir().join(format!("thalweg-policy-{}-parts", std::process::id()));
    std::fs::create_dir_all(directory.join("parts")).unwrap();
    let write = |name: &str, text: &str| std::fs::write(directory.join(name), text).unwrap();
    write("main.vcl", "vcl 4.1; include \"parts/a.vcl\";");
    write("parts/a.vcl", "vcl 4.1; include \"b.vcl\";");
    write(
        "parts/b.vcl",
        "vcl 4.1; sub vcl_recv {
            if (storage.s0.happy && storage.Transient.happy && !storage.disk.happy) { return (synth(204)); }
        }",
    );
    let backend = Backend::new().await;
    let policy = Some(directory.join("main.vcl"));
    let edge = TestEdge::start(Config { policy, ..config(backend.address) });
    assert_eq!(edge.get("/a", "").await.status, 204);
    edge.stop().await;
    std::fs::remove_dir_all(directory).unwrap();
}

#[tokio::test]
async fn invalid_policy_is_refused_at_startup() {
    let backend = Backend::new().await;
    let file = File::new("vcl 4.1;\nsub vcl_recv { set req.http.a = beresp.ttl; }\n");
    let config = Config { policy: Some(file.0.clone()), ..config(backend.address) };
    match Edge::bind(config) {
        Err(BindError::Policy(error)) => {
            let message = error.to_string();
            assert!(message.contains(":2:") && message.contains("beresp.ttl"), "{message}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn passed_request_is_hashed_too() {
    let backend = Backend::new().await;
    let edge = edge(
        &backend,
        r#"
        import blob;
        sub vcl_recv { if (req.http.Pass) { return (pass); } return (hash); }
        sub vcl_deliver { set resp.http.Hash = blob.encode(HEX, LOWER, req.hash); }
        "#,
    );
    let mut client = edge.client().await;
    let mut hashes = Vec::new();
    for fields in ["", "Pass: 1\r\n"] {
        client.request("GET", "/a", fields).await;
        backend.fetch().await.respond("200 OK", CACHED, b"a").await;
        hashes.push(client.response().await.field("hash").unwrap().to_owned());
    }
    assert!(hashes[0].len() == 64 && hashes[0] == hashes[1], "{hashes:?}");
    edge.stop().await;
}

#[tokio::test]
async fn record_gives_reason_why_policy_ended_request() {
    const SICK: (LineTag, &str) = (LineTag::FetchError, "backend nobody (none) is sick");
    let backend = Backend::new().await;
    let edge = edge(
        &backend,
        r#"
        backend nobody none;
        sub vcl_recv {
            if (req.url == "/fail") { return (fail("not so")); }
            if (req.url ~ "^/passed") { return (pass); }
            if (req.url == "/restart") { return (restart); }
        }
        sub vcl_backend_error { if (bereq.url == "/retry") { return (retry); } }
        sub vcl_backend_fetch {
            if (bereq.url ~ "/abandon$") { return (abandon); }
            if (bereq.url == "/retry") { set bereq.backend = nobody; }
            if (bereq.url == "/fetch-fail") { return (fail("nor so")); }
        }
        "#,
    );
    let mut records = edge.records.follow();
    for (path, detail, expected) in [
        ("/fail", "the policy failed", &[(LineTag::Error, "vcl_recv failed: not so")][..]),
        (
            "/restart",
            "the policy restarted the request too often",
            &[(LineTag::Error, "more than 4 restarts")],
        ),
        (
            "/abandon",
            "the policy abandoned the fetch",
            &[(LineTag::FetchError, "the policy abandoned the fetch")],
        ),
        (
            "/passed/abandon",
            "the policy abandoned the fetch",
            &[(LineTag::FetchError, "the policy abandoned the fetch")],
        ),
        (
            "/retry",
            "too many retries",
            &[SICK, SICK, SICK, SICK, SICK, (LineTag::FetchError, "too many retries")],
        ),
        (
            "/fetch-fail",
            "the policy failed",
            &[
                (LineTag::Error, "vcl_backend_fetch failed: nor so"),
                (LineTag::FetchError, "the policy failed"),
            ],
        ),
    ] {
        assert_eq!(edge.get(path, "").await.status, 503, "{path}");
        let record = records.recv().await.unwrap();
        let lines: Vec<_> = record.lines.iter().map(|line| (line.tag, &*line.text)).collect();
        assert_eq!(lines, expected, "{path}");
        assert_eq!((record.cache, record.detail.as_deref()), (CacheResult::Error, Some(detail)), "{path}");
    }
    let mut client = edge.client().await;
    client.request("POST", "/retry", "Content-Length: 1\r\n").await;
    client.send(b"a").await;
    assert_eq!(client.response().await.status, 503);
    let detail = "a request with content or a non-idempotent method cannot be retried";
    assert_eq!(records.recv().await.unwrap().detail.as_deref(), Some(detail));
    edge.stop().await;
}

#[tokio::test]
async fn policy_without_backend_requires_configured_backend() {
    let backend = Backend::new().await;
    let nowhere = File::new("vcl 4.1; sub vcl_recv { return (hash); }");
    let policy = Some(nowhere.0.clone());
    match Edge::bind(Config { policy, backends: Vec::new(), ..config(backend.address) }) {
        Err(BindError::Policy(LoadError::Backends(message))) => {
            assert!(message.contains("--backend URL"), "{message}");
        }
        other => panic!("{:?}", other.map(|_| ())),
    }
}
