//! End-to-end tests of `cc`: a real edge over emulated paths, killed and interrupted.
//!
//! They need root, and `thalweg` beside `thalweg-lab`.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, kill_process};

const PROGRAM: &str = env!("CARGO_BIN_EXE_thalweg-lab");

/// Maximum median of the difference between the edge's time and the client's. On a busy machine,
/// the median is 1 to 2 ms.
const OFF_P50_MS_MAX: f64 = 5.0;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn exclusive() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A running comparison that has taken its first sample.
struct Comparison {
    child: Child,
    output: BufReader<ChildStderr>,
    directory: PathBuf,
}

impl Comparison {
    fn started(name: &str, samples: &str) -> Self {
        let beside = Path::new(PROGRAM).with_file_name("thalweg");
        assert!(beside.exists(), "{}: build it with `cargo build -p thalweg`", beside.display());
        let directory = std::env::temp_dir().join(format!("thalweg-lab-{name}-{}", std::process::id()));
        let mut command = Command::new(PROGRAM);
        command.args(["cc", "fibre", "--sizes", "100kB", "--algorithms", "cubic,reno", "--samples", samples]);
        command.arg("--out").arg(&directory).env("THALWEG_LOG", "off,thalweg_lab::cc=debug");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut output = BufReader::new(child.stderr.take().unwrap());
        let (mut line, mut before) = (String::new(), String::new());
        while !line.contains("sample") {
            before += &line;
            line.clear();
            assert!(output.read_line(&mut line).unwrap() > 0, "the comparison exited: {before}");
        }
        Self { child, output, directory }
    }

    /// Waits until the comparison exits and returns its exit status, table and files.
    fn end(mut self) -> (i32, String, [String; 3]) {
        let mut out = self.child.stdout.take().unwrap();
        let table = std::thread::spawn(move || {
            let mut table = String::new();
            out.read_to_string(&mut table).unwrap();
            table
        });
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        let status = self.child.wait().unwrap().code().unwrap_or(-1);
        let table = table.join().unwrap();
        let files = ["report.html", "samples.csv", "summary.json"]
            .map(|name| fs::read_to_string(self.directory.join(name)).unwrap_or_default());
        let _ = fs::remove_dir_all(&self.directory);
        (status, table, files)
    }
}

/// Finds the edge started by a process.
fn edge_of(parent: u32) -> Pid {
    let is_edge = |pid: i32| {
        let of = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let stat = of("stat");
        let parent_of = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1));
        parent_of == Some(&parent.to_string()) && of("cmdline").contains("\0edge\0")
    };
    let all = fs::read_dir("/proc").unwrap().flatten();
    let mut pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Pid::from_raw(pids.find(|pid| is_edge(*pid)).unwrap()).unwrap()
}

#[test]
fn interrupted_comparison_writes_partial_results() {
    let _exclusive = exclusive();
    for (signal, number) in [(Signal::INT, 2), (Signal::TERM, 15), (Signal::HUP, 15)] {
        let comparison = Comparison::started("interrupted", "5000");
        kill_process(Pid::from_child(&comparison.child), signal).unwrap();
        let (status, table, [page, samples, summary]) = comparison.end();
        assert_eq!(status, 128 + number, "{table}");
        let words = format!("Interrupted by signal {number}: ");
        assert!(table.contains(&words) && page.contains(&words), "{table}");
        let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
        assert_eq!(summary["interrupted_by_signal"], number);
        let taken = summary["samples_taken"].as_u64().unwrap();
        assert!((1..10_000).contains(&taken));
        assert_eq!(samples.lines().count() as u64, 1 + taken);
    }
}

#[test]
fn failed_samples_are_counted_and_do_not_end_the_run() {
    let _exclusive = exclusive();
    let comparison = Comparison::started("failed", "200");
    kill_process(edge_of(comparison.child.id()), Signal::KILL).unwrap();
    let (status, table, [page, samples, summary]) = comparison.end();
    assert_eq!(status, 1, "{table}");
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
    let number = |name: &str| summary[name].as_u64().unwrap();
    let (taken, failed) = (number("samples_taken"), number("samples_failed"));
    assert!(taken > 0 && failed > 0 && taken + failed == 400, "{table}");
    let words = format!("{failed} of 400 samples failed");
    assert!(table.contains(&words) && page.contains(&words), "{table}");
    assert_eq!(samples.lines().filter(|line| line.contains(",,,,,,")).count() as u64, failed);
}

/// Maximum mean time, in seconds, that only the client measures.
const CLIENT_ONLY_S_MAX: f64 = 0.01;

/// The emulation may be late on a busy machine, which delays both clocks alike: the exit status is
/// not checked.
#[test]
fn edge_measures_the_goodput_that_clients_see() {
    let _exclusive = exclusive();
    let directory = std::env::temp_dir().join(format!("thalweg-lab-outcomes-{}", std::process::id()));
    let mut command = Command::new(PROGRAM);
    let output =
        command.args(["reproduce", "outcomes", "--quick", "--out"]).arg(&directory).output().unwrap();
    let summary = fs::read_to_string(directory.join("summary.json")).unwrap();
    let _ = fs::remove_dir_all(&directory);
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
    let table = String::from_utf8(output.stdout).unwrap();
    let rows = summary["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * 3 * 3);
    for row in rows {
        assert_eq!((&row["samples"], &row["edge_samples"]), (&6.into(), &6.into()), "{table}");
        assert!(row["edge_agreeing"].as_u64().unwrap() >= 5, "{table}");
        // The edge's service time, and a wait for a busy processor, are part of the client's time
        // alone. They matter in short transfers.
        let mean_s = row["mean_s"].as_f64().unwrap();
        let bias_max = 0.05_f64.max(CLIENT_ONLY_S_MAX / mean_s);
        assert!(row["edge_bias_ln"].as_f64().unwrap().abs() < bias_max, "{table}");
    }
    // In half of the cells, half of the samples must agree much better than within a round trip,
    // which is 20 or 30 ms.
    let mut off_ms: Vec<f64> = rows.iter().map(|row| row["edge_off_p50_ms"].as_f64().unwrap()).collect();
    off_ms.sort_unstable_by(f64::total_cmp);
    assert!(off_ms[rows.len() / 2] < OFF_P50_MS_MAX, "{table}");
    assert!(table.contains("off p50 ms") && rows[0]["edge_off_p95_ms"].is_null(), "{table}");
    assert!(summary["headlines"][1]["here"].is_f64(), "{summary}");
}

#[test]
fn edge_that_does_not_start_is_exit_status_2() {
    let _exclusive = exclusive();
    let output = Command::new(PROGRAM).args(["cc", "fibre", "--thalweg", "/bin/false"]).output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{err}");
    assert!(err.contains("/bin/false exited") && err.lines().count() == 1, "{err}");
}
