//! Runs the guides: executes every `sh` block of a page in `docs/guides`, in order, as one script.
//!
//! Each guide runs in its own network namespace, so that its commands can use the default ports,
//! and in an empty directory. Preparations that the page does not show (a film, a server in another
//! terminal) are in comments, which are not rendered:
//!
//! ```text
//! <!-- run
//! thalweg edge --backend http://127.0.0.1:8081 &
//! wait_for http://127.0.0.1:8082/readyz
//! -->
//! ```
//!
//! A block marked `sh skip` is shown but not run, because it needs another machine or never ends.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

/// Start of every script. Background commands are killed when the guide exits.
const PRELUDE: &str = r#"
set -euo pipefail
trap 'kill $(jobs -p) 2>/dev/null || true; wait 2>/dev/null || true' EXIT
ip link set lo up
# Repeats a shell command until it succeeds; the guide's time limit bounds the wait.
eventually() { until eval "$1"; do sleep 0.1; done; }
# Waits until a URL answers.
wait_for() { eventually "curl -s -o /dev/null --fail '$1'"; }
# Waits until a file has this many lines.
wait_for_lines() { eventually "[ -f $1 ] && [ \$(wc -l < $1) -ge $2 ]"; }
# Like `grep -q`, but reads all input: grep's early exit would fail the writing command (pipefail).
matches() { grep "$@" >/dev/null; }
"#;
/// Maximum run time of a guide, in seconds.
const SECONDS_MAX: &str = "120";

fn main() -> ExitCode {
    let only = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let mut guides: Vec<PathBuf> =
        fs::read_dir(top().join("docs/guides")).unwrap().map(|entry| entry.unwrap().path()).collect();
    guides.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    guides.sort();
    let (mut count, mut failed) = (0, Vec::new());
    for guide in &guides {
        let name = guide.file_stem().unwrap().to_str().unwrap();
        if only.as_ref().is_some_and(|only| !name.contains(only.as_str())) {
            continue;
        }
        count += 1;
        let begun = Instant::now();
        let is_ok = run(name, &script(&fs::read_to_string(guide).unwrap()));
        println!("guide {name} … {} ({:.1?})", if is_ok { "ok" } else { "FAILED" }, begun.elapsed());
        if !is_ok {
            failed.push(name);
        }
    }
    if count == 0 {
        println!("no guide whose name contains {only:?}");
        return ExitCode::FAILURE;
    }
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Returns the commands of a page: its `sh` blocks and hidden comments.
fn script(page: &str) -> String {
    let mut script = PRELUDE.to_owned();
    let mut end = None;
    for line in page.lines() {
        match end {
            Some(mark) if line.trim() == mark => end = None,
            Some(_) => script.extend([line, "\n"]),
            None if line.trim() == "```sh" => end = Some("```"),
            None if line.trim() == "<!-- run" => end = Some("-->"),
            None => {}
        }
    }
    script
}

/// Runs a script in its own directory and network namespace. Prints its output if it fails.
fn run(name: &str, script: &str) -> bool {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("guide-{name}"));
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    // The programs are two directories above this test, target/debug/deps/guides-….
    let programs = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_owned();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    fs::write(directory.join("guide.sh"), script).unwrap();
    let output = Command::new("unshare")
        .args([
            "--map-root-user",
            "--net",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "timeout",
            "--kill-after=5",
            SECONDS_MAX,
            "bash",
            "guide.sh",
        ])
        .current_dir(&directory)
        .env("PATH", path)
        .env("THALWEG_SOURCE", top())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    if !output.status.success() {
        print!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    }
    output.status.success()
}
