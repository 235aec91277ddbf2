//! Listener tests: what each listener serves, and who may publish.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod support;

use std::process::{Command, Stdio};

use hyper::StatusCode;
use support::{CMAF, Running, VIDEO};
use thalweg_origin::{BindError, Config, Ingest, IngestToken, Origin};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const TOKEN: &str = "correct-horse-battery";
const MANIFEST: &str = "#EXTM3U\n";

fn token() -> Option<IngestToken> {
    IngestToken::new(TOKEN)
}

/// PUTs a manifest with additional `fields`; returns the response's status, challenges and content.
async fn put(origin: &Running, to: std::net::SocketAddr, path: &str, fields: &str) -> String {
    let mut stream = TcpStream::connect(to).await.unwrap();
    let length = MANIFEST.len();
    let head = format!("PUT {path} HTTP/1.1\r\nhost: o\r\nconnection: close\r\ncontent-length: {length}\r\n");
    stream.write_all(format!("{head}{fields}\r\n{MANIFEST}").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert_eq!(origin.get("/catalog.json").await.text(), r#"{"vod":[],"live":[],"faults":[],"warnings":[]}"#);
    let (head, content) = answer.split_once("\r\n\r\n").unwrap();
    let challenges = head.lines().filter_map(|line| line.strip_prefix("www-authenticate: "));
    let challenges: String = challenges.map(|challenge| format!("[{challenge}] ")).collect();
    format!("{} {challenges}{}", &head[9..12], content.trim_end())
}

#[tokio::test]
async fn only_the_ingest_listener_accepts_ingest_and_only_ingest() {
    let origin = Running::start(Config::default());
    let (public, ingest) = (origin.address, origin.ingest);
    let mut out = String::new();
    for (to, path) in
        [(public, "/ingest/c/x.m3u8"), (public, "/%69ngest/c/x.m3u8"), (ingest, "/ingest/c/x.m3u8")]
    {
        out += &format!("{}\n", put(&origin, to, path, "").await);
    }
    for path in ["/time", "/catalog.json", "/live/c/master.m3u8", "/ingest/", "/../ingest/c"] {
        let answer = origin.request_at(ingest, "GET", path, &[]).await;
        out += &format!("{path} {} {}\n", answer.status.as_u16(), answer.text());
    }
    expect_test::expect![[r#"
        403 this listener does not accept ingest: push to the origin's ingest listener
        403 this listener does not accept ingest: push to the origin's ingest listener
        200 accepted
        /time 404 this listener accepts only ingest
        /catalog.json 404 this listener accepts only ingest
        /live/c/master.m3u8 404 this listener accepts only ingest
        /ingest/ 404 no such path
        /../ingest/c 400 malformed request target
    "#]]
    .assert_eq(&out);
    origin.stop().await;
}

#[tokio::test]
async fn forwarded_and_browser_requests_do_not_publish() {
    let origin = Running::start_with_token(Config::default(), token());
    let ingest = origin.ingest;
    let mut out = String::new();
    for field in [
        "Via: 1.1 edge",
        "X-Forwarded-For: 192.0.2.1",
        "Forwarded: for=192.0.2.1",
        "CDN-Loop: cdn",
        "Origin: http://x",
    ] {
        let fields = format!("Authorization: Bearer {TOKEN}\r\n{field}\r\n");
        out += &format!("{}\n", put(&origin, ingest, "/ingest/c/x.m3u8", &fields).await);
    }
    expect_test::expect![[r#"
        403 publishing through a proxy is refused: push to the origin's ingest listener directly
        403 publishing through a proxy is refused: push to the origin's ingest listener directly
        403 publishing through a proxy is refused: push to the origin's ingest listener directly
        403 publishing through a proxy is refused: push to the origin's ingest listener directly
        403 publishing from a web page is refused
    "#]]
    .assert_eq(&out);
    origin.stop().await;
}

#[tokio::test]
async fn token_is_required_and_checked() {
    let origin = Running::start_with_token(Config::default(), token());
    let ingest = origin.ingest;
    let mut out = String::new();
    for fields in [
        String::new(),
        "Authorization: Bearer wrong-horse-battery\r\n".to_owned(),
        format!("Authorization: Bearer {TOKEN}\r\n"),
        // Base64 of `source:correct-horse-battery`.
        "Authorization: Basic c291cmNlOmNvcnJlY3QtaG9yc2UtYmF0dGVyeQ==\r\n".to_owned(),
    ] {
        out += &format!("{}\n", put(&origin, ingest, "/ingest/c/x.m3u8", &fields).await);
    }
    expect_test::expect![[r#"
        401 [Basic realm="ingest"] [Bearer realm="ingest"] missing or wrong ingest token: send Authorization: Bearer TOKEN, or push to http://source:TOKEN@HOST/…
        401 [Basic realm="ingest"] [Bearer realm="ingest"] missing or wrong ingest token: send Authorization: Bearer TOKEN, or push to http://source:TOKEN@HOST/…
        200 accepted
        200 accepted
    "#]]
    .assert_eq(&out);
    origin.stop().await;
}

/// A source that sends `Expect: 100-continue` (RFC 9110 §10.1.1) must receive its response before
/// it sends content.
#[tokio::test]
async fn source_expecting_100_continue_is_denied_at_once() {
    let origin = Running::start_with_token(Config::default(), token());
    let mut stream = TcpStream::connect(origin.ingest).await.unwrap();
    let head = "PUT /ingest/c/v.mp4 HTTP/1.1\r\nhost: o\r\nexpect: 100-continue\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut status = [0; 12];
    stream.read_exact(&mut status).await.unwrap();
    assert_eq!(status, *b"HTTP/1.1 401");
    origin.stop().await;
}

/// ffmpeg must be able to publish with the password in its URL, by `Expect` and a challenge, and
/// with an explicit `Authorization` field.
#[tokio::test]
async fn ffmpeg_publishes_with_a_token() {
    let origin = Running::start_with_token(Config::default(), token());
    let ingest = origin.ingest;
    let encode = format!("-f lavfi -i testsrc2=size=160x90:rate=25 -t 3 {VIDEO} {CMAF} -method PUT");
    for (channel, server, field) in [
        ("password", format!("source:{TOKEN}@{ingest}"), None),
        ("field", ingest.to_string(), Some(format!("Authorization: Bearer {TOKEN}\r\n"))),
        ("none", ingest.to_string(), None),
    ] {
        let mut command = Command::new("ffmpeg");
        command.args(["-nostdin", "-loglevel", "error"]).args(encode.split_whitespace());
        if let Some(field) = field {
            command.args(["-headers", &field]);
        }
        command.stdin(Stdio::null());
        command.arg(format!("http://{server}/ingest/{channel}/Streams(v.cmfv)"));
        let run = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let published = origin.get(&format!("/live/{channel}/master.m3u8")).await.status;
        let expected = if channel == "none" { StatusCode::NOT_FOUND } else { StatusCode::OK };
        assert_eq!(published, expected, "{channel}: {}", String::from_utf8_lossy(&run.stderr));
    }
    origin.stop().await;
}

/// Returns the metrics without help and type lines.
async fn figures(origin: &Running) -> Vec<String> {
    let answer = origin.request_at(origin.admin, "GET", "/metrics", &[]).await;
    assert_eq!(answer.field("content-type"), "application/openmetrics-text; version=1.0.0; charset=utf-8");
    let text = answer.text();
    let mut lines: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect();
    lines.sort();
    lines
}

#[tokio::test]
async fn metrics_count_responses_uploads_and_memory() {
    let origin = Running::start(Config { live_memory_bytes: 16 << 20, ..Config::default() });
    assert_eq!(origin.get("/time").await.status, StatusCode::OK);
    assert_eq!(origin.get("/vod/a/master.m3u8").await.status, StatusCode::NOT_FOUND);
    put(&origin, origin.ingest, "/ingest/c/x.m3u8", "").await;
    let mut upload = origin.begun_upload("/ingest/c/x.m3u8").await;
    let (varying, steady): (Vec<_>, Vec<_>) = figures(&origin).await.into_iter().partition(|line| {
        line.starts_with("thalweg_origin_connections") || line.starts_with("thalweg_origin_written")
    });
    expect_test::expect![[r#"
        thalweg_origin_channels 0
        thalweg_origin_live_memory_bytes 0
        thalweg_origin_live_memory_bytes_max 16777216
        thalweg_origin_responses_total{listener="ingest",status="2xx"} 1
        thalweg_origin_responses_total{listener="public",status="2xx"} 2
        thalweg_origin_responses_total{listener="public",status="4xx"} 1
        thalweg_origin_upload_bytes_total 8
        thalweg_origin_upload_held_bytes 0
        thalweg_origin_uploads 1"#]]
    .assert_eq(&steady.join("\n"));
    let written =
        |line: &&String| line.starts_with(r#"thalweg_origin_written_bytes_total{listener="public"}"#);
    let written = varying.iter().find(written).unwrap().rsplit_once(' ').unwrap().1;
    assert!(written.parse::<u64>().unwrap() > 300, "{varying:?}");
    // The previous upload's connection is counted until the origin closes it.
    let open = r#"thalweg_origin_connections{listener="ingest"} 1"#.to_owned();
    let only_one = async { while !figures(&origin).await.contains(&open) {} };
    tokio::time::timeout(std::time::Duration::from_secs(10), only_one).await.unwrap();
    upload.send(b"x", true).await;
    assert_eq!(upload.status().await, "400");
    assert!(figures(&origin).await.contains(&"thalweg_origin_uploads 0".to_owned()));
    origin.stop().await;
}

#[tokio::test]
async fn admin_reports_liveness_and_readiness() {
    let media = support::directory("media");
    let origin = Running::start(Config { media: vec![media.clone().into()], ..Config::default() });
    let get = async |path: &str| {
        let answer = origin.request_at(origin.admin, "GET", path, &[]).await;
        format!("{} {}", answer.status.as_u16(), answer.text())
    };
    assert_eq!((get("/healthz").await, get("/readyz").await), ("200 ok".to_owned(), "200 ready".to_owned()));
    std::fs::remove_dir(&media).unwrap();
    assert_eq!(get("/healthz").await, "200 ok");
    let unready = get("/readyz").await;
    assert!(unready.starts_with(r#"503 {"error":"cannot list the media: "#), "{unready}");
    let rebound = origin.request_at(origin.admin, "GET", "/metrics", &[("host", "evil.example")]).await;
    assert_eq!(rebound.status, StatusCode::MISDIRECTED_REQUEST);
    assert!(rebound.text().contains(r#"{"error":"host \"evil.example\" is refused"#), "{}", rebound.text());
    // Clients cannot reach the admin interface.
    assert_eq!(origin.get("/metrics").await.status, StatusCode::NOT_FOUND);
    origin.stop().await;
}

#[test]
fn origin_without_ingest_binds_only_the_public_listener() {
    let listen = ([127, 0, 0, 1], 0).into();
    let origin = Origin::bind(Config { listen, ingest: None, admin: None, ..Config::default() }).unwrap();
    assert_eq!((origin.ingest_addr(), origin.admin_addr()), (None, None));
}

#[test]
fn bind_error_names_the_port_in_use() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (used, free) = (listener.local_addr().unwrap(), ([127, 0, 0, 1], 0).into());
    let config = Config { listen: free, ingest: None, admin: None, ..Config::default() };
    let ingest = Config { ingest: Ingest::new(used, None).ok(), ..config.clone() };
    assert!(matches!(Origin::bind(ingest), Err(BindError::Ingest(address, _)) if address == used));
    let admin = Config { admin: Some(used), ..config };
    assert!(matches!(Origin::bind(admin), Err(BindError::Admin(address, _)) if address == used));
}
