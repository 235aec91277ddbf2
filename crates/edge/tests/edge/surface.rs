//! Tests of the admin interface as used by monitoring, load balancers and browsers.

#![allow(clippy::unwrap_used)]

use std::net::Ipv4Addr;

use serde_json::Value;
use thalweg_edge::{Config, Edge};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use crate::policy::File;
use crate::support::{Backend, Client, PATIENCE, Response, TestEdge, config};

fn administered(backend: &Backend) -> Config {
    Config { admin: Some((Ipv4Addr::LOCALHOST, 0).into()), ..config(backend.address) }
}

async fn get(admin: &mut Client, path: &str, fields: &str) -> Response {
    admin.request("GET", path, fields).await;
    admin.response().await
}

fn text(response: &Response) -> String {
    String::from_utf8(response.content.clone()).unwrap()
}

#[tokio::test]
async fn metrics_count_responses_by_cache_result() {
    let backend = Backend::new().await;
    let edge = TestEdge::start(administered(&backend));
    let mut client = edge.client().await;
    client.request("GET", "/a", "").await;
    backend.fetch().await.respond("200 OK", "Cache-Control: max-age=60\r\n", b"abcd").await;
    assert_eq!(client.response().await.content, b"abcd");
    for _ in 0..2 {
        client.request("GET", "/a", "").await;
        assert_eq!(client.response().await.content, b"abcd");
    }
    client.request("TRACE", "/a", "").await;
    assert_eq!(client.response().await.status, 405);

    let mut admin = edge.admin_client().await;
    let expected = [
        r#"thalweg_edge_responses_total{cache="hit",status="2xx"} 2"#,
        r#"thalweg_edge_responses_total{cache="miss",status="2xx"} 1"#,
        r#"thalweg_edge_responses_total{cache="error",status="4xx"} 1"#,
        "thalweg_edge_responses_begun_total 4",
        "thalweg_edge_records_lost_total 0",
        "thalweg_edge_responses_sampled_out_total 0",
        "thalweg_edge_connections 1",
        "thalweg_edge_stored_responses 1",
        "thalweg_edge_bans_in_force 0",
        "thalweg_edge_congestion_control_refused_total 0",
    ];
    // A response is counted after its last byte is sent, so poll.
    let all = async {
        loop {
            let metrics = get(&mut admin, "/metrics", "").await;
            assert!(metrics.field("content-type").unwrap().starts_with("application/openmetrics-text"));
            let metrics = text(&metrics);
            if expected.iter().all(|line| metrics.lines().any(|found| found == *line)) {
                return metrics;
            }
        }
    };
    let metrics = tokio::time::timeout(PATIENCE, all).await.expect("the expected metrics appear in time");
    let healthy = format!(r#"backend="http://{0}",address="{0}"}} 1"#, backend.address);
    assert!(metrics.contains(&format!("thalweg_edge_backend_healthy{{{healthy}\n")), "{metrics}");
    assert!(
        metrics.ends_with("# EOF\n") && !metrics.contains("_disk_") && !metrics.contains("bundle_number")
    );
    edge.stop().await;
}

#[tokio::test]
async fn requests_from_other_sites_are_refused() {
    let backend = Backend::new().await;
    let edge = TestEdge::start(administered(&backend));
    // DNS rebinding: the page's host name resolves to this machine, so the browser treats the edge
    // as the page's own server.
    for path in ["/stats", "/records", "/metrics", "/nothing"] {
        let mut rebound = edge.admin_client().await;
        rebound.send(format!("GET {path} HTTP/1.1\r\nHost: evil.example:8082\r\n\r\n").as_bytes()).await;
        let refused = rebound.response().await;
        assert_eq!((refused.status, refused.field("cache-control")), (421, Some("no-store")), "{path}");
        let error: Value = serde_json::from_slice(&refused.content).unwrap();
        assert!(
            error["error"].as_str().unwrap().starts_with(r#"host "evil.example:8082" is refused"#),
            "{error}"
        );
    }
    let mut admin = edge.admin_client().await;
    assert_eq!(get(&mut admin, "/bans", "Origin: http://evil.example\r\n").await.status, 403);
    assert_eq!(
        get(&mut admin, "/bans", "Origin: http://localhost\r\n").await.status,
        403,
        "requests from web pages are refused"
    );
    assert_eq!(get(&mut admin, "/bans", "").await.status, 200);
    edge.stop().await;
}

#[tokio::test]
async fn edge_is_ready_regardless_of_backend_health() {
    let backend = Backend::new().await;
    let edge = TestEdge::start(administered(&backend));
    let mut admin = edge.admin_client().await;
    assert_eq!(text(&get(&mut admin, "/healthz", "").await), "ok\n");
    assert_eq!(text(&get(&mut admin, "/readyz", "").await), "ready\n");
    edge.stop().await;

    // No server listens on the discard port, so every probe fails.
    let policy = File::new(
        r#"vcl 4.1;
        backend gone { .host = "127.0.0.1"; .port = "9"; .probe = { .initial = 0; .threshold = 1; } }
        sub vcl_recv { set req.backend_hint = gone; }"#,
    );
    let edge = TestEdge::start(Config { policy: Some(policy.0.clone()), ..administered(&backend) });
    let mut admin = edge.admin_client().await;
    let backends = text(&get(&mut admin, "/backends", "").await);
    assert!(backends.contains(r#""gone""#), "{backends}");
    assert_eq!(text(&get(&mut admin, "/readyz", "").await), "ready\n");
    edge.stop().await;
}

#[tokio::test]
async fn stopping_edge_is_not_ready() {
    let backend = Backend::new().await;
    let edge = Edge::bind(administered(&backend)).unwrap();
    let (address, admin) = (edge.local_addr(), edge.admin_addr().unwrap());
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(edge.run(async { drop(stopped.await) }));
    let mut admin = Client::of_admin(admin).await;
    assert_eq!(get(&mut admin, "/readyz", "").await.status, 200);
    // A response in progress delays the stop.
    let mut client = Client::new(TcpStream::connect(address).await.unwrap());
    client.request("GET", "/a", "").await;
    let fetch = backend.fetch().await;
    stop.send(()).unwrap();
    let drained = async {
        loop {
            let answer = get(&mut admin, "/readyz", "").await;
            if answer.status == 503 {
                return text(&answer);
            }
        }
    };
    let drained = tokio::time::timeout(PATIENCE, drained).await.unwrap();
    assert_eq!(drained, r#"{"error":"the edge is stopping"}"#);
    drop((client, fetch));
    tokio::time::timeout(PATIENCE, running).await.unwrap().unwrap().unwrap();
}
