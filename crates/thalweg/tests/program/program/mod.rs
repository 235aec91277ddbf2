//! The program under test: run to completion, or read line by line.
#![allow(dead_code, reason = "each test program uses only some of these items")]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};

use rustix::process::{Pid, Signal, kill_process};

/// Returns the program's command with these arguments and plain output.
pub(crate) fn thalweg(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    command.args(args).stdin(Stdio::null()).env_remove("THALWEG_LOG").env("COLUMNS", "100");
    command
}

/// A running program, killed when dropped.
pub(crate) struct Running {
    child: Child,
    pub(crate) out: BufReader<ChildStdout>,
    err: BufReader<ChildStderr>,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        Self { child, out: BufReader::new(out), err: BufReader::new(err) }
    }

    /// Returns the process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the next line on standard output, without its newline.
    pub(crate) fn out_line(&mut self) -> String {
        line(&mut self.out)
    }

    /// Returns all further lines on standard output as they arrive. Afterwards, standard output
    /// must not be read any other way.
    pub(crate) fn out_lines(&self) -> Receiver<String> {
        let out = File::from(self.out.get_ref().as_fd().try_clone_to_owned().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            BufReader::new(out).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        lines
    }

    /// Returns the next line on standard error, without its newline.
    pub(crate) fn err_line(&mut self) -> String {
        line(&mut self.err)
    }

    /// Waits for a line on standard error that contains `part`.
    pub(crate) fn err_line_with(&mut self, part: &str) {
        loop {
            let line = self.err_line();
            assert!(!line.is_empty(), "the program exited before printing {part:?}");
            if line.contains(part) {
                return;
            }
        }
    }

    /// Sends the signal and returns the rest of standard error.
    pub(crate) fn err_lines_until(mut self, signal: Signal) -> String {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        let mut report = String::new();
        self.err.read_to_string(&mut report).unwrap();
        report
    }

    /// Returns the address in the next line `ROLE listening ADDR`, skipping lines of other roles.
    pub(crate) fn listening(&mut self, role: &str) -> String {
        loop {
            let report = self.err_line();
            let (of, addr) = report.split_once(" listening ").unwrap_or_else(|| panic!("{role}: {report}"));
            if of == role {
                return addr.to_owned();
            }
        }
    }

    /// Sends the signal, waits for the program to exit and returns its exit status.
    pub(crate) fn stop(mut self, signal: Signal) -> Option<i32> {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn line(from: &mut impl BufRead) -> String {
    let mut line = String::new();
    from.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

/// A directory for one test, removed when dropped.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("thalweg-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn append(&self, name: &str, text: &str) {
        let mut file = fs::OpenOptions::new().append(true).open(self.0.join(name)).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
