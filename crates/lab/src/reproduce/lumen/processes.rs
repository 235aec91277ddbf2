//! Load-generating processes of this program: their arguments, exit statuses and figures.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};

use super::servers::Scratch;
use crate::process::ChildProcess;

/// One load-generating process.
#[derive(Debug)]
pub(super) struct LoadProcess {
    name: String,
    running: ChildProcess,
    figures: PathBuf,
    log: PathBuf,
    has_ended: bool,
}

impl LoadProcess {
    /// Starts this program's `load` with `--json FILE` and `arguments`. File names include `name`,
    /// which must be unique.
    pub(super) fn start(scratch: &Scratch, name: &str, arguments: &str) -> anyhow::Result<Self> {
        let own = std::env::current_exe().context("cannot locate this program's executable")?;
        let [figures, log] = ["json", "log"].map(|ending| scratch.path().join(format!("{name}.{ending}")));
        let mut command = Command::new(own);
        command.args(["load", "--json"]).arg(&figures).args(arguments.split_whitespace());
        let file = File::create(&log).with_context(|| log.display().to_string())?;
        Ok(Self {
            name: name.to_owned(),
            running: ChildProcess::spawn(command, file)?,
            figures,
            log,
            has_ended: false,
        })
    }

    /// Returns the process id.
    pub(super) fn id(&self) -> u32 {
        self.running.id()
    }

    /// Returns whether the process has exited. Its exit status must be one of `statuses`.
    ///
    /// # Errors
    ///
    /// Returns an error with the last line of output if the process exited with another status.
    pub(super) fn has_ended(&mut self, statuses: &[i32]) -> anyhow::Result<bool> {
        if self.has_ended {
            return Ok(true);
        }
        let Some(status) = self.running.exit_status().context("cannot read a process's exit status")? else {
            return Ok(false);
        };
        self.has_ended = true;
        if !status.code().is_some_and(|code| statuses.contains(&code)) {
            let log = fs::read_to_string(&self.log).unwrap_or_default();
            bail!("{}: {status}: {}", self.name, log.lines().last().unwrap_or("no output"));
        }
        Ok(true)
    }

    /// Returns the figures as JSON.
    ///
    /// # Errors
    ///
    /// Returns an error if the process has not written any figures.
    pub(super) fn figures(&self) -> anyhow::Result<String> {
        fs::read_to_string(&self.figures).with_context(|| self.figures.display().to_string())
    }
}

/// Interval between checks whether processes have exited.
pub(super) const TICK: Duration = Duration::from_secs(1);

/// Waits until all processes have exited. Calls `tick` every second in the meantime.
///
/// # Errors
///
/// Returns an error if a process fails, or is still running after `patience`.
pub(super) async fn attend(
    all: &mut [LoadProcess],
    statuses: &[i32],
    patience: Duration,
    mut tick: impl FnMut(&[LoadProcess]),
) -> anyhow::Result<()> {
    let mut ticks = tokio::time::interval(TICK);
    for _ in 0..=patience.as_secs() {
        ticks.tick().await;
        tick(all);
        let mut running = 0;
        for process in all.iter_mut() {
            running += usize::from(!process.has_ended(statuses)?);
        }
        if running == 0 {
            return Ok(());
        }
    }
    let late: Vec<_> =
        all.iter().filter(|process| !process.has_ended).map(|process| &*process.name).collect();
    bail!("{} did not exit within {} s", late.join(", "), patience.as_secs())
}
