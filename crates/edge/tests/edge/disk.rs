//! Disk tier tests: stored responses survive restarts, and damaged responses are fetched again.

#![allow(clippy::unwrap_used)]

use std::net::Ipv4Addr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::support::{Backend, Client, PATIENCE, Response, TestEdge, config, content, field};
use thalweg_edge::{Config, DiskPlace};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// A directory, removed when dropped.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path =
            PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("disk-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }

    /// Lists all files in the directory.
    fn files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        let mut directories = vec![self.0.clone()];
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(directory).into_iter().flatten() {
                let path = entry.unwrap().path();
                if path.is_dir() { directories.push(path) } else { files.push(path) }
            }
        }
        files
    }

    /// Returns the file of the only stored response.
    fn file(&self) -> PathBuf {
        let files = self.files();
        assert_eq!(files.len(), 1, "{files:?}");
        files[0].clone()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Starts an edge with a disk tier and an admin interface.
async fn edge(backend: &Backend, directory: &Path) -> TestEdge {
    let disk = Some(DiskPlace { directory: directory.into(), bytes_max: 1 << 30 });
    let admin = Some((Ipv4Addr::LOCALHOST, 0).into());
    TestEdge::start(Config { disk, admin, memory_bytes: 16 << 20, ..config(backend.address) })
}

async fn stats(edge: &TestEdge) -> String {
    let mut client = edge.admin_client().await;
    client.request("GET", "/stats", "").await;
    String::from_utf8(client.response().await.content).unwrap()
}

/// Waits until `/stats` contains `text`.
async fn wait_for(edge: &TestEdge, text: &str) {
    let started = Instant::now();
    loop {
        let stats = stats(edge).await;
        if stats.contains(text) {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "{text}: {stats}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn get(edge: &TestEdge, path: &str) -> JoinHandle<Response> {
    let (address, path) = (edge.address, path.to_owned());
    tokio::spawn(async move {
        let mut client = Client::new(TcpStream::connect(address).await.unwrap());
        client.request("GET", &path, "").await;
        client.response().await
    })
}

/// Fetches `path` through `edge`.
async fn fetch(edge: &TestEdge, backend: &Backend, path: &str, fields: &str, content: &[u8]) -> Response {
    let asked = get(edge, path);
    let mut fetch = backend.fetch().await;
    let fields = format!("Connection: close\r\n{fields}");
    fetch.respond("200 OK", &fields, content).await;
    asked.await.unwrap()
}

const FRESH: &str = "Cache-Control: max-age=600\r\nX-Kept: yes\r\n";
const LARGE: usize = 3_000_001;

#[tokio::test]
async fn first_hit_after_restart_takes_less_than_a_second() {
    let (backend, directory) = (Backend::new().await, Directory::new("restart"));
    let first = edge(&backend, &directory.0).await;
    let (small, large) = (content(5, 1000), content(7, LARGE));
    fetch(&first, &backend, "/small", FRESH, &small).await;
    fetch(&first, &backend, "/large", FRESH, &large).await;
    let none = fetch(&first, &backend, "/none", FRESH, b"").await;
    assert_eq!(none.status, 200);
    wait_for(&first, "\"responses\":3").await;
    first.stop().await;

    let started = Instant::now();
    let second = edge(&backend, &directory.0).await;
    let hit = second.get("/large", "").await;
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    assert!(hit.content == large && hit.whole);
    assert_eq!(hit.field("x-kept"), Some("yes"));
    assert!(hit.cache_status().starts_with("thalweg; hit"), "{}", hit.cache_status());
    for _ in 0..2 {
        assert_eq!(second.get("/small", "").await.content, small);
    }
    assert_eq!(second.get("/none", "").await.field("content-length"), Some("0"));
    let part = second.get("/large", "Range: bytes=262140-262150\r\n").await;
    assert_eq!((part.status, part.content), (206, large[262_140..262_151].to_vec()));
    let end = second.get("/large", "Range: bytes=-3\r\n").await;
    assert_eq!(end.content, large[LARGE - 3..]);
    assert!(!backend.is_asked_again().await);
    second.stop().await;
}

#[tokio::test]
async fn content_beyond_memory_comes_from_disk() {
    let (backend, directory) = (Backend::new().await, Directory::new("overflow"));
    let edge = edge(&backend, &directory.0).await;
    // Store three times as much content as fits in memory.
    for number in 0..16 {
        let path = format!("/{number}");
        fetch(&edge, &backend, &path, FRESH, &content(number, LARGE)).await;
        wait_for(&edge, &format!("\"responses\":{}", number + 1)).await;
    }
    for number in 0..16 {
        let hit = edge.get(&format!("/{number}"), "").await;
        assert!(hit.content == content(number, LARGE), "{number}");
        assert!(hit.cache_status().starts_with("thalweg; hit"), "{number}: {}", hit.cache_status());
    }
    assert!(!backend.is_asked_again().await);
    edge.stop().await;
}

#[tokio::test]
async fn rfc9111_4_3_4_validation_survives_restart() {
    let (backend, directory) = (Backend::new().await, Directory::new("validated"));
    let first = edge(&backend, &directory.0).await;
    fetch(&first, &backend, "/a", "Cache-Control: max-age=0\r\nETag: \"v1\"\r\n", b"content").await;
    wait_for(&first, "\"responses\":1").await;
    let again = get(&first, "/a");
    let mut asked = backend.fetch().await;
    assert_eq!(field(&asked.request, "if-none-match"), Some("\"v1\""));
    asked.send("HTTP/1.1 304 Not Modified\r\nCache-Control: max-age=600\r\nX-New: yes\r\n\r\n").await;
    assert_eq!(again.await.unwrap().content, b"content");
    first.stop().await;

    let second = edge(&backend, &directory.0).await;
    let hit = second.get("/a", "").await;
    assert_eq!((&hit.content[..], hit.field("x-new")), (&b"content"[..], Some("yes")));
    assert!(hit.cache_status().starts_with("thalweg; hit"), "{}", hit.cache_status());
    second.stop().await;
}

#[tokio::test]
async fn variant_survives_restart() {
    let (backend, directory) = (Backend::new().await, Directory::new("variants"));
    let first = edge(&backend, &directory.0).await;
    let fields = format!("Vary: Accept-Language\r\n{FRESH}");
    fetch(&first, &backend, "/a", &fields, b"any language").await;
    wait_for(&first, "\"responses\":1").await;
    first.stop().await;

    let second = edge(&backend, &directory.0).await;
    assert_eq!(second.get("/a", "").await.content, b"any language");
    let address = second.address;
    let german = tokio::spawn(async move {
        let mut client = Client::new(TcpStream::connect(address).await.unwrap());
        client.request("GET", "/a", "Accept-Language: de\r\n").await;
        client.response().await
    });
    backend.fetch().await.respond("200 OK", &fields, b"Deutsch").await;
    assert_eq!(german.await.unwrap().content, b"Deutsch");
    second.stop().await;
}

#[tokio::test]
async fn damage_found_before_sending_causes_fetch() {
    let (backend, directory) = (Backend::new().await, Directory::new("broken"));
    for (number, length) in [100, LARGE].into_iter().enumerate() {
        let path = format!("/{number}");
        let first = edge(&backend, &directory.0).await;
        fetch(&first, &backend, &path, FRESH, &content(0, length)).await;
        wait_for(&first, "\"responses\":1").await;
        first.stop().await;
        let file = std::fs::OpenOptions::new().write(true).open(directory.file()).unwrap();
        let at = file.metadata().unwrap().len() - length as u64;
        file.write_all_at(&[!content(0, 1)[0]], at).unwrap();

        let second = edge(&backend, &directory.0).await;
        let fetched = fetch(&second, &backend, &path, "Cache-Control: no-store\r\n", b"anew").await;
        assert_eq!(fetched.content, b"anew");
        wait_for(&second, "\"responses\":0").await;
        second.stop().await;
        assert_eq!(directory.files(), Vec::<PathBuf>::new());
    }
}

#[tokio::test]
async fn rfc9110_304_and_head_do_not_read_content() {
    for length in [100, LARGE] {
        let (backend, directory) = (Backend::new().await, Directory::new(&format!("unread-{length}")));
        let first = edge(&backend, &directory.0).await;
        fetch(&first, &backend, "/a", &format!("ETag: \"v1\"\r\n{FRESH}"), &content(0, length)).await;
        wait_for(&first, "\"responses\":1").await;
        first.stop().await;
        let file = std::fs::OpenOptions::new().write(true).open(directory.file()).unwrap();
        let at = file.metadata().unwrap().len() - length as u64;
        file.write_all_at(&[!content(0, 1)[0]], at).unwrap();

        let second = edge(&backend, &directory.0).await;
        let mut client = second.client().await;
        for (method, fields, status) in [("GET", "If-None-Match: \"v1\"\r\n", 304), ("HEAD", "", 200)] {
            client.request(method, "/a", fields).await;
            assert_eq!(client.response_to(method).await.status, status, "{length}");
        }
        assert!(!backend.is_asked_again().await);
        second.stop().await;
    }
}

#[tokio::test]
async fn damage_found_while_sending_cuts_response_at_the_damage() {
    let (backend, directory) = (Backend::new().await, Directory::new("cut"));
    let first = edge(&backend, &directory.0).await;
    fetch(&first, &backend, "/a", FRESH, &content(0, LARGE)).await;
    wait_for(&first, "\"responses\":1").await;
    first.stop().await;
    let file = std::fs::OpenOptions::new().write(true).open(directory.file()).unwrap();
    let end = file.metadata().unwrap().len();
    file.write_all_at(&[!content(LARGE - 1, 1)[0]], end - 1).unwrap();

    let second = edge(&backend, &directory.0).await;
    let mut records = second.records.follow();
    let cut = second.get("/a", "").await;
    assert!(!cut.whole && cut.content.len() < LARGE);
    assert!(cut.content == content(0, cut.content.len()), "a wrong byte was sent");
    assert_eq!(records.recv().await.unwrap().cut, Some(thalweg_record::Cut::StorageFailed));
    let fetched = fetch(&second, &backend, "/a", FRESH, b"anew").await;
    assert_eq!(fetched.content, b"anew");
    second.stop().await;
}

#[tokio::test]
async fn truncated_file_does_not_harm_other_responses() {
    let (backend, directory) = (Backend::new().await, Directory::new("truncated"));
    let first = edge(&backend, &directory.0).await;
    fetch(&first, &backend, "/a", FRESH, &content(0, LARGE)).await;
    wait_for(&first, "\"responses\":1").await;
    first.stop().await;

    let second = edge(&backend, &directory.0).await;
    assert!(second.get("/a", "").await.content == content(0, LARGE), "all content must be intact");
    let file = std::fs::OpenOptions::new().write(true).open(directory.file()).unwrap();
    file.set_len(1_000_000).unwrap();
    let cut = second.get("/a", "").await;
    assert!(!cut.whole && cut.content == content(0, cut.content.len()));
    let fetched = fetch(&second, &backend, "/a", FRESH, b"anew").await;
    assert_eq!(fetched.content, b"anew");
    second.stop().await;
}

#[tokio::test]
async fn directory_belongs_to_one_edge() {
    let (backend, directory) = (Backend::new().await, Directory::new("locked"));
    let first = edge(&backend, &directory.0).await;
    let disk = Some(DiskPlace { directory: directory.0.clone(), bytes_max: 1 << 30 });
    let refused = thalweg_edge::Edge::bind(Config { disk, ..config(backend.address) }).unwrap_err();
    assert!(refused.to_string().starts_with("another process stores responses in /"), "{refused}");
    first.stop().await;
    edge(&backend, &directory.0).await.stop().await;

    std::fs::write(directory.0.join("file"), b"").unwrap();
    let disk = Some(DiskPlace { directory: directory.0.join("file"), bytes_max: 1 << 30 });
    let refused = thalweg_edge::Edge::bind(Config { disk, ..config(backend.address) }).unwrap_err();
    assert!(refused.to_string().starts_with("cannot store responses in /"), "{refused}");
}

const SLICE: usize = 100_000;
const SLICEABLE: &str = "Cache-Control: max-age=600\r\nETag: \"v1\"\r\nAccept-Ranges: bytes\r\n\
                         Surrogate-Key: film\r\nConnection: close\r\n";

async fn slicing(backend: &Backend, directory: &Path) -> TestEdge {
    let disk = Some(DiskPlace { directory: directory.into(), bytes_max: 1 << 30 });
    let admin = Some((Ipv4Addr::LOCALHOST, 0).into());
    let slice_bytes = SLICE as u64;
    TestEdge::start(Config { disk, admin, slice_bytes, memory_bytes: 16 << 20, ..config(backend.address) })
}

/// Seeks to a missing slice, and responds to its fetch.
async fn seek(edge: &TestEdge, backend: &Backend, at: usize) -> Response {
    let address = edge.address;
    let asked = tokio::spawn(async move {
        let mut client = Client::new(TcpStream::connect(address).await.unwrap());
        client.request("GET", "/film", &format!("Range: bytes={at}-{}\r\n", at + 9)).await;
        client.response().await
    });
    let mut fetch = backend.fetch().await;
    let start = at - at % SLICE;
    let expected = format!("bytes={start}-{}", start + SLICE - 1);
    assert_eq!(field(&fetch.request, "range"), Some(&*expected));
    let fields = format!("Content-Range: {}/{LARGE}\r\n{SLICEABLE}", expected.replace('=', " "));
    fetch.respond("206 Partial Content", &fields, &content(start, SLICE)).await;
    asked.await.unwrap()
}

#[tokio::test]
async fn seek_into_sliced_content_is_hit_after_restart() {
    let (backend, directory) = (Backend::new().await, Directory::new("slices"));
    let first = slicing(&backend, &directory.0).await;
    assert_eq!(seek(&first, &backend, 1_000_123).await.content, content(1_000_123, 10));
    assert_eq!(seek(&first, &backend, 2_000_000).await.content, content(2_000_000, 10));
    wait_for(&first, "\"responses\":3").await;
    first.stop().await;

    let second = slicing(&backend, &directory.0).await;
    for at in [1_000_500, 2_099_990] {
        let hit = second.get("/film", &format!("Range: bytes={at}-{}\r\n", at + 9)).await;
        assert_eq!((hit.status, &hit.content), (206, &content(at, 10)));
        assert_eq!(hit.field("content-range"), Some(&*format!("bytes {at}-{}/{LARGE}", at + 9)));
    }
    let hit = second.get("/film", "Range: bytes=1000000-1000000\r\n").await;
    assert!(hit.cache_status().starts_with("thalweg; hit"), "{}", hit.cache_status());
    assert!(!backend.is_asked_again().await);
    // New slices are stored in addition to the existing ones.
    assert_eq!(seek(&second, &backend, 500_000).await.content, content(500_000, 10));
    wait_for(&second, "\"responses\":4").await;
    purge(&second, "url=media.example/film").await;
    wait_for(&second, "\"responses\":0").await;
    second.stop().await;

    let third = slicing(&backend, &directory.0).await;
    assert_eq!(seek(&third, &backend, 1_000_123).await.content, content(1_000_123, 10));
    third.stop().await;
}

async fn purge(edge: &TestEdge, what: &str) {
    let mut client = edge.admin_client().await;
    client.request("POST", &format!("/purge?{what}"), "Content-Length: 0\r\n").await;
    assert_eq!(client.response().await.status, 200);
}

/// A copy of all files, which can be restored.
struct Saved(Vec<(PathBuf, Vec<u8>)>);

impl Saved {
    fn of(directory: &Directory) -> Self {
        let read = |path: PathBuf| (path.clone(), std::fs::read(path).unwrap());
        Self(directory.files().into_iter().map(read).collect())
    }

    fn put_back(&self) {
        for (path, bytes) in &self.0 {
            std::fs::write(path, bytes).unwrap();
        }
    }
}

#[tokio::test]
async fn purged_response_does_not_return_after_restart() {
    let (backend, directory) = (Backend::new().await, Directory::new("purged"));
    let first = edge(&backend, &directory.0).await;
    let fields = format!("{FRESH}Surrogate-Key: x\r\n");
    fetch(&first, &backend, "/tag", &fields, b"old").await;
    fetch(&first, &backend, "/url", FRESH, b"old").await;
    fetch(&first, &backend, "/kept", FRESH, b"kept").await;
    wait_for(&first, "\"responses\":3").await;
    let files = Saved::of(&directory);
    purge(&first, "tag=x").await;
    purge(&first, "url=media.example/url").await;
    wait_for(&first, "\"responses\":1").await;
    first.stop().await;
    // Simulate a crash before any file was removed.
    files.put_back();

    let second = edge(&backend, &directory.0).await;
    assert_eq!(second.get("/kept", "").await.content, b"kept");
    for path in ["/tag", "/url"] {
        assert_eq!(fetch(&second, &backend, path, &fields, b"new").await.content, b"new");
    }
    wait_for(&second, "\"responses\":3").await;
    second.stop().await;

    let third = edge(&backend, &directory.0).await;
    for path in ["/tag", "/url"] {
        assert_eq!(third.get(path, "").await.content, b"new", "responses stored after the purge are kept");
    }
    purge(&third, "tag=x").await;
    fetch(&third, &backend, "/tag", FRESH, b"newer").await;
    third.stop().await;
}
