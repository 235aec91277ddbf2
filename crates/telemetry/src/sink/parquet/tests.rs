//! Parquet sink tests: file contents as seen by a Parquet reader, and behaviour after restarts.

use std::collections::BTreeMap;
use std::fs;

use expect_test::expect;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use thalweg_record::rows::Value;

use super::*;
use crate::disk::steps;
use crate::testing::{Dir, batch, record, source};

const BY_ROWS: Gathering = Gathering { rows: 150, bytes: usize::MAX, age: Duration::MAX, total_bytes: None };

fn records(numbers: std::ops::Range<u64>) -> Batch {
    batch(numbers.start, numbers.map(record).collect())
}

/// Reads all rows of all files as strings, by record number. Returns them with the number of files.
fn rows_of(dir: &Dir) -> (BTreeMap<u64, Vec<(String, String)>>, usize) {
    let (mut all, mut files) = (BTreeMap::new(), 0);
    for path in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
        if path.extension().is_none_or(|extension| extension != "parquet") {
            continue;
        }
        files += 1;
        let reader = SerializedFileReader::new(fs::File::open(path).unwrap()).unwrap();
        for row in reader.get_row_iter(None).unwrap() {
            let row = row.unwrap();
            let has = row.get_column_iter().filter(|(_, field)| **field != Field::Null);
            let text: Vec<_> = has.map(|(name, field)| (name.clone(), text(field))).collect();
            let number = text.iter().find(|(name, _)| name == "number").unwrap().1.parse().unwrap();
            assert!(all.insert(number, text).is_none(), "{number} appears twice");
        }
    }
    (all, files)
}

fn text(field: &Field) -> String {
    match field {
        Field::Str(text) => text.clone(),
        Field::TimestampMicros(time) => time.to_string(),
        field => field.to_string(),
    }
}

/// Returns the rows that [`rows_of`] should return for a batch.
fn expected(batch: &Batch) -> BTreeMap<u64, Vec<(String, String)>> {
    let row = |entry: &Entry| {
        let mut columns = Table::of(&entry.record).columns().iter();
        let mut row = Vec::new();
        rows::row(&batch.source, entry, &mut |value| {
            let name = columns.next().unwrap().name.to_owned();
            match value {
                Value::Null => {}
                Value::Bool(value) => row.push((name, value.to_string())),
                Value::Number(number) | Value::Time(number) => row.push((name, number.to_string())),
                Value::Text(text) => row.push((name, text.into_owned())),
                Value::Ip(ip) => row.push((name, ip.to_string())),
            }
        });
        (entry.number, row)
    };
    batch.entries.iter().map(row).collect()
}

#[test]
fn rows_are_read_back_unchanged() {
    let dir = Dir::new("parquet-rows");
    let mut sink = ParquetSink::open(&dir.0, BY_ROWS).unwrap();
    let batch = records(0..1000);
    sink.store(&batch).unwrap();
    assert_eq!(sink.stored(1000), 1000);
    let (rows, files) = rows_of(&dir);
    assert!(rows == expected(&batch));
    assert_eq!(files, 3);
}

#[test]
fn gathered_rows_are_written_once() {
    let dir = Dir::new("parquet-gathered");
    let mut sink = ParquetSink::open(&dir.0, BY_ROWS).unwrap();
    sink.store(&records(0..50)).unwrap();
    sink.store(&records(20..90)).unwrap();
    assert_eq!((sink.stored(90), rows_of(&dir).1), (0, 0));
    // The new sink replaces the first sink, whose gathered rows are lost, so the rows are passed
    // again.
    let mut sink = ParquetSink::open(&dir.0, BY_ROWS).unwrap();
    assert_eq!(sink.position(&source()).unwrap(), Some(0));
    (0..9).for_each(|at| sink.store(&records(at * 50..at * 50 + 50)).unwrap());
    let kept = sink.stored(450);
    assert!((150..450).contains(&kept), "{kept}");
    assert_eq!(rows_of(&dir).0.len() as u64, kept);
    sink.finish().unwrap();
    assert_eq!(sink.stored(450), 450);
    assert!(rows_of(&dir).0 == expected(&records(0..450)));
}

#[test]
fn leftovers_of_a_crash_are_deleted() {
    let dir = Dir::new("parquet-kill");
    let mut sink = ParquetSink::open(&dir.0, BY_ROWS).unwrap();
    sink.store(&records(0..500)).unwrap();
    // State after a crash between renaming a file and writing the position, with one more file
    // incomplete.
    let path = |number| sink.files.path("sockets", source().epoch, number);
    let (temporary, lines) = (Files::temporary(&path(500)), path(500).with_extension("jsonl"));
    fs::copy(path(0), path(500)).unwrap();
    fs::write(&temporary, "PAR1").unwrap();
    fs::write(&lines, "of another sink").unwrap();
    let mut sink = ParquetSink::open(&dir.0, BY_ROWS).unwrap();
    assert!(!temporary.exists() && lines.exists());
    assert_eq!(sink.position(&source()).unwrap(), Some(500));
    sink.store(&records(500..900)).unwrap();
    sink.finish().unwrap();
    assert!(rows_of(&dir).0 == expected(&records(0..900)));
}

#[test]
fn rows_are_written_at_the_age_limit() {
    let dir = Dir::new("parquet-age");
    let mut sink =
        ParquetSink::open(&dir.0, Gathering { rows: usize::MAX, age: Duration::ZERO, ..BY_ROWS }).unwrap();
    sink.store(&records(0..5)).unwrap();
    assert!(rows_of(&dir).0 == expected(&records(0..5)));
}

#[test]
fn rows_are_written_at_the_memory_limit() {
    let dir = Dir::new("parquet-bytes");
    let by_bytes = Gathering { rows: usize::MAX, bytes: 100_000, ..BY_ROWS };
    let mut sink = ParquetSink::open(&dir.0, by_bytes).unwrap();
    let mut since = 0;
    for at in 0..100 {
        sink.store(&records(at * 50..at * 50 + 50)).unwrap();
        let kept = sink.stored(at * 50 + 50);
        // A record uses a few hundred bytes.
        assert!(at * 50 + 50 - kept < 1000, "{kept}");
        since = since.max(at * 50 + 50 - kept);
    }
    assert!(since >= 100, "{since}");
}

#[test]
fn position_is_written_after_data_is_synced() {
    let dir = Dir::new("parquet-order");
    let mut sink = ParquetSink::open(&dir.0, BY_ROWS).unwrap();
    sink.store(&records(0..5)).unwrap();
    steps::take();
    sink.finish().unwrap();
    expect![[r#"
        sync sockets-1795000000000000-00000000000000000000.parquet.new
        sync responses-1795000000000000-00000000000000000000.parquet.new
        name sockets-1795000000000000-00000000000000000000.parquet
        name responses-1795000000000000-00000000000000000000.parquet
        sync names
        replace parquet.position
    "#]]
    .assert_eq(&steps::take());
}

#[test]
fn oldest_files_are_deleted_at_the_size_limit() {
    let dir = Dir::new("parquet-bound");
    let mut sink = ParquetSink::open(&dir.0, Gathering { total_bytes: Some(100_000), ..BY_ROWS }).unwrap();
    for at in 0..60 {
        sink.store(&records(at * 100..at * 100 + 100)).unwrap();
        let files = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len());
        assert!(files.sum::<u64>() < 101_000);
    }
    let kept = sink.stored(6000);
    let (rows, _) = rows_of(&dir);
    assert!((200..5000).contains(&rows.len()), "{}", rows.len());
    assert_eq!(rows.keys().max(), Some(&(kept - 1)));
}
