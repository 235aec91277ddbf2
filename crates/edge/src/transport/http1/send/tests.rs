//! Tests of sending on-disk content to a client so slow that pages leave the page cache.

use std::fs;
use std::future::poll_fn;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use thalweg_cache::freshness::Freshness;
use thalweg_cache::{Cache, Disk, Head, Lookup, Stored};
use thalweg_http::cache_control::RequestCacheControl;
use tokio::io::AsyncReadExt;

use super::*;

const PATIENCE: Duration = Duration::from_secs(20);
/// Content length in bytes; fits into one piece.
const LENGTH: usize = 1 << 20;
/// Requested size of each socket buffer, in bytes; both together are far smaller than a piece.
const BUFFER_BYTES: usize = 16 * 1024;

/// A directory next to this executable, on a file system whose pages can leave the page cache.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::current_exe().unwrap().with_extension(name);
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }

    fn file(&self) -> PathBuf {
        let all = |path: PathBuf| fs::read_dir(path).into_iter().flatten().map(|entry| entry.unwrap().path());
        all(self.0.join("v1")).filter(|path| path.is_dir()).flat_map(all).next().unwrap()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn content() -> Vec<u8> {
    (0..LENGTH as u64).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect()
}

fn open(directory: &Path) -> Arc<Cache> {
    let cache = Cache::with_disk(16 << 20, Some(Disk::open(directory, 1 << 30, |_| None).unwrap())).unwrap();
    cache.start_disk(PATIENCE).unwrap();
    cache
}

fn look_up(cache: &Arc<Cache>) -> Lookup {
    cache.look_up("h/a", &Fields::new(), &RequestCacheControl::default(), 0)
}

/// Creates a cache with one response, stored on disk only.
fn stored(directory: &Path) -> (Arc<Cache>, Arc<Stored>) {
    let cache = open(directory);
    let Lookup::Miss(mut fill, _) = look_up(&cache) else { panic!("the response is already stored") };
    let fields: Fields = [("ETag", "\"a\"")].into_iter().collect();
    let freshness = Freshness { lifetime_ms: 600_000, ..Freshness::default() };
    let length = Some(LENGTH as u64);
    fill.begin(Head { length, ..Head::new(200, fields, freshness) }, 0);
    fill.append(Bytes::from(content()), 0).unwrap();
    fill.complete();
    let begun = Instant::now();
    while cache.disk_stats().unwrap().responses == 0 {
        assert!(begun.elapsed() < PATIENCE, "the response was not written to disk");
        std::thread::yield_now();
    }
    cache.stop_disk();
    drop(cache);
    let cache = open(directory);
    let Lookup::Hit(stored) = look_up(&cache) else { panic!("the stored response was not found") };
    (cache, stored)
}

/// Connects two sockets with small buffers.
async fn connection() -> (Socket, TcpStream) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = tokio::net::TcpSocket::new_v4().unwrap();
    client.set_recv_buffer_size(BUFFER_BYTES as u32).unwrap();
    let client = client.connect(listener.local_addr().unwrap()).await.unwrap();
    let server = listener.accept().await.unwrap().0;
    socket2::SockRef::from(&server).set_send_buffer_size(BUFFER_BYTES).unwrap();
    (Socket::new(server), client)
}

/// Drops a file from the page cache, except for pages in a socket's queue. Does not check the
/// result, because that would load the pages again.
fn forget(path: &Path) {
    let file = fs::File::open(path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

#[tokio::test]
async fn pages_that_leave_the_cache_while_sending_are_read_and_verified_again() {
    for damaged in [None, Some(LENGTH as u64 / 2), Some(LENGTH as u64 - 1)] {
        let directory = Directory::new("slow-client");
        let (cache, stored) = stored(&directory.0);
        let all = content();
        let mut reader = stored.content.reader(0);
        // The first read verifies the content block by block; the second returns all of it at once.
        while reader.next(usize::MAX).await.unwrap().is_some() {}
        reader.seek(0);
        let piece = reader.next(usize::MAX).await.unwrap().unwrap();
        assert_eq!(piece.len(), LENGTH);
        let (server, mut client) = connection().await;
        let mut sender = Sender::new(&server, PATIENCE);
        let mut sending = pin!(sender.piece(&piece, true));
        let is_waiting = poll_fn(|cx| Poll::Ready(sending.as_mut().poll(cx).is_pending())).await;
        assert!(is_waiting, "the socket buffers must not hold all of the content");

        let path = directory.file();
        if let Some(at) = damaged {
            let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
            file.write_all_at(&[!all[at as usize]], 4096 + at).unwrap();
        }
        forget(&path);

        let mut got = Vec::new();
        let sending = async {
            let sent = sending.await;
            server.with_fd(|fd| socket2::SockRef::from(&fd).shutdown(std::net::Shutdown::Write)).unwrap();
            sent
        };
        let (sent, received) = tokio::join!(sending, client.read_to_end(&mut got));
        received.unwrap();
        assert!(got == all[..got.len()], "wrong bytes were sent, {damaged:?}");
        assert_eq!(
            (got.len() == LENGTH, sent.is_ok()),
            (damaged.is_none(), damaged.is_none()),
            "{damaged:?}"
        );
        assert_eq!(cache.disk_stats().unwrap().errors, u64::from(damaged.is_some()));
        cache.stop_disk();
    }
}
