//! Tests of a comparison's table, page, CSV and JSON.

use std::time::Duration;

use expect_test::expect;
use thalweg_netem::emulation::Lateness;

use super::*;
use crate::reproduce::varnish;

/// Builds a report with two loss rates, three algorithms, and samples with the given times in
/// milliseconds.
fn report(times_ms: impl Fn(usize, &str) -> Vec<u64>) -> Report {
    let mut report = Report::new(varnish::plan(true));
    report.plan.samples = 8;
    for cell in report.plan.cells() {
        let sample = |total_ms: u64| Sample {
            total: Duration::from_millis(total_ms),
            connect: Duration::from_millis(200),
            ttfb: Duration::from_millis(200),
            retransmits: total_ms / 1000,
            edge_bytes_per_s: None,
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

/// Builds the report of a complete run.
fn whole() -> Report {
    report(|path, algorithm| match (path, algorithm) {
        (0, "reno") => around(2000),
        (0, _) => around(1600),
        (1, "bbr") => around(2100),
        (1, "cubic") => around(4400),
        _ => around(11_900),
    })
}

/// Builds the report of a run with many failures.
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
fn table_shows_and_explains_the_winners() {
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

        Seconds from the first SYN to the last byte. ±: the mean's 95 % interval (Student's t), which contains the true mean 19 times in 20.
        wins: the lowest mean, and significantly so (Welch's 95 % interval of the difference from each other algorithm excludes zero).
        best: the lowest mean, but no win: the difference may be chance, or samples failed or were cut off. More samples may tell.
    "#]].assert_eq(&table(&whole()));
}

#[test]
fn table_shows_failures_and_lateness() {
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

        Seconds from the first SYN to the last byte. ±: the mean's 95 % interval (Student's t), which contains the true mean 19 times in 20.
        best: the lowest mean, but no win: the difference may be chance, or samples failed or were cut off. More samples may tell.
        failed: excluded from the means. A sample that timed out would have been among the slowest, so a mean beside failures is too low.

        Interrupted by signal 15: 40 of 48 samples were taken. Those in flight are excluded, and slow ones are in flight longest: no winner is declared.
        6 of 48 samples failed; first reason of each cell: long-haul 0%, 1200kB, bbr: 2 (the server, "x", closed); long-haul 1%, 1200kB, reno: 4 (no content within 60s).
        The emulation was late: 99.9th percentile 2400 us on long-haul 1%; limit 1000 us. The machine was too busy: do not trust the figures of these paths. Use fewer lanes.
        The emulator itself lost packets: 3 of 10003 on long-haul 1%; limit one in 10000. Do not trust the figures of these paths. Use fewer lanes.
    "#]].assert_eq(&table(&broken()));
}

#[test]
fn unavailable_quantile_has_no_column() {
    assert!(!table(&whole()).contains("p90"));
    let many = report(|_, _| (0..36).map(|number| 1000 + number).collect());
    assert!(table(&many).contains("p90 s") && !table(&many).contains("p99"));
}

#[test]
fn failed_or_lone_algorithm_never_wins() {
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
fn csv_includes_failed_samples() {
    let text = csv(&broken());
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 1 + 5 * 8 + 6);
    assert!(lines.iter().all(|line| line.starts_with("path,") || line.starts_with("long-haul ")));
    assert_eq!(lines[1], "long-haul 0%,1200000,false,bbr,1600000,200000,200000,1,,");
    assert_eq!(lines[41], "long-haul 0%,1200000,false,bbr,,,,,,\"the server, \"\"x\"\", closed\"");
    assert_eq!(lines[46], "long-haul 1%,1200000,false,reno,,,,,,no content within 60s");
}

#[test]
fn json_includes_failed_samples() {
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
    assert!(!alone.contains("headlines"), "only publications have headlines");
}

#[test]
fn sweep_requires_paths_that_differ_only_in_loss() {
    let sweeps = |report: &Report| page(report).matches("Loss, ").count();
    let mut report = whole();
    assert_eq!(sweeps(&report), 1);
    report.plan.scenario.paths[1].up.delay *= 2;
    assert_eq!(sweeps(&report), 0);
}

#[test]
fn publication_marks_its_ratio_in_the_charts() {
    let report = whole();
    let headlines = varnish::headlines(&report);
    let of = |ratio| Publication { title: "t", open: "o", headlines: &headlines, ratio };
    let marked = page_of(&report, &of(Some(varnish::RATIO)));
    assert_eq!(marked.matches("<svg").count(), 2 + 2 * 2, "times, ratios, and two charts for each path");
    let named =
        |words: &str| crate::report::charts(&marked).iter().filter(|(_, svg)| svg.contains(words)).count();
    assert_eq!(
        [named("published: 2 to 3 times bbr\n"), named("published: 2 to 3 times bbr&apos;s mean")],
        [2, 2]
    );
    assert_eq!([named("reno / bbr"), named("bbr / bbr")], [1, 0]);
    assert!(!page_of(&report, &of(None)).contains("published: "), "a publication without a ratio");
}

#[test]
fn differences_from_the_edge_are_shown_by_path_and_size() {
    let mut report = whole();
    assert!(!page(&report).contains("off p50 ms"), "the edge measured nothing");
    for sample in report.samples.values_mut().flatten() {
        // 1.2 MB at a rate that takes 2 ms longer than by the client's clock.
        let edge_s = sample.transfer().as_secs_f64() + 0.002;
        sample.edge_bytes_per_s = Some((1_200_000.0 / edge_s).round() as u64);
    }
    let page = page(&report);
    let text = agreements(&report);
    for rows in [&page, &text, &table(&report)] {
        assert!(rows.contains("off p50 ms") && rows.contains("2.00"), "{rows}");
    }
    assert!(
        text.contains("long-haul 1%, 1200kB            200       24        24        2.00           -"),
        "{text}"
    );
}

#[test]
fn page_shows_failures_and_missing_samples() {
    let page = page(&broken());
    for words in
        ["Interrupted by signal 15", "6 of 48 samples failed", "2400 us on long-haul 1%", "no sample"]
    {
        assert!(page.contains(words), "{words}");
    }
    assert!(page.matches("<svg").count() == 1 + 2 * 2, "one sweep, and two charts for each path");
    let mut empty = broken();
    empty.samples.clear();
    assert!(super::page(&empty).contains("No samples."));
}
