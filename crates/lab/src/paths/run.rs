//! `paths run`: runs a command over emulated paths, applies timed changes, and reports packet
//! counts.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _, stderr, stdin};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process_group};
use thalweg_netem::emulation::{Emulation, LATENESS_MAX, Lateness, MISSED_MAX, Side};
use thalweg_netem::scenario::Scenario;
use thalweg_netem::signals::Signals;
use thalweg_units::table::{Column, Table};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

/// Time limit for the server to exit after SIGTERM.
const SERVER_STOP_MAX: Duration = Duration::from_secs(3);
/// Interval between checks whether the server has exited.
const STOP_POLL: Duration = Duration::from_millis(10);

/// Runs the command and returns its exit status.
pub(super) fn run(
    scenario: &Scenario,
    server: Option<&str>,
    side: Side,
    command: &[String],
) -> anyhow::Result<ExitCode> {
    // Install signal handlers first, so that a signal never leaves processes behind.
    let (runtime, signals) = Signals::install()?;
    let emulation = Emulation::start(scenario)?;
    let server = server.map(|text| Server::start(&emulation, text)).transpose()?;
    let mut process = Command::new(&command[0]);
    process.args(&command[1..]);
    set_environment(&mut process, &emulation);
    let child = emulation.spawn(side, &mut process).with_context(|| command[0].clone())?;
    let status = runtime.block_on(attend(&emulation, child, signals))?;
    drop(server);
    print_counts(&emulation);
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

fn set_environment(process: &mut Command, emulation: &Emulation) {
    let scenario = emulation.scenario();
    let clients: Vec<_> = scenario
        .paths
        .iter()
        .map(|path| format!("{}={},{}", path.name, path.client4(), path.client6()))
        .collect();
    process
        .env("LAB_SERVER4", scenario.server4.to_string())
        .env("LAB_SERVER6", scenario.server6.to_string())
        .env("LAB_CLIENTS", clients.join(" "))
        .env("LAB_NETNS_CLIENTS", emulation.namespace_path(Side::Clients))
        .env("LAB_NETNS_SERVER", emulation.namespace_path(Side::Server));
}

/// Waits for the command to exit, meanwhile applying changes when due and forwarding signals.
async fn attend(emulation: &Emulation, child: Child, mut signals: Signals) -> anyhow::Result<ExitStatus> {
    let started = Instant::now();
    let pid = Pid::from_child(&child);
    let mut ended = wait(child);
    let mut changes = emulation.scenario().changes().into_iter().peekable();
    loop {
        let next = changes.peek().map(|(_, change)| started + change.at);
        tokio::select! {
            status = &mut ended => return Ok(status.expect("the waiting thread sends the status")?),
            () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {
                let (path, change) = changes.next().expect("the change was peeked above");
                emulation.change(path, &change)?;
            }
            // A terminal also sends SIGINT to the command, so do not forward it. A SIGINT sent only
            // to this process looks the same and is not forwarded either.
            signal = signals.next() => if signal != Signal::INT || !stdin().is_terminal() {
                let _ = kill_process(pid, signal);
            },
        }
    }
}

fn wait(mut child: Child) -> oneshot::Receiver<std::io::Result<ExitStatus>> {
    let (sender, receiver) = oneshot::channel();
    thread::spawn(move || sender.send(child.wait()));
    receiver
}

/// The server command, in its own process group, stopped on drop.
struct Server {
    process: Child,
}

impl Server {
    fn start(emulation: &Emulation, text: &str) -> anyhow::Result<Self> {
        let mut command = Command::new("sh");
        command.args(["-c", text]).process_group(0);
        set_environment(&mut command, emulation);
        Ok(Self { process: emulation.spawn(Side::Server, &mut command).context("sh")? })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let group = Pid::from_child(&self.process);
        let _ = kill_process_group(group, Signal::TERM);
        let until = std::time::Instant::now() + SERVER_STOP_MAX;
        // The kernel does not report the end of a process group, so poll.
        while std::time::Instant::now() < until {
            let _ = self.process.try_wait();
            if test_kill_process_group(group).is_err() {
                return;
            }
            thread::sleep(STOP_POLL);
        }
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.process.wait();
    }
}

/// Prints packet counts to standard error, ignoring write errors.
fn print_counts(emulation: &Emulation) {
    emulation.count_missed();
    let numbers = ["packets", "in flight", "dropped", "lost", "missed", "late p99.9"].map(Column::number);
    let mut table =
        Table::new(["path", "way"].map(Column::text).into_iter().chain(numbers).chain([Column::text("")]));
    let (mut is_late, mut is_missing) = (false, false);
    for (index, path) in emulation.scenario().paths.iter().enumerate() {
        for (name, direction) in ["down", "up"].iter().zip(emulation.directions(index)) {
            let late = Lateness::of([direction]);
            is_late |= late.is_late();
            is_missing |= late.is_missing();
            let marks = [(late.is_late(), "late"), (late.is_missing(), "missing")];
            let marks = marks.iter().filter_map(|(is_so, mark)| is_so.then_some(*mark)).collect::<Vec<_>>();
            table.push([
                path.name.clone(),
                (*name).to_owned(),
                direction.packets().to_string(),
                direction.in_flight().to_string(),
                direction.dropped().to_string(),
                direction.line.counts().lost.to_string(),
                direction.missed().to_string(),
                format!("{}us", late.p999.as_micros()),
                marks.join("  "),
            ]);
        }
    }
    let mut text = table.to_string();
    if is_late {
        let _ = writeln!(
            text,
            "paths marked late sent packets more than {LATENESS_MAX:?} late: the machine was too busy"
        );
    }
    if is_missing {
        let _ = writeln!(
            text,
            "the emulator itself lost (missed) more than one packet in {} on paths marked missing: the machine was too busy",
            1.0 / MISSED_MAX
        );
    }
    let _ = stderr().write_all(text.as_bytes());
}
