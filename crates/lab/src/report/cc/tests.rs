//! What a comparison's table and page say of samples that are given.

use std::time::Duration;

use expect_test::expect;

use super::*;
use crate::emulation::Lateness;
use crate::reproduce::varnish;

/// Two losses, three algorithms; samples that take what is given, in milliseconds.
fn report(times_ms: impl Fn(usize, &str) -> Vec<u64>) -> Report {
    let mut report = Report::new(varnish::plan(true));
    report.plan.samples = 8;
    for cell in report.plan.cells() {
        let sample = |total_ms: u64| Sample {
            total: Duration::from_millis(total_ms),
            connect: Duration::from_millis(200),
            ttfb: Duration::from_millis(200),
            retransmits: total_ms / 1000,
            progress: vec![0, 0, 600_000, 1_200_000],
        };
        let samples: Vec<_> = times_ms(cell.path, &cell.algorithm).into_iter().map(sample).collect();
        if !samples.is_empty() {
            report.samples.insert(cell, samples);
        }
    }
    report
}

fn around(centre_ms: u64) -> Vec<u64> {
    (0..8).map(|number| centre_ms + number % 3 * 10).collect()
}

/// A run of which all is there.
fn whole() -> Report {
    report(|path, algorithm| match (path, algorithm) {
        (0, "reno") => around(2000),
        (0, _) => around(1600),
        (1, "bbr") => around(2100),
        (1, "cubic") => around(4400),
        _ => around(11_900),
    })
}

/// A run in which much went wrong.
fn broken() -> Report {
    let mut report = report(|path, algorithm| match (path, algorithm) {
        (1, "reno") => Vec::new(),
        (_, "bbr") => around(1600),
        _ => around(2000),
    });
    let cells: Vec<_> = report.plan.cells().collect();
    report.failures.insert(cells[0].clone(), vec!["the server, \"x\", closed".to_owned(), "late".to_owned()]);
    report.failures.insert(cells[5].clone(), vec!["no content within 60s".to_owned(); 4]);
    report.interrupted = Some(15);
    let late = |p999_us| Lateness { p999: Duration::from_micros(p999_us), packets: 10_000, missed: 0 };
    (report.lateness, report.paths) = (late(600), vec![late(300), Lateness { missed: 3, ..late(2400) }]);
    report
}

#[test]
fn the_table_says_who_wins_and_what_that_means() {
    expect![[r#"
        long-haul 0%: round trip 200 ms, 40 Mbit/s, queue 2000 kB, loss 0 %
        long-haul 1%: round trip 200 ms, 40 Mbit/s, queue 2000 kB, loss 1 %

        path          size    algorithm  samples          mean s  times best  median s  retransmits
        long-haul 0%  1200kB  bbr              8   1.609 ± 0.007        1.00     1.610          1.0  best
        long-haul 0%  1200kB  cubic            8   1.609 ± 0.007        1.00     1.610          1.0  best
        long-haul 0%  1200kB  reno             8   2.009 ± 0.007        1.25     2.010          2.0

        long-haul 1%  1200kB  bbr              8   2.109 ± 0.007        1.00     2.110          2.0  wins
        long-haul 1%  1200kB  cubic            8   4.409 ± 0.007        2.09     4.410          4.0
        long-haul 1%  1200kB  reno             8  11.909 ± 0.007        5.65    11.910         11.0

        Seconds from the first SYN to the last byte. ±: the mean's 95 % interval (Student's t); nineteen of twenty hold the true mean.
        wins: the least mean, below each other by more than chance (Welch's 95 % interval of each difference leaves zero out).
        best: the least mean, but no win: by chance another may be as good, or samples failed or were cut off. More samples may tell.
    "#]].assert_eq(&table(&whole()));
}

#[test]
fn the_table_says_what_went_wrong() {
    expect![[r#"
        long-haul 0%: round trip 200 ms, 40 Mbit/s, queue 2000 kB, loss 0 %
        long-haul 1%: round trip 200 ms, 40 Mbit/s, queue 2000 kB, loss 1 %

        path          size    algorithm  samples  failed         mean s  times best  median s  retransmits
        long-haul 0%  1200kB  bbr              8       2  1.609 ± 0.007        1.00     1.610          1.0  best
        long-haul 0%  1200kB  cubic            8       -  2.009 ± 0.007        1.25     2.010          2.0
        long-haul 0%  1200kB  reno             8       -  2.009 ± 0.007        1.25     2.010          2.0

        long-haul 1%  1200kB  bbr              8       -  1.609 ± 0.007        1.00     1.610          1.0  best
        long-haul 1%  1200kB  cubic            8       -  2.009 ± 0.007        1.25     2.010          2.0
        long-haul 1%  1200kB  reno             0       4              -           -         -            -  no sample

        Seconds from the first SYN to the last byte. ±: the mean's 95 % interval (Student's t); nineteen of twenty hold the true mean.
        best: the least mean, but no win: by chance another may be as good, or samples failed or were cut off. More samples may tell.
        failed: in no mean. Who gave up waiting would have been the slowest, so that a mean beside failures is too low.

        Interrupted by signal 15: 40 of 48 samples were taken. Those under way are not among them, and the slow ones are under way longest: nothing is said to win.
        6 of 48 samples failed, here with the first reason: long-haul 0%, 1200kB, bbr: 2 (the server, "x", closed); long-haul 1%, 1200kB, reno: 4 (no content within 60s).
        The emulation was late at the 99.9th percentile: 2400 us on long-haul 1%; at most 1000 us are allowed. The machine was too busy: figures of these paths are not to be trusted. Use fewer lanes.
        The emulator itself lost packets: 3 of 10003 on long-haul 1%; one of 10000 is allowed. Figures of these paths are not to be trusted. Use fewer lanes.
    "#]].assert_eq(&table(&broken()));
}

#[test]
fn a_quantile_that_no_row_has_takes_no_column() {
    assert!(!table(&whole()).contains("p90"));
    let many = report(|_, _| (0..36).map(|number| 1000 + number).collect());
    assert!(table(&many).contains("p90 s") && !table(&many).contains("p99"));
}

#[test]
fn nothing_wins_that_failed_or_is_alone() {
    let wins = |report: &Report| -> Vec<bool> { rows(report).iter().map(|row| row.wins).collect() };
    assert_eq!(wins(&whole()), [false, false, false, true, false, false]);
    assert_eq!(wins(&broken()), [false; 6]);
    let mut interrupted = whole();
    interrupted.interrupted = Some(2);
    assert_eq!(wins(&interrupted), [false; 6]);
    let mut alone = whole();
    alone.plan.algorithms = vec!["bbr".to_owned()];
    assert!(rows(&alone).iter().all(|row| !row.wins && !row.is_best));
}

#[test]
fn csv_has_what_failed_too() {
    let text = csv(&broken());
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 1 + 5 * 8 + 6);
    assert!(lines.iter().all(|line| line.starts_with("path,") || line.starts_with("long-haul ")));
    assert_eq!(lines[1], "long-haul 0%,1200000,false,bbr,1600000,200000,200000,1,");
    assert_eq!(lines[41], "long-haul 0%,1200000,false,bbr,,,,,\"the server, \"\"x\"\", closed\"");
    assert_eq!(lines[46], "long-haul 1%,1200000,false,reno,,,,,no content within 60s");
}

#[test]
fn json_has_what_failed_too() {
    let broken = broken();
    let headlines = varnish::headlines(&broken);
    let document: serde_json::Value = serde_json::from_str(&json(&broken, &headlines)).unwrap();
    let number = |name: &str| document[name].as_u64();
    assert_eq!(
        ["samples_asked", "samples_taken", "samples_failed"].map(number),
        [Some(48), Some(40), Some(6)]
    );
    assert_eq!((number("interrupted_by_signal"), &document["is_on_time"]), (Some(15), &false.into()));
    assert_eq!(document["paths"][1]["is_late"], true);
    assert_eq!(document["paths"][1]["packets_missed"], 3);
    let row = &document["rows"][5];
    assert_eq!((row["samples"].as_u64(), row["failed"].as_u64()), (Some(0), Some(4)));
    assert!(row["mean_s"].is_null() && row["first_failure"] == "no content within 60s");
    assert_eq!(document["rows"][0]["mean_s"].as_f64().map(|mean| (mean * 1e5).round()), Some(160_875.0));
    let [first, .., last] = &document["headlines"].as_array().unwrap()[..] else { panic!("{document}") };
    assert!(first["ratio"].is_f64() && first["interval"].is_array() && first["but"] == "2 of 10 bbr failed");
    assert!(last["here"].is_null() && last["ratio"].is_null() && last["but"] == "4 of 4 reno failed");
    let alone = json(&broken, &[]);
    assert!(!alone.contains("headlines"), "of a publication alone");
}

#[test]
fn a_sweep_is_of_paths_that_differ_in_loss_alone() {
    let sweeps = |report: &Report| page(report).matches("Loss, ").count();
    let mut report = whole();
    assert_eq!(sweeps(&report), 1);
    report.plan.scenario.paths[1].up.delay *= 2;
    assert_eq!(sweeps(&report), 0);
}

#[test]
fn the_page_has_what_failed_and_what_is_missing() {
    let page = page(&broken());
    for words in
        ["Interrupted by signal 15", "6 of 48 samples failed", "2400 us on long-haul 1%", "no sample"]
    {
        assert!(page.contains(words), "{words}");
    }
    assert!(page.matches("<svg").count() == 1 + 2 * 2, "a sweep, and two charts of each path");
    let mut empty = broken();
    empty.samples.clear();
    assert!(super::page(&empty).contains("There is no sample."));
}
