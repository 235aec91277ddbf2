//! Programs that the lab runs beside itself: started on one side, ready when they say where they listen, ended when dropped.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::emulation::{Emulation, Side};

/// A program says within so long where it listens.
const START_MAX: Duration = Duration::from_secs(20);
/// Lines of its standard error that are kept to be told if it does not.
const LINES_MAX: usize = 20;

/// A program that runs until this is dropped.
#[derive(Debug)]
pub(crate) struct Running {
    process: Child,
}

impl Running {
    /// Starts a program that prints `… listening ADDRESS` to standard error, and waits until it has.
    ///
    /// # Errors
    /// If it cannot be started, or ends, or takes too long; with what it said.
    pub(crate) fn start(
        emulation: &Emulation,
        side: Side,
        mut command: Command,
    ) -> anyhow::Result<(Self, SocketAddr)> {
        let name = command.get_program().to_string_lossy().into_owned();
        // Ctrl-C is for the lab, which ends it.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
        let mut process = emulation.spawn(side, &mut command).with_context(|| name.clone())?;
        let said = process.stderr.take().expect("it is piped");
        let running = Self { process };
        let (sender, lines) = sync_channel(LINES_MAX);
        thread::spawn(move || {
            for line in BufReader::new(said).lines().map_while(Result::ok) {
                tracing::debug!(target: "thalweg_lab::process", "{line}");
                // Once it runs nobody hears.
                let _ = sender.try_send(line);
            }
        });
        let mut before = Vec::new();
        let until = Instant::now() + START_MAX;
        loop {
            match lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => match line.rsplit_once("listening ").map(|(_, address)| address.trim().parse()) {
                    Some(Ok(address)) => return Ok((running, address)),
                    _ => before.push(line),
                },
                Err(RecvTimeoutError::Timeout) => {
                    bail!("{name} does not say where it listens: {}", before.join("; "))
                }
                Err(RecvTimeoutError::Disconnected) => bail!("{name} ended: {}", before.join("; ")),
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.process), Signal::KILL);
        let _ = self.process.wait();
    }
}
