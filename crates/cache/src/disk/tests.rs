//! Disk tier tests on a real directory: responses survive restarts, the budget holds, and damaged
//! files are never served.

use crate::ban::tests::compile;
use std::fs;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use bytes::Bytes;
use thalweg_http::Fields;
use thalweg_http::cache_control::RequestCacheControl;

use super::record::BLOCK_BYTES;
use super::{Disk, Stats};

mod damage;
mod purges;

use crate::arena::SLAB_BYTES;
use crate::entry::Head;
use crate::fill::{Demotion, Failure, Progress};
use crate::freshness::Freshness;
use crate::storage::Selection;
use crate::store::{Cache, Fill, Lookup};
use crate::stored::Stored;

/// Time limit for each wait in a test.
const PATIENCE: Duration = Duration::from_secs(20);
const GIB: u64 = 1 << 30;

/// A temporary directory, removed on drop.
pub(super) struct Place(PathBuf);

impl Place {
    pub(super) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("thalweg-disk-{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
        Self(std::env::temp_dir().join(name))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Opens a cache with four slabs of memory and completes the disk scan.
    fn open(&self, bytes_max: u64) -> Arc<Cache> {
        let cache =
            Cache::with_disk(4 * SLAB_BYTES as u64, Some(Disk::open(&self.0, bytes_max, compile).unwrap()))
                .unwrap();
        cache.start_disk(PATIENCE).unwrap();
        assert!(stats(&cache).is_scanned);
        cache
    }

    fn files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        for directory in fs::read_dir(self.0.join("v1")).unwrap().map(|entry| entry.unwrap().path()) {
            if directory.is_dir() {
                files.extend(fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()));
            }
        }
        files
    }

    fn file(&self) -> PathBuf {
        let files = self.files();
        assert_eq!(files.len(), 1, "{files:?}");
        files[0].clone()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn stats(cache: &Cache) -> Stats {
    cache.disk_stats().unwrap()
}

/// Polls until `is_so` returns true, because the tier's threads send no events to tests.
fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < PATIENCE, "timed out waiting until {what}");
        thread::yield_now();
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    let started = Instant::now();
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park_timeout(PATIENCE);
        assert!(started.elapsed() < PATIENCE, "the reader was not woken");
    }
}

/// Generates content from `seed`, in which each byte depends on its offset.
fn content(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (seed ^ at ^ (at >> 8) ^ (at >> 16)) as u8).collect()
}

fn head(length: usize, fields: &[(&str, &str)]) -> Head {
    let now_ms = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    Head {
        status: 200,
        reason: None,
        fields: fields.iter().copied().collect(),
        withheld: Fields::new(),
        surrogate: Fields::new(),
        length: Some(length as u64),
        freshness: Freshness { lifetime_ms: 600_000, born_ms: now_ms as u64, ..Freshness::default() },
        selection: Selection::default(),
        private: None,
        sliced: false,
        made: None,
    }
}

fn look_up(cache: &Arc<Cache>, key: &str) -> Lookup {
    let now_ms = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    cache.look_up(key, &Fields::new(), &RequestCacheControl::default(), now_ms as u64)
}

fn miss(cache: &Arc<Cache>, key: &str) -> Fill {
    match look_up(cache, key) {
        Lookup::Miss(fill, _) => fill,
        _ => panic!("{key} is stored"),
    }
}

fn is_hit(cache: &Arc<Cache>, key: &str) -> bool {
    matches!(look_up(cache, key), Lookup::Hit(_))
}

fn hit(cache: &Arc<Cache>, key: &str) -> Arc<Stored> {
    match look_up(cache, key) {
        Lookup::Hit(stored) => stored,
        _ => panic!("{key} is not stored"),
    }
}

fn fill(cache: &Arc<Cache>, key: &str, content: &[u8]) {
    fill_with(cache, key, content, head(content.len(), &[]));
}

fn fill_with(cache: &Arc<Cache>, key: &str, content: &[u8], head: Head) {
    let mut fill = miss(cache, key);
    fill.begin(head, 0);
    for piece in content.chunks(100_000) {
        fill.append(Bytes::copy_from_slice(piece), 0).unwrap();
    }
    fill.complete();
}

/// Stores a response and waits until it is written.
fn store(cache: &Arc<Cache>, key: &str, content: &[u8]) {
    let before = stats(cache).responses;
    fill(cache, key, content);
    wait(key, || hit(cache, key).content.copy().is_some());
    assert!(stats(cache).responses <= before + 1);
}

/// Reads all of the content, as a client would receive it.
fn read(stored: &Stored) -> Result<Vec<u8>, Failure> {
    let mut reader = stored.content.reader(0);
    let mut bytes = Vec::new();
    while let Some(piece) = block_on(reader.next(usize::MAX))? {
        match (piece.as_slice(), piece.in_file()) {
            (Some(slice), _) => bytes.extend_from_slice(slice),
            (None, Some((file, offset))) => {
                let mut buffer = vec![0; piece.len()];
                assert_eq!(rustix::io::pread(file, &mut buffer, offset).unwrap(), buffer.len());
                bytes.extend(buffer);
            }
            (None, None) => unreachable!(),
        }
    }
    Ok(bytes)
}

#[test]
fn stored_response_survives_restart_and_is_sent_from_its_file() {
    let place = Place::new();
    let lengths = [0, 1, 4096, 100_000, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES - 1];
    let cache = place.open(GIB);
    for length in lengths {
        store(&cache, &length.to_string(), &content(length as u64, length));
    }
    let before = stats(&cache);
    cache.stop_disk();

    let cache = place.open(GIB);
    assert_eq!(stats(&cache), before);
    for length in lengths {
        let stored = hit(&cache, &length.to_string());
        assert!(stored.content.is_on_disk());
        assert_eq!(stored.content.progress(), Progress::Complete(length as u64));
        assert!(read(&stored).unwrap() == content(length as u64, length), "{length}");
        let mut reader = stored.content.reader(0);
        if let Some(piece) = block_on(reader.next(usize::MAX)).unwrap() {
            let (file, offset) = piece.in_file().unwrap();
            let is_arena = rustix::fs::fstat(file).unwrap().st_ino
                == rustix::fs::fstat(cache.arena().file()).unwrap().st_ino;
            // Small content is back in memory; larger content is sent from its file.
            assert_eq!((is_arena, piece.as_slice().is_some()), (length < 32 * 1024, length < 32 * 1024));
            assert!(is_arena || offset == 4096, "{length} at {offset}");
        }
    }
    cache.stop_disk();
}

#[test]
fn content_is_demoted_to_disk_under_its_readers() {
    let place = Place::new();
    let cache = place.open(GIB);
    let all = content(1, SLAB_BYTES);
    store(&cache, "a", &all);
    let stored = hit(&cache, "a");
    let mut reader = stored.content.reader(0);
    let first = block_on(reader.next(1000)).unwrap().unwrap();
    assert_eq!(first.as_slice().unwrap(), &all[..1000]);
    for number in 0..6 {
        store(&cache, &number.to_string(), &content(number, SLAB_BYTES));
    }
    assert!(stored.content.is_on_disk());
    let next = block_on(reader.next(1000)).unwrap().unwrap();
    assert!(next.as_slice().is_none() && next.len() == 1000);
    assert_eq!(first.as_slice().unwrap(), &all[..1000], "a held piece survives demotion");
    assert!(read(&stored).unwrap() == all);
    cache.stop_disk();
}

#[test]
fn small_content_is_promoted_to_memory() {
    let place = Place::new();
    let cache = place.open(GIB);
    store(&cache, "a", b"content");
    cache.stop_disk();
    let cache = place.open(GIB);
    let stored = hit(&cache, "a");
    assert!(stored.content.reader(0).try_next(1).is_none(), "the content is only on disk");
    assert_eq!(read(&stored).unwrap(), b"content");
    assert_eq!(
        stored.content.reader(0).try_next(100).unwrap().unwrap().unwrap().as_slice(),
        Some(&b"content"[..])
    );
    cache.stop_disk();
}

#[test]
fn budget_holds_and_used_responses_stay() {
    const SIZE: u64 = 100_000_u64.next_multiple_of(4096) + 4096;
    let place = Place::new();
    let cache = place.open(10 * SIZE);
    store(&cache, "used", &content(0, 100_000));
    cache.stop_disk();
    let cache = place.open(10 * SIZE);
    for number in 0..60 {
        assert!(read(&hit(&cache, "used")).unwrap() == content(0, 100_000));
        fill(&cache, &number.to_string(), &content(number, 100_000));
        wait("the response is written", || hit(&cache, &number.to_string()).content.copy().is_some());
        assert!(stats(&cache).bytes <= 10 * SIZE);
    }
    assert!(hit(&cache, "used").content.is_on_disk());
    assert_eq!((stats(&cache).responses, place.files().len()), (10, 10));
    cache.stop_disk();

    let lowered = place.open(5 * SIZE);
    wait("the files fit the budget", || stats(&lowered).bytes <= 5 * SIZE && place.files().len() == 5);
    lowered.stop_disk();
}

#[test]
fn index_eviction_examines_a_bounded_number_of_copies() {
    let place = Place::new();
    let cache = place.open(GIB);
    for number in 0..10 {
        store(&cache, &number.to_string(), &content(number, 100_000));
    }
    cache.stop_disk();
    let cache = place.open(GIB);
    let tier = cache.disk.as_ref().unwrap();
    for number in 0..10 {
        read(&hit(&cache, &number.to_string())).unwrap();
    }
    let mut steps = 4;
    assert!(!tier.evict_for_index(&mut steps) && steps == 0, "{steps} left");
    assert!(!tier.evict_for_index(&mut steps), "no steps were left");
    // The other six copies each use up their second chance. The seventh examined is one of the
    // first four, which have none left, and is evicted.
    let mut steps = 100;
    assert!(tier.evict_for_index(&mut steps) && steps == 93, "{steps} left");
    assert_eq!(cache.stored(), 9);
    cache.stop_disk();
}

#[test]
fn reader_of_an_evicted_copy_reads_to_the_end() {
    let place = Place::new();
    let cache = place.open(GIB);
    let all = content(1, 5 * BLOCK_BYTES);
    store(&cache, "a", &all);
    cache.stop_disk();
    let cache = place.open(GIB);
    let mut reader = hit(&cache, "a").content.reader(0);
    block_on(reader.next(1)).unwrap().unwrap();
    let (tier, copy) = (cache.disk.as_ref().unwrap(), hit(&cache, "a").content.copy().unwrap());
    copy.take_hit();
    assert!(tier.evict_for_index(&mut 1));
    wait("the files are removed", || place.files().is_empty());
    assert!(matches!(look_up(&cache, "a"), Lookup::Miss(..)));
    let mut at = 1;
    while let Some(piece) = block_on(reader.next(usize::MAX)).unwrap() {
        let (file, offset) = piece.in_file().unwrap();
        let mut bytes = vec![0; piece.len()];
        rustix::io::pread(file, &mut bytes, offset).unwrap();
        assert!(bytes == all[at..at + bytes.len()]);
        at += bytes.len();
    }
    assert_eq!(at, all.len());
    cache.stop_disk();
}

#[test]
fn file_replaced_by_a_directory_is_an_ordinary_error() {
    let place = Place::new();
    let cache = place.open(GIB);
    store(&cache, "a", &content(1, 100_000));
    cache.stop_disk();
    let cache = place.open(GIB);
    let file = place.file();
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    assert_eq!(read(&hit(&cache, "a")).unwrap_err(), Failure::Unreadable);
    fill(&cache, "a", b"anew");
    assert_eq!(read(&hit(&cache, "a")).unwrap(), b"anew");
    // Both reading and removing the file failed.
    wait("errors are counted", || stats(&cache).errors == 2);
    cache.stop_disk();
}

#[test]
fn unwritable_directory_leaves_memory_working() {
    let place = Place::new();
    let cache = place.open(GIB);
    fs::remove_dir(place.0.join("v1/tmp")).unwrap_or_default();
    fs::write(place.0.join("v1/tmp"), b"in the way").unwrap();
    for number in 1..=3 {
        fill(&cache, &number.to_string(), b"content");
        wait("the write fails", || stats(&cache).errors == number);
    }
    // After some consecutive failures, writing pauses.
    fill(&cache, "4", b"content");
    wait("the response is skipped", || stats(&cache).skipped == 1);
    for number in 1..=4 {
        assert_eq!(read(&hit(&cache, &number.to_string())).unwrap(), b"content");
    }
    assert_eq!((stats(&cache).errors, stats(&cache).responses), (3, 0));
    cache.stop_disk();
}

/// Creates a detached file system of this size. The path is valid as long as the descriptor is
/// open.
fn small_file_system(bytes: usize) -> rustix::io::Result<(rustix::fd::OwnedFd, PathBuf)> {
    use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
    use rustix::mount::{fsconfig_create, fsconfig_set_string, fsmount, fsopen};
    use std::os::fd::AsRawFd;
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&context, "size", bytes.to_string().as_str())?;
    fsconfig_create(&context)?;
    let root = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
    let path = format!("/proc/self/fd/{}/disk", root.as_raw_fd()).into();
    Ok((root, path))
}

#[test]
fn full_disk_rejects_only_what_does_not_fit() {
    let (_held, path) = match small_file_system(1 << 20) {
        Ok(created) => created,
        Err(rustix::io::Errno::PERM) => return in_a_namespace("full_disk_rejects_only_what_does_not_fit"),
        Err(error) => panic!("{error}"),
    };
    let cache =
        Cache::with_disk(4 * SLAB_BYTES as u64, Some(Disk::open(&path, GIB, compile).unwrap())).unwrap();
    cache.start_disk(PATIENCE).unwrap();
    let mut settled = 0;
    for number in 0..40 {
        let key = number.to_string();
        let before = stats(&cache);
        fill(&cache, &key, &content(number, 100_000));
        wait("every response is written or rejected", || {
            let Stats { errors, skipped, .. } = stats(&cache);
            let failed = (errors, skipped) != (before.errors, before.skipped);
            failed || hit(&cache, &key).content.copy().is_some()
        });
        settled += u64::from(hit(&cache, &key).content.copy().is_some());
    }
    assert!(stats(&cache).errors >= 1, "the disk was full");
    // Later responses replaced earlier ones.
    assert!(settled > 30, "{settled}: {:?}", stats(&cache));
    assert!(stats(&cache).bytes <= 1 << 20);
    for number in 0..40 {
        if let Lookup::Hit(stored) = look_up(&cache, &number.to_string()) {
            assert!(read(&stored).unwrap() == content(number, 100_000));
        }
    }
    cache.stop_disk();
}

/// Runs a test again in a namespace where it may mount a file system.
fn in_a_namespace(test: &str) {
    let this = std::env::current_exe().unwrap();
    let status = std::process::Command::new("unshare")
        .arg("-rm")
        .arg(this)
        .args(["--exact", &format!("disk::tests::{test}")])
        .status()
        .unwrap();
    assert!(status.success());
}

#[test]
fn write_queue_is_bounded() {
    const COUNT: u64 = 50;
    let place = Place::new();
    let disk = Disk::open(&place.0, GIB, compile).unwrap();
    let cache = Cache::with_disk(8 * SLAB_BYTES as u64, Some(disk)).unwrap();
    // Nothing is written before the tier starts.
    for number in 0..COUNT {
        fill(&cache, &number.to_string(), &content(number, 100_000));
    }
    let most = COUNT - stats(&cache).skipped;
    assert!((2 * SLAB_BYTES as u64 - 200_000..=2 * SLAB_BYTES as u64).contains(&(most * 100_000)), "{most}");
    cache.start_disk(PATIENCE).unwrap();
    wait("the queue is written", || stats(&cache).responses as u64 == most);
    // A refused response is written when it is requested again.
    let written = |number: &u64| hit(&cache, &number.to_string()).content.copy().is_some();
    wait("all responses are written", || (0..COUNT).filter(written).count() == COUNT as usize);
    assert_eq!(stats(&cache).skipped, COUNT - most, "a refused response is counted once");
    cache.stop_disk();
}

#[test]
fn response_unwritten_at_shutdown_can_be_evicted() {
    let place = Place::new();
    let disk = Disk::open(&place.0, GIB, compile).unwrap();
    let cache = Cache::with_disk(4 * SLAB_BYTES as u64, Some(disk)).unwrap();
    fill(&cache, "before", b"content");
    assert_eq!(hit(&cache, "before").content.demote(), Demotion::Awaited);
    cache.stop_disk();
    fill(&cache, "after", b"content");
    for key in ["before", "after"] {
        assert_eq!(hit(&cache, key).content.demote(), Demotion::No, "{key}");
    }
}

#[test]
fn directory_is_used_by_one_process_at_a_time() {
    let place = Place::new();
    let cache = place.open(GIB);
    assert_eq!(Disk::open(&place.0, GIB, compile).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    cache.stop_disk();
    place.open(GIB).stop_disk();
}

#[test]
fn number_of_open_files_is_bounded() {
    use super::tier::OPEN_FILES_MAX;
    let place = Place::new();
    let cache = place.open(GIB);
    let count = OPEN_FILES_MAX + 50;
    for number in 0..count {
        store(&cache, &number.to_string(), &content(number as u64, 10));
    }
    cache.stop_disk();
    let cache = place.open(GIB);
    for number in 0..count {
        assert_eq!(read(&hit(&cache, &number.to_string())).unwrap(), content(number as u64, 10));
    }
    let open = fs::read_dir("/proc/self/fd").unwrap().filter(|entry| {
        let target = entry.as_ref().ok().and_then(|entry| fs::read_link(entry.path()).ok());
        target.is_some_and(|target| target.starts_with(&place.0) && target != place.0.join("v1"))
    });
    assert_eq!(open.count(), OPEN_FILES_MAX);
    cache.stop_disk();
}
