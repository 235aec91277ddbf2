//! Crash test. A process that appends to the spool and stores records in SQLite is repeatedly
//! killed at random moments. Every append it reported must then be in the SQLite file exactly once.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;

use crate::runner::Runner;
use crate::sink::sqlite::{Retention, SqliteSink};
use crate::spool::Spool;
use crate::testing::{Dir, Random, TIME_US, open_spool, record};

/// Number of times the process is killed.
const RUNS: u64 = 20;
/// Maximum number of appends reported by a process before it is killed.
const APPENDS_MAX: u64 = 25;
const CHILD: &str = "THALWEG_KILLED_IN";
const SEED: u64 = 0x7468_616c_7765_6721;

fn start(dir: &Dir) -> (Arc<Spool>, Runner) {
    let unlimited = Retention { records: Duration::MAX, aggregates: Duration::MAX, total_bytes: u64::MAX };
    let sink = SqliteSink::open(&dir.file("telemetry.sqlite"), unlimited).unwrap();
    let spool = open_spool(&dir.file("spool"), 64 << 20);
    let runner = Runner::start(&spool, Box::new(sink)).unwrap();
    (spool, runner)
}

/// Child process: appends records until killed. After each append, it prints the number of records
/// appended so far.
#[test]
fn child() {
    let Some(dir) = std::env::var_os(CHILD) else { return };
    let dir = Dir(dir.into());
    let (spool, _runner) = start(&dir);
    let mut next = spool.append(vec![record(0)], TIME_US).numbers.end;
    let sizes = &mut Random(next);
    let mut out = std::io::stdout();
    loop {
        let count = [1, 10, 100, 800][sizes.below(4) as usize];
        // Record times jump back and forth, because they are derived from record numbers.
        next = spool.append((next..next + count).map(record).collect(), TIME_US).numbers.end;
        // A closed pipe means that the parent test has exited.
        if writeln!(out, "appended {next}").is_err() {
            std::process::exit(1);
        }
    }
}

/// A child process that is killed on drop, so that it does not outlive a panicking test.
struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the child until it has reported `appends` appends, then kills it. Returns the last reported
/// number of records.
fn run_and_kill(dir: &Dir, appends: u64) -> u64 {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "killed::child", "--nocapture"]).env(CHILD, &dir.0).stdout(Stdio::piped());
    let mut run = KilledOnDrop(command.spawn().unwrap());
    let lines = BufReader::new(run.0.stdout.take().unwrap()).lines().map_while(Result::ok);
    let appended = lines.filter_map(|line| line.strip_prefix("appended ")?.parse().ok());
    appended.take(appends as usize).last().expect("the child runs until it is killed")
}

#[test]
fn kills_neither_lose_nor_duplicate_records() {
    let dir = Dir::new("killed");
    let random = &mut Random(SEED);
    let mut appended = 0;
    for run in 0..RUNS {
        let now = run_and_kill(&dir, 1 + random.below(APPENDS_MAX));
        assert!(now > appended, "run {run}: {appended} records before, {now} now");
        appended = now;
    }
    let (spool, runner) = start(&dir);
    spool.close(Duration::from_secs(300));
    let state = Arc::clone(runner.state());
    runner.join();
    assert_eq!((state.lost(), state.lag().records), (0, 0), "{:?}", state.error());
    let file = Connection::open(dir.file("telemetry.sqlite")).unwrap();
    let count = |of: &str| file.query_row(&format!("SELECT {of}"), [], |row| row.get::<_, u64>(0)).unwrap();
    let all = "FROM (SELECT number FROM sockets UNION ALL SELECT number FROM responses \
               UNION ALL SELECT number FROM losses)";
    let kept = count(&format!("count(*) {all}"));
    assert!(kept >= appended, "{appended} appended, {kept} stored");
    assert_eq!(count(&format!("count(DISTINCT number) {all}")), kept);
    assert_eq!(count(&format!("max(number) + 1 {all}")), kept, "no record may be missing");
    assert_eq!(count("position FROM positions"), kept);
    assert_eq!(count("sum(samples) FROM sockets_5m"), count("count(*) FROM sockets"));
    assert_eq!(count("sum(bytes) FROM responses_5m"), count("sum(bytes) FROM responses"));
}
