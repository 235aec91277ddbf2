//! Policy tests: each step of vcl-step(7), the request received by the backend, and the kernel's
//! state of the connection.

#![allow(clippy::unwrap_used)]

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use thalweg_edge::Config;
use thalweg_record::{CacheResult, Decider};
use thalweg_tcp::congestion;

use crate::purge::admin;
use crate::steering::accepted;
use crate::support::{Backend, Client, Response, TestEdge, config};

pub(crate) const CACHED: &str = "Cache-Control: max-age=60\r\nConnection: close\r\n";

/// A file, removed when dropped.
pub(crate) struct File(pub(crate) PathBuf);

impl File {
    pub(crate) fn new(content: impl AsRef<[u8]>) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("thalweg-policy-{}-{}.vcl", std::process::id(), NUMBER.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, content).unwrap();
        Self(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Starts an edge whose policy consists of `text` and a declaration of `backend`.
pub(crate) fn edge(backend: &Backend, text: &str) -> TestEdge {
    let port = backend.address.port();
    let file = File::new(format!(
        "vcl 4.1;\nbackend default {{ .host = \"127.0.0.1\"; .port = \"{port}\"; }}\n{text}"
    ));
    let policy = Some(file.0.clone());
    TestEdge::start(Config { policy, backends: Vec::new(), ..config(backend.address) })
}

/// Sends a GET for `path`. Returns the request received by the backend and the edge's response.
pub(crate) async fn fetched(
    backend: &Backend,
    client: &mut Client,
    path: &str,
    fields: &str,
) -> (String, Response) {
    client.request("GET", path, "").await;
    let mut fetch = backend.fetch().await;
    fetch.respond("200 OK", fields, path.as_bytes()).await;
    let asked = std::mem::take(&mut fetch.request);
    (asked, client.response().await)
}

pub(crate) async fn get(client: &mut Client, path: &str, fields: &str) -> Response {
    client.request("GET", path, fields).await;
    client.response().await
}

pub(crate) fn text(response: &Response) -> &str {
    std::str::from_utf8(&response.content).unwrap()
}

#[tokio::test]
async fn policy_from_varnish_software_sets_and_logs_tcp_state() {
    let wanted = if congestion::check("bbr".parse().unwrap()).is_ok() { "bbr" } else { "reno" };
    let backend = Backend::new().await;
    let text = format!(
        r#"import tcp;
        sub vcl_recv {{
            tcp.dump_info();
            set req.http.x-tcp = tcp.congestion_algorithm("{wanted}");
        }}"#
    );
    let edge = edge(&backend, &text);
    let mut records = edge.records.follow();
    let mut client = edge.client().await;
    let (asked, _) = fetched(&backend, &mut client, "/a", "Cache-Control: max-age=60\r\n").await;
    assert!(asked.contains("x-tcp: 0\r\n"), "{asked}");
    assert_eq!(congestion::get(accepted(&client).as_fd()).unwrap().as_str(), wanted);
    let record = records.recv().await.unwrap();
    let lines: Vec<_> = record.lines.iter().map(|line| line.text.to_string()).collect();
    assert!(lines[0].starts_with("tcpi: snd_mss=") && lines[0].contains(" retrans="), "{lines:?}");
    assert!(lines[1].starts_with("tcpi2: pmtu=") && lines[1].contains(" reordering="), "{lines:?}");
    assert_eq!(lines[2], format!("getsockopt() returned: {wanted}"));
    let tcp = record.tcp.clone().unwrap();
    assert_eq!((tcp.congestion_control.as_str(), tcp.decider), (wanted, Some(Decider::Policy)));
    edge.stop().await;
}

#[tokio::test]
async fn policy_from_spotify_upgrades_connection_by_host_on_first_request() {
    let wanted = if congestion::check("bbr".parse().unwrap()).is_ok() { "bbr" } else { "reno" };
    let backend = Backend::new().await;
    let text = format!(
        r#"sub vcl_recv {{
            if (req.http.x-original-host == "audio-fa-bbr.spotify.com" && client.requests == 1) {{
                set client.socket.congestion_algorithm = "{wanted}";
            }}
        }}"#
    );
    let edge = edge(&backend, &text);
    for (first, second, is_set) in
        [("audio-fa-bbr.spotify.com", "a", true), ("a", "audio-fa-bbr.spotify.com", false)]
    {
        let mut records = edge.records.follow();
        let mut client = edge.client().await;
        for host in [first, second] {
            client.request("GET", "/a", &format!("X-Original-Host: {host}\r\n")).await;
            if is_set && host == first {
                backend.fetch().await.respond("200 OK", CACHED, b"a").await;
            }
            assert_eq!(client.response().await.status, 200);
            let tcp = records.recv().await.unwrap().tcp.clone().unwrap();
            let decider = if is_set { Decider::Policy } else { Decider::Default };
            assert_eq!(tcp.decider, Some(decider));
            assert_eq!(tcp.congestion_control, congestion::get(accepted(&client).as_fd()).unwrap().as_str());
        }
    }
    edge.stop().await;
}

#[tokio::test]
async fn hit_miss_and_pass_run_their_subroutines() {
    let backend = Backend::new().await;
    let edge = edge(
        &backend,
        r#"import std;
        sub vcl_recv {
            if (!std.healthy(req.backend_hint)) { return (fail); }
            if (req.url ~ "^/pass") { return (pass); }
        }
        sub vcl_hit { set req.http.way = req.http.way + " hit" + obj.hits; }
        sub vcl_miss { set req.http.way = req.http.way + " miss"; }
        sub vcl_pass { set req.http.way = req.http.way + " pass"; }
        sub vcl_backend_fetch { set bereq.http.seen = bereq.http.way; }
        sub vcl_backend_response { set beresp.http.ttl = beresp.ttl; set beresp.ttl = 1h; }
        sub vcl_deliver { set resp.http.way = req.http.way; unset resp.http.Cache-Status; }
        "#,
    );
    let mut client = edge.client().await;
    let (asked, missed) = fetched(&backend, &mut client, "/a", "Cache-Control: max-age=60\r\n").await;
    assert!(asked.contains("seen: miss\r\n"), "{asked}");
    assert_eq!((missed.field("way"), missed.field("ttl")), (Some("miss"), Some("60.000")));
    assert_eq!(missed.field("cache-status"), None);
    for number in 1..3 {
        let hit = get(&mut client, "/a", "").await;
        assert_eq!(hit.field("way"), Some(&*format!("hit{number}")));
        assert_eq!(hit.field("age"), Some("0"));
    }
    for _ in 0..2 {
        let (asked, passed) = fetched(&backend, &mut client, "/pass", "Cache-Control: max-age=60\r\n").await;
        assert!(asked.contains("seen: pass\r\n"), "{asked}");
        assert_eq!(passed.field("way"), Some("pass"));
    }
    edge.stop().await;
}

#[tokio::test]
async fn conditions_and_ranges_are_evaluated_as_left_by_policy() {
    let backend = Backend::new().await;
    let edge = edge(&backend, r#"sub vcl_recv { if (req.http.whole) { unset req.http.Range; } }"#);
    let mut client = edge.client().await;
    fetched(&backend, &mut client, "/content", "Cache-Control: max-age=60\r\nETag: \"a\"\r\n").await;
    let part = get(&mut client, "/content", "Range: bytes=1-3\r\n").await;
    assert_eq!((part.status, text(&part)), (206, "con"));
    let whole = get(&mut client, "/content", "Range: bytes=1-3\r\nWhole: 1\r\n").await;
    assert_eq!((whole.status, text(&whole)), (200, "/content"));
    assert_eq!(get(&mut client, "/content", "If-None-Match: \"a\"\r\n").await.status, 304);
    edge.stop().await;
}

#[tokio::test]
async fn policy_generates_responses() {
    let backend = Backend::new().await;
    let edge = edge(
        &backend,
        r#"
        sub vcl_recv {
            if (req.url == "/teapot") { return (synth(418, "Short and stout")); }
            if (req.url == "/plain") { return (synth(700, "to")); }
            if (req.url == "/fail") { return (fail); }
        }
        sub vcl_synth {
            if (resp.status == 700) {
                set resp.http.Location = "http://" + req.http.host + "/" + resp.reason;
                set resp.status = 302;
                set resp.body = "";
                return (deliver);
            }
        }
        "#,
    );
    let mut records = edge.records.follow();
    let mut client = edge.client().await;
    let teapot = get(&mut client, "/teapot", "").await;
    assert!(teapot.head.starts_with("HTTP/1.1 418 Short and stout\r\n"), "{}", teapot.head);
    assert!(text(&teapot).contains("418 Short and stout"));
    assert_eq!(records.recv().await.unwrap().cache, CacheResult::Synth);
    let found = get(&mut client, "/plain", "").await;
    assert!(found.head.starts_with("HTTP/1.1 302 Found\r\n"), "{}", found.head);
    assert_eq!((found.field("location"), found.content.len()), (Some("http://media.example/to"), 0));
    assert_eq!(get(&mut client, "/fail", "").await.status, 503);
    edge.stop().await;
}

#[tokio::test]
async fn restart_keeps_changed_request_and_is_limited() {
    let backend = Backend::new().await;
    let edge = edge(
        &backend,
        r#"
        sub vcl_recv {
            if (req.url == "/for-ever") { return (restart); }
            if (req.restarts == 1) { set req.url = "/b"; }
        }
        sub vcl_deliver {
            if (resp.status == 404 && req.restarts == 0) { return (restart); }
            set resp.http.restarts = req.restarts;
        }
        "#,
    );
    let mut client = edge.client().await;
    client.request("GET", "/a", "").await;
    let mut first = backend.fetch().await;
    assert!(first.request.starts_with("GET /a "), "{}", first.request);
    first.respond("404 Not Found", CACHED, b"").await;
    let mut second = backend.fetch().await;
    assert!(second.request.starts_with("GET /b "), "{}", second.request);
    second.respond("200 OK", CACHED, b"b").await;
    let response = client.response().await;
    assert_eq!((response.status, response.field("restarts")), (200, Some("1")));
    assert_eq!(get(&mut client, "/for-ever", "").await.status, 503);
    edge.stop().await;
}

#[tokio::test]
async fn hash_data_is_the_key_and_purge_applies_to_it() {
    let backend = Backend::new().await;
    let edge = edge(
        &backend,
        r#"
        acl purgers { "127.0.0.0"/8; }
        sub vcl_recv {
            if (req.method == "PURGE") {
                if (client.ip !~ purgers || req.http.outside) { return (synth(405, "Not allowed")); }
                return (purge);
            }
        }
        sub vcl_hash { hash_data(regsub(req.url, "\?.*$", "")); return (lookup); }
        "#,
    );
    let mut client = edge.client().await;
    fetched(&backend, &mut client, "/a?1", "Cache-Control: max-age=60\r\n").await;
    assert_eq!(text(&get(&mut client, "/a?2", "").await), "/a?1");
    client.request("PURGE", "/a?3", "Outside: 1\r\n").await;
    assert_eq!(client.response().await.status, 405);
    assert_eq!(text(&get(&mut client, "/a?2", "").await), "/a?1");
    client.request("PURGE", "/a?3", "").await;
    assert!(client.response().await.head.starts_with("HTTP/1.1 200 Purged\r\n"));
    let (_, anew) = fetched(&backend, &mut client, "/a?4", "Cache-Control: max-age=60\r\n").await;
    assert_eq!(text(&anew), "/a?4");
    edge.stop().await;
}

#[tokio::test]
async fn backend_side_retries_generates_errors_and_decides_what_is_stored() {
    let backend = Backend::new().await;
    let edge = edge(
        &backend,
        r#"
        sub vcl_backend_response {
            if (beresp.status == 500 && bereq.retries < 2) { return (retry); }
            if (beresp.status == 500) { return (error(504, "Gave up")); }
            if (bereq.url ~ "^/cookie") { unset beresp.http.Set-Cookie; set beresp.ttl = 10s; }
        }
        sub vcl_backend_error { set beresp.body = "sorry: " + beresp.reason; return (deliver); }
        "#,
    );
    let mut client = edge.client().await;
    client.request("GET", "/a", "").await;
    for _ in 0..3 {
        backend.fetch().await.respond("500 Oops", "Connection: close\r\n", b"").await;
    }
    let response = client.response().await;
    assert!(response.head.starts_with("HTTP/1.1 504 "), "{}", response.head);
    assert_eq!(text(&response), "sorry: Gave up");

    // The built-in policy, which runs afterwards, still refuses to store a no-store response.
    for _ in 0..2 {
        fetched(&backend, &mut client, "/cookie-not", "Set-Cookie: a=b\r\nCache-Control: no-store\r\n").await;
    }
    fetched(&backend, &mut client, "/cookie", "Set-Cookie: a=b\r\n").await;
    let hit = get(&mut client, "/cookie", "").await;
    assert_eq!((text(&hit), hit.field("set-cookie")), ("/cookie", None));
    edge.stop().await;
}

#[tokio::test]
async fn unsafe_method_is_passed_with_content() {
    let backend = Backend::new().await;
    let edge = edge(&backend, "sub vcl_deliver { set resp.http.method = req.method; }");
    let mut client = edge.client().await;
    for method in ["POST", "OPTIONS"] {
        client.request(method, "/a", "Content-Length: 3\r\n").await;
        client.send(b"abc").await;
        let mut fetch = backend.fetch().await;
        assert_eq!(fetch.client.exactly(3).await, b"abc");
        fetch.respond("201 Created", "Connection: close\r\n", b"made").await;
        let response = client.response().await;
        assert_eq!((response.status, response.field("method"), text(&response)), (201, Some(method), "made"));
    }
    edge.stop().await;
}

#[tokio::test]
async fn stale_response_is_served_during_revalidation_within_policy_limit() {
    let backend = Backend::new().await;
    let edge = edge(
        &backend,
        r#"
        sub vcl_recv { if (req.http.strict) { set req.grace = 0s; } }
        sub vcl_backend_response { set beresp.ttl = 0s; set beresp.grace = 1h; return (deliver); }
        "#,
    );
    let mut client = edge.client().await;
    fetched(&backend, &mut client, "/a", "").await;
    assert_eq!(text(&get(&mut client, "/a", "").await), "/a");
    let mut refresh = backend.fetch().await;
    refresh.respond("200 OK", "Connection: close\r\n", b"new").await;
    let mut strict = edge.client().await;
    strict.request("GET", "/a", "Strict: 1\r\n").await;
    backend.fetch().await.respond("200 OK", "Cache-Control: max-age=60\r\n", b"newest").await;
    assert_eq!(text(&strict.response().await), "newest");
    edge.stop().await;
}

#[tokio::test]
async fn policy_cannot_change_message_framing() {
    let backend = Backend::new().await;
    let edge = edge(
        &backend,
        r#"
        sub vcl_recv {
            if (req.http.as) { set req.method = req.http.as; }
            if (req.http.unset) { unset req.http.Content-Length; unset req.http.Transfer-Encoding; }
            if (req.http.again && req.restarts == 0) { return (synth(750)); }
        }
        sub vcl_backend_fetch { return (fetch); }
        sub vcl_synth { if (resp.status == 750) { return (restart); } }
        "#,
    );
    // A changed method or a removed `Content-Length` does not affect the length sent.
    for fields in ["As: GET\r\n", "Unset: 1\r\n"] {
        let mut client = edge.client().await;
        client.request("POST", "/a", &format!("Content-Length: 3\r\n{fields}")).await;
        client.send(b"abc").await;
        let mut fetch = backend.fetch().await;
        assert!(fetch.request.contains("Content-Length: 3\r\n"), "{}", fetch.request);
        assert_eq!(fetch.client.exactly(3).await, b"abc");
        fetch.respond("200 OK", "Connection: close\r\n", b"done").await;
        assert_eq!(text(&client.response().await), "done");
    }
    // The content of a GET is discarded, even if the policy changes the method.
    let mut client = edge.client().await;
    client.request("GET", "/b", "Content-Length: 3\r\nAs: POST\r\n").await;
    client.send(b"abc").await;
    let mut fetch = backend.fetch().await;
    assert!(
        fetch.request.starts_with("POST /b ") && !fetch.request.contains("Content-Length"),
        "{}",
        fetch.request
    );
    fetch.respond("200 OK", "Connection: close\r\n", b"done").await;
    assert_eq!(text(&client.response().await), "done");
    // A HEAD changed to a GET still gets a response without content.
    client.request("HEAD", "/c", "As: GET\r\n").await;
    backend.fetch().await.respond("200 OK", CACHED, b"content").await;
    let response = client.response_to("HEAD").await;
    assert_eq!((response.status, response.content.len()), (200, 0));
    assert_eq!(text(&get(&mut client, "/c", "").await), "content");
    // Unread content is not parsed as the next request.
    let mut client = edge.client().await;
    client.request("POST", "/d", "Content-Length: 26\r\nAgain: 1\r\nAs: GET\r\n").await;
    client.send(b"GET /stolen HTTP/1.1\r\n\r\n..").await;
    let mut fetch = backend.fetch().await;
    assert!(fetch.request.contains("Content-Length: 26\r\n"), "{}", fetch.request);
    fetch.client.exactly(26).await;
    fetch.respond("200 OK", "Connection: close\r\n", b"done").await;
    assert_eq!(text(&client.response().await), "done");
    assert!(!backend.is_asked_again().await);
    edge.stop().await;
}

#[tokio::test]
async fn reason_cannot_split_head_and_restart_keeps_settings() {
    let backend = Backend::new().await;
    let edge = edge(
        &backend,
        r#"
        sub vcl_recv {
            if (req.url == "/split") { return (synth(200, {"a
Set-Cookie: b"})); }
        }
        sub vcl_hit { if (req.restarts == 0) { set req.hash_always_miss = true; return (restart); } }
        "#,
    );
    let mut client = edge.client().await;
    let split = get(&mut client, "/split", "").await;
    assert!(split.head.starts_with("HTTP/1.1 200 a Set-Cookie: b\r\n"), "{}", split.head);
    assert_eq!(split.field("set-cookie"), None);
    fetched(&backend, &mut client, "/a", "Cache-Control: max-age=60\r\n").await;
    client.request("GET", "/a", "").await;
    backend.fetch().await.respond("200 OK", CACHED, b"anew").await;
    assert_eq!(text(&client.response().await), "anew");
    edge.stop().await;
}

#[tokio::test]
async fn policy_purges_and_bans_take_effect_immediately() {
    let backend = Backend::new().await;
    let edge = edge(
        &backend,
        r#"
        import std;
        import xkey;
        sub vcl_recv {
            if (req.method == "BAN") {
                if (std.ban(req.http.Ban)) { return (synth(200)); }
                return (synth(400, std.ban_error()));
            }
            if (req.method == "PURGE") { return (synth(200 + xkey.purge(req.http.Tags))); }
        }
        "#,
    );
    let mut client = edge.client().await;
    for (method, asked, status) in
        [("BAN", "Ban: obj.http.xkey == a\r\n", 200), ("PURGE", "Tags: a b\r\n", 202)]
    {
        fetched(&backend, &mut client, "/a", "Cache-Control: max-age=60\r\nxkey: a\r\n").await;
        // Pipeline the requests, so that only the purge itself happens in between.
        client.request(method, "/", &format!("{asked}\r\nGET /a HTTP/1.1\r\nHost: media.example\r\n")).await;
        assert_eq!(client.response().await.status, status);
        backend.fetch().await.respond("200 OK", "Cache-Control: no-store\r\n", b"new").await;
        assert_eq!(text(&client.response().await), "new");
    }
    client.request("BAN", "/", "Ban: nonsense\r\n").await;
    assert_eq!(client.response().await.status, 400);
    client.request("PURGE", "/", &format!("Tags: {}\r\n", "a ".repeat(1025))).await;
    assert_eq!(client.response().await.status, 503, "a purge of too many tags is refused");
    edge.stop().await;
}

#[tokio::test]
async fn file_is_read_once_and_fifo_never() {
    let backend = Backend::new().await;
    let (content, fifo) = (File::new("first"), File::new(""));
    std::fs::remove_file(&fifo.0).unwrap();
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo.0, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let edge = edge(
        &backend,
        &format!(
            r#"
            import std;
            sub vcl_recv {{ return (synth(200)); }}
            sub vcl_synth {{
                set resp.body = std.fileread("{}");
                set resp.http.Fifo = "<" + std.fileread("{}") + ">";
                set resp.http.There = std.file_exists("{}");
                return (deliver);
            }}
            "#,
            content.0.display(),
            fifo.0.display(),
            fifo.0.display()
        ),
    );
    let mut client = edge.client().await;
    for _ in 0..2 {
        let response = get(&mut client, "/", "").await;
        assert_eq!(text(&response), "first");
        assert_eq!((response.field("fifo"), response.field("there")), (Some("<>"), Some("true")));
        std::fs::write(&content.0, "second").unwrap();
    }
    edge.stop().await;
}

#[tokio::test]
async fn policy_none_disables_policies() {
    let backend = Backend::new().await;
    let policy_text = "vcl 4.1;\nbackend default none;\nsub vcl_recv { return (synth(204)); }";
    let file = File::new(policy_text);
    let (policy, admin_address) = (Some(file.0.clone()), Some((std::net::Ipv4Addr::LOCALHOST, 0).into()));
    let start = |backends| {
        let (policy, admin) = (policy.clone(), admin_address);
        TestEdge::start(Config { policy, admin, backends, ..config(backend.address) })
    };
    let use_none = r#"{"use":"none"}"#;
    let edge = start(config(backend.address).backends);
    let mut client = edge.client().await;
    assert_eq!(get(&mut client, "/a", "").await.status, 204);
    assert_eq!(admin(&edge, "POST", "/policies", "", use_none).await.0, 200);
    let (_, response) = fetched(&backend, &mut client, "/a", "").await;
    assert_eq!((response.status, text(&response)), (200, "/a"));
    assert_eq!(admin(&edge, "POST", "/policies", "", r#"{"use":"boot"}"#).await.0, 200);
    assert_eq!(get(&mut client, "/a", "").await.status, 204);
    // A policy without requests in progress can be discarded.
    admin(&edge, "POST", "/policies", "", use_none).await;
    assert_eq!(admin(&edge, "POST", "/policies", "", r#"{"discard":"boot"}"#).await.0, 200);
    let order = format!(r#"{{"load":"none","path":{:?}}}"#, file.0);
    let (status, error) = admin(&edge, "POST", "/policies", "", &order).await;
    assert!(status >= 400 && error.contains("is not a valid policy name"), "{status} {error}");
    edge.stop().await;
    // If only policies declare backends, requests without a policy have no backend.
    let edge = start(Vec::new());
    let (status, error) = admin(&edge, "POST", "/policies", "", use_none).await;
    assert!(status >= 400 && error.contains("give the edge --backend URL"), "{status} {error}");
    assert_eq!(edge.get("/a", "").await.status, 204);
    edge.stop().await;
}
