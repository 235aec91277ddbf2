//! Tests of bundles from a server played by the test. The server holds requests, learns of the
//! active and the refused bundle, restarts, and misbehaves. Clients are served throughout.

#![allow(clippy::unwrap_used)]

use thalweg_bundle::{Bundle, RULES_MAX, Rule};
use thalweg_record::Decider;

use crate::bundle::{Bundled, STEERED, algorithms, by_rule, decided, document, rule};
use crate::support::{Backend, Fetch, Port, field};

/// Starts an edge that polls `server`.
async fn start(server: &Backend) -> Bundled {
    let source = format!("http://{}/bundle?pop=fra1&edge=a", server.address).parse().unwrap();
    Bundled::of(source, None).await
}

fn steering(number: u64) -> String {
    document(number, vec![rule(0.0)], Vec::new())
}

fn checksum(document: &str) -> String {
    Bundle::decode(document.as_bytes()).unwrap().checksum().to_owned()
}

/// Sends a bundle in the same way as the controller.
async fn respond(poll: &mut Fetch, document: &str, checksum: &str) {
    poll.respond("200 OK", &format!("ETag: \"{checksum}\"\r\nConnection: close\r\n"), document.as_bytes())
        .await;
}

/// Checks that bundle `number` steers a new client.
async fn is_steered_by(it: &mut Bundled, number: u64) {
    let mut client = it.client(STEERED).await;
    let record = it.get(&mut client, "/large").await;
    let [bbr, _] = algorithms();
    assert_eq!((decided(&record), &record.steered), ((bbr, Decider::Rule), &Some(by_rule(number, false))));
}

#[tokio::test]
async fn server_holds_requests_and_learns_active_bundle() {
    let port = Port::new();
    let server = Backend::at(port.address()).await;
    let mut it = start(&server).await;

    // The request is held while clients are served.
    let mut poll = server.fetch().await;
    assert!(poll.request.starts_with("GET /bundle?pop=fra1&edge=a HTTP/1.1\r\n"), "{}", poll.request);
    assert_eq!(field(&poll.request, "prefer"), Some("wait=30"));
    assert_eq!(field(&poll.request, "if-none-match"), None);
    let mut client = it.client(STEERED).await;
    assert_eq!(decided(&*it.get(&mut client, "/large").await), ("reno", Decider::Default));

    let seven = steering(7);
    respond(&mut poll, &seven, &checksum(&seven)).await;
    let mut poll = server.fetch().await;
    let acknowledged = format!("\"{}\"", checksum(&seven));
    assert_eq!(field(&poll.request, "if-none-match"), Some(acknowledged.as_str()));
    is_steered_by(&mut it, 7).await;
    let stats = it.stats().await;
    assert_eq!((&stats["number"], &stats["source"]), (&7.into(), &"http".into()));
    assert!(stats["heard_unix_ms"].is_u64() && stats["unheard"].is_null(), "{stats}");

    // An invalid bundle is reported and changes nothing.
    let eight = steering(8);
    respond(&mut poll, &eight.replace("slow", "fast"), &checksum(&eight)).await;
    let mut poll = server.fetch().await;
    let tags = format!("{acknowledged}, \"{}\"", checksum(&eight));
    assert_eq!(field(&poll.request, "if-none-match"), Some(tags.as_str()));
    let refused = field(&poll.request, "thalweg-refused").unwrap();
    let expected = format!("{} /checksum:%20does%20not%20match%20the%20content,", checksum(&eight));
    assert!(refused.starts_with(&expected), "{refused}");
    is_steered_by(&mut it, 7).await;
    assert_eq!(it.stats().await["refused"]["checksum"], checksum(&eight));

    // The server crashes while holding a request, and restarts.
    let nine = steering(9);
    respond(&mut poll, &nine, &checksum(&nine)).await;
    let poll = server.fetch().await;
    assert_eq!(field(&poll.request, "thalweg-refused"), None);
    drop((server, poll));
    it.stats_once(|stats| stats["unheard"]["reason"].is_string()).await;
    is_steered_by(&mut it, 9).await;
    let server = Backend::at(port.address()).await;
    let mut poll = server.fetch().await;
    let acknowledged = format!("\"{}\"", checksum(&nine));
    assert_eq!(field(&poll.request, "if-none-match"), Some(acknowledged.as_str()));
    poll.send(format!("HTTP/1.1 304 Not Modified\r\nETag: {acknowledged}\r\n\r\n")).await;
    let mut poll = server.fetch().await;
    let stats = it.stats().await;
    assert_eq!((&stats["number"], &stats["unheard"]), (&9.into(), &serde_json::Value::Null));
    assert_eq!(field(&poll.request, "thalweg-bundle-number"), Some("9"));
    // The server's bundle is accepted even if its number is lower.
    let three = steering(3);
    respond(&mut poll, &three, &checksum(&three)).await;
    let held = server.fetch().await;
    assert_eq!(field(&held.request, "thalweg-bundle-number"), Some("3"));
    is_steered_by(&mut it, 3).await;
    // The edge stops while the server holds a request.
    it.edge.stop().await;
    drop(held);
}

#[tokio::test]
async fn hostile_server_changes_nothing() {
    let server = Backend::new().await;
    let mut it = start(&server).await;
    let good = steering(7);
    respond(&mut server.fetch().await, &good, &checksum(&good)).await;

    let one = |number: usize| Rule {
        prefix: format!("10.{}.{}.0/24", number >> 8, number & 255).parse().unwrap(),
        ..rule(0.0)
    };
    let most = document(8, (0..RULES_MAX).map(one).collect(), Vec::new());
    let first = &most[most.find("{\"congestion_control\"").unwrap()..];
    let first = &first[..=first.find('}').unwrap()];
    let too_many =
        most.replacen("\"rules\":[", &format!("\"rules\":[{},", first.replace("10.0.0.0", "11.0.0.0")), 1);
    respond(&mut server.fetch().await, &too_many, "sha256:none").await;
    let expected = format!("/rules: must have at most {RULES_MAX} entries, got {}", RULES_MAX + 1);
    let stats = it
        .stats_once(|stats| stats["refused"]["reason"].as_str().is_some_and(|told| told.contains(&expected)))
        .await;
    assert_eq!(stats["number"], 7);
    is_steered_by(&mut it, 7).await;

    let mut endless = server.fetch().await;
    endless.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
    while endless.try_send(chunk.as_bytes()).await {}
    it.stats_once(|stats| stats["refused"]["reason"] == "longer than 8388608 bytes").await;
    is_steered_by(&mut it, 7).await;

    let mut slow = server.fetch().await;
    slow.send("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{").await;
    is_steered_by(&mut it, 7).await;
    drop(slow);
    let broke_off = |stats: &serde_json::Value| {
        stats["unheard"]["reason"].as_str().is_some_and(|reason| reason.contains(" broke off: "))
    };
    it.stats_once(broke_off).await;
    let mut unchanged = server.fetch().await;
    unchanged.send("HTTP/1.1 304 Not Modified\r\n\r\n").await;
    it.stats_once(|stats| stats["unheard"].is_null()).await;
    drop(unchanged);

    let mut garbage = server.fetch().await;
    garbage.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nno chunk\r\n").await;
    it.stats_once(broke_off).await;
    is_steered_by(&mut it, 7).await;
    it.edge.stop().await;
}
