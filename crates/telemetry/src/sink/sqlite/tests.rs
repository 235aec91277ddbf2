//! SQLite sink tests: table columns, storing and aggregating each record once, concurrent readers
//! and a second writer, and retention.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use rusqlite::params;
use serde_json::json;
use thalweg_record::rows::{Kind, Table};
use thalweg_record::{Delivery, Network, Record, ResponseRecord, Sketch, TcpState};

use super::hosts::{HOST_BYTES_MAX, HOSTS_MAX, OTHER};
use super::rollup::Rollup;
use super::*;
use crate::query::{By, Parameters, Query};
use crate::runner::Runner;
use crate::testing::{Dir, Random, TIME_US, batch, open_spool, record, source};

/// Retention that deletes nothing.
const FOR_EVER: Retention =
    Retention { records: Duration::MAX, aggregates: Duration::MAX, total_bytes: u64::MAX };
const TABLES: [&str; 5] = ["sockets", "responses", "losses", "sockets_5m", "responses_5m"];

fn open(dir: &Dir) -> SqliteSink {
    SqliteSink::open(&dir.file("telemetry.sqlite"), FOR_EVER).unwrap()
}

fn records(numbers: std::ops::Range<u64>) -> Vec<(Network, Record)> {
    numbers.map(record).collect()
}

/// Creates records with identical times.
fn records_of(numbers: std::ops::Range<u64>, time_us: u64) -> Vec<(Network, Record)> {
    let mut records = records(numbers);
    for (_, record) in &mut records {
        match record {
            Record::Socket(socket) => socket.time_unix_us = time_us,
            Record::Response(response) => Arc::make_mut(response).time_unix_us = time_us,
            Record::Loss(loss) => loss.time_unix_us = time_us,
        }
    }
    records
}

/// Formats all rows of all tables as strings, sorted.
fn dump(connection: &Connection) -> Vec<String> {
    let mut rows = Vec::new();
    for table in TABLES {
        let mut query = connection.prepare(&format!("SELECT * FROM {table}")).unwrap();
        let columns = query.column_count();
        let mut found = query.query([]).unwrap();
        while let Some(row) = found.next().unwrap() {
            let values = (0..columns).map(|at| format!("{:?}", row.get_ref(at).unwrap()));
            rows.push(format!("{table} {}", values.collect::<Vec<_>>().join(" ")));
        }
    }
    rows.sort();
    rows
}

fn count(connection: &Connection, of: &str) -> u64 {
    connection.query_row(&format!("SELECT {of}"), [], |row| row.get(0)).unwrap()
}

/// Returns the name, type and nullability of each column, in order.
fn columns(connection: &Connection, table: &str) -> Vec<(String, String, bool)> {
    let mut query = connection.prepare(&format!("PRAGMA table_info({table})")).unwrap();
    let column = |row: &rusqlite::Row<'_>| Ok((row.get(1)?, row.get(2)?, !row.get::<_, bool>(3)?));
    query.query_map([], column).unwrap().map(Result::unwrap).collect()
}

#[test]
fn newer_columns_are_added_to_a_file_of_an_earlier_release() {
    let dir = Dir::new("sqlite-columns");
    let mut sink = open(&dir);
    sink.store(&batch(0, records(0..20))).unwrap();
    sink.connection.execute_batch("ALTER TABLE sockets DROP COLUMN sample_one_in").unwrap();
    drop(sink);
    let mut sink = open(&dir);
    sink.store(&batch(20, records(20..40))).unwrap();
    let sampled = |numbers: &str| {
        count(&sink.connection, &format!("count(sample_one_in) FROM sockets WHERE number {numbers}"))
    };
    assert_eq!(sampled("< 20"), 0);
    assert!(sampled(">= 20") > 0);
}

#[test]
fn file_of_version_1_is_upgraded_without_its_rates() {
    let dir = Dir::new("sqlite-upgrade");
    let mut sink = open(&dir);
    sink.store(&batch(0, records(0..20))).unwrap();
    let before = count(&sink.connection, "count(*) FROM responses");
    sink.connection
        .execute_batch(
            "ALTER TABLE responses RENAME COLUMN written_us TO duration_us;
             ALTER TABLE responses DROP COLUMN goodput_bytes_per_s;
             ALTER TABLE responses ADD COLUMN goodput_bytes_per_s INTEGER NOT NULL DEFAULT 7;
             PRAGMA user_version = 1;",
        )
        .unwrap();
    drop(sink);
    let mut sink = open(&dir);
    assert_eq!(count(&sink.connection, "count(*) FROM responses WHERE goodput_bytes_per_s IS NULL"), before);
    assert_eq!(count(&sink.connection, "count(*) FROM responses_5m WHERE goodput <> '{}'"), 0);
    sink.store(&batch(20, records(20..40))).unwrap();
    assert!(count(&sink.connection, "count(*) FROM responses") > before);
}

#[test]
fn table_columns_match_row_columns() {
    let dir = Dir::new("columns");
    let sink = open(&dir);
    for table in Table::ALL {
        let expected = table.columns().iter().map(|column| {
            let kind =
                if matches!(column.kind, Kind::Name | Kind::Text | Kind::Ip) { "TEXT" } else { "INTEGER" };
            (column.name.to_owned(), kind.to_owned(), column.is_nullable)
        });
        assert_eq!(columns(&sink.connection, table.name()), expected.collect::<Vec<_>>());
    }
    for rollup in [Rollup::Sockets, Rollup::Responses] {
        let expected = [rollup.keys(), rollup.sums(), rollup.sketches()].concat();
        let names: Vec<_> =
            columns(&sink.connection, rollup.table()).into_iter().map(|(name, _, _)| name).collect();
        assert_eq!(names, expected);
    }
}

#[test]
fn repeated_batch_adds_nothing() {
    let dir = Dir::new("again");
    let mut sink = open(&dir);
    assert_eq!(sink.position(&source()).unwrap(), None);
    sink.store(&batch(0, records(0..500))).unwrap();
    let once = dump(&sink.connection);
    assert_eq!(sink.position(&source()).unwrap(), Some(500));
    sink.store(&batch(0, records(0..500))).unwrap();
    sink.store(&batch(100, records(100..200))).unwrap();
    assert_eq!(dump(&sink.connection), once);
    // A new epoch on the same host is a different source.
    let mut other = batch(0, records(0..1));
    other.source.epoch += 1;
    sink.store(&other).unwrap();
    assert_eq!(dump(&sink.connection).len(), once.len() + 1, "only the row must be new, not the aggregate");
}

#[test]
fn aggregates_do_not_depend_on_batches_restarts_or_time_order() {
    let whole = Dir::new("whole");
    let mut sink = open(&whole);
    sink.store(&batch(0, records(0..3000))).unwrap();
    let expected = dump(&sink.connection);
    for seed in 0..3 {
        let random = &mut Random(seed);
        let parts = Dir::new(&format!("parts-{seed}"));
        let mut sink = open(&parts);
        let mut next = 0;
        while next < 3000 {
            let end = (next + 1 + random.below(400)).min(3000);
            sink.store(&batch(next, records(next..end))).unwrap();
            next = end;
            match random.below(3) {
                0 => sink = open(&parts),
                1 => sink.rollups.clear(),
                _ => {}
            }
        }
        assert!(dump(&sink.connection) == expected, "seed {seed}");
    }
}

/// Runs a query and returns its result rows.
fn ask(dir: &Dir, name: &str, by: By) -> Vec<Vec<serde_json::Value>> {
    let parameters = Parameters { since: TIME_US / 1_000_000, until: TIME_US / 1_000_000 + 900, by };
    Query::named(name).unwrap().ask_sqlite(&dir.file("telemetry.sqlite"), &parameters).unwrap().rows
}

#[test]
fn query_results_match_the_records() {
    let dir = Dir::new("queries");
    let mut sink = open(&dir);
    let records = records(0..5000);
    sink.store(&batch(0, records.clone())).unwrap();
    let mut rates: BTreeMap<u32, (u64, Sketch)> = BTreeMap::new();
    let mut ttfbs: BTreeMap<u64, (u64, Sketch)> = BTreeMap::new();
    let mut lost = 0;
    for (network, record) in &records {
        match record {
            Record::Socket(socket) => {
                let (samples, rate) = rates.entry(network.asn.unwrap_or(0)).or_default();
                *samples += 1;
                if let Some(gauges) =
                    socket.gauges.as_ref().filter(|gauges| !gauges.delivery_rate_app_limited)
                {
                    rate.add(gauges.delivery_rate_bytes_per_s.unwrap_or(0));
                }
            }
            Record::Response(response) => {
                let window = response.time_unix_us / 300_000_000 * 300;
                let (responses, ttfb) = ttfbs.entry(window).or_default();
                *responses += 1;
                ttfb.add(response.ttfb_us.unwrap_or(0));
            }
            Record::Loss(loss) => lost += loss.records,
        }
    }
    let row = |key: u64, (count, sketch): &(u64, Sketch), qs: &[f64]| {
        let quantiles = qs.iter().map(|q| (sketch.quantile(*q).unwrap().round() as u64).into());
        [key.into(), (*count).into()].into_iter().chain(quantiles).collect::<Vec<serde_json::Value>>()
    };
    let mut expected: Vec<_> =
        rates.iter().map(|(asn, of)| row((*asn).into(), of, &[0.05, 0.1, 0.5, 0.9])).collect();
    expected.sort_by_key(|row| std::cmp::Reverse(row[1].as_u64()));
    assert_eq!(ask(&dir, "delivery_rate", By::Asn), expected);
    let expected: Vec<_> = ttfbs.iter().map(|(window, of)| row(*window, of, &[0.5, 0.95, 0.99])).collect();
    assert_eq!(expected.len(), 3);
    assert_eq!(ask(&dir, "ttfb", By::Asn), expected);
    assert_eq!(ask(&dir, "losses", By::Asn), [[json!("edge-1"), json!("edge"), json!(lost)]]);
    let slowest = ask(&dir, "slowest_prefixes", By::Asn);
    assert_eq!(slowest.len(), 8);
    assert!(slowest.is_sorted_by_key(|row| row[2].as_u64().unwrap()));
    assert!(slowest.iter().all(|row| (0.0..1.0).contains(&row[4].as_f64().unwrap())));
    let goodput = ask(&dir, "goodput", By::Prefix);
    let responses: u64 = goodput.iter().map(|row| row[1].as_u64().unwrap()).sum();
    assert_eq!(responses, ttfbs.values().map(|(count, _)| count).sum::<u64>());
    assert!(goodput.iter().all(|row| row[3].as_u64() <= row[6].as_u64() && row[3].is_u64()));
}

#[test]
fn hd_ratio_counts_testable_responses() {
    let dir = Dir::new("hd-ratio");
    let responses = [(Some(true), 11), (Some(false), 7), (None, 5), (Some(true), 9)];
    let records = responses.map(|(reached_hd, min_rtt_us)| {
        let response = ResponseRecord {
            delivery: Some(Delivery { reached_hd, ..Delivery::complete(100_000, 1_000) }),
            tcp: Some(TcpState { min_rtt_us: Some(min_rtt_us), ..TcpState::default() }),
            ..ResponseRecord::new(TIME_US, "192.0.2.1:443".parse().unwrap())
        };
        (Network::default(), Record::Response(Arc::new(response)))
    });
    open(&dir).store(&batch(0, records.to_vec())).unwrap();
    let row = [json!("192.0.2.0/24"), json!(3), json!(2), json!(0.666_667), json!(7)];
    assert_eq!(ask(&dir, "hd_ratio", By::Prefix), [row]);
}

#[test]
fn files_of_newer_releases_and_other_programs_are_refused() {
    let dir = Dir::new("refused");
    let newer = dir.file("newer.sqlite");
    drop(SqliteSink::open(&newer, FOR_EVER).unwrap());
    Connection::open(&newer).unwrap().pragma_update(None, "user_version", 3).unwrap();
    let error = SqliteSink::open(&newer, FOR_EVER).unwrap_err();
    assert_eq!(error.cause.to_string(), "schema version must be at most 2, got 3: use a newer release");
    let foreign = dir.file("foreign.sqlite");
    Connection::open(&foreign).unwrap().execute_batch("CREATE TABLE a (b)").unwrap();
    let error = SqliteSink::open(&foreign, FOR_EVER).unwrap_err();
    assert_eq!(error.cause.to_string(), "not a telemetry file: choose another path");
    let text = dir.file("text");
    std::fs::write(&text, "x".repeat(5000)).unwrap();
    assert!(!SqliteSink::open(&text, FOR_EVER).unwrap_err().is_passing);
}

#[test]
fn nothing_is_lost_while_another_writer_locks_the_file() {
    let dir = Dir::new("busy");
    let sink = open(&dir);
    let other = Connection::open(dir.file("telemetry.sqlite")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let spool = open_spool(&dir.file("spool"), 1 << 20);
    let runner = Runner::start(&spool, Box::new(sink)).unwrap();
    let appended = spool.append(records(0..300), TIME_US);
    let end = Instant::now() + Duration::from_secs(60);
    while runner.state().error().is_none() {
        assert!(Instant::now() < end, "the sink must meet a locked file");
        thread::yield_now();
    }
    assert!(runner.state().error().unwrap().contains("locked"), "{:?}", runner.state().error());
    assert_eq!(runner.state().lag().records, 300);
    other.execute_batch("COMMIT").unwrap();
    spool.close(Duration::from_secs(60));
    let state = Arc::clone(runner.state());
    runner.join();
    assert_eq!((state.stored(), state.lost(), state.error()), (appended.numbers.end, 0, None));
    assert!(state.retries() > 0);
    let rows =
        "(SELECT count(*) FROM sockets) + (SELECT count(*) FROM responses) + (SELECT count(*) FROM losses)";
    assert_eq!(count(&other, rows), 300);
}

#[test]
fn old_records_are_deleted_before_aggregates() {
    let dir = Dir::new("age");
    let mut sink = open(&dir);
    sink.store(&batch(0, records(0..5000))).unwrap();
    let hour = Duration::from_secs(3600);
    let retention = Retention { records: hour, aggregates: 2 * hour, total_bytes: u64::MAX };
    // The records span 15 minutes. `now` is one hour after the end of the first five minutes.
    let now = TIME_US + 3_900_000_000;
    let old = |table: &str| {
        count(&sink.connection, &format!("count(*) FROM {table} WHERE time < {}", TIME_US + 300_000_000))
    };
    let young = |table: &str| {
        count(&sink.connection, &format!("count(*) FROM {table} WHERE time >= {}", TIME_US + 300_000_000))
    };
    let (kept, losses) = (young("sockets"), count(&sink.connection, "count(*) FROM losses"));
    assert!(old("sockets") > 500);
    retention.trim(&sink.connection, Some(now), 100).unwrap();
    for _ in 0..5 {
        retention.trim(&sink.connection, Some(now), 100).unwrap();
    }
    assert_eq!((old("sockets"), old("responses"), young("sockets")), (0, 0, kept));
    assert_eq!(count(&sink.connection, "count(*) FROM losses"), losses);
    assert_eq!(count(&sink.connection, "count(DISTINCT window) FROM sockets_5m"), 3);
    retention.trim(&sink.connection, Some(now + 3_900_000_000), 100).unwrap();
    assert_eq!(count(&sink.connection, "count(DISTINCT window) FROM sockets_5m"), 2);
}

#[test]
fn clock_jumps_delete_no_records() {
    let dir = Dir::new("jumps");
    let hour = Duration::from_secs(3600);
    let retention = Retention { records: hour, aggregates: 2 * hour, total_bytes: u64::MAX };
    let mut sink = SqliteSink::open(&dir.file("telemetry.sqlite"), retention).unwrap();
    let spool = open_spool(&dir.file("spool"), 64 << 20);
    let mut reader = spool.reader("sqlite").unwrap();
    let begun = Instant::now();
    // Stores one batch per minute while the clock runs ahead by `ahead_s`.
    let mut keep = |minute: u64, ahead_s: i64| {
        let unix_us = (TIME_US + minute * 60_000_000).saturating_add_signed(ahead_s * 1_000_000);
        spool.append(records_of(minute * 100..(minute + 1) * 100, unix_us), unix_us);
        let batch = reader.next_batch().unwrap();
        reader.done(batch.entries.last().unwrap().number + 1);
        let instant = begun + Duration::from_secs(minute * 60);
        sink.keep_at(&batch, Moment { unix_us, instant }).unwrap();
        let all = TABLES[..3].iter().map(|table| count(&sink.connection, &format!("count(*) FROM {table}")));
        let sampled = ["sum(samples) FROM sockets_5m", "sum(responses) FROM responses_5m"];
        let sampled = sampled.iter().map(|of| count(&sink.connection, of));
        (all.sum::<u64>(), sampled.sum::<u64>() + count(&sink.connection, "count(*) FROM losses"))
    };
    let (hour_s, year_s) = (3600, 365 * 86_400);
    let jumps = [year_s, 0, 0, hour_s, -hour_s, 0, -year_s, year_s, 3 * hour_s, 0];
    for (minute, ahead_s) in (0..).zip(jumps) {
        let all = (minute + 1) * 100;
        assert_eq!(keep(minute, ahead_s), (all, all), "minute {minute}");
    }
    // The clock is correct from here on. After ten minutes of correct time, batches timed more than
    // an hour ago are deleted, and so are the year-old aggregates.
    for minute in 10..19 {
        assert_eq!(keep(minute, 0).0, (minute + 1) * 100);
    }
    let (kept, sampled) = keep(19, 0);
    assert!((2000 - 2 * 100..2000).contains(&kept) && sampled < 2000, "{kept} {sampled}");
}

#[test]
fn oldest_records_are_deleted_above_the_size_limit() {
    let dir = Dir::new("size");
    let bound = 3 << 20;
    let retention = Retention { total_bytes: bound, ..FOR_EVER };
    let mut sink = SqliteSink::open(&dir.file("telemetry.sqlite"), retention).unwrap();
    for first in (0..40_000).step_by(1000) {
        sink.store(&batch(first, records_of(0..1000, TIME_US + first))).unwrap();
    }
    let bytes = count(&sink.connection, "page_count * page_size FROM pragma_page_count, pragma_page_size");
    assert!(bytes < bound + (1 << 20), "{bytes}");
    assert_eq!(count(&sink.connection, "max(time) FROM sockets"), TIME_US + 39_000);
    assert!(count(&sink.connection, "min(time) FROM sockets") > TIME_US);
    let samples = count(&sink.connection, "sum(samples) FROM sockets_5m");
    assert_eq!(samples % 40, 0, "aggregates must still cover all records");
    assert!(samples > count(&sink.connection, "count(*) FROM sockets"));
    // Only aggregates remain, so they are deleted next.
    sink.connection.execute("DELETE FROM sockets", params![]).unwrap();
    sink.connection.execute("DELETE FROM responses", params![]).unwrap();
    Retention { total_bytes: 0, ..FOR_EVER }.trim(&sink.connection, Some(TIME_US), 100_000).unwrap();
    assert!(count(&sink.connection, "count(*) FROM sockets_5m") == 0);
}

#[test]
fn only_the_owner_may_read_the_file() {
    use std::os::unix::fs::PermissionsExt;
    let dir = Dir::new("mode");
    let mut sink = open(&dir);
    sink.store(&batch(0, records(0..5))).unwrap();
    for name in ["telemetry.sqlite", "telemetry.sqlite-wal", "telemetry.sqlite-shm"] {
        let mode = std::fs::metadata(dir.file(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[test]
fn restored_backup_is_completed_from_the_spool() {
    let dir = Dir::new("backup");
    let run = |numbers: std::ops::Range<u64>| {
        let spool = open_spool(&dir.file("spool"), 1 << 20);
        let runner = Runner::start(&spool, Box::new(open(&dir))).unwrap();
        spool.append(records(numbers), TIME_US);
        spool.close(Duration::from_secs(60));
        let state = Arc::clone(runner.state());
        runner.join();
        assert_eq!((state.lost(), state.lag().records), (0, 0));
    };
    let (file, backup) = (dir.file("telemetry.sqlite"), dir.file("backup"));
    run(0..300);
    std::fs::copy(&file, &backup).unwrap();
    run(300..600);
    let expected = dump(&open(&dir).connection);
    std::fs::rename(&backup, &file).unwrap();
    run(600..600);
    assert!(dump(&open(&dir).connection) == expected);
}

#[test]
fn hosts_beyond_the_limit_share_an_aggregate() {
    let dir = Dir::new("hosts");
    let host_of = |number: u64| match number % 5 {
        0 => "www.example".to_owned(),
        1 => "x".repeat(HOST_BYTES_MAX + 1),
        _ => format!("{number}.example"),
    };
    let entry = |number: u64| {
        let found = (0..).map(record).find(|(_, record)| matches!(record, Record::Response(_))).unwrap();
        let (network, Record::Response(mut response)) = found else { unreachable!() };
        let response_mut = Arc::make_mut(&mut response);
        (response_mut.time_unix_us, response_mut.host) = (TIME_US, host_of(number));
        (network, Record::Response(response))
    };
    let mut sink = open(&dir);
    for first in (0..5000).step_by(500) {
        sink.store(&batch(first, (first..first + 500).map(entry).collect())).unwrap();
        // A restart must not change which hosts have their own aggregates.
        sink = open(&dir);
    }
    let connection = &sink.connection;
    assert_eq!(count(connection, "count(DISTINCT request_host) FROM responses_5m"), HOSTS_MAX as u64 + 1);
    let responses = |host: &str| {
        count(connection, &format!("sum(responses) FROM responses_5m WHERE request_host = '{host}'"))
    };
    let own = HOSTS_MAX as u64 - 1;
    assert_eq!((responses("www.example"), responses(OTHER)), (1000, 4000 - own));
    assert_eq!(
        count(connection, "count(DISTINCT request_host) FROM responses"),
        3002,
        "records must keep every host"
    );
}

#[test]
fn clickhouse_view_has_the_same_limits() {
    let view = include_str!("../../../../../schema/clickhouse/responses_5m.sql");
    let bounds = format!("if(nth <= {HOSTS_MAX} AND length(own) <= {HOST_BYTES_MAX}, own, '{OTHER}')");
    assert!(view.contains(&bounds), "{bounds}");
}
