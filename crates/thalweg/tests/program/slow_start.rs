//! Tests of the kernel settings that an edge sets or warns about, in separate network namespaces.

use std::process::Command;

use crate::program::{Running, thalweg};

/// Starts an edge with this setting in a new network namespace, after the shell commands in
/// `prepare`. Once the edge listens, returns the kernel's value and the edge's messages. Requires
/// unprivileged user namespaces, as browser sandboxes do.
fn edge(setting: &str, prepare: &str) -> (String, String) {
    let program = thalweg(&[]).get_program().to_str().unwrap().to_owned();
    let script = format!(
        "{prepare} exec {program} edge --listen 0.0.0.0:0 --admin 0.0.0.0:0 --backend http://127.0.0.1:1 \
         --state off --tcp-slow-start-after-idle {setting}"
    );
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--net", "--mount", "sh", "-c", &script]).env("NO_COLOR", "1");
    let mut running = Running::start(command);
    let mut report = String::new();
    loop {
        let line = running.err_line();
        assert!(!line.is_empty(), "the edge exited: {report}");
        if line.starts_with("edge listening") {
            break;
        }
        report.push_str(&line);
    }
    let seen = Command::new("nsenter")
        .args(["--user", "--net", "--preserve-credentials", "--target", &running.id().to_string()])
        .args(["cat", "/proc/sys/net/ipv4/tcp_slow_start_after_idle"])
        .output()
        .unwrap();
    assert!(seen.status.success(), "{seen:?}");
    (String::from_utf8(seen.stdout).unwrap().trim().to_owned(), report)
}

#[test]
fn slow_start_is_disabled_or_kept() {
    assert_eq!(edge("keep", ""), ("1".to_owned(), String::new()));
    assert_eq!(edge("off", ""), ("0".to_owned(), String::new()));
}

#[test]
fn read_only_sysctl_causes_only_a_warning() {
    let read_only = "mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys &&";
    let (seen, report) = edge("off", read_only);
    assert_eq!(seen, "1");
    assert!(report.contains("WARN") && report.contains("tcp_slow_start_after_idle is not off"), "{report}");
}

#[test]
fn saved_metrics_cause_a_warning_if_there_is_a_bundle() {
    let remedy = "run `sysctl -w net.ipv4.tcp_no_metrics_save=1`";
    let with_bundle = "keep --bundle /tmp/no-such-thalweg-bundle.json";
    assert!(edge(with_bundle, "").1.contains(remedy));
    assert!(!edge("keep", "").1.contains(remedy));
    let set = "echo 1 >/proc/sys/net/ipv4/tcp_no_metrics_save &&";
    assert!(!edge(with_bundle, set).1.contains(remedy));
}
