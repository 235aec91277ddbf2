//! Tests of purges on disk: a purged response stays purged after a restart, whenever the process
//! exited.

use super::super::Tier;
use super::super::journaling::SHORTEN_BYTES_MIN;
use super::*;
use crate::ban::tests::compile;
use crate::purge::PurgeScope;

/// Creates a head with a tag, fresh for ten minutes and servable during revalidation for ten more.
fn tagged(length: usize, tag: &str) -> Head {
    let surrogate = [("Surrogate-Key", tag)].into_iter().collect();
    let head = head(length, &[("ETag", "\"a\"")]);
    Head { surrogate, freshness: Freshness { while_revalidate_ms: 600_000, ..head.freshness }, ..head }
}

fn store_tagged(cache: &Arc<Cache>, key: &str, tag: &str) {
    fill_with(cache, key, b"content", tagged(7, tag));
    wait(key, || hit(cache, key).content.copy().is_some());
}

fn url(key: &str) -> PurgeScope {
    PurgeScope::Url(key.into())
}

fn tag(name: &str) -> PurgeScope {
    PurgeScope::Tag(name.as_bytes().into())
}

fn ban(text: &str) -> PurgeScope {
    PurgeScope::Ban(Arc::new(crate::ban::tests::ban(text, 0)))
}

fn now_ms() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64
}

/// Copies the directory as a process killed now would leave it.
fn killed(place: &Place) -> Place {
    let copy = Place::new();
    fn copy_all(from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap().map(|entry| entry.unwrap().path()) {
            let to = to.join(entry.file_name().unwrap());
            if entry.is_dir() {
                copy_all(&entry, &to);
            } else {
                fs::copy(&entry, &to).unwrap();
            }
        }
    }
    copy_all(&place.0, &copy.0);
    copy
}

/// Copies the directory as it was before `purge`, but with the journal from after it, as if no file
/// had been unlinked yet.
fn purged(place: &Place, cache: &Cache, purge: impl FnOnce(&Cache)) -> Place {
    let before = killed(place);
    purge(cache);
    fs::copy(place.0.join("v1/journal"), before.0.join("v1/journal")).unwrap();
    before
}

fn journal_bytes(place: &Place) -> u64 {
    fs::metadata(place.0.join("v1/journal")).map_or(0, |journal| journal.len())
}

#[test]
fn purge_holds_after_a_crash_before_files_are_unlinked() {
    let place = Place::new();
    let cache = place.open(GIB);
    for (key, tag) in [("h/url", "a"), ("h/derived x", "a"), ("h/tag", "b"), ("h/ban", "c"), ("h/kept", "d")]
    {
        store_tagged(&cache, key, tag);
    }
    let left = purged(&place, &cache, |cache| {
        for what in [url("h/url"), url("h/derived"), tag("b"), ban("req.url == \"/ban\"")] {
            cache.purge(what, None).unwrap();
        }
    });
    // A response fetched after the purge is not affected.
    store_tagged(&cache, "h/tag", "b");
    let later = place.files().into_iter().max_by_key(|path| fs::metadata(path).unwrap().modified().unwrap());
    let later = later.unwrap();
    let to = left.0.join(later.strip_prefix(&place.0).unwrap());
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    fs::copy(&later, to).unwrap();
    cache.stop_disk();

    for _ in 0..2 {
        let cache = left.open(GIB);
        for key in ["h/url", "h/derived x", "h/ban"] {
            assert!(matches!(look_up(&cache, key), Lookup::Miss(..)), "{key}");
        }
        assert!(is_hit(&cache, "h/tag") && is_hit(&cache, "h/kept"));
        cache.sweep();
        wait("the files are unlinked", || left.files().len() == 2);
        assert_eq!(cache.purges_in_force(), 0);
        assert!(is_hit(&cache, "h/tag") && is_hit(&cache, "h/kept"));
        cache.stop_disk();
    }
}

#[test]
fn tags_survive_a_restart() {
    let place = Place::new();
    let cache = place.open(GIB);
    store_tagged(&cache, "h/a", "x");
    cache.stop_disk();
    let cache = place.open(GIB);
    assert!(is_hit(&cache, "h/a"));
    cache.purge(tag("x"), None).unwrap();
    assert!(matches!(look_up(&cache, "h/a"), Lookup::Miss(..)));
    cache.stop_disk();
}

#[test]
fn soft_purge_holds_with_and_without_its_journal() {
    let place = Place::new();
    let cache = place.open(GIB);
    store_tagged(&cache, "h/url", "x");
    store_tagged(&cache, "h/tag", "y");
    let left = purged(&place, &cache, |cache| {
        cache.purge(url("h/url"), Some(now_ms())).unwrap();
        cache.purge(tag("y"), Some(now_ms())).unwrap();
    });
    cache.stop_disk();
    for is_recorded_in_files in [false, true] {
        let cache = left.open(GIB);
        for key in ["h/url", "h/tag"] {
            assert!(matches!(look_up(&cache, key), Lookup::Refresh(..)), "{key}, {is_recorded_in_files}");
        }
        cache.sweep();
        wait("the heads are written", || left.files().len() == 4);
        cache.stop_disk();
        // Only the entry with the latest purge number is left in the journal; numbering must
        // continue from it.
        let mut bytes = Vec::new();
        super::super::journal::Entry::Sequence(2).encode(&mut bytes);
        fs::write(left.0.join("v1/journal"), bytes).unwrap();
    }
}

#[test]
fn purge_holds_for_responses_not_scanned_yet() {
    let place = Place::new();
    let cache = place.open(GIB);
    for key in ["h/hard", "h/soft", "h/derived x", "h/kept"] {
        store_tagged(&cache, key, "x");
    }
    cache.stop_disk();
    let disk = Disk::open(&place.0, GIB, compile).unwrap();
    let cache = Cache::with_disk(4 * SLAB_BYTES as u64, Some(disk)).unwrap();
    for (what, soft_ms) in [(url("h/hard"), None), (url("h/soft"), Some(now_ms())), (url("h/derived"), None)]
    {
        cache.purge(what, soft_ms).unwrap();
    }
    cache.sweep();
    cache.start_disk(PATIENCE).unwrap();
    for key in ["h/hard", "h/derived x"] {
        assert!(matches!(look_up(&cache, key), Lookup::Miss(..)), "{key}");
    }
    assert!(matches!(look_up(&cache, "h/soft"), Lookup::Refresh(..)));
    assert!(is_hit(&cache, "h/kept"));
    cache.sweep();
    assert_eq!(cache.purges_in_force(), 0);
    cache.stop_disk();
}

#[test]
fn journal_is_shortened_once_purged_files_are_removed() {
    let place = Place::new();
    let cache = place.open(GIB);
    store_tagged(&cache, "h/a", "x");
    store_tagged(&cache, "h/kept", "y");
    cache.purge(url("h/a"), None).unwrap();
    lengthen_journal(&cache, &place);
    cache.sweep();
    wait("the journal is shortened", || journal_bytes(&place) < 100);
    assert_eq!(place.files().len(), 1, "the purged file is unlinked");
    // Purge numbering continues, although the journal has no other entry left.
    store_tagged(&cache, "h/later", "z");
    cache.stop_disk();
    let cache = place.open(GIB);
    assert!(is_hit(&cache, "h/kept"));
    assert_eq!(hit(&cache, "h/later").number(), 5);
    cache.purge(tag("z"), None).unwrap();
    store_tagged(&cache, "h/later", "z");
    assert_eq!(hit(&cache, "h/later").number(), 6);
    cache.stop_disk();
}

/// Returns whether a retry is pending.
fn has_cleanup(cache: &Cache) -> bool {
    !crate::sync::lock(&cache.disk.as_ref().unwrap().cleanup).is_empty()
}

/// Makes the journal long enough to be worth shortening; returns the number of its last purge.
fn lengthen_journal(cache: &Cache, place: &Place) -> u64 {
    let long = "l".repeat(SHORTEN_BYTES_MIN as usize / 4);
    for number in 0..4 {
        cache.purge(url(&format!("h/{long}{number}")), None).unwrap();
    }
    assert!(journal_bytes(place) > SHORTEN_BYTES_MIN);
    let (entries, _) = super::super::journal::read(&fs::read(place.0.join("v1/journal")).unwrap());
    entries.last().unwrap().number()
}

/// Stops a tier's threads even if the test fails.
struct Closes<'a>(&'a Tier);

impl Drop for Closes<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[test]
fn purge_does_not_wait_for_the_sync_before_shortening() {
    let place = Place::new();
    let disk = Disk::open(&place.0, GIB, compile).unwrap();
    let cache = Cache::with_disk(4 * SLAB_BYTES as u64, Some(disk)).unwrap();
    let tier = cache.disk.clone().unwrap();
    // The syncing thread is not running yet, as if the file system had a large backlog of writes.
    tier.journal.open();
    thread::scope(|scope| {
        let _closes = Closes(&tier);
        scope.spawn(|| tier.run_journal());
        tier.journal.shorten(lengthen_journal(&cache, &place));
        cache.purge(url("h/a"), None).unwrap();
        assert_eq!(stats(&cache).errors, 0, "the purge was not journalled");
        assert!(journal_bytes(&place) > SHORTEN_BYTES_MIN);
        scope.spawn(|| tier.run_syncs());
        wait("the journal is shortened", || journal_bytes(&place) < 100);
    });
    cache.stop_disk();
}

#[test]
fn torn_journal_keeps_the_entries_before_the_damage() {
    let place = Place::new();
    let cache = place.open(GIB);
    store_tagged(&cache, "h/a", "x");
    store_tagged(&cache, "h/b", "y");
    let left = purged(&place, &cache, |cache| {
        cache.purge(tag("x"), None).unwrap();
        cache.purge(tag("y"), None).unwrap();
    });
    cache.stop_disk();
    let journal = fs::OpenOptions::new().write(true).open(left.0.join("v1/journal")).unwrap();
    journal.set_len(journal_bytes(&left) - 1).unwrap();
    let cache = left.open(GIB);
    assert!(matches!(look_up(&cache, "h/a"), Lookup::Miss(..)));
    assert!(is_hit(&cache, "h/b"), "the torn purge was never acknowledged");
    // New entries overwrite the torn one.
    cache.purge(tag("y"), None).unwrap();
    cache.stop_disk();
    let (entries, end) = super::super::journal::read(&fs::read(left.0.join("v1/journal")).unwrap());
    assert_eq!((entries.len(), end as u64), (2, journal_bytes(&left)));
}

#[test]
fn without_journal_responses_newer_than_a_purge_are_dropped() {
    let place = Place::new();
    let cache = place.open(GIB);
    store_tagged(&cache, "h/before", "x");
    cache.purge(tag("z"), None).unwrap();
    store_tagged(&cache, "h/after", "x");
    cache.stop_disk();
    fs::remove_file(place.0.join("v1/journal")).unwrap();
    let cache = place.open(GIB);
    assert!(is_hit(&cache, "h/before"));
    assert!(matches!(look_up(&cache, "h/after"), Lookup::Miss(..)));
    cache.stop_disk();
}

#[test]
fn unwritable_journal_drops_the_disk_contents_but_no_purge() {
    let place = Place::new();
    let cache = place.open(GIB);
    store_tagged(&cache, "h/a", "x");
    store_tagged(&cache, "h/b", "y");
    let in_the_way = place.0.join("v1/journal");
    fs::create_dir(&in_the_way).unwrap();
    cache.purge(tag("x"), None).unwrap();
    assert!(matches!(look_up(&cache, "h/a"), Lookup::Miss(..)), "the purge is in force in this process");
    assert!(stats(&cache).errors >= 1);
    let before = killed(&place);
    fs::remove_dir(&in_the_way).unwrap();
    cache.purge(tag("z"), None).unwrap();
    fs::remove_dir(before.0.join("v1/journal")).unwrap();
    fs::copy(&in_the_way, before.0.join("v1/journal")).unwrap();
    cache.stop_disk();
    let cache = before.open(GIB);
    for key in ["h/a", "h/b"] {
        assert!(matches!(look_up(&cache, key), Lookup::Miss(..)), "{key}");
    }
    cache.stop_disk();
}

#[test]
fn failed_removal_is_retried_and_stays_in_the_journal() {
    let place = Place::new();
    let cache = place.open(GIB);
    store_tagged(&cache, "h/a", "x");
    let file = place.file();
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    cache.purge(url("h/a"), None).unwrap();
    wait("the removal fails", || has_cleanup(&cache));
    lengthen_journal(&cache, &place);
    // Count the errors only now, because on a slow disk the work above may add some.
    let errors = stats(&cache).errors;
    cache.sweep();
    wait("the removal is retried", || stats(&cache).errors > errors);
    fs::remove_dir(&file).unwrap();
    // No sweep has run since the file became removable.
    assert!(journal_bytes(&place) > SHORTEN_BYTES_MIN);
    cache.sweep();
    wait("the journal is shortened", || journal_bytes(&place) < 100);
    cache.stop_disk();
}

/// Prevents files from being created until the returned path is removed.
fn no_file_can_be_written(place: &Place) -> PathBuf {
    let unfinished = place.0.join("v1/tmp");
    fs::remove_dir(&unfinished).unwrap();
    fs::write(&unfinished, b"in the way").unwrap();
    unfinished
}

#[test]
fn failed_soft_purge_write_is_retried() {
    let place = Place::new();
    let cache = place.open(GIB);
    store_tagged(&cache, "h/a", "x");
    let unfinished = no_file_can_be_written(&place);
    cache.purge(tag("x"), Some(now_ms())).unwrap();
    lengthen_journal(&cache, &place);
    let errors = stats(&cache).errors;
    cache.sweep();
    // Writing the head causes one error, and its retry, which precedes the shortening of the
    // journal, another.
    wait("the writes fail", || stats(&cache).errors >= errors + 2);
    assert!(journal_bytes(&place) > SHORTEN_BYTES_MIN);
    fs::remove_file(&unfinished).unwrap();
    cache.sweep();
    wait("the journal is shortened", || journal_bytes(&place) < 100);
    cache.stop_disk();
    let cache = place.open(GIB);
    assert!(matches!(look_up(&cache, "h/a"), Lookup::Refresh(..)), "the file records the soft purge");
    cache.stop_disk();
}

#[test]
fn only_soft_purge_heads_are_retried_and_overflow_waits_for_the_next_sweep() {
    let place = Place::new();
    let cache = place.open(GIB);
    let tier = cache.disk.clone().unwrap();
    store_tagged(&cache, "h/a", "x");
    let stored = hit(&cache, "h/a");
    let copy = stored.content.copy().unwrap();
    let unfinished = no_file_can_be_written(&place);
    tier.write_head(&copy, stored.head.clone(), stored.position());
    assert!(stats(&cache).errors >= 1 && !has_cleanup(&cache));
    fs::remove_file(&unfinished).unwrap();

    cache.purge(tag("x"), Some(now_ms())).unwrap();
    assert!(matches!(look_up(&cache, "h/a"), Lookup::Refresh(..)));
    copy.set_position(stored.position());
    let heads_left = tier.heads_left();
    tier.leave_to_sweep(&copy);
    assert!(!tier.retry_cleanup(heads_left), "an earlier sweep has not queued the head");
    lengthen_journal(&cache, &place);
    cache.sweep();
    wait("the journal is shortened", || journal_bytes(&place) < 100);
    assert_eq!(place.files().len(), 2, "a head records the soft purge");
    cache.stop_disk();
}

#[test]
fn pending_head_of_a_gone_copy_removes_the_file() {
    let place = Place::new();
    let cache = place.open(GIB);
    let tier = cache.disk.clone().unwrap();
    store_tagged(&cache, "h/a", "x");
    let stored = hit(&cache, "h/a");
    let copy = stored.content.copy().unwrap();
    // Mark the copy as gone before its removal is queued.
    copy.leave();
    tier.retry_head(&copy);
    assert!(tier.retry_cleanup(0));
    assert!(place.files().is_empty());
    cache.stop_disk();
}
