//! Tests of bundles loaded from files, and of the saved bundle.

use std::fmt::Debug;
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use thalweg_bundle::{BYTES_MAX, Content, FORMAT};
use tokio::time::sleep;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::saved::RETRY_INTERVAL;
use super::status::REASON_BYTES_MAX;
use super::*;

fn config(bundle: Option<BundleSource>) -> Config {
    Config { bundle, ..Config::default() }
}

/// A directory removed at the end of the test, and the path of a bundle file in it.
struct Scratch {
    directory: PathBuf,
    file: PathBuf,
}

impl Scratch {
    fn new() -> Self {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let name = format!("thalweg-bundle-{}-{}", std::process::id(), MADE.fetch_add(1, Relaxed));
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        Self { file: directory.join("given.json"), directory }
    }

    /// Replaces the bundle file atomically.
    fn put(&self, document: &str) {
        let next = self.file.with_extension("next");
        std::fs::write(&next, document).unwrap();
        std::fs::rename(&next, &self.file).unwrap();
    }

    fn bundles(&self) -> Bundles {
        Bundles::new(&config(Some(self.source())), None)
    }

    /// Starts an edge with a state directory.
    fn start(&self, source: &BundleSource) -> Bundles {
        Bundles::new(&config(Some(source.clone())), Some(SavedBundle::within(&self.directory)))
    }

    fn source(&self) -> BundleSource {
        BundleSource::File(self.file.clone())
    }

    fn kept(&self) -> PathBuf {
        self.directory.join("bundle.json")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn document(number: u64) -> String {
    Bundle::new(Content { number, ..Content::default() }).unwrap().encode()
}

fn number_and_reason(bundles: &Bundles) -> (Value, String) {
    let status = bundles.status_json();
    (status["number"].clone(), status["refused"]["reason"].as_str().unwrap_or_default().to_owned())
}

fn active(bundles: &Bundles) -> (Value, Value) {
    let status = bundles.status_json();
    (status["number"].clone(), status["source"].clone())
}

/// Messages logged by this thread.
#[derive(Debug, Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    /// Returns the lines logged since the last call that start with one of `beginnings`.
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
fn last_good_bundle_stays_active() {
    let scratch = Scratch::new();
    let bundles = scratch.bundles();
    assert_eq!(number_and_reason(&bundles), (Value::Null, String::new()));
    assert_eq!(bundles.status_json()["heard_unix_ms"], Value::Null);
    scratch.put(&document(7));
    bundles.check();
    assert_eq!(number_and_reason(&bundles), (7.into(), String::new()));
    assert!(bundles.status_json()["heard_unix_ms"].as_u64() > Some(0));
    let bad = document(8).replace(":8,", ":9,");
    scratch.put(&bad);
    bundles.check();
    let (number, reason) = number_and_reason(&bundles);
    assert_eq!(number, 7);
    assert!(reason.starts_with("/checksum: does not match the content, expected sha256:"), "{reason}");
    assert_eq!(bundles.status_json()["refused"]["checksum"], declared_checksum(bad.as_bytes()).unwrap());
    assert_eq!(bundles.status_json()["refused"]["is_last"], true);
    assert_eq!(bundles.refusals(), Some(1));
    bundles.check();
    assert_eq!(bundles.refusals(), Some(1), "a repeated refusal must not be counted");
    // The active bundle arrives again: it stays active, and the refusal is no longer the latest
    // result.
    scratch.put(&document(7));
    bundles.check();
    assert_eq!(
        (bundles.status_json()["refused"]["is_last"].clone(), number_and_reason(&bundles).0),
        (false.into(), 7.into())
    );
    scratch.put(&bad);
    bundles.check();
    assert_eq!(bundles.status_json()["refused"]["is_last"], true);
    std::fs::remove_file(&scratch.file).unwrap();
    bundles.check();
    assert_eq!(number_and_reason(&bundles).0, 7);
    std::fs::create_dir(&scratch.file).unwrap();
    bundles.check();
    assert_eq!(number_and_reason(&bundles), (7.into(), "cannot read file: not a regular file".into()));
    assert_eq!(bundles.status_json()["refused"]["checksum"], Value::Null);
    std::fs::remove_dir(&scratch.file).unwrap();
    scratch.put(&document(6));
    bundles.check();
    assert_eq!(
        (bundles.status_json()["refused"]["is_last"].clone(), number_and_reason(&bundles).0),
        (false.into(), 6.into())
    );
}

#[test]
fn file_is_loaded_once() {
    let scratch = Scratch::new();
    scratch.put(&document(1));
    let bundles = scratch.bundles();
    let first = bundles.active.load_full().unwrap();
    bundles.check();
    scratch.put(&document(1));
    bundles.check();
    assert!(Arc::ptr_eq(&first, &bundles.active.load_full().unwrap()));
    scratch.put(&document(2));
    bundles.check();
    assert_eq!(number_and_reason(&bundles).0, 2);
}

#[test]
fn overlong_file_is_not_read_completely() {
    let scratch = Scratch::new();
    File::create(&scratch.file).unwrap().set_len(1 << 40).unwrap();
    let bundles = scratch.bundles();
    assert_eq!(number_and_reason(&bundles), (Value::Null, format!("longer than {BYTES_MAX} bytes")));
}

#[test]
fn long_reason_is_truncated() {
    let scratch = Scratch::new();
    scratch.put(&format!(r#"{{"{}": 1}}"#, "é".repeat(1 << 20)));
    let bundles = scratch.bundles();
    let (_, reason) = number_and_reason(&bundles);
    assert!(reason.starts_with("1:") && reason.contains("unknown field `éé"), "{}", cut(reason, 100));
    assert!((REASON_BYTES_MAX - 1..=REASON_BYTES_MAX).contains(&reason.len()), "{}", reason.len());
}

#[test]
fn start_uses_last_good_bundle() {
    let scratch = Scratch::new();
    let http: BundleSource = "http://127.0.0.1:9/bundle".parse().unwrap();
    assert_eq!(active(&scratch.start(&http)), (Value::Null, Value::Null));
    scratch.put(&document(7));
    assert_eq!(active(&scratch.start(&scratch.source())), (7.into(), "file".into()));

    // An existing file takes precedence over the saved bundle, even with a lower number, unless the
    // file is invalid.
    scratch.put(&document(6));
    assert_eq!(active(&scratch.start(&scratch.source())), (6.into(), "file".into()));
    scratch.put("{");
    let bundles = scratch.start(&scratch.source());
    assert_eq!(active(&bundles), (6.into(), "kept".into()));
    assert_eq!(number_and_reason(&bundles).1, "1:1: EOF while parsing an object");
    std::fs::remove_file(&scratch.file).unwrap();
    assert_eq!(active(&scratch.start(&scratch.source())), (6.into(), "kept".into()));
    assert_eq!(active(&scratch.start(&http)), (6.into(), "kept".into()));

    // Nothing is saved without a source or without a state directory.
    let none = Bundles::new(&config(None), Some(SavedBundle::within(&scratch.directory)));
    assert!(none.active().is_none() && none.status_json().is_null());
    assert_eq!(active(&scratch.bundles()), (Value::Null, Value::Null));
}

#[test]
fn saved_bundle_is_complete_or_ignored() {
    let scratch = Scratch::new();
    scratch.put(&document(7));
    // A file left over from an interrupted save does no harm.
    let new = scratch.directory.join("bundle.json.new");
    std::fs::write(&new, "{").unwrap();
    scratch.start(&scratch.source());
    assert_eq!(std::fs::read_to_string(scratch.kept()).unwrap(), document(7));
    // A symbolic link at that path does no harm either.
    let other = scratch.directory.join("other");
    std::fs::write(&other, "other").unwrap();
    std::os::unix::fs::symlink(&other, &new).unwrap();
    scratch.start(&scratch.source()).load_document(document(8).as_bytes(), None, LoadedFrom::File).unwrap();
    assert_eq!(std::fs::read_to_string(&other).unwrap(), "other");
    scratch.start(&scratch.source()).load_document(document(7).as_bytes(), None, LoadedFrom::File).unwrap();
    let kept = std::fs::read_to_string(scratch.kept()).unwrap();
    assert_eq!(kept, document(7));
    std::fs::remove_file(&scratch.file).unwrap();
    for damaged in [&kept[..kept.len() / 2], &kept.replace(":7,", ":8,"), ""] {
        std::fs::write(scratch.kept(), damaged).unwrap();
        let bundles = scratch.start(&scratch.source());
        assert_eq!(active(&bundles), (Value::Null, Value::Null));
        scratch.put(&document(9));
        bundles.check();
        assert_eq!(active(&scratch.start(&scratch.source())), (9.into(), "file".into()));
        std::fs::remove_file(&scratch.file).unwrap();
        assert_eq!(active(&scratch.start(&scratch.source())), (9.into(), "kept".into()));
    }
    std::fs::remove_file(scratch.kept()).unwrap();
    std::fs::create_dir(scratch.kept()).unwrap();
    let bundles = scratch.start(&scratch.source());
    assert_eq!(active(&bundles), (Value::Null, Value::Null));
    // The bundle cannot be saved, but is active.
    scratch.put(&document(10));
    bundles.check();
    assert_eq!(active(&bundles), (10.into(), "file".into()));
}

#[test]
fn saved_bundle_of_another_format_is_logged_once_and_ignored() {
    let scratch = Scratch::new();
    let http: BundleSource = "http://127.0.0.1:9/bundle".parse().unwrap();
    let log = Log::default();
    let _logged = tracing::subscriber::set_default(log.clone());
    let ignored = ["saved bundle is invalid, ignored"];
    for other in [FORMAT - 1, FORMAT + 1] {
        // The document also has members unknown to this version.
        let kept = format!(r#"{{"format": {other}, "number": 7, "checksum": "none", "tenants": {{}}}}"#);
        std::fs::write(scratch.kept(), &kept).unwrap();
        let bundles = scratch.start(&http);
        assert_eq!(active(&bundles), (Value::Null, Value::Null));
        assert_eq!(log.of(&ignored), ignored);
        // This is not reported as a refusal, because the bundle may not come from this server.
        assert_eq!(bundles.status_json()["refused"], Value::Null);
        assert_eq!(std::fs::read_to_string(scratch.kept()).unwrap(), kept);
        bundles.load_document(document(8).as_bytes(), None, LoadedFrom::Http).unwrap();
        assert_eq!(active(&bundles), (8.into(), "http".into()));
        assert_eq!(active(&scratch.start(&http)), (8.into(), "kept".into()));
        assert_eq!(log.of(&ignored), [""; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn failed_save_is_retried_until_it_succeeds() {
    let scratch = Scratch::new();
    let http: BundleSource = "http://127.0.0.1:9/bundle".parse().unwrap();
    let log = Log::default();
    let keeping = ["bundle not saved", "bundle saved after a failed attempt"];
    std::fs::create_dir(scratch.kept()).unwrap();
    let bundles = Arc::new(scratch.start(&http));
    let logged = tracing::subscriber::set_default(log.clone());
    bundles.load_document(document(7).as_bytes(), None, LoadedFrom::Http).unwrap();
    bundles.load_document(document(8).as_bytes(), None, LoadedFrom::Http).unwrap();
    assert_eq!(log.of(&keeping).len(), 1);
    // No partly written file remains.
    assert_eq!(std::fs::read_dir(&scratch.directory).unwrap().count(), 1);
    drop(logged);
    let again = tokio::spawn(bundles.clone().retry_saving());
    sleep(RETRY_INTERVAL * 3).await;
    assert!(scratch.kept().is_dir() && bundles.saver.is_unsaved());
    std::fs::remove_dir(scratch.kept()).unwrap();
    sleep(RETRY_INTERVAL * 2).await;
    assert_eq!(std::fs::read_to_string(scratch.kept()).unwrap(), document(8));
    assert!(!bundles.saver.is_unsaved());
    // After the successful save, only new bundles are saved.
    std::fs::remove_file(scratch.kept()).unwrap();
    sleep(RETRY_INTERVAL * 3).await;
    assert!(!scratch.kept().exists());
    again.abort();

    std::fs::create_dir(scratch.kept()).unwrap();
    bundles.load_document(document(9).as_bytes(), None, LoadedFrom::Http).unwrap();
    std::fs::remove_dir(scratch.kept()).unwrap();
    let _logged = tracing::subscriber::set_default(log.clone());
    bundles.save();
    bundles.save();
    assert_eq!(log.of(&keeping), ["bundle saved after a failed attempt"]);
}

#[test]
fn nothing_is_saved_after_the_edge_ends() {
    let scratch = Scratch::new();
    scratch.put(&document(7));
    let bundles = scratch.start(&scratch.source());
    bundles.end();
    scratch.put(&document(8));
    bundles.check();
    assert_eq!(active(&bundles), (8.into(), "file".into()));
    assert_eq!(std::fs::read_to_string(scratch.kept()).unwrap(), document(7));
}
