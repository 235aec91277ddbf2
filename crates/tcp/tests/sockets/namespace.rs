//! Network namespaces for tests, removed on drop. Needs root.
#![allow(dead_code, reason = "each test that includes this module uses only part of it")]

use std::fs::File;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A network namespace, kept alive by a process waiting inside it.
pub(crate) struct Namespace {
    inside: Child,
}

impl Namespace {
    pub(crate) fn new() -> Self {
        let mut inside = Command::new("unshare")
            .args(["--net", "sh", "-c", "echo; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        inside.stdout.as_mut().unwrap().read_exact(&mut [0]).expect("network namespaces need root");
        Self { inside }
    }

    /// Creates a namespace whose loopback interface is up.
    pub(crate) fn with_loopback() -> Self {
        let namespace = Self::new();
        namespace.shell("ip link set lo up");
        namespace
    }

    /// Returns the ID of the process inside the namespace.
    pub(crate) fn pid(&self) -> u32 {
        self.inside.id()
    }

    /// Returns the path of the namespace's file.
    pub(crate) fn path(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.pid()).into()
    }

    /// Builds a command that runs in the namespace.
    pub(crate) fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args([&format!("--net={}", self.path().display()), "--", program]).args(args);
        command.env_remove("THALWEG_LOG").env("NO_COLOR", "1").stdin(Stdio::null());
        command
    }

    /// Runs a shell script and returns its standard output. Panics if a command fails.
    pub(crate) fn shell(&self, script: &str) -> String {
        let output = self.command("sh", &["-ec", script]).output().unwrap();
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs `inside` on a thread in the namespace. Sockets created there stay in the namespace.
    pub(crate) fn on_thread<T: Send>(&self, inside: impl FnOnce() -> T + Send) -> T {
        let namespace = File::open(self.path()).unwrap();
        thread::scope(|scope| {
            let thread = scope.spawn(|| {
                move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
                inside()
            });
            thread.join().unwrap()
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(self.inside.stdin.take());
        let _ = self.inside.wait();
    }
}
