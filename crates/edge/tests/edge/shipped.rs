//! Shipped policy tests: a real edge loads each file in `policies/` unmodified. Effects are
//! observed over a socket or read from the kernel.

#![allow(clippy::unwrap_used)]

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;
use std::path::PathBuf;

use thalweg_edge::Config;
use thalweg_record::Decider;
use thalweg_tcp::{congestion, sending};
use tokio::net::TcpSocket;

use crate::steering::accepted;
use crate::support::{Backend, Client, PATIENCE, Response, TestEdge, config};

/// Default congestion control of connections; available on every kernel.
const DEFAULT: &str = "reno";
/// A loopback address outside the shipped address lists.
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 9);

/// Starts an edge with the policy `name` from `policies/`.
fn edge(backend: &Backend, name: &str) -> TestEdge {
    let policy = Some(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../policies").join(name));
    let congestion_control = Some(DEFAULT.parse().unwrap());
    TestEdge::start(Config { policy, congestion_control, ..config(backend.address) })
}

async fn client_from(edge: &TestEdge, address: Ipv4Addr) -> Client {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((address, 0).into()).unwrap();
    Client::new(socket.connect(edge.address).await.unwrap())
}

/// Sends a GET for a path that is not stored. Returns the request received by the backend and the
/// client's response.
async fn fetched(
    backend: &Backend,
    client: &mut Client,
    (path, asking): (&str, &str),
    (fields, content): (&str, &[u8]),
) -> (String, Response) {
    client.request("GET", path, asking).await;
    let mut fetch = backend.fetch().await;
    fetch.respond("200 OK", &format!("{fields}Connection: close\r\n"), content).await;
    (std::mem::take(&mut fetch.request), client.response().await)
}

async fn get(client: &mut Client, path: &str, fields: &str) -> Response {
    client.request("GET", path, fields).await;
    client.response().await
}

fn is_hit(response: &Response) -> bool {
    response.cache_status().starts_with("thalweg; hit")
}

fn is_fresh(response: &Response) -> bool {
    is_hit(response) && !["ttl=-", "ttl=0"].iter().any(|ttl| response.cache_status().contains(ttl))
}

fn algorithm(client: &Client) -> String {
    congestion::get(accepted(client).as_fd()).unwrap().to_string()
}

/// Returns the algorithm `name` if the kernel has it, otherwise the default.
fn or_default(name: &str) -> &str {
    if congestion::check(name.parse().unwrap()).is_ok() { name } else { DEFAULT }
}

#[tokio::test]
async fn live_policy_stores_playlists_for_a_second_and_segments_for_an_hour() {
    let backend = Backend::new().await;
    let edge = edge(&backend, "live.vcl");
    let mut client = edge.client().await;
    for (path, ttl) in [("/live/a.m3u8?_HLS_msn=7", "ttl=1;"), ("/live/7.m4s", "ttl=3600;")] {
        let query = if path.contains('?') { "&" } else { "?" };
        let wanted = (&*format!("{path}{query}CMCD=br%3D1"), "Cookie: a=b\r\n");
        let sent = ("Cache-Control: no-cache\r\nSet-Cookie: a=b\r\n", &b"a"[..]);
        let (asked, response) = fetched(&backend, &mut client, wanted, sent).await;
        assert!(asked.starts_with(&format!("GET {path} ")) && !asked.contains("Cookie"), "{asked}");
        assert!(response.cache_status().contains(ttl), "{}", response.head);
        assert_eq!(response.field("set-cookie"), None);
        assert!(is_hit(&get(&mut client, &format!("{path}{query}CMCD=br%3D2"), "").await));
    }
    for _ in 0..2 {
        // This response is private to one viewer, so it is fetched each time.
        let sent = ("Cache-Control: private\r\n", &b"a"[..]);
        fetched(&backend, &mut client, ("/live/own.m3u8", ""), sent).await;
    }
    edge.stop().await;
}

#[tokio::test]
async fn vod_policy_sets_long_lifetimes_and_shares_key_and_ranges() {
    let backend = Backend::new().await;
    let edge = edge(&backend, "vod.vcl");
    let mut client = edge.client().await;
    let wanted = ("/film.mp4?utm_source=x&b=2&a=1&CMCD=br%3D1", "Cookie: a=b\r\nAccept-Encoding: gzip\r\n");
    let (asked, response) =
        fetched(&backend, &mut client, wanted, ("Set-Cookie: a=b\r\n", b"0123456789")).await;
    assert!(asked.starts_with("GET /film.mp4?a=1&b=2 "), "{asked}");
    assert!(!asked.contains("Cookie") && !asked.contains("Accept-Encoding"), "{asked}");
    assert!(response.cache_status().contains("ttl=604800;"), "{}", response.head);
    let part = get(&mut client, "/film.mp4?a=1&b=2", "Range: bytes=2-4\r\n").await;
    assert_eq!((part.status, &*part.content), (206, &b"234"[..]));
    assert!(is_hit(&part), "{}", part.head);
    let (_, response) =
        fetched(&backend, &mut client, ("/film.mpd", ""), ("Cache-Control: no-cache\r\n", b"a")).await;
    assert!(response.cache_status().contains("ttl=600;"), "{}", response.head);
    edge.stop().await;
}

#[tokio::test]
async fn arm_is_selected_by_host_of_first_request() {
    let backend = Backend::new().await;
    let edge = edge(&backend, "ab-by-host.vcl");
    let mut records = edge.records.follow();
    let mut is_stored = false;
    for (flag, other, arm) in [("-bbr", "-cubic", "bbr"), ("-cubic", "-bbr", "cubic"), ("", "-bbr", DEFAULT)]
    {
        let mut client = edge.client().await;
        for flag in [flag, other] {
            client.send(format!("GET /a HTTP/1.1\r\nHost: media{flag}.example\r\n\r\n").as_bytes()).await;
            if !is_stored {
                let mut fetch = backend.fetch().await;
                assert!(fetch.request.contains("Host: media.example\r\n"), "{}", fetch.request);
                assert!(!fetch.request.contains("X-Original-Host"), "{}", fetch.request);
                fetch.respond("200 OK", "Cache-Control: max-age=60\r\nConnection: close\r\n", b"a").await;
            }
            // Both arms share the stored response.
            assert_eq!(is_hit(&client.response().await), is_stored);
            is_stored = true;
            assert_eq!(algorithm(&client), or_default(arm));
            let record = records.recv().await.unwrap();
            let lines: Vec<_> = record.lines.iter().map(|line| line.text.to_string()).collect();
            let is_first = flag != other && arm != DEFAULT;
            assert_eq!(lines.contains(&format!("arm: {arm}")), is_first, "{lines:?}");
            let is_chosen = arm != DEFAULT && or_default(arm) == arm;
            let decider = if is_chosen { Decider::Policy } else { Decider::Default };
            assert_eq!(record.tcp.clone().unwrap().decider, Some(decider));
        }
    }
    // The request contains the field set by a TLS terminator in front of the edge.
    let mut client = edge.client().await;
    assert!(is_hit(&get(&mut client, "/a", "X-Original-Host: media-bbr.example\r\n").await));
    assert_eq!(algorithm(&client), or_default("bbr"));
    edge.stop().await;
}

#[tokio::test]
async fn listed_prefix_is_steered_for_large_responses() {
    const LISTED: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
    let backend = Backend::new().await;
    let edge = edge(&backend, "steer-by-prefix.vcl");
    let (small, large) = (vec![0; 99_999], vec![0; 100_000]);
    let fields = "Cache-Control: max-age=60\r\n";
    let mut client = client_from(&edge, LISTED).await;
    fetched(&backend, &mut client, ("/small", ""), (fields, &small[..1000])).await;
    assert_eq!(algorithm(&client), DEFAULT);
    let (_, response) = fetched(&backend, &mut client, ("/large", ""), (fields, &large)).await;
    assert_eq!((response.content.len(), response.field("x-length")), (large.len(), None));
    assert_eq!(algorithm(&client), or_default("bbr"));
    // Stored responses are also steered, but only for listed prefixes.
    for (address, path, wanted) in
        [(LISTED, "/large", or_default("bbr")), (LISTED, "/small", DEFAULT), (ELSEWHERE, "/large", DEFAULT)]
    {
        let mut client = client_from(&edge, address).await;
        get(&mut client, path, "").await;
        assert_eq!(algorithm(&client), wanted, "{address} {path}");
    }
    // Content sent earlier also counts towards the minimum size.
    let mut client = client_from(&edge, LISTED).await;
    fetched(&backend, &mut client, ("/almost", ""), (fields, &small)).await;
    assert_eq!(algorithm(&client), DEFAULT);
    get(&mut client, "/small", "").await;
    get(&mut client, "/small", "").await;
    assert_eq!(algorithm(&client), or_default("bbr"));
    edge.stop().await;
}

#[tokio::test]
async fn cmcd_determines_pace_of_player() {
    let backend = Backend::new().await;
    let edge = edge(&backend, "pace-cmcd.vcl");
    let mut client = edge.client().await;
    fetched(&backend, &mut client, ("/a?CMCD=rtp%3D8000", ""), ("Cache-Control: max-age=60\r\n", b"a")).await;
    for (path, fields, kib_per_s) in [
        ("/a?CMCD=rtp%3D8000", "", Some(1074)),
        ("/a", "", None),
        ("/a", "CMCD-Object: br=4000\r\nCMCD-Request: bl=20000\r\n", Some(1611)),
        ("/a?CMCD=rtp%3D8000%2Csu", "", None),
        ("/a?CMCD=rtp%3D1", "", Some(128)),
        ("/a?CMCD=br%3D4000%2Cbl%3D9000", "", None),
    ] {
        assert!(is_hit(&get(&mut client, path, fields).await), "{path}");
        let pace = sending::max_pacing_rate(accepted(&client).as_fd()).unwrap();
        assert_eq!(pace, kib_per_s.map(|kib: u64| kib * 1024), "{path} {fields}");
    }
    edge.stop().await;
}

#[tokio::test]
async fn purges_are_authorised_and_executed() {
    let backend = Backend::new().await;
    let edge = edge(&backend, "purge.vcl");
    let mut client = edge.client().await;
    let sent = ("Cache-Control: max-age=60, stale-while-revalidate=60\r\nxkey: one two\r\n", &b"a"[..]);
    fetched(&backend, &mut client, ("/a", ""), sent).await;

    let mut other = client_from(&edge, ELSEWHERE).await;
    assert_eq!(IpAddr::from(ELSEWHERE), other.stream.local_addr().unwrap().ip());
    for fields in ["", "xkey: one\r\n", "xkey-softpurge: one\r\n"] {
        other.request("PURGE", "/a", fields).await;
        assert_eq!(other.response().await.status, 403);
    }
    assert!(is_hit(&get(&mut client, "/a", "").await));

    client.request("PURGE", "/a", "").await;
    let done = client.response().await;
    assert_eq!((done.status, &*done.content), (200, &b"Purged\n"[..]));
    fetched(&backend, &mut client, ("/a", ""), sent).await;

    // Tags take effect shortly after the reply. A soft purge makes tagged responses stale.
    client.request("PURGE", "/", "xkey-softpurge: two three\r\n").await;
    assert_eq!(client.response().await.content, b"Tags purged softly: 2\n");
    let until_stale = async { while is_fresh(&get(&mut client, "/a", "").await) {} };
    tokio::time::timeout(PATIENCE, until_stale).await.expect("the response becomes stale in time");
    let mut refresh = backend.fetch().await;
    refresh.respond("200 OK", &format!("{}Connection: close\r\n", sent.0), b"a").await;
    let until_fresh = async { while !is_fresh(&get(&mut client, "/a", "").await) {} };
    tokio::time::timeout(PATIENCE, until_fresh).await.expect("the response becomes fresh in time");

    client.request("PURGE", "/", "xkey: two three\r\n").await;
    assert_eq!(client.response().await.content, b"Tags purged: 2\n");
    let mut fetch = loop {
        client.request("GET", "/a", "").await;
        tokio::select! {
            fetch = backend.fetch() => break fetch,
            hit = client.response() => assert!(is_hit(&hit), "{}", hit.head),
        }
    };
    fetch.respond("200 OK", &format!("{}Connection: close\r\n", sent.0), b"a").await;
    assert!(!is_hit(&client.response().await));
    edge.stop().await;
}

#[test]
fn every_shipped_policy_has_a_test() {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../policies");
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let shown = [
        "ab-by-host.vcl",
        "builtin.vcl",
        "live.vcl",
        "pace-cmcd.vcl",
        "purge.vcl",
        "steer-by-prefix.vcl",
        "vod.vcl",
    ];
    assert_eq!(names, shown);
}
