//! Child processes of the lab. A process is ready once it logs an address or accepts connections,
//! and is killed on drop.
//!
//! Processes on this machine's own network are started by `setpriv --pdeathsig` (util-linux), so
//! that the kernel signals them when the lab is killed. The kernel sends the signal when the
//! *thread* that started the process exits (prctl(2), `PR_SET_PDEATHSIG`), so that thread must stay
//! alive. Processes in an emulation are started by short-lived threads and cannot use this. If the
//! lab is killed, its next run kills them.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use thalweg_netem::emulation::{Emulation, Side};

/// Time limit for a program to become ready.
const START_MAX: Duration = Duration::from_secs(20);
/// Interval between connection attempts while waiting for a program that does not log its address.
const ATTEMPT_EVERY: Duration = Duration::from_millis(10);
/// Maximum lines of standard error kept for the error message if the program does not become ready.
const LINES_MAX: usize = 20;

/// Directory of Debian's server programs, which is not in every user's PATH.
const SERVERS: &str = "/usr/sbin";
/// The util-linux program that sets process attributes and then executes another program.
const SETPRIV: &str = "setpriv";
/// Number of `setpriv` arguments before the program.
const BEFORE_PROGRAM: usize = 2;
/// Signal names as `setpriv` expects them.
const KILL: &str = "KILL";
const TERM: &str = "TERM";

/// A child process, killed on drop.
#[derive(Debug)]
pub(crate) struct ChildProcess {
    process: Child,
    end_signal: Signal,
}

impl ChildProcess {
    /// Starts a program on one side of an emulation and waits until it prints `… listening ADDRESS`
    /// to standard error.
    ///
    /// # Errors
    ///
    /// Returns an error if the program cannot be started, exits early, or is not ready in time. The
    /// error includes the program's output.
    pub(crate) fn start_on(
        emulation: &Emulation,
        side: Side,
        command: Command,
    ) -> anyhow::Result<(Self, SocketAddr)> {
        Self::listening(command, |command| emulation.spawn(side, command))
    }

    /// Starts a program like [`start_on`](Self::start_on), but on this machine's own network.
    ///
    /// # Errors
    ///
    /// Returns an error in the same cases as [`start_on`](Self::start_on).
    pub(crate) fn start(command: Command) -> anyhow::Result<(Self, SocketAddr)> {
        Self::listening(ending_with_lab(&command, KILL), Command::spawn)
    }

    /// Starts a program that prints nothing and waits until it accepts connections at `address`.
    /// Dropping the result sends SIGTERM, so that the program can stop its own children.
    ///
    /// # Errors
    ///
    /// Returns an error in the same cases as [`start_on`](Self::start_on).
    pub(crate) fn start_at(command: Command, address: SocketAddr) -> anyhow::Result<Self> {
        let is_listening = |_: Option<&str>| TcpStream::connect(address).ok().map(drop);
        let mut running = Self::start_until(ending_with_lab(&command, TERM), Command::spawn, is_listening)?.0;
        running.end_signal = Signal::TERM;
        Ok(running)
    }

    /// Starts a program like [`start_at`](Self::start_at), but on one side of an emulation.
    ///
    /// # Errors
    ///
    /// Returns an error in the same cases as [`start_on`](Self::start_on).
    pub(crate) fn start_on_at(
        emulation: &Emulation,
        side: Side,
        command: Command,
        address: SocketAddr,
    ) -> anyhow::Result<Self> {
        let is_listening =
            |_: Option<&str>| emulation.on(side, || TcpStream::connect(address)).ok().map(drop);
        let spawn = |command: &mut Command| emulation.spawn(side, command);
        let mut running = Self::start_until(command, spawn, is_listening)?.0;
        running.end_signal = Signal::TERM;
        Ok(running)
    }

    /// Starts a program on this machine's own network and waits until it prints a line containing
    /// `text`.
    ///
    /// # Errors
    ///
    /// Returns an error in the same cases as [`start_on`](Self::start_on).
    pub(crate) fn start_until_line(command: Command, text: &str) -> anyhow::Result<Self> {
        let has_text = |line: Option<&str>| line?.contains(text).then_some(());
        Ok(Self::start_until(ending_with_lab(&command, KILL), Command::spawn, has_text)?.0)
    }

    /// Starts a program without waiting until it is ready. Its standard error is written to
    /// `output`.
    ///
    /// # Errors
    ///
    /// Returns an error if the program cannot be started.
    pub(crate) fn spawn(command: Command, output: File) -> anyhow::Result<Self> {
        let name = name(&command);
        let mut command = ending_with_lab(&command, KILL);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(output).process_group(0);
        let process = command.spawn().with_context(|| name)?;
        Ok(Self { process, end_signal: Signal::KILL })
    }

    /// Returns the process id.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Returns the exit status, if the process has exited.
    ///
    /// # Errors
    ///
    /// Returns an error if the system cannot report the status.
    pub(crate) fn exit_status(&mut self) -> io::Result<Option<ExitStatus>> {
        self.process.try_wait()
    }

    fn listening(
        command: Command,
        spawn: impl FnOnce(&mut Command) -> io::Result<Child>,
    ) -> anyhow::Result<(Self, SocketAddr)> {
        Self::start_until(command, spawn, |line| line?.rsplit_once("listening ")?.1.trim().parse().ok())
    }

    /// Starts a program and waits until `find` returns a value. Calls `find` with each line of
    /// output, and with `None` at intervals.
    fn start_until<T>(
        command: Command,
        spawn: impl FnOnce(&mut Command) -> io::Result<Child>,
        find: impl Fn(Option<&str>) -> Option<T>,
    ) -> anyhow::Result<(Self, T)> {
        let name = name(&command);
        let (running, lines) = Self::spawn_piped(command, spawn)?;
        let (started, mut output) = (Instant::now(), Vec::new());
        loop {
            let line = match lines.recv_timeout(ATTEMPT_EVERY) {
                Ok(line) => Some(line),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => bail!("{name} exited: {}", output.join("; ")),
            };
            if let Some(found) = find(line.as_deref()) {
                return Ok((running, found));
            }
            // Keep only the first lines, because a cause is logged before its consequences.
            output.extend(line.filter(|_| output.len() < LINES_MAX));
            ensure!(started.elapsed() < START_MAX, "{name} is not ready: {}", output.join("; "));
        }
    }

    /// Starts a program and returns a channel with the lines of its standard error.
    fn spawn_piped(
        mut command: Command,
        spawn: impl FnOnce(&mut Command) -> io::Result<Child>,
    ) -> anyhow::Result<(Self, Receiver<String>)> {
        // With a separate process group, Ctrl-C reaches only the lab, which then kills the program.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
        let mut process = spawn(&mut command).with_context(|| name(&command))?;
        let output = process.stderr.take().expect("stderr is piped");
        let running = Self { process, end_signal: Signal::KILL };
        let (sender, lines) = sync_channel(LINES_MAX);
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                tracing::debug!(target: "thalweg_lab::process", "{line}");
                // Ignore the error: the receiver is dropped once the program is ready.
                let _ = sender.try_send(line);
            }
        });
        Ok((running, lines))
    }
}

/// Finds a program in the PATH or among Debian's server programs.
pub(crate) fn installed(name: &str) -> Option<PathBuf> {
    let in_path = std::env::var_os("PATH").unwrap_or_default();
    let mut directories = std::iter::once(PathBuf::from(SERVERS)).chain(std::env::split_paths(&in_path));
    directories.find_map(|directory| Some(directory.join(name)).filter(|file| file.is_file()))
}

/// Returns the program's name, even if wrapped by [`ending_with_lab`].
fn name(command: &Command) -> String {
    let program = match command.get_program() {
        wrapped if wrapped == SETPRIV => command.get_args().nth(BEFORE_PROGRAM).unwrap_or(wrapped),
        program => program,
    };
    program.to_string_lossy().into_owned()
}

/// Wraps a command so that its process receives `signal` when the thread that starts it exits.
fn ending_with_lab(command: &Command, signal: &str) -> Command {
    let mut wrapped = Command::new(SETPRIV);
    wrapped.args(["--pdeathsig", signal]).arg(command.get_program()).args(command.get_args());
    for (variable, value) in command.get_envs() {
        match value {
            Some(value) => wrapped.env(variable, value),
            None => wrapped.env_remove(variable),
        };
    }
    wrapped
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        // If the process has exited, its id may belong to another process by now.
        if let Ok(None) = self.process.try_wait() {
            let _ = kill_process(Pid::from_child(&self.process), self.end_signal);
        }
        let _ = self.process.wait();
    }
}
