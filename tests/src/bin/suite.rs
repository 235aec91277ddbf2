//! Runs the workspace's test programs, several at a time, and lists the slowest tests.
//!
//! Most tests wait for a process, a timeout or real media time, so more programs run at once than
//! there are cores. Programs that measure time or deliberately load the machine ([`ALONE`]) run by
//! themselves after the others. Programs that took longest in the previous run start first.
//!
//! `suite [FILTER]` runs the programs whose `crate::target` contains the filter. A program's output
//! is printed when it exits: all of it if the program failed, otherwise the last line.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

/// Number of programs that run at once.
const SLOTS: usize = 3;
/// Number of slowest tests listed at the end.
const SLOWEST: usize = 20;
/// Number of lines of a failed program repeated at the end.
const LAST_LINES: usize = 20;
/// Programs that measure time or need both cores, as `crate::target`.
const ALONE: &[&str] = &[
    "thalweg-lab::audience",
    "thalweg-lab::cc",
    "thalweg-lab::load",
    "thalweg-lab::paths",
    "thalweg-netem::emulation",
    "thalweg-tests::guides",
    "thalweg-tests::lab",
];
/// Maximum time of one program; a program that takes longer has failed.
const TIME_MAX: Duration = Duration::from_secs(600);
/// Interval between checks of a running program.
const POLL: Duration = Duration::from_millis(50);

/// A test program built by cargo.
struct Program {
    name: String,
    executable: PathBuf,
    /// Directory in which cargo would run the program: the directory of its crate.
    directory: PathBuf,
    /// Whether the program uses Rust's own test harness, which can report the time of each test.
    has_harness: bool,
}

/// Result of a program.
struct Ended {
    name: String,
    is_ok: bool,
    /// The program's complete output.
    output: String,
    took: Duration,
}

fn main() -> Result<ExitCode> {
    let filter = env::args().nth(1).unwrap_or_default();
    let mut programs = build()?;
    programs.retain(|program| program.name.contains(&filter));
    if programs.is_empty() {
        bail!("no test program whose name contains {filter:?}");
    }
    if filter.is_empty()
        && let Some(unknown) = ALONE.iter().find(|name| programs.iter().all(|program| program.name != **name))
    {
        bail!("ALONE lists {unknown}, but there is no such program");
    }
    let notes = env::current_exe()?.with_file_name("suite.json");
    let mut took: BTreeMap<String, f64> =
        fs::read(&notes).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
    // Start programs without a known duration first, because they may take long.
    let last = |program: &Program| took.get(&program.name).copied().unwrap_or(f64::MAX);
    programs.sort_by(|a, b| last(b).total_cmp(&last(a)));
    let (alone, shared): (Vec<_>, Vec<_>) =
        programs.into_iter().partition(|program| ALONE.contains(&program.name.as_str()));

    let total = alone.len() + shared.len();
    let mut ended = run_all(shared, SLOTS, 0, total)?;
    ended.extend(run_all(alone, 1, ended.len(), total)?);

    took.extend(ended.iter().map(|program| (program.name.clone(), program.took.as_secs_f64())));
    fs::write(&notes, serde_json::to_vec(&took)?)
        .with_context(|| format!("cannot write {}", notes.display()))?;
    report(&ended);
    Ok(if report_failures(&ended) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Builds and lists all test programs.
fn build() -> Result<Vec<Program>> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"])
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    if !output.status.success() {
        bail!("cargo test --no-run: {}", output.status);
    }
    let messages = String::from_utf8(output.stdout).context("cargo's output is not UTF-8")?;
    let mut programs = Vec::new();
    for line in messages.lines() {
        let message: Value = serde_json::from_str(line).context("cannot parse cargo's message")?;
        let (Some(executable), Some(true)) =
            (message["executable"].as_str(), message["profile"]["test"].as_bool())
        else {
            continue;
        };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let manifest = PathBuf::from(text(&message["manifest_path"]));
        let directory = manifest.parent().context("manifest has no parent directory")?.to_owned();
        let is_under = |folder: &str| directory.ends_with(folder);
        let package = match directory.file_name().and_then(|name| name.to_str()) {
            Some(name) => format!("thalweg-{}", name.trim_start_matches("thalweg-")),
            None => String::new(),
        };
        let package = if is_under("crates/thalweg") { "thalweg".to_owned() } else { package };
        let target = text(&message["target"]["name"]);
        let manifest = fs::read_to_string(&manifest)?;
        let has_harness = !manifest.contains(&format!("[[test]]\nname = \"{target}\"\nharness = false"));
        programs.push(Program {
            name: format!("{package}::{target}"),
            executable: executable.into(),
            directory,
            has_harness,
        });
    }
    Ok(programs)
}

/// Runs `programs`, `slots` at a time. `before` of the `total` programs have already run.
fn run_all(programs: Vec<Program>, slots: usize, before: usize, total: usize) -> Result<Vec<Ended>> {
    let waiting = Mutex::new(VecDeque::from(programs));
    let ended = Mutex::new(Vec::new());
    let work = || -> Result<()> {
        loop {
            let Some(program) = waiting.lock().expect("no thread panics while holding the lock").pop_front()
            else {
                return Ok(());
            };
            let program = run(program)?;
            let mut ended = ended.lock().expect("no thread panics while holding the lock");
            show(&program, before + ended.len() + 1, total);
            ended.push(program);
        }
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..slots).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("workers do not panic"))
    })?;
    Ok(ended.into_inner().expect("no thread panics while holding the lock"))
}

fn run(program: Program) -> Result<Ended> {
    let begun = Instant::now();
    // Write to a file rather than a pipe, which a process that outlives the program would keep
    // open.
    let path = env::current_exe()?.with_file_name(format!("suite-{}.log", program.name.replace("::", "-")));
    let log = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
    // `setpriv` makes the kernel terminate the program when this process exits.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM"]).arg(&program.executable).current_dir(&program.directory);
    // Cargo sets this variable, too; tests locate their golden files with it.
    command.env("CARGO_MANIFEST_DIR", &program.directory);
    if program.has_harness {
        command.args(["-Zunstable-options", "--report-time"]).env("RUSTC_BOOTSTRAP", "1");
    }
    let child = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0).spawn();
    let mut child = child.with_context(|| format!("cannot run {}", program.name))?;
    let status = loop {
        match child.try_wait()? {
            Some(status) => break Some(status),
            None if begun.elapsed() > TIME_MAX => break None,
            None => thread::sleep(POLL),
        }
    };
    // Kill a program that took too long, and any processes that a program left behind.
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    child.wait()?;
    let mut output = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
    if status.is_none() {
        output.push_str(&format!("\nkilled after {TIME_MAX:?}"));
    }
    let is_ok = status.is_some_and(|status| status.success());
    Ok(Ended { name: program.name, is_ok, output, took: begun.elapsed() })
}

fn show(program: &Ended, number: usize, total: usize) {
    let Ended { name, is_ok, output, took } = program;
    if !is_ok {
        println!("{output}");
    }
    let last = output.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    println!("[{number}/{total}] {name} ({:.1} s): {last}", took.as_secs_f64());
}

/// Prints the number of tests, and the slowest tests.
fn report(ended: &[Ended]) {
    let mut tests: Vec<(f64, String)> = Vec::new();
    for program in ended {
        tests.extend(program.output.lines().filter_map(|line| {
            let (test, seconds) = line.strip_prefix("test ")?.split_once(" ... ")?;
            let seconds = seconds.rsplit_once('<')?.1.strip_suffix("s>")?.parse().ok()?;
            Some((seconds, format!("{} {test}", program.name)))
        }));
    }
    tests.sort_by(|a, b| b.0.total_cmp(&a.0));
    println!("\n{} tests in {} programs; the slowest:", tests.len(), ended.len());
    for (seconds, test) in tests.iter().take(SLOWEST) {
        println!("{seconds:7.1} s  {test}");
    }
}

/// Prints the last lines of each failed program and the list of failures, at the very end, where a
/// reader of a long log looks first. Returns whether a program failed.
fn report_failures(ended: &[Ended]) -> bool {
    let failed: Vec<&Ended> = ended.iter().filter(|program| !program.is_ok).collect();
    for program in &failed {
        println!("\n== {} failed; its last lines:", program.name);
        let lines: Vec<&str> = program.output.lines().collect();
        println!("{}", lines[lines.len().saturating_sub(LAST_LINES)..].join("\n"));
    }
    if !failed.is_empty() {
        let names: Vec<&str> = failed.iter().map(|program| program.name.as_str()).collect();
        println!("\nfailed: {}", names.join(", "));
    }
    !failed.is_empty()
}
