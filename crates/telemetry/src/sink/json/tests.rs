//! JSON sink tests: the line format, and the files after failures and restarts.

use std::fs;
use std::path::PathBuf;

use expect_test::expect;
use thalweg_record::rows::Table;

use super::*;
use crate::disk::steps;
use crate::testing::{Dir, batch, record, source};

const ONE_FILE: Rotation = Rotation { file_bytes: u64::MAX, age: Duration::MAX, total_bytes: None };

fn records(numbers: std::ops::Range<u64>) -> Batch {
    batch(numbers.start, numbers.map(record).collect())
}

fn paths(dir: &Dir) -> Vec<PathBuf> {
    let mut paths: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    paths.sort();
    paths
}

/// Reads the lines of all files, in file order.
fn lines(dir: &Dir) -> Vec<serde_json::Value> {
    let text: String = paths(dir).iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn numbers(dir: &Dir) -> Vec<u64> {
    lines(dir).iter().map(|line| line["number"].as_u64().unwrap()).collect()
}

fn files(dir: &Dir) -> usize {
    paths(dir).len()
}

#[test]
fn line_has_column_names_and_omits_absent_values() {
    let records = records(0..200);
    let text = |table| {
        let mut out = Vec::new();
        let entry = records.entries.iter().find(|entry| Table::of(&entry.record) == table).unwrap();
        line::append(&source(), entry, &mut out);
        String::from_utf8(out).unwrap()
    };
    expect![[r#"
        {"table":"sockets","time":"2027-01-15T08:07:38.607535Z","pop":"fra","host":"edge-1","epoch":1795000000000000,"number":0,"prefix":"2001:db8::/56","client_ip":"2001:db8::b3","client_port":35771,"local_ip":"192.0.2.1","local_port":443,"cookie":619579017923,"state":"ESTAB","cause":"dump","sample_one_in":2,"congestion_control":"bbr"}
    "#]].assert_eq(&text(Table::Sockets));
    expect![[r#"
        {"table":"responses","time":"2027-01-15T08:08:20.822465Z","pop":"fra","host":"edge-1","epoch":1795000000000000,"number":1,"prefix":"203.0.3.0/24","asn":64502,"region":"US-CA","client_ip":"203.0.3.90","client_port":29785,"method":"GET","request_host":"a.example","path":"/live/520.m4s","status":404,"bytes":3376737,"written_us":1390784,"goodput_bytes_per_s":1216974,"cache":"validated","protocol":"HTTP/1.1","congestion_control":"bbr","rtt_us":101446,"snd_cwnd":10,"retransmits":0,"lost":0,"restarts":0,"acked_bytes":3163816,"acked_us":2599740,"busy_us":2599740,"is_source_limited":false}
    "#]].assert_eq(&text(Table::Responses));
    expect![[r#"
        {"table":"losses","time":"2027-01-15T08:04:44.110592Z","pop":"fra","host":"edge-1","epoch":1795000000000000,"number":6,"stage":"edge","records":1}
    "#]].assert_eq(&text(Table::Losses));
}

#[test]
fn lines_are_written_once_across_restarts_and_repeats() {
    let dir = Dir::new("json-again");
    let mut sink = JsonSink::open(&dir.0, ONE_FILE).unwrap();
    assert_eq!(sink.position(&source()).unwrap(), None);
    sink.store(&records(0..10)).unwrap();
    sink.store(&records(0..10)).unwrap();
    sink.store(&records(5..20)).unwrap();
    assert_eq!(numbers(&dir), (0..20).collect::<Vec<_>>());
    let mut sink = JsonSink::open(&dir.0, ONE_FILE).unwrap();
    assert_eq!(sink.position(&source()).unwrap(), Some(20));
    sink.store(&records(20..25)).unwrap();
    assert_eq!((numbers(&dir), files(&dir)), ((0..25).collect::<Vec<_>>(), 2));
}

#[test]
fn data_left_by_a_crash_is_truncated() {
    let dir = Dir::new("json-kill");
    let mut sink = JsonSink::open(&dir.0, ONE_FILE).unwrap();
    sink.store(&records(0..10)).unwrap();
    let path = |first| sink.files.path(KIND, source().epoch, first);
    let first = path(0);
    let whole = fs::read(&first).unwrap();
    // State after a crash in the middle of a write, with one more file that the position file does
    // not cover.
    fs::write(&first, [&whole[..], b"{\"table\":\"soc"].concat()).unwrap();
    fs::write(path(10), &whole).unwrap();
    // A file that belongs to another sink.
    fs::write(path(10).with_extension("parquet"), "PAR1").unwrap();
    JsonSink::open(&dir.0, ONE_FILE).unwrap();
    assert_eq!(numbers(&dir), (0..10).collect::<Vec<_>>());
    assert_eq!(fs::read(&first).unwrap(), whole);
    assert!(path(10).with_extension("parquet").exists());
}

#[test]
fn files_rotate_by_size_age_and_epoch() {
    let dir = Dir::new("json-rotation");
    let rotation = Rotation { file_bytes: 4000, ..ONE_FILE };
    let mut sink = JsonSink::open(&dir.0, rotation).unwrap();
    (0..20).for_each(|at| sink.store(&records(at * 5..at * 5 + 5)).unwrap());
    let by_size = files(&dir);
    assert!((5..20).contains(&by_size), "{by_size}");
    let mut sink = JsonSink::open(&dir.0, Rotation { age: Duration::ZERO, ..ONE_FILE }).unwrap();
    (20..23).for_each(|at| sink.store(&records(at * 5..at * 5 + 5)).unwrap());
    assert_eq!(files(&dir), by_size + 3);
    assert_eq!(numbers(&dir), (0..115).collect::<Vec<_>>());
    let mut other = records(0..3);
    other.source.epoch += 1;
    sink.store(&other).unwrap();
    assert_eq!(sink.position(&other.source).unwrap(), Some(3));
    assert_eq!((sink.position(&source()).unwrap(), files(&dir)), (None, by_size + 4));
}

#[test]
fn failed_write_is_reported_and_retried() {
    let dir = Dir::new("json-full");
    let mut sink = JsonSink::open(&dir.0, ONE_FILE).unwrap();
    sink.store(&records(0..5)).unwrap();
    // Make replacing the position file fail.
    fs::create_dir(dir.file("jsonl.position.new")).unwrap();
    assert!(sink.store(&records(5..10)).unwrap_err().is_passing);
    fs::remove_dir(dir.file("jsonl.position.new")).unwrap();
    sink.store(&records(5..10)).unwrap();
    assert_eq!(numbers(&dir), (0..10).collect::<Vec<_>>());
}

#[test]
fn position_is_written_after_data_is_synced() {
    let dir = Dir::new("json-order");
    let mut sink = JsonSink::open(&dir.0, ONE_FILE).unwrap();
    steps::take();
    (0..2).for_each(|at| sink.store(&records(at * 5..at * 5 + 5)).unwrap());
    expect![[r#"
        replace jsonl.position
        sync names
        sync telemetry-1795000000000000-00000000000000000000.jsonl
        replace jsonl.position
        sync telemetry-1795000000000000-00000000000000000000.jsonl
        replace jsonl.position
    "#]]
    .assert_eq(&steps::take());
    // Data truncated at startup must not reappear after the position has advanced.
    JsonSink::open(&dir.0, ONE_FILE).unwrap();
    expect![[r#"
        sync telemetry-1795000000000000-00000000000000000000.jsonl
    "#]]
    .assert_eq(&steps::take());
}

#[test]
fn oldest_files_are_deleted_at_the_size_limit() {
    let dir = Dir::new("json-bound");
    let rotation = Rotation { file_bytes: 20_000, total_bytes: Some(80_000), ..ONE_FILE };
    let mut sink = JsonSink::open(&dir.0, rotation).unwrap();
    fs::write(dir.file("other-0-0.parquet"), vec![0; 100_000]).unwrap();
    for at in 0..400 {
        sink.store(&records(at * 5..at * 5 + 5)).unwrap();
        let bytes: u64 = paths(&dir).iter().map(|path| path.metadata().unwrap().len()).sum();
        assert!(bytes < 80_000 + 5 * 1000, "{bytes}");
    }
    let left = numbers(&dir);
    assert!((60..200).contains(&left.len()), "{}", left.len());
    assert_eq!(left, (2000 - left.len() as u64..2000).collect::<Vec<_>>());
    assert!(dir.file("other-0-0.parquet").exists());
}
