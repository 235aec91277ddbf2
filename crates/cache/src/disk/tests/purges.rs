//! Purges and the disk: what was purged stays so over a restart, whenever the process ended.

use super::super::Tier;
use super::super::journaling::SHORTEN_BYTES_MIN;
use super::*;
use crate::ban::Expression;
use crate::purge::{Ban, What};

/// A head with a tag, fresh for ten minutes and then good enough for another while it is refreshed.
fn tagged(length: usize, tag: &str) -> Head {
    let surrogate = [("Surrogate-Key", tag)].into_iter().collect();
    let head = head(length, &[("ETag", "\"a\"")]);
    Head { surrogate, freshness: Freshness { while_revalidate_ms: 600_000, ..head.freshness }, ..head }
}

fn store_tagged(cache: &Arc<Cache>, key: &str, tag: &str) {
    fill_with(cache, key, b"content", tagged(7, tag));
    wait(key, || hit(cache, key).content.copy().is_some());
}

fn url(key: &str) -> What {
    What::Url(key.into())
}

fn tag(name: &str) -> What {
    What::Tag(name.as_bytes().into())
}

fn ban(text: &str) -> What {
    What::Ban(Arc::new(Ban { expression: Expression::parse(text).unwrap(), made_ms: 0 }))
}

fn now_ms() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64
}

/// The place as it is now, as a process that is killed now would leave it.
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

/// The place as it was before `purge`, with the journal as it is after it: no file is unlinked yet.
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
fn what_was_purged_stays_so_though_no_file_was_unlinked() {
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
    // What was fetched after it is none of its business.
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
        wait("unlinked", || left.files().len() == 2);
        assert_eq!(cache.purges_in_force(), 0);
        assert!(is_hit(&cache, "h/tag") && is_hit(&cache, "h/kept"));
        cache.stop_disk();
    }
}

#[test]
fn tags_are_kept_over_a_restart() {
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
fn a_soft_purge_holds_with_its_journal_and_without() {
    let place = Place::new();
    let cache = place.open(GIB);
    store_tagged(&cache, "h/url", "x");
    store_tagged(&cache, "h/tag", "y");
    let left = purged(&place, &cache, |cache| {
        cache.purge(url("h/url"), Some(now_ms())).unwrap();
        cache.purge(tag("y"), Some(now_ms())).unwrap();
    });
    cache.stop_disk();
    for is_told_by_files in [false, true] {
        let cache = left.open(GIB);
        for key in ["h/url", "h/tag"] {
            assert!(matches!(look_up(&cache, key), Lookup::Refresh(..)), "{key}, {is_told_by_files}");
        }
        cache.sweep();
        wait("written", || left.files().len() == 4);
        cache.stop_disk();
        // The sequence must go on, and nothing else is in it.
        let mut bytes = Vec::new();
        super::super::journal::Entry::Sequence(2).encode(&mut bytes);
        fs::write(left.0.join("v1/journal"), bytes).unwrap();
    }
}

#[test]
fn a_purge_holds_for_what_is_not_found_yet() {
    let place = Place::new();
    let cache = place.open(GIB);
    for key in ["h/hard", "h/soft", "h/derived x", "h/kept"] {
        store_tagged(&cache, key, "x");
    }
    cache.stop_disk();
    let disk = Disk::open(&place.0, GIB).unwrap();
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
fn the_journal_is_shortened_once_what_it_tells_is_gone() {
    let place = Place::new();
    let cache = place.open(GIB);
    store_tagged(&cache, "h/a", "x");
    store_tagged(&cache, "h/kept", "y");
    cache.purge(url("h/a"), None).unwrap();
    lengthen_journal(&cache, &place);
    cache.sweep();
    wait("shortened", || journal_bytes(&place) < 100);
    assert_eq!(place.files().len(), 1, "what it told of is unlinked");
    // The sequence goes on, though nothing else of it is told.
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

/// Whether something could not be carried out.
fn owes(cache: &Cache) -> bool {
    !crate::sync::lock(&cache.disk.as_ref().unwrap().owed).is_empty()
}

/// Makes the journal long enough to be worth shortening; gives the number of the last purge in it.
fn lengthen_journal(cache: &Cache, place: &Place) -> u64 {
    let long = "l".repeat(SHORTEN_BYTES_MIN as usize / 4);
    for number in 0..4 {
        cache.purge(url(&format!("h/{long}{number}")), None).unwrap();
    }
    assert!(journal_bytes(place) > SHORTEN_BYTES_MIN);
    let (entries, _) = super::super::journal::read(&fs::read(place.0.join("v1/journal")).unwrap());
    entries.last().unwrap().number()
}

/// Ends the threads of a tier, though the test may have failed.
struct Closes<'a>(&'a Tier);

impl Drop for Closes<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[test]
fn a_purge_does_not_wait_for_what_shortening_the_journal_syncs() {
    let place = Place::new();
    let disk = Disk::open(&place.0, GIB).unwrap();
    let cache = Cache::with_disk(4 * SLAB_BYTES as u64, Some(disk)).unwrap();
    let tier = cache.disk.clone().unwrap();
    // The thread that syncs is not there yet, as if the file system had a great deal to write.
    tier.journal.open();
    thread::scope(|scope| {
        let _closes = Closes(&tier);
        scope.spawn(|| tier.run_journal());
        tier.journal.shorten(lengthen_journal(&cache, &place));
        cache.purge(url("h/a"), None).unwrap();
        assert_eq!(stats(&cache).errors, 0, "it is in the journal");
        assert!(journal_bytes(&place) > SHORTEN_BYTES_MIN);
        scope.spawn(|| tier.run_syncs());
        wait("shortened", || journal_bytes(&place) < 100);
    });
    cache.stop_disk();
}

#[test]
fn a_torn_journal_leaves_what_was_told_before() {
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
    assert!(is_hit(&cache, "h/b"), "nobody was told that it is purged");
    // What comes now is written over what was torn.
    cache.purge(tag("y"), None).unwrap();
    cache.stop_disk();
    let (entries, end) = super::super::journal::read(&fs::read(left.0.join("v1/journal")).unwrap());
    assert_eq!((entries.len(), end as u64), (2, journal_bytes(&left)));
}

#[test]
fn without_its_journal_what_came_after_a_purge_is_not_trusted() {
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
fn a_journal_that_cannot_be_written_costs_what_is_on_disk_and_no_purge() {
    let place = Place::new();
    let cache = place.open(GIB);
    store_tagged(&cache, "h/a", "x");
    store_tagged(&cache, "h/b", "y");
    let in_the_way = place.0.join("v1/journal");
    fs::create_dir(&in_the_way).unwrap();
    cache.purge(tag("x"), None).unwrap();
    assert!(matches!(look_up(&cache, "h/a"), Lookup::Miss(..)), "it is in force here");
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
fn what_could_not_be_removed_is_tried_again_and_in_the_journal_until_then() {
    let place = Place::new();
    let cache = place.open(GIB);
    store_tagged(&cache, "h/a", "x");
    let file = place.file();
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    cache.purge(url("h/a"), None).unwrap();
    wait("failed", || owes(&cache));
    lengthen_journal(&cache, &place);
    // Of what else may fail on a slow disk nothing is under way.
    let errors = stats(&cache).errors;
    cache.sweep();
    wait("tried again", || stats(&cache).errors > errors);
    fs::remove_dir(&file).unwrap();
    // No walk since has found it gone.
    assert!(journal_bytes(&place) > SHORTEN_BYTES_MIN);
    cache.sweep();
    wait("shortened", || journal_bytes(&place) < 100);
    cache.stop_disk();
}

/// Puts something where files are begun; when it is removed, they can be again.
fn no_file_can_be_written(place: &Place) -> PathBuf {
    let unfinished = place.0.join("v1/tmp");
    fs::remove_dir(&unfinished).unwrap();
    fs::write(&unfinished, b"in the way").unwrap();
    unfinished
}

#[test]
fn a_soft_purge_that_could_not_be_told_to_a_file_is_tried_again() {
    let place = Place::new();
    let cache = place.open(GIB);
    store_tagged(&cache, "h/a", "x");
    let unfinished = no_file_can_be_written(&place);
    cache.purge(tag("x"), Some(now_ms())).unwrap();
    lengthen_journal(&cache, &place);
    let errors = stats(&cache).errors;
    cache.sweep();
    // The head, and once more before the journal would be shortened.
    wait("failed", || stats(&cache).errors >= errors + 2);
    assert!(journal_bytes(&place) > SHORTEN_BYTES_MIN);
    fs::remove_file(&unfinished).unwrap();
    cache.sweep();
    wait("shortened", || journal_bytes(&place) < 100);
    cache.stop_disk();
    let cache = place.open(GIB);
    assert!(matches!(look_up(&cache, "h/a"), Lookup::Refresh(..)), "its file tells");
    cache.stop_disk();
}

#[test]
fn a_head_that_tells_of_no_purge_is_not_owed_and_of_those_that_do_more_are_left_to_the_next_walk() {
    let place = Place::new();
    let cache = place.open(GIB);
    let tier = cache.disk.clone().unwrap();
    store_tagged(&cache, "h/a", "x");
    let stored = hit(&cache, "h/a");
    let copy = stored.content.copy().unwrap();
    let unfinished = no_file_can_be_written(&place);
    tier.write_head(&copy, stored.head.clone(), stored.position());
    assert!(stats(&cache).errors >= 1 && !owes(&cache));
    fs::remove_file(&unfinished).unwrap();

    cache.purge(tag("x"), Some(now_ms())).unwrap();
    assert!(matches!(look_up(&cache, "h/a"), Lookup::Refresh(..)));
    copy.set_position(stored.position());
    let heads_left = tier.heads_left();
    tier.leave_to_walk(&copy);
    assert!(!tier.settle_owed(heads_left), "a walk that began before has not asked for it");
    lengthen_journal(&cache, &place);
    cache.sweep();
    wait("shortened", || journal_bytes(&place) < 100);
    assert_eq!(place.files().len(), 2, "its head tells");
    cache.stop_disk();
}

#[test]
fn a_head_that_is_owed_by_a_copy_that_is_gone_takes_the_file_away() {
    let place = Place::new();
    let cache = place.open(GIB);
    let tier = cache.disk.clone().unwrap();
    store_tagged(&cache, "h/a", "x");
    let stored = hit(&cache, "h/a");
    let copy = stored.content.copy().unwrap();
    // Its removal has not been asked for yet.
    copy.leave();
    tier.owe_head(&copy);
    assert!(tier.settle_owed(0));
    assert!(place.files().is_empty());
    cache.stop_disk();
}
