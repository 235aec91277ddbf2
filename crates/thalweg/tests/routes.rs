//! `thalweg routes` as its user sees it, in network namespaces of the tests' own: what the kernel has, and what connections run.
#![allow(clippy::unwrap_used, reason = "a test fails where something is not as it has to be")]

mod bundles;
mod network;
mod program;

use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use thalweg_bundle::Share;
use thalweg_tcp::congestion;

use bundles::{document, of_rules, rule};
use network::{Namespace, Network};
use program::{Directory, Running, thalweg};

/// What [`follow`] does within.
const FOLLOWED_MAX: Duration = Duration::from_secs(30);

fn program() -> String {
    thalweg(&[]).get_program().to_str().unwrap().to_owned()
}

fn run(at: &Namespace, args: &[&str]) -> Output {
    at.command(&program(), &[&["routes"], args].concat()).output().unwrap()
}

/// Standard output and standard error of a run that went well, without the directory.
fn said(at: &Namespace, args: &[&str]) -> (String, String) {
    let output = run(at, args);
    assert!(output.status.success(), "{output:?}");
    (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
}

fn apply(at: &Namespace, bundle: &Path) -> String {
    let (out, err) = said(at, &["apply", bundle.to_str().unwrap()]);
    assert_eq!(err, "");
    out
}

/// Standard error of a run that failed.
fn failed(at: &Namespace, args: &[&str]) -> String {
    let output = run(at, args);
    assert_eq!((output.status.code(), &*output.stdout), (Some(1), &b""[..]), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// An algorithm that is the default of new namespaces, and one that is not.
fn algorithms() -> (String, String) {
    let default = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap();
    let default = default.trim().to_owned();
    let other = congestion::available().unwrap().into_iter().map(|name| name.to_string());
    let other = other.into_iter().find(|name| *name != default).expect("every kernel has reno and another");
    (default, other)
}

#[test]
fn connections_of_a_bundles_prefixes_run_its_algorithm() {
    let (network, directory, (default, other)) = (Network::new(), Directory::new(), algorithms());
    let server = &network.server;
    let before = server.routes();
    let elsewhere = [default.clone(), default.clone()];
    let steered = [other.clone(), other.clone()];
    assert_eq!(network.algorithms("203.0.113.7"), elsewhere);

    let rules = [("203.0.113.0/24", &*other), ("2001:db8:77::/56", &other), ("192.0.2.0/24", &other)];
    let first = directory.write("first.json", &of_rules(1, &rules));
    let dry = said(server, &["apply", "--dry-run", first.to_str().unwrap()]);
    assert_eq!(server.routes(), before);
    let via = "via 10.9.0.2 dev v0 src 10.9.0.1";
    let added = format!(
        "add 192.0.2.0/24 {via} congctl {other}\nadd 203.0.113.0/24 {via} congctl {other}\n\
         add 2001:db8:77::/56 via 2001:db8:9::2 dev v0 congctl {other}\nbundle 1: 3 added, 0 replaced, 0 removed, 0 as they were"
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
    congestion::choose(accepted.as_fd(), default.parse().unwrap()).expect("a server may choose itself");

    assert_eq!(apply(server, &first), "bundle 1: 0 added, 0 replaced, 0 removed, 3 as they were\n");
    let rules = [("203.0.113.0/24", &*default), ("2001:db8:77::/56", &other), ("198.51.100.0/24", &other)];
    let second = directory.write("second.json", &of_rules(2, &rules));
    assert_eq!(
        apply(server, &second),
        format!(
            "add 198.51.100.0/24 {via} congctl {other}\nreplace 203.0.113.0/24 {via} congctl {default}\n\
             remove 192.0.2.0/24 {via} congctl {other}\nbundle 2: 1 added, 1 replaced, 1 removed, 1 as they were\n"
        )
    );
    assert_eq!(network.algorithms("203.0.113.7"), elsewhere);
    assert_eq!(network.algorithms("198.51.100.7"), steered);
    let shown = said(server, &["show"]).0;
    assert_eq!(shown.lines().count(), 3, "{shown}");
    assert!(shown.contains(&format!("198.51.100.0/24 {via} congctl {other}\n")), "{shown}");

    said(server, &["remove"]);
    assert_eq!(server.routes(), before);
    assert_eq!(network.algorithms("198.51.100.7"), elsewhere);
}

#[test]
fn what_others_have_set_stays() {
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
    let (out, err) = said(server, &["apply", file]);
    assert_eq!(
        out,
        format!(
            "add 198.51.100.0/24 via 10.9.0.2 dev v0 src 10.9.0.1 congctl {other}\n\
             bundle 1: 1 added, 0 replaced, 0 removed, 0 as they were, 3 left out\n"
        )
    );
    let warnings = [
        "192.0.2.0/24 is left out: the route there refuses packets",
        "203.0.113.0/24 is left as it is: there is a route of that prefix, of protocol 12",
        "2001:db8:77::/56 is left out: no route leads there",
        "198.51.100.0/24 has more specific routes within (1): connections there go by those",
    ];
    assert_eq!(err, warnings.map(|warning| format!("{file}: warning: {warning}\n")).concat());

    // Who comes later has the precedence, and ours goes at the next look.
    server.shell("ip route add 198.51.100.0/24 via 10.9.0.3 metric 4294967295 proto bird");
    let (out, _) = said(server, &["apply", file]);
    assert!(out.starts_with("remove 198.51.100.0/24 "), "{out}");
    server.shell("ip route delete 198.51.100.0/24");
    assert_eq!(server.routes(), before);
}

#[test]
fn what_is_wrong_changes_nothing() {
    let (network, directory, (default, other)) = (Network::new(), Directory::new(), algorithms());
    let server = &network.server;
    let good = directory.write("good.json", &of_rules(1, &[("203.0.113.0/24", &other)]));
    apply(server, &good);
    let before = server.routes();
    let unchanged = |why: &str| assert_eq!(server.routes(), before, "{why}");

    let unknown = of_rules(2, &[("192.0.2.0/24", &other), ("203.0.113.0/24", "nosuch")]);
    let unknown = directory.write("unknown.json", &unknown);
    let said = failed(server, &["apply", unknown.to_str().unwrap()]);
    assert!(
        said.starts_with(
            "thalweg: rule 203.0.113.0/24: this kernel has no congestion control \"nosuch\"; it has "
        ),
        "{said}"
    );
    unchanged(&said);

    let faulty = of_rules(2, &[("192.0.2.0/24", &other)]).replace("192.0.2.0", "192.0.3.0");
    let faulty = directory.write("faulty.json", &faulty);
    let said = failed(server, &["apply", faulty.to_str().unwrap()]);
    assert!(said.contains("faulty.json: /checksum: not that of the content"), "{said}");
    unchanged(&said);

    let next =
        directory.write("next.json", &of_rules(2, &[("203.0.113.0/24", &default), ("192.0.2.0/24", &other)]));
    let next = next.to_str().unwrap();
    for (more, last) in [(&[][..], ""), (&["--follow"], "a follower ends")] {
        let rights = ["--bounding-set", "-net_admin", "--inh-caps", "-net_admin", "--"];
        let program = program();
        let output = [&rights[..], &[&*program, "routes", "apply", next], more].concat();
        let output = server.command("setpriv", &output).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{last}");
        assert!(said.ends_with("thalweg: to change routes needs CAP_NET_ADMIN: run it as root\n"), "{said}");
        unchanged(&said);
    }

    // The router of IPv6 is not on any link any more: its route stays, and the kernel takes no other by it.
    let half =
        of_rules(2, &[("192.0.2.0/24", &other), ("203.0.113.0/24", &default), ("2001:db8:77::/56", &other)]);
    let half = directory.write("half.json", &half);
    server.shell("ip -6 route delete 2001:db8:9::/64 dev v0");
    let before = server.routes();
    let said = failed(server, &["apply", half.to_str().unwrap()]);
    assert!(said.starts_with("thalweg: the kernel refuses the route 2001:db8:77::/56"), "{said}");
    assert_eq!(server.routes(), before, "{said}");

    for wrong in [["--table", "255"], ["--table", "0"], ["--table", "maim"], ["--keep", "--dry-run"]] {
        assert_eq!(run(server, &[&["apply", next], &wrong[..]].concat()).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn what_a_route_cannot_do_is_told() {
    let (network, directory, (_, other)) = (Network::new(), Directory::new(), algorithms());
    let held = thalweg_bundle::Rule {
        holdout: Share::from_number(0.1).unwrap(),
        size_bytes_min: Some(100_000),
        ..rule("203.0.113.0/24", &other)
    };
    let file = directory.write("bundle.json", &document(1, vec![held, rule("192.0.2.0/24", &other)]));
    let file = file.to_str().unwrap();
    let (_, err) = said(&network.server, &["apply", file]);
    assert_eq!(
        err,
        format!(
            "{file}: warning: 1 rules hold connections out, and a route steers all of its prefix: nothing is left to compare with\n\
             {file}: warning: 1 rules have a size, and a route steers each connection from its first byte\n"
        )
    );
}

#[test]
fn a_table_of_its_own_is_for_whom_a_rule_sends_there() {
    let (network, directory, (default, other)) = (Network::new(), Directory::new(), algorithms());
    let server = &network.server;
    let file = directory.write("bundle.json", &of_rules(1, &[("203.0.113.0/24", &other)]));
    let file = file.to_str().unwrap();
    said(server, &["apply", file, "--table", "1000"]);
    said(server, &["apply", file]);
    assert_eq!(said(server, &["show", "--table", "1000"]).0.lines().count(), 1);
    said(server, &["remove", "--table", "main"]);
    assert_eq!(network.algorithms("203.0.113.7"), [default.clone(), default]);
    server.shell("ip rule add to 203.0.113.0/24 lookup 1000");
    assert_eq!(network.algorithms("203.0.113.7"), [other.clone(), other]);
    said(server, &["remove"]);
    assert_eq!(said(server, &["show"]).0, "");
}

/// `apply --follow`, once it runs.
fn follow(at: &Namespace, bundle: &Path, more: &[&str]) -> Running {
    let mut args = vec!["routes", "apply", "--follow", bundle.to_str().unwrap()];
    args.extend(more);
    Running::start(at.command(&program(), &args))
}

/// Replaces a file as one ought to: by another.
fn put(directory: &Directory, document: &str) -> PathBuf {
    let (next, path) = (directory.write("next", document), directory.path().join("bundle.json"));
    std::fs::rename(next, &path).unwrap();
    path
}

/// Waits until the routes that are set are these, by their first words.
fn until(at: &Namespace, expected: &[&str]) {
    let begun = Instant::now();
    loop {
        let shown = said(at, &["show"]).0;
        let is_as_expected = shown.lines().count() == expected.len()
            && expected.iter().zip(shown.lines()).all(|(begin, line)| line.starts_with(begin));
        if is_as_expected {
            return;
        }
        assert!(begun.elapsed() < FOLLOWED_MAX, "{shown}, not {expected:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_bundle_is_followed_and_so_are_the_paths() {
    let (network, directory, (default, other)) = (Network::new(), Directory::new(), algorithms());
    let server = &network.server;
    let of_ipv4 = || server.shell("ip -4 route show table all");
    let before = of_ipv4();
    let path = directory.path().join("bundle.json");
    let mut running = follow(server, &path, &[]);
    running.err_line_with("no bundle at");
    put(&directory, &of_rules(1, &[("203.0.113.0/24", &other)]));
    running.err_line_with("routes changed: 1 added, 0 replaced, 0 removed, 0 as they were");
    put(&directory, &of_rules(2, &[("192.0.2.0/24", &other), ("203.0.113.0/24", &default)]));
    running.err_line_with("routes changed: 1 added, 1 replaced, 0 removed, 0 as they were");
    put(&directory, &of_rules(3, &[]).replace(":3,", ":4,"));
    running.err_line_with("bundle refused");
    put(&directory, &of_rules(4, &[("192.0.2.0/24", "nosuch")]));
    running.err_line_with("bundle refused: rule 192.0.2.0/24: this kernel has no congestion control");
    until(server, &["192.0.2.0/24 via 10.9.0.2 ", "203.0.113.0/24 via 10.9.0.2 "]);

    // Another router; then the interface goes, and comes back.
    server.shell("ip route change default via 10.9.0.3 src 10.9.0.1 metric 100 proto dhcp initcwnd 30");
    until(server, &["192.0.2.0/24 via 10.9.0.3 ", "203.0.113.0/24 via 10.9.0.3 "]);
    assert_eq!(network.algorithms("192.0.2.7"), [other.clone(), other.clone()]);
    server.shell("ip link set v0 down");
    until(server, &[]);
    server.shell(
        "ip link set v0 up && ip route add default via 10.9.0.2 src 10.9.0.1 metric 100 proto dhcp initcwnd 30",
    );
    until(server, &["192.0.2.0/24 via 10.9.0.2 ", "203.0.113.0/24 via 10.9.0.2 "]);
    // Somebody removes one of ours.
    server.shell("ip route delete 192.0.2.0/24 proto 116");
    until(server, &["192.0.2.0/24 via 10.9.0.2 ", "203.0.113.0/24 via 10.9.0.2 "]);
    std::fs::remove_file(&path).unwrap();
    running.err_line_with("no bundle at");
    until(server, &["192.0.2.0/24 via 10.9.0.2 ", "203.0.113.0/24 via 10.9.0.2 "]);
    assert_eq!(running.stop(Signal::TERM), Some(0));
    assert_eq!(of_ipv4(), before);
}

#[test]
fn what_is_left_is_cleaned_up() {
    let (network, directory, (default, other)) = (Network::new(), Directory::new(), algorithms());
    let server = &network.server;
    let before = server.routes();
    let path = put(&directory, &of_rules(1, &[("203.0.113.0/24", &other), ("192.0.2.0/24", &other)]));
    for signal in [Signal::KILL, Signal::INT] {
        let more: &[&str] = if signal == Signal::INT { &["--keep"] } else { &[] };
        let mut running = follow(server, &path, more);
        running.err_line_with("bundle taken");
        until(server, &["192.0.2.0/24 ", "203.0.113.0/24 "]);
        running.stop(signal);
        until(server, &["192.0.2.0/24 ", "203.0.113.0/24 "]);
    }
    let next = directory.write("other.json", &of_rules(2, &[("198.51.100.0/24", &other)]));
    assert!(apply(server, &next).ends_with("bundle 2: 1 added, 0 replaced, 2 removed, 0 as they were\n"));
    let dry = said(server, &["remove", "--dry-run"]).0;
    assert_eq!(said(server, &["remove"]).0, dry);
    assert_eq!(server.routes(), before);
    assert_eq!(network.algorithms("198.51.100.7"), [default.clone(), default]);
}
