//! Bundles from files, and the one that is kept.

use std::fmt::Debug;
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use thalweg_bundle::{BYTES_MAX, Content, FORMAT};
use tokio::time::sleep;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::kept::AGAIN_AFTER;
use super::status::REASON_BYTES_MAX;
use super::*;

/// A directory that is gone with the test, with a file for a bundle in it.
struct Place {
    directory: PathBuf,
    file: PathBuf,
}

impl Place {
    fn new() -> Self {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let name = format!("thalweg-bundle-{}-{}", std::process::id(), MADE.fetch_add(1, Relaxed));
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        Self { file: directory.join("given.json"), directory }
    }

    /// Replaces the file as one ought to: by another.
    fn put(&self, document: &str) {
        let next = self.file.with_extension("next");
        std::fs::write(&next, document).unwrap();
        std::fs::rename(&next, &self.file).unwrap();
    }

    fn bundles(&self) -> Bundles {
        Bundles::new(Some(&self.source()), None)
    }

    /// A start of an edge with a state directory.
    fn start(&self, source: &BundleSource) -> Bundles {
        Bundles::new(Some(source), Some(Kept::within(&self.directory)))
    }

    fn source(&self) -> BundleSource {
        BundleSource::File(self.file.clone())
    }

    fn kept(&self) -> PathBuf {
        self.directory.join("bundle.json")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn document(number: u64) -> String {
    Bundle::new(Content { number, ..Content::default() }).unwrap().encode()
}

fn told(bundles: &Bundles) -> (Value, String) {
    let told = bundles.told();
    (told["number"].clone(), told["refused"]["reason"].as_str().unwrap_or_default().to_owned())
}

fn in_force(bundles: &Bundles) -> (Value, Value) {
    let told = bundles.told();
    (told["number"].clone(), told["source"].clone())
}

/// The messages that this thread logs.
#[derive(Debug, Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    /// What was logged since the last time, of which each line begins with one of `beginnings`.
    fn of(&self, beginnings: &[&str]) -> Vec<String> {
        let lines = std::mem::take(&mut *lock(&self.0));
        lines.into_iter().filter(|line| beginnings.iter().any(|begin| line.starts_with(begin))).collect()
    }
}

impl Visit for Log {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            lock(&self.0).push(format!("{value:?}"));
        }
    }
}

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn the_last_good_one_stays_in_force() {
    let place = Place::new();
    let bundles = place.bundles();
    assert_eq!(told(&bundles), (Value::Null, String::new()));
    assert_eq!(bundles.told()["heard_unix_ms"], Value::Null);
    place.put(&document(7));
    bundles.look();
    assert_eq!(told(&bundles), (7.into(), String::new()));
    assert!(bundles.told()["heard_unix_ms"].as_u64() > Some(0));
    let bad = document(8).replace(":8,", ":9,");
    place.put(&bad);
    bundles.look();
    let (number, reason) = told(&bundles);
    assert_eq!(number, 7);
    assert!(reason.starts_with("/checksum: not that of the content, which is sha256:"), "{reason}");
    assert_eq!(bundles.told()["refused"]["checksum"], declared_checksum(bad.as_bytes()).unwrap());
    assert_eq!(bundles.told()["refused"]["is_last"], true);
    // The good one comes again: that is no other, and ends the refusal.
    place.put(&document(7));
    bundles.look();
    assert_eq!((bundles.told()["refused"]["is_last"].clone(), told(&bundles).0), (false.into(), 7.into()));
    place.put(&bad);
    bundles.look();
    assert_eq!(bundles.told()["refused"]["is_last"], true);
    std::fs::remove_file(&place.file).unwrap();
    bundles.look();
    assert_eq!(told(&bundles).0, 7);
    std::fs::create_dir(&place.file).unwrap();
    bundles.look();
    assert_eq!(told(&bundles), (7.into(), "cannot read it: not a regular file".into()));
    assert_eq!(bundles.told()["refused"]["checksum"], Value::Null);
    std::fs::remove_dir(&place.file).unwrap();
    place.put(&document(6));
    bundles.look();
    assert_eq!((bundles.told()["refused"]["is_last"].clone(), told(&bundles).0), (false.into(), 6.into()));
}

#[test]
fn a_file_is_read_once() {
    let place = Place::new();
    place.put(&document(1));
    let bundles = place.bundles();
    let first = bundles.active.load_full().unwrap();
    bundles.look();
    place.put(&document(1));
    bundles.look();
    assert!(Arc::ptr_eq(&first, &bundles.active.load_full().unwrap()));
    place.put(&document(2));
    bundles.look();
    assert_eq!(told(&bundles).0, 2);
}

#[test]
fn what_is_too_long_is_not_read_to_its_end() {
    let place = Place::new();
    File::create(&place.file).unwrap().set_len(1 << 40).unwrap();
    let bundles = place.bundles();
    assert_eq!(told(&bundles), (Value::Null, format!("longer than {BYTES_MAX} bytes")));
}

#[test]
fn a_long_reason_is_cut() {
    let place = Place::new();
    place.put(&format!(r#"{{"{}": 1}}"#, "é".repeat(1 << 20)));
    let bundles = place.bundles();
    let (_, reason) = told(&bundles);
    assert!(reason.starts_with("1:") && reason.contains("unknown field `éé"), "{}", cut(reason, 100));
    assert!((REASON_BYTES_MAX - 1..=REASON_BYTES_MAX).contains(&reason.len()), "{}", reason.len());
}

#[test]
fn a_start_begins_with_the_last_good_one() {
    let place = Place::new();
    let http: BundleSource = "http://127.0.0.1:9/bundle".parse().unwrap();
    assert_eq!(in_force(&place.start(&http)), (Value::Null, Value::Null));
    place.put(&document(7));
    assert_eq!(in_force(&place.start(&place.source())), (7.into(), "file".into()));

    // The file that is there goes before it, even with a lower number; not if it is bad, or gone.
    place.put(&document(6));
    assert_eq!(in_force(&place.start(&place.source())), (6.into(), "file".into()));
    place.put("{");
    let bundles = place.start(&place.source());
    assert_eq!(in_force(&bundles), (6.into(), "kept".into()));
    assert_eq!(told(&bundles).1, "1:1: EOF while parsing an object");
    std::fs::remove_file(&place.file).unwrap();
    assert_eq!(in_force(&place.start(&place.source())), (6.into(), "kept".into()));
    assert_eq!(in_force(&place.start(&http)), (6.into(), "kept".into()));

    // Nobody asks for bundles, or nothing may be kept.
    let none = Bundles::new(None, Some(Kept::within(&place.directory)));
    assert!(none.active().is_none() && none.told().is_null());
    assert_eq!(in_force(&place.bundles()), (Value::Null, Value::Null));
}

#[test]
fn what_is_kept_is_whole_or_ignored() {
    let place = Place::new();
    place.put(&document(7));
    // What a kill in the middle has left does not matter.
    let new = place.directory.join("bundle.json.new");
    std::fs::write(&new, "{").unwrap();
    place.start(&place.source());
    assert_eq!(std::fs::read_to_string(place.kept()).unwrap(), document(7));
    // Nor does a link that somebody has made there.
    let other = place.directory.join("other");
    std::fs::write(&other, "other").unwrap();
    std::os::unix::fs::symlink(&other, &new).unwrap();
    place.start(&place.source()).offer(document(8).as_bytes(), None, Came::File).unwrap();
    assert_eq!(std::fs::read_to_string(&other).unwrap(), "other");
    place.start(&place.source()).offer(document(7).as_bytes(), None, Came::File).unwrap();
    let kept = std::fs::read_to_string(place.kept()).unwrap();
    assert_eq!(kept, document(7));
    std::fs::remove_file(&place.file).unwrap();
    for damaged in [&kept[..kept.len() / 2], &kept.replace(":7,", ":8,"), ""] {
        std::fs::write(place.kept(), damaged).unwrap();
        let bundles = place.start(&place.source());
        assert_eq!(in_force(&bundles), (Value::Null, Value::Null));
        place.put(&document(9));
        bundles.look();
        assert_eq!(in_force(&place.start(&place.source())), (9.into(), "file".into()));
        std::fs::remove_file(&place.file).unwrap();
        assert_eq!(in_force(&place.start(&place.source())), (9.into(), "kept".into()));
    }
    std::fs::remove_file(place.kept()).unwrap();
    std::fs::create_dir(place.kept()).unwrap();
    let bundles = place.start(&place.source());
    assert_eq!(in_force(&bundles), (Value::Null, Value::Null));
    // It cannot be kept, and is in force.
    place.put(&document(10));
    bundles.look();
    assert_eq!(in_force(&bundles), (10.into(), "file".into()));
}

#[test]
fn one_of_another_format_is_told_once_and_done_without() {
    let place = Place::new();
    let http: BundleSource = "http://127.0.0.1:9/bundle".parse().unwrap();
    let log = Log::default();
    let _logged = tracing::subscriber::set_default(log.clone());
    let ignored = ["the kept bundle is not to be used, and is ignored until there is another"];
    for other in [FORMAT - 1, FORMAT + 1] {
        // Of another shape, too.
        let kept = format!(r#"{{"format": {other}, "number": 7, "checksum": "none", "tenants": {{}}}}"#);
        std::fs::write(place.kept(), &kept).unwrap();
        let bundles = place.start(&http);
        assert_eq!(in_force(&bundles), (Value::Null, Value::Null));
        assert_eq!(log.of(&ignored), ignored);
        // It is no refusal: the server is not told of what it may not have made.
        assert_eq!(bundles.told()["refused"], Value::Null);
        assert_eq!(std::fs::read_to_string(place.kept()).unwrap(), kept);
        bundles.offer(document(8).as_bytes(), None, Came::Http).unwrap();
        assert_eq!(in_force(&bundles), (8.into(), "http".into()));
        assert_eq!(in_force(&place.start(&http)), (8.into(), "kept".into()));
        assert_eq!(log.of(&ignored), [""; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_kept_is_tried_again_until_it_is() {
    let place = Place::new();
    let http: BundleSource = "http://127.0.0.1:9/bundle".parse().unwrap();
    let log = Log::default();
    let keeping = ["bundle not kept", "the bundle is kept again"];
    std::fs::create_dir(place.kept()).unwrap();
    let bundles = Arc::new(place.start(&http));
    let logged = tracing::subscriber::set_default(log.clone());
    bundles.offer(document(7).as_bytes(), None, Came::Http).unwrap();
    bundles.offer(document(8).as_bytes(), None, Came::Http).unwrap();
    assert_eq!(log.of(&keeping).len(), 1);
    // Nothing half written stays.
    assert_eq!(std::fs::read_dir(&place.directory).unwrap().count(), 1);
    drop(logged);
    let again = tokio::spawn(bundles.clone().keep_again());
    sleep(AGAIN_AFTER * 3).await;
    assert!(place.kept().is_dir() && bundles.keeping.is_behind());
    std::fs::remove_dir(place.kept()).unwrap();
    sleep(AGAIN_AFTER * 2).await;
    assert_eq!(std::fs::read_to_string(place.kept()).unwrap(), document(8));
    assert!(!bundles.keeping.is_behind());
    // Then nothing is written that was not new.
    std::fs::remove_file(place.kept()).unwrap();
    sleep(AGAIN_AFTER * 3).await;
    assert!(!place.kept().exists());
    again.abort();

    std::fs::create_dir(place.kept()).unwrap();
    bundles.offer(document(9).as_bytes(), None, Came::Http).unwrap();
    std::fs::remove_dir(place.kept()).unwrap();
    let _logged = tracing::subscriber::set_default(log.clone());
    bundles.keep();
    bundles.keep();
    assert_eq!(log.of(&keeping), ["the bundle is kept again"]);
}

#[test]
fn nothing_is_kept_after_the_end() {
    let place = Place::new();
    place.put(&document(7));
    let bundles = place.start(&place.source());
    bundles.end();
    place.put(&document(8));
    bundles.look();
    assert_eq!(in_force(&bundles), (8.into(), "file".into()));
    assert_eq!(std::fs::read_to_string(place.kept()).unwrap(), document(7));
}
