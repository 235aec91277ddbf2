//! Programs that the lab runs beside itself: ready when they say where they listen or take connections there, ended when dropped.
//!
//! Those on this machine's own network end also where the lab is killed: they are started through `setpriv --pdeathsig`, which
//! util-linux has. That is by the end of the thread that starts them (prctl(2), `PR_SET_PDEATHSIG`), so it has to stay. Those in an
//! emulation are started by threads that do not; what a killed lab has left there is ended by the next.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::emulation::{Emulation, Side};

/// A program says within so long where it listens.
const START_MAX: Duration = Duration::from_secs(20);
/// Between two attempts to connect to one that does not say it.
const ATTEMPT_EVERY: Duration = Duration::from_millis(10);
/// Lines of its standard error that are kept to be told if it does not.
const LINES_MAX: usize = 20;

/// Sets what a process may, and gets, before it runs a program.
const SETPRIV: &str = "setpriv";
/// Its arguments before the program, as they are given here.
const BEFORE_PROGRAM: usize = 2;
/// Signals by the names that it takes.
const KILL: &str = "KILL";
const TERM: &str = "TERM";

/// A program that runs until this is dropped.
#[derive(Debug)]
pub(crate) struct Running {
    process: Child,
    end_by: Signal,
}

impl Running {
    /// Starts a program on one side of an emulation. It prints `… listening ADDRESS` to standard error; that is waited for.
    ///
    /// # Errors
    /// If it cannot be started, or ends, or takes too long; with what it said.
    pub(crate) fn start_on(
        emulation: &Emulation,
        side: Side,
        command: Command,
    ) -> anyhow::Result<(Self, SocketAddr)> {
        Self::listening(command, |command| emulation.spawn(side, command))
    }

    /// The same on this machine's own network.
    ///
    /// # Errors
    /// As [`start_on`](Self::start_on).
    pub(crate) fn start(command: Command) -> anyhow::Result<(Self, SocketAddr)> {
        Self::listening(ending_with_lab(&command, KILL), Command::spawn)
    }

    /// Starts a program that says nothing and takes connections at `address` once it is ready. It is ended by SIGTERM, so that
    /// it ends its own processes.
    ///
    /// # Errors
    /// As [`start_on`](Self::start_on).
    pub(crate) fn start_at(command: Command, address: SocketAddr) -> anyhow::Result<Self> {
        let name = name(&command);
        let (mut running, lines) = Self::heard(ending_with_lab(&command, TERM), Command::spawn)?;
        running.end_by = Signal::TERM;
        let (begun, mut said) = (Instant::now(), Vec::new());
        loop {
            match lines.recv_timeout(ATTEMPT_EVERY) {
                Ok(line) => keep(&mut said, line),
                Err(RecvTimeoutError::Timeout) if TcpStream::connect(address).is_ok() => return Ok(running),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => bail!("{name} ended: {}", said.join("; ")),
            }
            let said = || said.join("; ");
            ensure!(begun.elapsed() < START_MAX, "{name} takes no connections at {address}: {}", said());
        }
    }

    /// Starts a program on this machine's own network that is ready once it says this, in some line.
    ///
    /// # Errors
    /// As [`start_on`](Self::start_on).
    pub(crate) fn start_saying(command: Command, text: &str) -> anyhow::Result<Self> {
        let says = |line: &str| line.contains(text).then_some(());
        Ok(Self::until(ending_with_lab(&command, KILL), Command::spawn, says)?.0)
    }

    /// Starts a program that is ready at once. What it says goes to that file.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(crate) fn spawn(command: Command, said: File) -> anyhow::Result<Self> {
        let name = name(&command);
        let mut command = ending_with_lab(&command, KILL);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said).process_group(0);
        let process = command.spawn().with_context(|| name)?;
        Ok(Self { process, end_by: Signal::KILL })
    }

    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// If the system does not say.
    pub(crate) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.process.try_wait()
    }

    fn listening(
        command: Command,
        spawn: impl FnOnce(&mut Command) -> io::Result<Child>,
    ) -> anyhow::Result<(Self, SocketAddr)> {
        Self::until(command, spawn, |line| line.rsplit_once("listening ")?.1.trim().parse().ok())
    }

    /// Starts a program and waits for a line in which that is found.
    fn until<T>(
        command: Command,
        spawn: impl FnOnce(&mut Command) -> io::Result<Child>,
        find: impl Fn(&str) -> Option<T>,
    ) -> anyhow::Result<(Self, T)> {
        let name = name(&command);
        let (running, lines) = Self::heard(command, spawn)?;
        let (begun, mut said) = (Instant::now(), Vec::new());
        loop {
            match lines.recv_timeout(START_MAX.saturating_sub(begun.elapsed())) {
                Ok(line) => match find(&line) {
                    Some(found) => return Ok((running, found)),
                    None => keep(&mut said, line),
                },
                Err(RecvTimeoutError::Timeout) => {
                    bail!("{name} does not say that it is ready: {}", said.join("; "))
                }
                Err(RecvTimeoutError::Disconnected) => bail!("{name} ended: {}", said.join("; ")),
            }
        }
    }

    /// Starts a program, and the lines that it says on standard error.
    fn heard(
        mut command: Command,
        spawn: impl FnOnce(&mut Command) -> io::Result<Child>,
    ) -> anyhow::Result<(Self, Receiver<String>)> {
        // Ctrl-C is for the lab, which ends it.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
        let mut process = spawn(&mut command).with_context(|| name(&command))?;
        let said = process.stderr.take().expect("it is piped");
        let running = Self { process, end_by: Signal::KILL };
        let (sender, lines) = sync_channel(LINES_MAX);
        thread::spawn(move || {
            for line in BufReader::new(said).lines().map_while(Result::ok) {
                tracing::debug!(target: "thalweg_lab::process", "{line}");
                // Once it runs nobody hears.
                let _ = sender.try_send(line);
            }
        });
        Ok((running, lines))
    }
}

/// The first lines are kept: the cause comes before what follows from it.
fn keep(said: &mut Vec<String>, line: String) {
    if said.len() < LINES_MAX {
        said.push(line);
    }
}

/// What is run, behind [`ending_with_lab`] too.
fn name(command: &Command) -> String {
    let program = match command.get_program() {
        through if through == SETPRIV => command.get_args().nth(BEFORE_PROGRAM).unwrap_or(through),
        program => program,
    };
    program.to_string_lossy().into_owned()
}

/// The same command, run by a process that gets this signal once the thread that starts it has ended.
fn ending_with_lab(command: &Command, signal: &str) -> Command {
    let mut through = Command::new(SETPRIV);
    through.args(["--pdeathsig", signal]).arg(command.get_program()).args(command.get_args());
    for (variable, value) in command.get_envs() {
        match value {
            Some(value) => through.env(variable, value),
            None => through.env_remove(variable),
        };
    }
    through
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended and was waited for has no number any more.
        if let Ok(None) = self.process.try_wait() {
            let _ = kill_process(Pid::from_child(&self.process), self.end_by);
        }
        let _ = self.process.wait();
    }
}
