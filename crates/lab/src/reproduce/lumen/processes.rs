//! Processes of this program that make load: how they are told what to do, and what they say at their end.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};

use super::servers::Scratch;
use crate::process::Running;

/// One process.
#[derive(Debug)]
pub(super) struct LoadProcess {
    name: String,
    running: Running,
    figures: PathBuf,
    said: PathBuf,
    has_ended: bool,
}

impl LoadProcess {
    /// Starts this program with these arguments; `--json FILE` is added to them. Its name tells its files from those of another.
    pub(super) fn start(scratch: &Scratch, name: &str, arguments: &[OsString]) -> anyhow::Result<Self> {
        let own = std::env::current_exe().context("this program's own file")?;
        let [figures, said] = ["json", "said"].map(|ending| scratch.path().join(format!("{name}.{ending}")));
        let mut command = Command::new(own);
        command.args(arguments).arg("--json").arg(&figures);
        let file = File::create(&said).with_context(|| said.display().to_string())?;
        Ok(Self {
            name: name.to_owned(),
            running: Running::spawn(command, file)?,
            figures,
            said,
            has_ended: false,
        })
    }

    /// Its number.
    pub(super) fn id(&self) -> u32 {
        self.running.id()
    }

    /// Whether it has ended, as it has to: with these statuses.
    ///
    /// # Errors
    /// If it has failed; with the last that it said.
    pub(super) fn has_ended(&mut self, statuses: &[i32]) -> anyhow::Result<bool> {
        if self.has_ended {
            return Ok(true);
        }
        let Some(status) = self.running.ended().context("the state of a process")? else { return Ok(false) };
        self.has_ended = true;
        if !status.code().is_some_and(|code| statuses.contains(&code)) {
            let said = fs::read_to_string(&self.said).unwrap_or_default();
            bail!("{}: {status}: {}", self.name, said.lines().last().unwrap_or("it said nothing"));
        }
        Ok(true)
    }

    /// What it measured.
    ///
    /// # Errors
    /// If it has written nothing.
    pub(super) fn figures(&self) -> anyhow::Result<String> {
        fs::read_to_string(&self.figures).with_context(|| self.figures.display().to_string())
    }
}

/// Between two looks at processes.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Waits until all have ended, and calls `look` each second until then.
///
/// # Errors
/// If one fails, or is still there after `patience`.
pub(super) async fn attend(
    all: &mut [LoadProcess],
    statuses: &[i32],
    patience: Duration,
    mut look: impl FnMut(&[LoadProcess]),
) -> anyhow::Result<()> {
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    for _ in 0..=patience.as_secs() {
        ticks.tick().await;
        look(all);
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
    bail!("{} did not end within {} s", late.join(", "), patience.as_secs())
}

/// Arguments as text.
pub(super) fn arguments(text: &str) -> Vec<OsString> {
    text.split_whitespace().map(OsString::from).collect()
}
