//! Lab tests with the real programs: published results must be reproduced with real edges, over
//! emulated paths and on loopback.
//!
//! Requires root, like the lab's emulation.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};

/// Maximum lateness of 99.9 % of packets: a quarter of the round-trip time of 200 ms.
const LATE_US_MAX: u64 = 50_000;
/// Maximum number of packets that a sender may retransmit per packet lost by the emulator itself.
const SENT_AGAIN_MAX: f64 = 10.0;
/// Lock that makes measurements run one at a time, because each loads the machine.
static MACHINE: Mutex<()> = Mutex::new(());

/// Returns the path of a program built together with this test.
fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().and_then(|deps| deps.parent()).unwrap().join(name)
}

#[test]
fn varnish_result_is_reproduced_on_lossy_paths() {
    let _alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = std::env::temp_dir().join(format!("thalweg-lab-varnish-{}", std::process::id()));
    let mut command = Command::new(program("thalweg-lab"));
    command
        .args(["reproduce", "varnish", "--quick", "--thalweg"])
        .arg(program("thalweg"))
        .arg("--out")
        .arg(&directory);
    command.stdin(Stdio::null());
    let Output { status, stdout, stderr } = command.output().unwrap();
    let output = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    let summary = fs::read_to_string(directory.join("summary.json")).unwrap_or_else(|_| panic!("{output}"));
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
    assert_eq!(status.code(), Some(i32::from(summary["is_on_time"] == false)), "{output}");
    assert_eq!(summary["samples_failed"], 0, "{output}");
    let of_paths = |name: &str| {
        let paths = summary["paths"].as_array().unwrap().iter();
        paths.map(|path| path[name].as_u64().unwrap()).collect::<Vec<_>>()
    };
    let (late_us, missed) = (of_paths("lateness_us"), of_paths("packets_missed"));
    let is_late = late_us.iter().any(|late_us| *late_us > LATE_US_MAX);
    assert!(!is_late, "this machine is too busy for the emulation: late by {late_us:?} us");
    let rows = summary["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * 3, "{summary}");
    assert_eq!(summary["headlines"].as_array().map(Vec::len), Some(2 * 2), "{summary}");
    let report = fs::read_to_string(directory.join("report.html")).unwrap();
    let charts = fs::read_dir(directory.join("charts")).unwrap().count();
    assert_eq!((report.matches("<svg").count(), charts), (6, 6), "two charts of the sweep, and two per path");
    // The published ratio is drawn in two charts of the sweep (mean times, and their ratios) and in
    // one chart of each path.
    assert_eq!(report.matches("published: 2 to 3 times bbr").count(), 4);
    // The report is self-contained.
    assert!(!report.contains("src=") && !report.contains("@import") && !report.contains("<link"));
    fs::remove_dir_all(&directory).unwrap();
    let row = |path: &str, algorithm: &str| {
        let is_it = |row: &&serde_json::Value| row["path"] == path && row["algorithm"] == algorithm;
        rows.iter().find(is_it).unwrap_or_else(|| panic!("{path} {algorithm}: {summary}"))
    };
    let mean_s = |path, algorithm| row(path, algorithm)["mean_s"].as_f64().unwrap();
    assert!(2.0 * mean_s("long-haul 1%", "bbr") < mean_s("long-haul 1%", "reno"), "{summary}");
    for algorithm in ["bbr", "cubic", "reno"] {
        // Connecting takes one round trip of 200 ms, and slow start at least seven for this size:
        // 1.6 s.
        let clean_s = mean_s("long-haul 0%", algorithm);
        assert!((1.6..2.2).contains(&clean_s), "{algorithm}: {clean_s} s");
        let clean = row("long-haul 0%", algorithm);
        let sent_again = clean["retransmits_mean"].as_f64().unwrap() * clean["samples"].as_f64().unwrap();
        assert!(
            sent_again <= missed[0] as f64 * SENT_AGAIN_MAX,
            "{algorithm}: {sent_again}, missed {missed:?}"
        );
        assert!(row("long-haul 1%", algorithm)["retransmits_mean"].as_f64() > Some(1.0));
    }
    assert!(mean_s("long-haul 1%", "bbr") < mean_s("long-haul 1%", "cubic"), "{summary}");
}

/// All parts must run on all paths: the controller must find slow networks in both PoPs, one edge
/// must get rules before the other, and a damaged bundle must be rolled back. On a busy machine,
/// the emulation may be late, which makes the exit status 1, but does not affect these checks.
#[test]
fn edgio_reproduction_finds_slow_networks_and_survives_damage() {
    let _alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = std::env::temp_dir().join(format!("thalweg-lab-edgio-{}", std::process::id()));
    let mut command = Command::new(program("thalweg-lab"));
    command.args(["reproduce", "edgio", "--quick", "--thalweg"]).arg(program("thalweg"));
    command.arg("--out").arg(&directory).stdin(Stdio::null());
    let Output { status, stdout, stderr } = command.output().unwrap();
    let output = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(matches!(status.code(), Some(0 | 1)), "{output}");
    let summary = fs::read_to_string(directory.join("summary.json")).unwrap();
    fs::remove_dir_all(&directory).unwrap();
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
    assert!(summary["failed"].is_null() && summary["interrupted_by_signal"].is_null(), "{output}");
    assert_eq!(summary["failed_responses"], 0, "{output}");
    let checks = summary["checks"].as_array().unwrap();
    assert_eq!(checks.len(), 4, "{output}");
    assert!(checks.iter().all(|check| check["holds"] == true), "{output}");
}

/// Both arms must be measured over a real S3 server, without a failed request, and pooled
/// connections must be fewer. Gains are not checked, because they depend on the load of the
/// machine.
#[test]
fn unified_reproduction_measures_both_arms() {
    let _alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = std::env::temp_dir().join(format!("thalweg-lab-unified-{}", std::process::id()));
    let cache = program("../unified");
    let mut command = Command::new(program("thalweg-lab"));
    command.args(["reproduce", "unified", "--quick", "--thalweg"]).arg(program("thalweg"));
    command.arg("--cache").arg(&cache).arg("--out").arg(&directory).stdin(Stdio::null());
    let Output { status, stdout, stderr } = command.output().unwrap();
    let output = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(matches!(status.code(), Some(0 | 1)), "{output}");
    let summary = fs::read_to_string(directory.join("summary.json")).unwrap_or_else(|_| panic!("{output}"));
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
    assert!(summary["failed"].is_null() && summary["interrupted_by_signal"].is_null(), "{output}");
    let runs = summary["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 4, "two formats and two arms: {output}");
    for run in runs {
        assert_eq!(run["errors"], 0, "{output}");
        let counts = ["manifests", "segments"].map(|what| run[what]["count"].as_u64().unwrap());
        // HLS has a multivariant playlist and at least one media playlist.
        let manifests = if run["format"] == "hls" { 2 * 14 } else { 14 };
        assert!(counts[0] >= manifests && counts[1] > counts[0], "{counts:?}: {output}");
    }
    let opened = |arm: &str| -> u64 {
        let of_arm = runs.iter().filter(|run| run["connections"] == arm);
        of_arm.map(|run| run["connections_opened"].as_u64().unwrap()).sum()
    };
    let (fresh, pooled) = (opened("fresh"), opened("pooled"));
    assert!(pooled > 0 && 2 * pooled < fresh, "{pooled} instead of {fresh} connections: {output}");
    assert_eq!(summary["limit"].as_array().map(Vec::len), Some(3), "{output}");
    let report = fs::read_to_string(directory.join("report.html")).unwrap();
    assert_eq!(report.matches("<svg").count(), 2 + 2 * 5, "two charts of gains, five of each format");
    let finished = fs::read_dir(directory.join("runs")).unwrap().count();
    fs::remove_dir_all(&directory).unwrap();
    assert_eq!(finished, 4, "a series resumes from these files");
}

#[test]
fn lumen_result_is_reproduced_for_joiners() {
    let _alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = std::env::temp_dir().join(format!("thalweg-lab-lumen-{}", std::process::id()));
    let mut command = Command::new(program("thalweg-lab"));
    command.args(["reproduce", "lumen", "--quick", "--thalweg"]).arg(program("thalweg"));
    command
        .args(["--media", concat!(env!("CARGO_MANIFEST_DIR"), "/../assets/sample"), "--out"])
        .arg(&directory);
    let Output { status, stdout, stderr } = command.stdin(Stdio::null()).output().unwrap();
    let output = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{output}");
    let summary = fs::read_to_string(directory.join("summary.json")).unwrap();
    let samples = fs::read_to_string(directory.join("samples.csv")).unwrap();
    let report = fs::read_to_string(directory.join("report.html")).unwrap();
    fs::remove_dir_all(&directory).unwrap();
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
    let row = |table: &str, of: &str| {
        let rows = summary[table].as_array().unwrap();
        rows.iter().find(|row| row["of"] == of).unwrap_or_else(|| panic!("{table}, {of}: {summary}"))
    };
    assert!(summary["failed"].is_null() && summary["interrupted_by_signal"].is_null(), "{summary}");
    // nginx's clients wait for the end of the segment, half of them for at least half of its
    // duration. Thalweg's clients join the fill and do not wait; how long they take depends on the
    // load of the machine, so up to half of nginx's median is accepted. The short fill is not
    // compared, because on a busy machine it may complete before any client joins.
    let p50_ms = |row: &serde_json::Value| row["p50_ms"].as_f64().unwrap();
    let [ours, nginxs] =
        ["thalweg", "nginx"].map(|cache| row("joiners", &format!("{cache}, segment, 3.5 s")));
    assert!(2.0 * p50_ms(ours) < p50_ms(nginxs), "{summary}");
    let [ours, nginxs] = ["thalweg", "nginx"].map(|cache| row("chunks", &format!("{cache} before {cache}")));
    assert!(2.0 * p50_ms(ours) < p50_ms(nginxs), "{summary}");
    let step = &summary["viewers"][0];
    let counts = |seen: &str| {
        let count = |what: &str| step[seen][what].as_u64().unwrap();
        (count("playing") + count("stalled"), count("lost"))
    };
    assert_eq!([counts("crowd"), counts("at_edge")], [(60, 0), (12, 0)], "{step}");
    assert!(
        step["crowd"]["gbit_per_s"].as_f64() > Some(0.0) && step["edges_memory_bytes"].as_u64() > Some(0)
    );
    assert!(summary["throughput"]["gbit_per_s"].as_f64() > Some(0.0));
    assert_eq!(summary["headlines"].as_array().map(Vec::len), Some(9), "{summary}");
    // A header line; 80 joiners for each of two fills at two caches; and eight chunks to twenty
    // clients at each cache.
    assert_eq!(samples.lines().count(), 1 + 4 * 80 + 2 * 8 * 20);
    // Two histograms and two shares of waits, a delay chart for each cache, and TTFB over time.
    assert_eq!(report.matches("<svg").count(), 2 + 2 + 2 + 1);
    assert_eq!(report.matches("published: 500 ms").count(), 4);
    let seconds = step["ttfb_p95"].as_array().unwrap();
    assert!(
        !seconds.is_empty() && seconds.iter().all(|second| second["p95_ms"].as_f64() > Some(0.0)),
        "{step}"
    );
    let script = &summary["script"];
    assert_eq!((&script["clients"], &script["errors"]), (&120.into(), &0.into()), "{script}");
    // So much content means that the script read the manifest and requested segments.
    let count = |name: &str| script[name].as_u64().unwrap();
    assert!(count("requests") > 120 && count("content_bytes") > count("requests") * 20_000, "{script}");
}
