//! Tests for applying and removing a bundle once: routes, connections and messages.

use std::net::UdpSocket;
use std::os::fd::AsFd as _;

use thalweg_bundle::Share;
use thalweg_tcp::congestion;

use super::network::Network;
use super::{algorithms, apply, failed, output_of, program, run, shows};
use crate::bundles::{document_but, document_with, of_rules, rule};
use crate::program::Directory;

#[test]
fn connections_of_a_bundles_prefixes_use_its_algorithm() {
    let (network, directory, (default, other)) = (Network::new(), Directory::new(), algorithms());
    let server = &network.server;
    let before = server.routes();
    let elsewhere = [default.clone(), default.clone()];
    let steered = [other.clone(), other.clone()];
    assert_eq!(network.algorithms("203.0.113.7"), elsewhere);

    let rules = [("203.0.113.0/24", &*other), ("2001:db8:77::/56", &other), ("192.0.2.0/24", &other)];
    let first = directory.write("first.json", &of_rules(1, &rules));
    let dry = output_of(server, &["apply", "--dry-run", first.to_str().unwrap()]);
    assert_eq!(server.routes(), before);
    let via = "via 10.9.0.2 dev v0 src 10.9.0.1 initcwnd 30";
    let added = format!(
        "add 192.0.2.0/24 {via} congctl {other}\nadd 203.0.113.0/24 {via} congctl {other}\n\
         add 2001:db8:77::/56 via 2001:db8:9::2 dev v0 congctl {other}\nbundle 1: 3 added, 0 replaced, 0 removed, 0 unchanged"
    );
    assert_eq!(dry, (format!("{added} (dry run: nothing was changed)\n"), String::new()));
    assert_eq!(apply(server, &first), format!("{added}\n"));
    let own = "via 10.9.0.2 dev v0 src 10.9.0.1 metric 4000000000 initcwnd 30";
    assert_eq!(
        server.shell("ip route show proto 116"),
        format!("192.0.2.0/24 {own} congctl {other} \n203.0.113.0/24 {own} congctl {other} \n")
    );
    for client in ["203.0.113.7", "192.0.2.7", "2001:db8:77::7"] {
        assert_eq!(network.algorithms(client), steered, "{client}");
    }
    assert_eq!(network.algorithms("198.51.100.7"), elsewhere);

    let (accepted, _client) = network.accepted("203.0.113.7", &default);
    assert_eq!(congestion::get(accepted.as_fd()).unwrap().to_string(), other);
    congestion::choose(accepted.as_fd(), default.parse().unwrap()).expect("a server may choose its own");

    assert_eq!(apply(server, &first), "bundle 1: 0 added, 0 replaced, 0 removed, 3 unchanged\n");
    let rules = [("203.0.113.0/24", &*default), ("2001:db8:77::/56", &other), ("198.51.100.0/24", &other)];
    let second = directory.write("second.json", &of_rules(2, &rules));
    assert_eq!(
        apply(server, &second),
        format!(
            "remove 192.0.2.0/24 {via} congctl {other}\nadd 198.51.100.0/24 {via} congctl {other}\n\
             replace 203.0.113.0/24 {via} congctl {default}\nbundle 2: 1 added, 1 replaced, 1 removed, 1 unchanged\n"
        )
    );
    assert_eq!(network.algorithms("203.0.113.7"), elsewhere);
    assert_eq!(network.algorithms("198.51.100.7"), steered);
    let shown = output_of(server, &["show"]).0;
    assert_eq!(shown.lines().count(), 3, "{shown}");
    assert!(shown.contains(&format!("198.51.100.0/24 {via} congctl {other}\n")), "{shown}");

    output_of(server, &["remove"]);
    assert_eq!(server.routes(), before);
    assert_eq!(network.algorithms("198.51.100.7"), elsewhere);
}

#[test]
fn foreign_routes_are_left_alone() {
    let (network, directory, (_, other)) = (Network::new(), Directory::new(), algorithms());
    let server = &network.server;
    server.shell(
        "ip route add 203.0.113.0/24 via 10.9.0.3 proto bird && ip route add 198.51.100.0/25 via 10.9.0.3 &&
         ip route add blackhole 192.0.0.0/16 && ip -6 route delete default",
    );
    let before = server.routes();
    let rules = ["203.0.113.0/24", "198.51.100.0/24", "192.0.2.0/24", "2001:db8:77::/56"];
    let file = directory.write("bundle.json", &of_rules(1, &rules.map(|prefix| (prefix, &*other))));
    let file = file.to_str().unwrap();
    let (out, err) = output_of(server, &["apply", file]);
    assert_eq!(
        out,
        format!(
            "add 198.51.100.0/24 via 10.9.0.2 dev v0 src 10.9.0.1 initcwnd 30 congctl {other}\n\
             bundle 1: 1 added, 0 replaced, 0 removed, 0 unchanged, 3 skipped\n"
        )
    );
    let warnings = [
        "192.0.2.0/24 is skipped: its route rejects packets",
        "203.0.113.0/24 is skipped: protocol 12 has a route to it",
        "2001:db8:77::/56 is skipped: no route to it",
        "198.51.100.0/24 contains more specific routes (1), which take precedence",
    ];
    assert_eq!(err, warnings.map(|warning| format!("{file}: warning: {warning}\n")).concat());

    // A foreign route added later must take precedence, and ours must be removed at the next run.
    server.shell("ip route add 198.51.100.0/24 via 10.9.0.3 metric 4294967295 proto bird");
    let (out, _) = output_of(server, &["apply", file]);
    assert!(out.starts_with("remove 198.51.100.0/24 "), "{out}");
    server.shell("ip route delete 198.51.100.0/24");
    assert_eq!(server.routes(), before);
}

#[test]
fn invalid_bundle_changes_nothing() {
    let (network, directory, (default, other)) = (Network::new(), Directory::new(), algorithms());
    let server = &network.server;
    let good = directory.write("good.json", &of_rules(1, &[("203.0.113.0/24", &other)]));
    apply(server, &good);
    let before = server.routes();
    let unchanged = |why: &str| assert_eq!(server.routes(), before, "{why}");

    let invalid = of_rules(2, &[("192.0.2.0/24", &other)]).replace("192.0.2.0", "192.0.3.0");
    let invalid = directory.write("invalid.json", &invalid);
    let report = failed(server, &["apply", invalid.to_str().unwrap()]);
    assert!(report.contains("invalid.json: /checksum: does not match the content"), "{report}");
    unchanged(&report);

    let next =
        directory.write("next.json", &of_rules(2, &[("203.0.113.0/24", &default), ("192.0.2.0/24", &other)]));
    let next = next.to_str().unwrap();
    for (more, last) in [(&[][..], ""), (&["--follow"], "a follower ends")] {
        let rights = ["--bounding-set", "-net_admin", "--inh-caps", "-net_admin", "--"];
        let program = program();
        let output = [&rights[..], &[&*program, "routes", "apply", next], more].concat();
        let output = server.command("setpriv", &output).output().unwrap();
        let report = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{last}");
        assert!(
            report.ends_with("thalweg: changing routes needs CAP_NET_ADMIN: run thalweg as root\n"),
            "{report}"
        );
        unchanged(&report);
    }

    for wrong in [["--table", "255"], ["--table", "0"], ["--table", "maim"], ["--keep", "--dry-run"]] {
        assert_eq!(run(server, &[&["apply", next], &wrong[..]].concat()).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn unsupported_rule_parts_cause_warnings() {
    let (network, directory, (_, other)) = (Network::new(), Directory::new(), algorithms());
    let held = thalweg_bundle::Rule {
        holdout: Share::from_number(0.1).unwrap(),
        size_bytes_min: Some(100_000),
        ..rule("203.0.113.0/24", &other)
    };
    let rules = vec![held, rule("192.0.2.0/24", &other)];
    let file = directory.write("bundle.json", &document_but(1, rules, &["audio.example"]));
    let file = file.to_str().unwrap();
    let (_, err) = output_of(&network.server, &["apply", file]);
    let warnings = [
        "1 rules hold some clients out, but a route steers its whole prefix: no holdout remains",
        "1 rules have a size, but a route steers each connection from its first byte",
        "1 hosts are excluded, but a route knows no host: their connections are steered too",
    ];
    assert_eq!(err, warnings.map(|warning| format!("{file}: warning: {warning}\n")).concat());
}

#[test]
fn only_one_tenants_rules_are_applied() {
    let (network, directory, (_, other)) = (Network::new(), Directory::new(), algorithms());
    let own = thalweg_bundle::Rule { tenant: "news.example".into(), ..rule("203.0.113.0/24", &other) };
    let rules = vec![rule("192.0.2.0/24", &other), own];
    let document = document_with(1, rules, &["news.example", "sport.example"]);
    let file = directory.write("bundle.json", &document);
    let apply = |tenant: &[&str]| {
        let (out, err) = output_of(&network.server, &[&["apply", file.to_str().unwrap()], tenant].concat());
        assert!(err.contains("rules are for other hosts, but a route knows no host"), "{err}");
        out
    };
    apply(&[]);
    shows(&network.server, &["192.0.2.0/24"]);
    apply(&["--tenant", "Sport.example"]);
    shows(&network.server, &["203.0.113.0/24"]);
    let refused = failed(&network.server, &["apply", file.to_str().unwrap(), "--tenant", "other.example"]);
    let message =
        r#"no tenant in the bundle has the host "other.example"; tenants in the bundle: ["news.example"]"#;
    assert!(refused.contains(message), "{refused}");
    shows(&network.server, &["203.0.113.0/24"]);
}

#[test]
fn skipped_prefixes_are_named_up_to_a_limit() {
    let (network, directory, (_, other)) = (Network::new(), Directory::new(), algorithms());
    network.server.shell("ip route add unreachable 198.18.0.0/15");
    let prefixes: Vec<_> = (0..150).map(|third| format!("198.18.{third}.0/24")).collect();
    let rules: Vec<_> = prefixes.iter().map(|prefix| (&**prefix, &*other)).collect();
    let file = directory.write("bundle.json", &of_rules(1, &rules));
    let (out, err) = output_of(&network.server, &["apply", file.to_str().unwrap()]);
    assert_eq!(out, "bundle 1: 0 added, 0 replaced, 0 removed, 0 unchanged, 150 skipped\n");
    assert_eq!(err.lines().count(), 101);
    assert!(err.ends_with(": warning: and 50 more\n"), "{err}");
}

#[test]
fn learned_route_exceptions_are_ignored() {
    let (network, directory, (_, other)) = (Network::new(), Directory::new(), algorithms());
    // The link behind the router has a small MTU.
    network.clients.shell(
        "ip link add w0 mtu 1300 type veth peer name w1 && ip link set w1 up && ip link set w0 up &&
         ip -6 route add 2001:db8:77:1::/64 dev w0 && echo 1 >/proc/sys/net/ipv6/conf/all/forwarding",
    );
    let server = &network.server;
    let file = directory.write("bundle.json", &of_rules(1, &[("2001:db8:77::/56", &other)]));
    apply(server, &file);
    server.on_thread(|| {
        let socket = UdpSocket::bind("[::]:0").unwrap();
        socket.send_to(&[0; 1400], "[2001:db8:77:1::1]:9").unwrap();
    });
    server.shell("until ip -6 route show cache | grep -q 'metric 4000000000.*mtu 1300'; do sleep 0.01; done");
    shows(server, &["2001:db8:77::/56 "]);
    assert_eq!(apply(server, &file), "bundle 1: 0 added, 0 replaced, 0 removed, 1 unchanged\n");
}

#[test]
fn separate_table_applies_to_traffic_routed_to_it() {
    let (network, directory, (default, other)) = (Network::new(), Directory::new(), algorithms());
    let server = &network.server;
    let file = directory.write("bundle.json", &of_rules(1, &[("203.0.113.0/24", &other)]));
    let file = file.to_str().unwrap();
    output_of(server, &["apply", file, "--table", "1000"]);
    output_of(server, &["apply", file]);
    assert_eq!(output_of(server, &["show", "--table", "1000"]).0.lines().count(), 1);
    output_of(server, &["remove", "--table", "main"]);
    assert_eq!(network.algorithms("203.0.113.7"), [default.clone(), default]);
    server.shell("ip rule add to 203.0.113.0/24 lookup 1000");
    assert_eq!(network.algorithms("203.0.113.7"), [other.clone(), other]);
    output_of(server, &["remove"]);
    assert_eq!(output_of(server, &["show"]).0, "");
}
