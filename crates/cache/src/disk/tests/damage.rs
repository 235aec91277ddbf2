//! Tests with damaged files, which must be removed and never served.

use std::os::unix::fs::FileExt;

use super::*;
use crate::disk::content::Reading;

/// Stores one response, damages its file, and reopens the cache. Returns true if the original
/// content is served, false if the response is not served and its file is removed.
fn damage(place: &Place, all: &[u8], damage: impl FnOnce(&Path)) -> bool {
    let _ = fs::remove_dir_all(&place.0);
    let cache = place.open(GIB);
    store(&cache, "a", all);
    cache.stop_disk();
    damage(&place.file());
    let cache = place.open(GIB);
    let is_served = match look_up(&cache, "a") {
        Lookup::Hit(stored) => match read(&stored) {
            Ok(bytes) => {
                assert!(bytes == all, "wrong bytes were served");
                true
            }
            Err(failure) => {
                assert_eq!(failure, Failure::Unreadable);
                assert!(matches!(look_up(&cache, "a"), Lookup::Miss(..)));
                false
            }
        },
        Lookup::Miss(..) => false,
        _ => panic!("neither stored nor missing"),
    };
    if !is_served {
        assert_eq!(stats(&cache).errors, 1);
        wait("the files are removed", || place.files().is_empty());
        assert_eq!((stats(&cache).responses, stats(&cache).bytes), (0, 0));
    }
    cache.stop_disk();
    is_served
}

fn flip(path: &Path, at: u64) {
    let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
}

#[test]
fn file_damaged_at_any_byte_is_never_served() {
    let place = Place::new();
    // The header is about 150 bytes: damage each of them, some of the zeros after them, and all of
    // the content.
    for at in (0..160).chain((160..4096).step_by(300)).chain(4096..4096 + 100) {
        assert!(!damage(&place, &content(3, 100), |path| flip(path, at)), "{at}");
    }
    let large = content(3, 2 * BLOCK_BYTES + 10);
    for at in [0, BLOCK_BYTES - 1, BLOCK_BYTES, 2 * BLOCK_BYTES, 2 * BLOCK_BYTES + 9] {
        assert!(!damage(&place, &large, |path| flip(path, 4096 + at as u64)), "{at}");
    }
    assert!(damage(&place, &large, |_| ()), "an undamaged file is served");
}

#[test]
fn file_of_wrong_length_is_never_served() {
    let place = Place::new();
    let all = content(3, BLOCK_BYTES + 10);
    for length in
        [0, 1, 24, 100, 4095, 4096, 5000, 4096 + BLOCK_BYTES, 4096 + BLOCK_BYTES + 9, 4096 + BLOCK_BYTES + 11]
    {
        let cut = |path: &Path| {
            fs::OpenOptions::new().write(true).open(path).unwrap().set_len(length as u64).unwrap();
        };
        assert!(!damage(&place, &all, cut), "{length}");
    }
}

#[test]
fn unknown_files_are_removed_only_inside_the_directory() {
    let place = Place::new();
    let cache = place.open(GIB);
    store(&cache, "a", b"content");
    cache.stop_disk();
    let (file, name) = (place.file(), place.file().file_name().unwrap().to_owned());
    let name = name.to_str().unwrap();
    let inside = file.parent().unwrap();
    let later = name.replace("-0", "-1");
    let unknown = [
        "x",
        "-",
        &name[..40],
        &name.to_uppercase(),
        &format!("{name}.old"),
        &later,
        &format!("{later}.head"),
    ];
    unknown.iter().for_each(|name| fs::write(inside.join(name), b"thalweg\0?").unwrap());
    fs::write(place.0.join("v1/tmp/0000000000000001"), b"unfinished").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", inside.join("link")).unwrap();
    fs::create_dir(inside.join("directory")).unwrap();
    fs::write(place.0.join("theirs"), b"theirs").unwrap();
    fs::create_dir(place.0.join("v0")).unwrap();
    let cache = place.open(GIB);
    assert_eq!(read(&hit(&cache, "a")).unwrap(), b"content");
    wait("the files are removed", || place.files().len() == 2);
    assert!(inside.join("directory").is_dir() && fs::exists("/etc/passwd").unwrap());
    assert!(place.0.join("theirs").exists() && place.0.join("v0").is_dir());
    cache.stop_disk();
}

#[test]
fn later_of_two_files_of_one_response_wins() {
    let place = Place::new();
    let cache = place.open(GIB);
    store(&cache, "a", b"first");
    let older = (place.file(), fs::read(place.file()).unwrap());
    cache.remove_stored(&hit(&cache, "a"));
    wait("the files are removed", || place.files().is_empty());
    store(&cache, "a", b"second");
    cache.stop_disk();
    // Restore the older file, as if the process had been killed before it removed that file.
    fs::write(&older.0, &older.1).unwrap();
    let cache = place.open(GIB);
    assert_eq!(read(&hit(&cache, "a")).unwrap(), b"second");
    wait("the files are removed", || place.files().len() == 1);
    assert_eq!(stats(&cache).responses, 1);
    cache.stop_disk();
}

#[test]
fn reader_waiting_for_a_block_doubted_again_is_woken() {
    let place = Place::new();
    let cache = place.open(GIB);
    store(&cache, "a", &content(1, 3 * BLOCK_BYTES));
    let stored = hit(&cache, "a");
    assert_eq!(stored.content.demote(), Demotion::OnDisk);
    read(&stored).unwrap();
    let copy = stored.content.copy().unwrap();
    let second = block_on(stored.content.reader(BLOCK_BYTES as u64).next(1)).unwrap().unwrap();
    let all = block_on(stored.content.reader(0).next(usize::MAX)).unwrap().unwrap();
    assert_eq!(all.len(), 3 * BLOCK_BYTES);
    let is_usable = |at: usize| copy.piece(at as u64, 1, &mut Reading::default()).is_some();
    let mut waiting = loop {
        second.doubt();
        let mut waiting = Box::pin(second.ready(0));
        // If the future is not pending, the block has already been read again.
        if waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            break waiting;
        }
    };
    wait("the block is read again", || is_usable(BLOCK_BYTES));
    // `doubt` queues only the first block for reading.
    all.doubt();
    wait("the first block is read again", || is_usable(0));
    assert_eq!(block_on(waiting.as_mut()), Ok(1));
    cache.stop_disk();
}

#[test]
fn torn_head_falls_back_to_the_previous_one() {
    for torn in [false, true] {
        let place = Place::new();
        let cache = place.open(GIB);
        let mut first = miss(&cache, "a");
        let freshness = Freshness { lifetime_ms: 0, ..head(7, &[]).freshness };
        first.begin(Head { freshness, ..head(7, &[("ETag", "\"a\"")]) }, 0);
        first.append(Bytes::from_static(b"content"), 0).unwrap();
        first.complete();
        let Lookup::Stale(fill, _reader, stored) = look_up(&cache, "a") else { panic!("not stale") };
        wait("the response is written", || stored.content.copy().is_some());
        fill.validated(&stored, head(7, &[("ETag", "\"a\""), ("X-New", "yes")]), drop);
        wait("the head is written", || place.files().len() == 2);
        cache.stop_disk();
        if torn {
            let head = place.files().into_iter().find(|path| path.extension().is_some()).unwrap();
            flip(&head, 100);
        }
        let cache = place.open(GIB);
        match look_up(&cache, "a") {
            Lookup::Hit(stored) if !torn => assert!(stored.head.fields.contains("x-new")),
            Lookup::Stale(_, _, stored) if torn => assert!(!stored.head.fields.contains("x-new")),
            _ => panic!("the wrong head, torn: {torn}"),
        }
        cache.stop_disk();
    }
}
