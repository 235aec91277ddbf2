//! Tests of initial windows: routes, and the first flight of new connections.

use std::net::IpAddr;

use serde_json::Value;

use super::network::Network;
use super::{algorithms, output_of, program, run, shows};
use crate::bundles::{document, rule};
use crate::program::Directory;

/// Initial window of the network's default route.
const DEFAULT_CWND: u64 = 30;

impl Network {
    /// Accepts a connection from `client` and returns the server's telemetry on it.
    fn fresh(&self, client: &str) -> Value {
        let (accepted, _from) = self.accepted(client, &algorithms().0);
        let port = accepted.local_addr().unwrap().port();
        let filter = format!("sport {port} dst {}", client.parse::<IpAddr>().unwrap());
        let output = self.server.command(&program(), &["sockets", "--json", &filter]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Returns a new connection's congestion window in TCP segments and receive window in bytes.
    fn windows(&self, client: &str) -> (u64, u64) {
        let socket = self.fresh(client);
        let number = |name: &str| socket["tcp"][name].as_u64().unwrap_or_else(|| panic!("{name}: {socket}"));
        (number("snd_cwnd"), number("rcv_wnd_bytes"))
    }
}

#[test]
fn new_connections_start_with_the_initial_windows_of_rules_and_flags() {
    let (network, directory, (_, other)) = (Network::new(), Directory::new(), algorithms());
    let server = &network.server;
    let clients = ["203.0.113.7", "198.51.100.7", "192.0.2.7"];
    let before = clients.map(|client| network.windows(client));
    assert_eq!(before.map(|(cwnd, _)| cwnd), [DEFAULT_CWND; 3]);

    let own =
        thalweg_bundle::Rule { initcwnd: Some(50), initrwnd: Some(4), ..rule("203.0.113.0/24", &other) };
    let rules = vec![own, rule("198.51.100.0/24", &other)];
    let file = directory.write("bundle.json", &document(1, rules));
    let file = file.to_str().unwrap();
    output_of(server, &["apply", file]);
    let via = "via 10.9.0.2 dev v0 src 10.9.0.1";
    shows(
        server,
        &[
            &format!("198.51.100.0/24 {via} initcwnd 30 congctl {other}"),
            &format!("203.0.113.0/24 {via} initcwnd 50 initrwnd 4 congctl {other}"),
        ],
    );
    let own = server.shell("ip route show 203.0.113.0/24");
    assert!(own.contains("initcwnd 50 initrwnd 4 congctl"), "{own}");
    let [steered, plain, elsewhere] = clients.map(|client| network.windows(client));
    assert_eq!(steered.0, 50);
    assert!(steered.1 <= 4 * 1460 && before[0].1 > steered.1, "{steered:?}, before {before:?}");
    assert_eq!((plain, elsewhere), (before[1], before[2]));

    let (out, _) = output_of(server, &["apply", file, "--initcwnd", "20"]);
    assert!(out.contains("0 added, 1 replaced, 0 removed, 1 unchanged"), "{out}");
    assert_eq!(clients.map(|client| network.windows(client).0), [50, 20, DEFAULT_CWND]);
    output_of(server, &["remove"]);
    assert_eq!(clients.map(|client| network.windows(client)), before);
}

#[test]
fn windows_outside_the_limits_are_refused() {
    let network = Network::new();
    for flag in ["--initcwnd", "--initrwnd"] {
        for number in ["0", "1001"] {
            let output = run(&network.server, &["apply", "bundle.json", flag, number]);
            let err = String::from_utf8(output.stderr).unwrap();
            assert!(err.contains(flag) && err.contains("1..=1000"), "{err}");
        }
    }
}

#[test]
fn saved_metrics_cause_a_warning_with_the_remedy() {
    let (network, directory, (_, other)) = (Network::new(), Directory::new(), algorithms());
    let server = &network.server;
    let file = directory.write("bundle.json", &document(1, vec![rule("203.0.113.0/24", &other)]));
    let err = |value: &str| {
        server.shell(&format!("sysctl -qw net.ipv4.tcp_no_metrics_save={value}"));
        output_of(server, &["apply", file.to_str().unwrap(), "--dry-run"]).1
    };
    assert_eq!(err("1"), "");
    assert!(err("0").contains("run `sysctl -w net.ipv4.tcp_no_metrics_save=1`"));
}
