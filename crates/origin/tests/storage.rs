//! Remote storage: presentations served from a real S3 server, with and without faults.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod support;

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use hyper::StatusCode;
use serde_json::Value;
use support::nginx::Nginx;
use support::s3::{BUCKET, Fault, Proxy, Server, has_credentials};
use support::{Answer, Running, make_media};
use thalweg_origin::{Config, MediaLocation, S3Options, StorageOptions};

const SECONDS: f64 = 7.0;
/// Idle limit of servers that should not close connections.
const LONG: Duration = Duration::from_secs(60);

/// Returns the settings for a bucket behind `address`.
fn config(address: SocketAddr) -> Config {
    let endpoint = Some(format!("http://{address}").parse().unwrap());
    let s3 = S3Options { endpoint, is_path_style: true, ..S3Options::default() };
    Config {
        media: vec![MediaLocation::S3 { bucket: BUCKET.to_owned(), prefix: "vod/".to_owned() }],
        storage: StorageOptions { s3, ..StorageOptions::default() },
        remote_listing_max_age: Duration::ZERO,
        ..Config::default()
    }
}

/// Requests everything that the manifests name, and returns the paths with the responses.
async fn everything(origin: &Running) -> Vec<(String, Answer)> {
    let mut all = Vec::new();
    for path in ["master.m3u8", "manifest.mpd"] {
        all.push((path.to_owned(), origin.get(&format!("/vod/a/{path}")).await));
    }
    for track in ["video_90", "video_180", "audio"] {
        let playlist = origin.text(&format!("/vod/a/{track}/media.m3u8")).await;
        // The version in URLs differs between libraries.
        let names = playlist.lines().filter(|line| line.ends_with(".m4s"));
        let names =
            names.map(|line| line.rsplit_once('/').unwrap().1.to_owned()).chain(["init.mp4".to_owned()]);
        for name in names {
            let path = format!("{track}/{name}");
            all.push((path.clone(), origin.get(&format!("/vod/a/{path}")).await));
        }
    }
    all
}

/// Checks that an origin serves the same bytes as a directory with the same files.
async fn check_equal(origin: &Running, media: PathBuf) {
    let local = Running::start(Config { media: vec![media.into()], ..Config::default() });
    let (expected, actual) = (everything(&local).await, everything(origin).await);
    assert_eq!(actual.len(), expected.len());
    for ((path, actual), (_, expected)) in actual.iter().zip(&expected) {
        assert_eq!(actual.status, StatusCode::OK, "{path}: {}", actual.text());
        if path.ends_with(".m4s") || path.ends_with(".mp4") {
            assert!(actual.content == expected.content, "{path}");
            assert_eq!(actual.field("content-type"), expected.field("content-type"), "{path}");
        }
    }
    local.stop().await;
}

/// Returns the counters of remote storage.
async fn counters(origin: &Running) -> Value {
    let answer = origin.request_at(origin.admin, "GET", "/status", &[]).await;
    let status: Value = serde_json::from_slice(&answer.content).unwrap();
    status["storage"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn bucket_is_served_like_a_directory_with_the_same_files() {
    if !has_credentials("bucket_is_served_like_a_directory_with_the_same_files") {
        return;
    }
    let media = make_media(SECONDS);
    let server = Server::start();
    server.put_all(&media, "vod");
    let origin = Running::start(config(server.address));
    check_equal(&origin, media.clone()).await;
    let range = origin.request("GET", "/vod/a/video_90/init.mp4", &[("range", "bytes=4-7")]).await;
    assert_eq!((range.status, range.text()), (StatusCode::PARTIAL_CONTENT, "ftyp".to_owned()));
    for path in ["/vod/b/master.m3u8", "/vod/.a/master.m3u8"] {
        assert_eq!(origin.get(path).await.status, StatusCode::NOT_FOUND, "{path}");
    }
    let counters = counters(&origin).await;
    assert_eq!(counters["failures"], serde_json::json!({}), "{counters}");
    let (opened, requests) = (&counters["connections"]["opened"], &counters["requests"]);
    assert!(opened.as_u64().unwrap() * 4 < requests.as_u64().unwrap(), "{counters}");
    origin.stop().await;
}

/// Files put into the server's directory have no entity tag, so the time of the last modification
/// guards the reads.
#[tokio::test(flavor = "multi_thread")]
async fn objects_without_an_entity_tag_are_served() {
    if !has_credentials("objects_without_an_entity_tag_are_served") {
        return;
    }
    let media = make_media(SECONDS);
    let server = Server::start();
    fs::create_dir_all(server.objects.join("vod/a")).unwrap();
    for entry in fs::read_dir(media.join("a")).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), server.objects.join("vod/a").join(entry.file_name())).unwrap();
    }
    let origin = Running::start(config(server.address));
    check_equal(&origin, media).await;
    origin.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_fault_changes_a_byte() {
    if !has_credentials("no_fault_changes_a_byte") {
        return;
    }
    let media = make_media(SECONDS);
    let server = Server::start();
    server.put_all(&media, "vod");
    let proxy = Proxy::start(server.address, LONG).await;
    let origin = Running::start(config(proxy.address));
    let path = "/vod/a/video_180/25600.m4s";
    let expected = origin.get(path).await;
    assert_eq!(expected.status, StatusCode::OK);
    for (fault, kind) in [
        (Fault::Reset, "closed"),
        (Fault::SlowDown, "slow_down"),
        (Fault::Truncated, "range"),
        (Fault::WrongEtag, "version"),
    ] {
        let before = counters(&origin).await["failures"][kind].as_u64().unwrap_or(0);
        proxy.inject(&[fault]);
        let answer = origin.get(path).await;
        assert_eq!(answer.status, StatusCode::OK, "{fault:?}: {}", answer.text());
        assert!(answer.content == expected.content, "{fault:?}");
        assert_eq!(counters(&origin).await["failures"][kind], before + 1, "{fault:?}");
    }
    proxy.inject(&[Fault::SlowDown; 4]);
    let answer = origin.get(path).await;
    assert_eq!((answer.status, answer.field("retry-after")), (StatusCode::SERVICE_UNAVAILABLE, "1"));
    // What storage says stays in the log: it may contain names of accounts and addresses.
    assert_eq!(answer.text(), "storage failed: slow_down");
    origin.stop().await;
}

/// A connection that the server closed while it was idle must not fail a request.
#[tokio::test(flavor = "multi_thread")]
async fn connections_closed_by_the_server_are_replaced() {
    if !has_credentials("connections_closed_by_the_server_are_replaced") {
        return;
    }
    let media = make_media(SECONDS);
    let server = Server::start();
    server.put_all(&media, "vod");
    let proxy = Proxy::start(server.address, Duration::from_millis(200)).await;
    let origin = Running::start(config(proxy.address));
    assert_eq!(origin.get("/vod/a/audio/0.m4s").await.status, StatusCode::OK);
    while counters(&origin).await["connections"]["closed_idle"] == 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    check_equal(&origin, media).await;
    origin.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_idle_time_each_request_opens_a_connection() {
    if !has_credentials("without_an_idle_time_each_request_opens_a_connection") {
        return;
    }
    let media = make_media(SECONDS);
    let server = Server::start();
    server.put_all(&media, "vod");
    let mut config = config(server.address);
    config.storage.idle = Duration::ZERO;
    let origin = Running::start(config);
    check_equal(&origin, media).await;
    let counters = counters(&origin).await;
    let count = |value: &serde_json::Value| value.as_u64().unwrap();
    let (opened, requests) = (count(&counters["connections"]["opened"]), count(&counters["requests"]));
    // A hedge may be cancelled before it has a connection.
    assert!((requests - count(&counters["hedges"])..=requests).contains(&opened), "{opened} of {requests}");
    assert_eq!(counters["connections"]["reused"], 0);
    origin.stop().await;
}

/// A replaced object is indexed anew, and no response mixes its versions.
#[tokio::test(flavor = "multi_thread")]
async fn replaced_object_is_indexed_anew() {
    if !has_credentials("replaced_object_is_indexed_anew") {
        return;
    }
    let media = make_media(SECONDS);
    let server = Server::start();
    server.put_all(&media, "vod");
    let origin = Running::start(Config { remote_listing_max_age: LONG, ..config(server.address) });
    let playlist = origin.text("/vod/a/video_90/media.m3u8").await;
    let segment = playlist.lines().find(|line| line.ends_with(".m4s")).unwrap();
    let old = origin.get(&format!("/vod/a/video_90/{segment}")).await;
    assert_eq!(old.status, StatusCode::OK);
    support::make_video(&media.join("a/video_90.mp4"), "176x144", SECONDS);
    server.put(&media.join("a/video_90.mp4"), "vod/a/video_90.mp4");
    // The listing is still in use, so only the read can notice the change.
    let gone = origin.get(&format!("/vod/a/video_90/{segment}")).await;
    assert_eq!(gone.status, StatusCode::NOT_FOUND, "{}", gone.text());
    check_equal(&origin, media).await;
    origin.stop().await;
}

/// Returns the length of a read such as `/films/a.mp4 bytes=0-9`.
fn length(read: &str) -> u64 {
    let (start, end) = read.rsplit_once('=').unwrap().1.split_once('-').unwrap();
    end.parse::<u64>().unwrap() + 1 - start.parse::<u64>().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn indexing_reads_no_media_and_a_segment_is_one_read() {
    if !has_credentials("indexing_reads_no_media_and_a_segment_is_one_read") {
        return;
    }
    let media = make_media(SECONDS);
    let server = Server::start();
    server.put_all(&media, "vod");
    let proxy = Proxy::start(server.address, LONG).await;
    let origin = Running::start(Config { remote_listing_max_age: LONG, ..config(proxy.address) });
    origin.text("/vod/a/master.m3u8").await;
    let files = media.join("a");
    let total: u64 = fs::read_dir(files).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum();
    let read = proxy.take_reads().iter().map(|read| length(read)).sum::<u64>();
    assert!(read < total / 2, "{read} of {total} bytes");
    // Equal requests in progress share a read.
    proxy.inject(&[Fault::Slow(Duration::from_millis(300))]);
    let path = "/vod/a/video_180/0.m4s";
    let answers = futures_util::future::join_all((0..8).map(|_| origin.get(path))).await;
    assert!(answers.iter().all(|answer| answer.status == StatusCode::OK));
    assert!(answers.iter().all(|answer| answer.content == answers[0].content));
    // A slow first byte may cause a hedge, which is a read, too, if it is sent in time.
    let counters = counters(&origin).await;
    let hedges = counters["hedges"].as_u64().unwrap();
    let reads = proxy.take_reads().len() as u64;
    assert!((1..=1 + hedges).contains(&reads), "{reads} reads, {hedges} hedges");
    assert_eq!(counters["reads_collapsed"], 7);
    origin.stop().await;
}

fn of_web_server(address: SocketAddr) -> Config {
    Config {
        media: vec![MediaLocation::Http(format!("http://{address}/").parse().unwrap())],
        remote_listing_max_age: Duration::ZERO,
        ..Config::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn web_server_is_served_like_a_directory_with_the_same_files() {
    let media = make_media(SECONDS);
    let server = Nginx::start(&media, "autoindex on; autoindex_format json;");
    let origin = Running::start(of_web_server(server.address));
    check_equal(&origin, media.clone()).await;
    assert_eq!(counters(&origin).await["failures"], serde_json::json!({}));
    origin.stop().await;
}

/// Without autoindex and without entity tags, text files list the tracks, and times guard the
/// reads.
#[tokio::test(flavor = "multi_thread")]
async fn web_server_without_listings_needs_text_files() {
    let media = make_media(SECONDS);
    let server = Nginx::start(&media, "etag off;");
    let origin = Running::start(of_web_server(server.address));
    let catalog: Value = serde_json::from_str(&origin.text("/catalog.json").await).unwrap();
    let fault = catalog["faults"][0]["message"].as_str().unwrap();
    assert!(fault.contains("autoindex_format json, or add tracks.txt"), "{fault}");
    fs::write(media.join("tracks.txt"), "# all films\na/\n").unwrap();
    fs::write(media.join("a/tracks.txt"), "video_90.mp4\nvideo_180.mp4\naudio.mp4\nmissing.mp4\n").unwrap();
    check_equal(&origin, media).await;
    origin.stop().await;
}

/// The first library serves a name that several have; the others are reported.
#[tokio::test(flavor = "multi_thread")]
async fn first_library_with_a_presentation_serves_it() {
    let (first, second) = (make_media(2.0), make_media(SECONDS));
    fs::create_dir(second.join("b")).unwrap();
    fs::copy(second.join("a/audio.mp4"), second.join("b/audio.mp4")).unwrap();
    let server = Nginx::start(&second, "autoindex on; autoindex_format json;");
    let mut config = of_web_server(server.address);
    config.media.insert(0, first.into());
    let origin = Running::start(config);
    let catalog: Value = serde_json::from_str(&origin.text("/catalog.json").await).unwrap();
    let durations: Vec<_> = catalog["vod"].as_array().unwrap().iter().map(|it| &it["duration_s"]).collect();
    assert!(durations[0].as_f64().unwrap() < 3.0 && durations[1].as_f64().unwrap() > 6.0, "{catalog}");
    let warning = catalog["warnings"][0]["message"].as_str().unwrap();
    assert!(warning.contains(&format!("not served from http://{}/", server.address)), "{warning}");
    let answer = origin.request_at(origin.admin, "GET", "/status", &[]).await;
    let status: Value = serde_json::from_slice(&answer.content).unwrap();
    let media = format!("http://{}/", server.address);
    assert_eq!(status["duplicates"], serde_json::json!([{"name": "a", "media": media}]));
    assert_eq!(status["libraries"][1]["error"], Value::Null);
    origin.stop().await;
}

#[tokio::test]
async fn segments_name_the_next_one() {
    let media = make_media(SECONDS);
    let origin = Running::start(Config { media: vec![media.into()], ..Config::default() });
    let playlist = origin.text("/vod/a/video_90/media.m3u8").await;
    let segments: Vec<&str> = playlist.lines().filter(|line| line.ends_with(".m4s")).collect();
    for (at, segment) in segments.iter().enumerate() {
        let next = segments
            .get(at + 1)
            .map_or(String::new(), |next| format!("<{}>; rel=\"next\"", next.rsplit_once('/').unwrap().1));
        let answer = origin.request("HEAD", &format!("/vod/a/video_90/{segment}"), &[]).await;
        assert_eq!(answer.field("link"), next);
    }
    origin.stop().await;
}
