//! Where a policy sends what it has: to which backend, through a pipe, in slices, on to another policy.

#![allow(clippy::unwrap_used)]

use thalweg_edge::{Config, Edge, LoadError};
use thalweg_record::LineTag;

use crate::policy::{File, edge, get};
use crate::ranges::{FRESH, partial};
use crate::support::{Backend, TestEdge, config, content, field};

#[tokio::test]
async fn vcl_pipe_says_where_the_pipe_leads() {
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
async fn a_policy_that_another_names_is_not_discarded() {
    let backend = Backend::new().await;
    let port = backend.address.port();
    let file = |text: &str| {
        let backend = format!("backend default {{ .host = \"127.0.0.1\"; .port = \"{port}\"; }}");
        File::new(&format!("vcl 4.1; {backend} {text}"))
    };
    let (boot, behind) = (file(""), file("sub vcl_recv { return (synth(204)); }"));
    let before = file("sub vcl_recv { return (vcl(behind)); }");
    let bound =
        Edge::bind(Config { policy: Some(boot.0.clone()), backends: Vec::new(), ..config(backend.address) });
    let edge = bound.unwrap();
    let policies = edge.policies();
    let edge = TestEdge::run(edge);
    policies.load("behind", &behind.0).await.unwrap();
    policies.load("before", &before.0).await.unwrap();
    policies.activate("before").unwrap();
    let refused = policies.discard("behind").unwrap_err();
    assert!(matches!(&refused, LoadError::Named(..)));
    assert_eq!(refused.to_string(), "\"before\" sends requests to \"behind\": discard that before");
    assert_eq!(edge.get("/a", "").await.status, 204);
    policies.activate("boot").unwrap();
    policies.discard("before").unwrap();
    policies.discard("behind").unwrap();
    edge.stop().await;
}

#[tokio::test]
async fn vcl_backend_fetch_is_run_for_the_slices_that_are_fetched() {
    const LENGTH: usize = 1_000_000;
    let backend = Backend::new().await;
    let port = backend.address.port();
    let file = File::new(&format!(
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
    // A hit asks nobody.
    assert_eq!(get(&mut client, "/a", seek).await.content, content(400_010, 10));
    assert_eq!(log.recv().await.unwrap().lines.iter().count(), 0);
    // The next one is asked for as the policy says, too.
    client.request("GET", "/a", "Range: bytes=500010-500019\r\n").await;
    fetch.next().await;
    assert_eq!(field(&fetch.request, "asked"), Some("1"));
    fetch.send(partial(500_000..600_000, LENGTH, FRESH)).await;
    assert_eq!(client.response().await.content, content(500_010, 10));
    assert_eq!(log.recv().await.unwrap().lines.iter().count(), 1);
    edge.stop().await;
}

#[tokio::test]
async fn a_failed_fetch_is_told_to_the_log_and_not_to_the_client() {
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
