//! The lab across the real programs: published results measured again, with real edges, over emulated paths and on loopback.
//!
//! As root, like the lab's emulation.
#![allow(clippy::unwrap_used, reason = "a test fails where something is not as it has to be")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};

use rustix::process::{Pid, Signal, kill_process};

/// A machine that has other work lets the emulation be late, and the lab says so; then it is measured again.
const ATTEMPTS: usize = 4;
/// Tests measure one after the other: each would be the other's load.
static MACHINE: Mutex<()> = Mutex::new(());

/// A program of this build.
fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().and_then(|deps| deps.parent()).unwrap().join(name)
}

#[test]
fn varnishs_result_is_there_where_packets_are_lost() {
    let _alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = std::env::temp_dir().join(format!("thalweg-lab-varnish-{}", std::process::id()));
    let mut command = Command::new(program("thalweg-lab"));
    command
        .args(["reproduce", "varnish", "--quick", "--thalweg"])
        .arg(program("thalweg"))
        .arg("--out")
        .arg(&directory);
    command.stdin(Stdio::null());
    let mut is_on_time = false;
    for _ in 0..ATTEMPTS {
        let Output { status, stdout, stderr } = command.output().unwrap();
        let said = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        is_on_time = status.success();
        assert!(is_on_time || status.code() == Some(1) && said.contains("The emulation was late"), "{said}");
        if is_on_time {
            break;
        }
    }
    let summary = fs::read_to_string(directory.join("summary.json")).unwrap();
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
    assert_eq!(summary["is_on_time"], is_on_time);
    let rows = summary["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * 3, "{summary}");
    assert_eq!(summary["headlines"].as_array().map(Vec::len), Some(2 * 2), "{summary}");
    let report = fs::read_to_string(directory.join("report.html")).unwrap();
    assert_eq!(report.matches("<svg").count(), 1 + 2 * 2, "the sweep, and two of each path");
    // Nothing is fetched from elsewhere.
    assert!(!report.contains("src=") && !report.contains("@import") && !report.contains("<link"));
    fs::remove_dir_all(&directory).unwrap();
    let row = |path: &str, algorithm: &str| {
        let is_it = |row: &&serde_json::Value| row["path"] == path && row["algorithm"] == algorithm;
        rows.iter().find(is_it).unwrap_or_else(|| panic!("{path} {algorithm}: {summary}"))
    };
    let mean_s = |path, algorithm| row(path, algorithm)["mean_s"].as_f64().unwrap();
    // Some milliseconds of lateness do not turn seconds around.
    assert!(2.0 * mean_s("long-haul 1%", "bbr") < mean_s("long-haul 1%", "reno"), "{summary}");
    if !is_on_time {
        eprintln!("this machine is too busy to compare algorithms in more detail");
        return;
    }
    for algorithm in ["bbr", "cubic", "reno"] {
        // Slow start alone takes seven round trips for this size, and the connection one more.
        let clean_s = mean_s("long-haul 0%", algorithm);
        assert!((1.6..2.2).contains(&clean_s), "{algorithm}: {clean_s} s");
        assert_eq!(row("long-haul 0%", algorithm)["retransmits_mean"], 0.0);
        assert!(row("long-haul 1%", algorithm)["retransmits_mean"].as_f64() > Some(1.0));
    }
    assert!(mean_s("long-haul 1%", "bbr") < mean_s("long-haul 1%", "cubic"), "{summary}");
}

/// The parts, the paths and the controller's first finding. The whole takes three minutes: this is ended as by Ctrl-C.
#[test]
fn edgios_slow_networks_are_found() {
    let _alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = std::env::temp_dir().join(format!("thalweg-lab-edgio-{}", std::process::id()));
    let mut command = Command::new(program("thalweg-lab"));
    command.args(["reproduce", "edgio", "--quick", "--thalweg"]).arg(program("thalweg"));
    command.arg("--out").arg(&directory).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut running = command.spawn().unwrap();
    let mut said = String::new();
    let mut lines = BufReader::new(running.stderr.take().unwrap()).lines().map(Result::unwrap);
    let is_found = lines
        .by_ref()
        .inspect(|line| said += &format!("{line}\n"))
        .any(|line| line.contains("entered (slow)"));
    assert!(is_found, "{said}");
    kill_process(Pid::from_child(&running), Signal::INT).unwrap();
    said.extend(lines.map(|line| line + "\n"));
    assert_eq!(running.wait().unwrap().code(), Some(128 + Signal::INT.as_raw()), "{said}");
    let summary = fs::read_to_string(directory.join("summary.json")).unwrap();
    fs::remove_dir_all(&directory).unwrap();
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
    assert_eq!(summary["interrupted_by_signal"], Signal::INT.as_raw(), "{summary}");
    let slow = ["overseas", "radio", "policed", "bloated"];
    assert!(slow.iter().any(|name| said.contains(&format!("{name} entered (slow)"))), "{said}");
}

#[test]
fn lumens_result_is_there_for_all_who_join() {
    let _alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = std::env::temp_dir().join(format!("thalweg-lab-lumen-{}", std::process::id()));
    let mut command = Command::new(program("thalweg-lab"));
    command.args(["reproduce", "lumen", "--quick", "--thalweg"]).arg(program("thalweg"));
    command
        .args(["--media", concat!(env!("CARGO_MANIFEST_DIR"), "/../assets/sample"), "--out"])
        .arg(&directory);
    let Output { status, stdout, stderr } = command.stdin(Stdio::null()).output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{said}");
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
    // Who waits for the end of what is made waits for seconds, half of them at least as long as half of the segment takes; who does not
    // waits as long as the machine is busy, which has room up to half of that. The short fill is no such test: on a busy machine it may be
    // over before anybody joins.
    let p50_ms = |row: &serde_json::Value| row["p50_ms"].as_f64().unwrap();
    let [ours, nginxs] =
        ["thalweg", "nginx"].map(|cache| row("joiners", &format!("{cache}, segment, 3.5 s")));
    assert!(2.0 * p50_ms(ours) < p50_ms(nginxs), "{summary}");
    let [ours, nginxs] = ["thalweg", "nginx"].map(|cache| row("chunks", &format!("{cache} before {cache}")));
    assert!(2.0 * p50_ms(ours) < p50_ms(nginxs), "{summary}");
    let step = &summary["viewers"][0];
    let told = |seen: &str| {
        let count = |what: &str| step[seen][what].as_u64().unwrap();
        (count("playing") + count("stalled"), count("lost"))
    };
    assert_eq!([told("crowd"), told("at_edge")], [(60, 0), (12, 0)], "{step}");
    assert!(
        step["crowd"]["gbit_per_s"].as_f64() > Some(0.0) && step["edges_memory_bytes"].as_u64() > Some(0)
    );
    assert!(summary["throughput"]["gbit_per_s"].as_f64() > Some(0.0));
    assert_eq!(summary["headlines"].as_array().map(Vec::len), Some(7), "{summary}");
    // Joiners of both fills at both caches, and eight chunks at twenty clients of both.
    assert_eq!(samples.lines().count(), 1 + 4 * 80 + 2 * 8 * 20);
    assert_eq!(report.matches("<svg").count(), 2 + 2, "two histograms, and the delays of both");
}
