//! Tests for routes that the kernel refuses: an unknown algorithm, or an unreachable router.

use std::sync::mpsc::Receiver;
use std::time::Duration;

use rustix::process::Signal;

use super::network::Network;
use super::{algorithms, apply, follow, replace_bundle, run, shows};
use crate::bundles::of_rules;
use crate::namespace::Namespace;
use crate::program::{Directory, Running};

#[test]
fn only_refused_routes_are_left_out() {
    let (network, directory, (default, other)) = (Network::new(), Directory::new(), algorithms());
    let server = &network.server;
    let first = ["192.0.2.0/24", "203.0.113.0/24", "2001:db8:77::/56"].map(|prefix| (prefix, &*other));
    apply(server, &directory.write("first.json", &of_rules(1, &first)));

    // Without its link route, the IPv6 router is unreachable: the existing route through it stays,
    // but the kernel refuses new routes.
    server.shell("ip -6 route delete 2001:db8:9::/64 dev v0");
    let second = [("198.51.100.0/24", &*other), ("203.0.113.0/24", "nosuch"), ("2001:db8:77::/56", &default)];
    let second = directory.write("second.json", &of_rules(2, &second));
    let output = run(server, &["apply", second.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let via = "via 10.9.0.2 dev v0 src 10.9.0.1 initcwnd 30";
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        format!(
            "remove 192.0.2.0/24 {via} congctl {other}\nadd 198.51.100.0/24 {via} congctl {other}\n\
             remove 203.0.113.0/24 {via} congctl {other}\n\
             remove 2001:db8:77::/56 via 2001:db8:9::2 dev v0 congctl {other}\n\
             bundle 2: 1 added, 0 replaced, 3 removed, 0 unchanged, 2 skipped\n"
        )
    );
    let err = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<_> =
        err.lines().map(|line| line.rsplit_once("json: warning: ").unwrap_or(("", line)).1).collect();
    let refused = "is skipped: the kernel refuses its route";
    let [unknown, of_ipv4, of_ipv6, last] = lines[..] else { panic!("{err}") };
    let lacks = "rule 203.0.113.0/24: this kernel has no congestion control \"nosuch\"; it has ";
    assert!(unknown.starts_with(lacks), "{unknown}");
    assert_eq!(
        [of_ipv4, of_ipv6, last],
        [
            &*format!(
                "203.0.113.0/24 {refused}: Unknown tcp congestion algorithm: Invalid argument (os error 22)"
            ),
            &format!("2001:db8:77::/56 {refused}: No route to host (os error 113)"),
            "thalweg: the kernel refused changes: 2",
        ]
    );
    shows(server, &["198.51.100.0/24 "]);
}

/// Starts monitoring route changes, which the kernel reports in order.
fn monitor(at: &Namespace) -> (Running, Receiver<String>) {
    let running = Running::start(at.command("ip", &["monitor", "route"]));
    let lines = running.out_lines();
    loop {
        at.shell(MARK);
        if lines.recv_timeout(Duration::from_millis(100)).is_ok() {
            return (running, lines);
        }
    }
}

/// Adds and removes a route unrelated to the test.
const MARK: &str = "ip route add 10.99.0.0/24 dev v0 && ip route delete 10.99.0.0/24 dev v0";

#[test]
fn refused_routes_neither_block_nor_flap() {
    let (network, directory, (_, other)) = (Network::new(), Directory::new(), algorithms());
    let server = &network.server;
    let path =
        replace_bundle(&directory, &of_rules(1, &[("192.0.2.0/24", &other), ("203.0.113.0/24", &other)]));
    let (_monitor, changes) = monitor(server);
    let (mut running, mut report) = (follow(server, &path, &[]), Vec::new());
    let mut until = |part: &str| {
        loop {
            let line = running.err_line();
            assert!(!line.is_empty(), "the follower exited before printing {part:?}");
            report.push(line);
            if report.last().is_some_and(|line| line.contains(part)) {
                return;
            }
        }
    };
    until("routes changed: 2 added, 0 replaced, 0 removed, 0 unchanged");

    // 192.0.2.0/24 is withdrawn. Two other routes are refused, one of them because its router is
    // unreachable.
    server.shell("ip -6 route delete 2001:db8:9::/64 dev v0");
    let rules = [("198.51.100.0/24", "nosuch"), ("203.0.113.0/24", &other), ("2001:db8:77::/56", &other)];
    replace_bundle(&directory, &of_rules(2, &rules));
    until("routes changed: 0 added, 0 replaced, 1 removed, 1 unchanged, 2 skipped");
    until("198.51.100.0/24 is skipped: the kernel refuses its route: Unknown tcp congestion algorithm");
    until("2001:db8:77::/56 is skipped: the kernel refuses its route");

    // Other changes must still be applied. Refused routes must be retried, but reported only once.
    server.shell("ip route change default via 10.9.0.3 src 10.9.0.1 metric 100 proto dhcp initcwnd 30");
    until("routes changed: 0 added, 1 replaced, 0 removed, 0 unchanged, 2 skipped");
    server.shell("ip -6 route add 2001:db8:9::/64 dev v0");
    until("routes changed: 1 added, 0 replaced, 0 removed, 1 unchanged, 1 skipped");
    shows(server, &["203.0.113.0/24 via 10.9.0.3 ", "2001:db8:77::/56 via 2001:db8:9::2 "]);
    // A changed path makes a refused route a new route, but its refusal must not be reported again.
    let refused = report.iter().filter(|line| line.contains("the kernel refuses"));
    assert_eq!(refused.count(), 2, "{report:?}");

    server.shell("ip route add 10.98.0.0/24 dev v0");
    let changes = changes.iter().take_while(|line| !line.starts_with("10.98.0.0/24"));
    let ours: Vec<_> = changes.filter(|line| line.contains("proto 116")).collect();
    let expected = [
        "192.0.2.0/24 via 10.9.0.2 ",
        "203.0.113.0/24 via 10.9.0.2 ",
        "Deleted 192.0.2.0/24 via 10.9.0.2 ",
        "203.0.113.0/24 via 10.9.0.3 ",
        "2001:db8:77::/56 via 2001:db8:9::2 ",
    ];
    assert_eq!(ours.len(), expected.len(), "{ours:?}");
    for (line, begin) in ours.iter().zip(expected) {
        assert!(line.starts_with(begin), "{ours:?}");
    }
    assert_eq!(running.stop(Signal::TERM), Some(0));
    shows(server, &[]);
}
