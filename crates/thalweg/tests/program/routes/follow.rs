//! Tests for following a bundle and network paths, and for routes left behind by a follower.

use rustix::process::Signal;

use super::network::Network;
use super::{algorithms, apply, follow, output_of, replace_bundle, shows};
use crate::bundles::of_rules;
use crate::program::Directory;

#[test]
fn bundle_and_paths_are_followed() {
    let (network, directory, (default, other)) = (Network::new(), Directory::new(), algorithms());
    let server = &network.server;
    let of_ipv4 = || server.shell("ip -4 route show table all");
    let before = of_ipv4();
    let path = directory.path().join("bundle.json");
    let mut running = follow(server, &path, &[]);
    running.err_line_with("no bundle at");
    replace_bundle(&directory, &of_rules(1, &[("203.0.113.0/24", &other)]));
    running.err_line_with("routes changed: 1 added, 0 replaced, 0 removed, 0 unchanged");
    replace_bundle(&directory, &of_rules(2, &[("192.0.2.0/24", &other), ("203.0.113.0/24", &default)]));
    running.err_line_with("routes changed: 1 added, 1 replaced, 0 removed, 0 unchanged");
    replace_bundle(&directory, &of_rules(3, &[]).replace(":3,", ":4,"));
    running.err_line_with("bundle refused");
    let by_the_first = ["192.0.2.0/24 via 10.9.0.2 ", "203.0.113.0/24 via 10.9.0.2 "];
    shows(server, &by_the_first);

    // Change the router; then take the interface down and up again.
    server.shell("ip route change default via 10.9.0.3 src 10.9.0.1 metric 100 proto dhcp initcwnd 30");
    running.err_line_with("routes changed: 0 added, 2 replaced, 0 removed, 0 unchanged");
    shows(server, &["192.0.2.0/24 via 10.9.0.3 ", "203.0.113.0/24 via 10.9.0.3 "]);
    assert_eq!(network.algorithms("192.0.2.7"), [other.clone(), other.clone()]);
    server.shell("ip link set v0 down");
    running.err_line_with("203.0.113.0/24 is skipped: no route to it");
    shows(server, &[]);
    server.shell(
        "ip link set v0 up && ip route add default via 10.9.0.2 src 10.9.0.1 metric 100 proto dhcp initcwnd 30",
    );
    running.err_line_with("routes changed: 2 added, 0 replaced, 0 removed, 0 unchanged");
    shows(server, &by_the_first);
    // Another process removes one of our routes.
    server.shell("ip route delete 192.0.2.0/24 proto 116");
    running.err_line_with("routes changed: 1 added, 0 replaced, 0 removed, 1 unchanged");
    shows(server, &by_the_first);
    std::fs::remove_file(&path).unwrap();
    running.err_line_with("no bundle at");
    shows(server, &by_the_first);
    assert_eq!(running.stop(Signal::TERM), Some(0));
    assert_eq!(of_ipv4(), before);
}

#[test]
fn leftover_routes_are_cleaned_up() {
    let (network, directory, (default, other)) = (Network::new(), Directory::new(), algorithms());
    let server = &network.server;
    let before = server.routes();
    let path =
        replace_bundle(&directory, &of_rules(1, &[("203.0.113.0/24", &other), ("192.0.2.0/24", &other)]));
    let both = ["192.0.2.0/24 ", "203.0.113.0/24 "];
    let mut running = follow(server, &path, &[]);
    running.err_line_with("routes changed: 2 added");
    running.stop(Signal::KILL);
    shows(server, &both);
    // Routes are set when a bundle is accepted, before any signal is handled.
    let mut running = follow(server, &path, &["--keep"]);
    running.err_line_with("bundle accepted");
    assert_eq!(running.stop(Signal::INT), Some(0));
    shows(server, &both);
    let next = directory.write("other.json", &of_rules(2, &[("198.51.100.0/24", &other)]));
    assert!(apply(server, &next).ends_with("bundle 2: 1 added, 0 replaced, 2 removed, 0 unchanged\n"));
    let dry = output_of(server, &["remove", "--dry-run"]).0;
    assert_eq!(output_of(server, &["remove"]).0, dry);
    assert_eq!(server.routes(), before);
    assert_eq!(network.algorithms("198.51.100.7"), [default.clone(), default]);
}
