//! Runs a command over emulated paths, changes them in time, and tells what they did.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _, stderr, stdin};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process_group};
use thalweg_lab::emulation::{Emulation, LATENESS_MAX, Lateness, MISSED_MAX, Side};
use thalweg_lab::scenario::Scenario;
use thalweg_lab::signals::Signals;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

/// The server may take so long to end once it is asked to.
const SERVER_STOP_MAX: Duration = Duration::from_secs(3);
/// Between two looks at whether it has ended.
const STOP_LOOK: Duration = Duration::from_millis(10);

/// Exits as the command does.
pub(super) fn run(
    scenario: &Scenario,
    server: Option<&str>,
    side: Side,
    command: &[String],
) -> anyhow::Result<ExitCode> {
    // Before anything is started that a signal would leave behind.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let signals = {
        let _within = runtime.enter();
        Signals::take()?
    };
    let emulation = Emulation::start(scenario)?;
    let server = server.map(|text| Server::start(&emulation, text)).transpose()?;
    let mut process = Command::new(&command[0]);
    process.args(&command[1..]);
    set_environment(&mut process, &emulation);
    let child = emulation.spawn(side, &mut process).with_context(|| command[0].clone())?;
    let status = runtime.block_on(attend(&emulation, child, signals))?;
    drop(server);
    tell(&emulation);
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

/// Waits until the command has ended, alters paths when it is time, and hands signals on.
async fn attend(emulation: &Emulation, child: Child, mut signals: Signals) -> anyhow::Result<ExitStatus> {
    let begun = Instant::now();
    let pid = Pid::from_child(&child);
    let mut ended = wait(child);
    let mut changes = emulation.scenario().changes().into_iter().peekable();
    loop {
        let next = changes.peek().map(|(_, change)| begun + change.at);
        tokio::select! {
            status = &mut ended => return Ok(status.expect("its thread says how it ended")?),
            () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {
                let (path, change) = changes.next().expect("it was looked at");
                emulation.change(path, &change)?;
            }
            // The terminal gives its own to the command as well; one that was sent to this process alone looks the same.
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

/// What runs on the server's side, in a process group of its own, until it is dropped.
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
        // Its end has no event that a group of processes shares.
        while std::time::Instant::now() < until {
            let _ = self.process.try_wait();
            if test_kill_process_group(group).is_err() {
                return;
            }
            thread::sleep(STOP_LOOK);
        }
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.process.wait();
    }
}

/// What became of the packets, to standard error, whether or not anybody still reads that.
fn tell(emulation: &Emulation) {
    emulation.count_missed();
    let mut text = format!(
        "{:<14}{:<6}{:>10}{:>10}{:>10}{:>10}{:>10}{:>14}\n",
        "path", "way", "packets", "under way", "dropped", "lost", "missed", "late p99.9"
    );
    let (mut is_late, mut is_missing) = (false, false);
    for (index, path) in emulation.scenario().paths.iter().enumerate() {
        for (name, way) in ["down", "up"].iter().zip(emulation.ways(index)) {
            let late = Lateness::of([way]);
            is_late |= late.is_late();
            is_missing |= late.is_missing();
            let _ = writeln!(
                text,
                "{:<14}{name:<6}{:>10}{:>10}{:>10}{:>10}{:>10}{:>12}us{}{}",
                path.name,
                way.packets(),
                way.under_way(),
                way.dropped(),
                way.line.counts().lost,
                way.missed(),
                late.p999.as_micros(),
                if late.is_late() { "  late" } else { "" },
                if late.is_missing() { "  missing" } else { "" }
            );
        }
    }
    if is_late {
        let _ = writeln!(
            text,
            "packets left more than {LATENESS_MAX:?} later than they should: the machine was too busy for the paths marked late"
        );
    }
    if is_missing {
        let _ = writeln!(
            text,
            "the emulator itself lost (missed) more than one packet of {} on the paths marked missing: the machine was too busy for these",
            1.0 / MISSED_MAX
        );
    }
    let _ = stderr().write_all(text.as_bytes());
}
