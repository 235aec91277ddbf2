//! The kernel's slow start after idle, as the edge's setting has it: in network namespaces of the tests' own.
#![allow(clippy::unwrap_used, reason = "a test fails where something is not as it has to be")]

mod program;

use std::process::Command;

use program::{Running, thalweg};

/// An edge with this setting in a new network namespace, once it listens; what the kernel has there then, and what was
/// said before. With `prepare`, shell commands that come first. Needs user namespaces, as the sandboxes of browsers do.
fn edge(setting: &str, prepare: &str) -> (String, String) {
    let program = thalweg(&[]).get_program().to_str().unwrap().to_owned();
    let script = format!(
        "{prepare} exec {program} edge --listen 0.0.0.0:0 --admin 0.0.0.0:0 --backend http://127.0.0.1:1 \
         --state off --tcp-slow-start-after-idle {setting}"
    );
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--net", "--mount", "sh", "-c", &script]).env("NO_COLOR", "1");
    let mut running = Running::start(command);
    let mut said = String::new();
    loop {
        let line = running.err_line();
        assert!(!line.is_empty(), "it ended: {said}");
        if line.starts_with("edge listening") {
            break;
        }
        said.push_str(&line);
    }
    let seen = Command::new("nsenter")
        .args(["--user", "--net", "--preserve-credentials", "--target", &running.id().to_string()])
        .args(["cat", "/proc/sys/net/ipv4/tcp_slow_start_after_idle"])
        .output()
        .unwrap();
    assert!(seen.status.success(), "{seen:?}");
    (String::from_utf8(seen.stdout).unwrap().trim().to_owned(), said)
}

#[test]
fn it_is_off_or_as_it_was() {
    assert_eq!(edge("keep", ""), ("1".to_owned(), String::new()));
    assert_eq!(edge("off", ""), ("0".to_owned(), String::new()));
}

#[test]
fn where_it_may_not_be_written_the_edge_warns_and_goes_on() {
    let read_only = "mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys &&";
    let (seen, said) = edge("off", read_only);
    assert_eq!(seen, "1");
    assert!(said.contains("WARN") && said.contains("tcp_slow_start_after_idle is not off"), "{said}");
}
