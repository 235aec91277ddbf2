//! Tests for prefixes that are held out as a whole: in the blocks of a switchback, or always.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::Signal;
use thalweg_bundle::{PERIOD_S_MAX, Rule, Share};

use super::network::Network;
use super::{algorithms, follow, output_of, replace_bundle, shows};
use crate::bundles::{document, rule};
use crate::program::Directory;

/// Length of a block in these tests, in seconds.
const BLOCK_S: u32 = 3;
/// Time after the start of a block until its routes are checked.
const SETTLED: Duration = Duration::from_secs(1);
/// Maximum number of observations in which the routes lag behind their blocks.
const LATE_MAX: u32 = 10;
/// Maximum time until both prefixes have been seen steered and held out. Any three blocks in
/// sequence contain a pair, so this takes at most three blocks unless the machine is slow.
const OBSERVED_MAX: Duration = Duration::from_secs(60);

fn switchback(prefix: &str, algorithm: &str, block_s: u32, salt: &str) -> Rule {
    Rule {
        holdout: Share::from_number(0.5).unwrap(),
        period_s: Some(block_s),
        switchback_block_s: Some(block_s),
        salt: salt.to_owned(),
        ..rule(prefix, algorithm)
    }
}

fn held_out(prefix: &str, algorithm: &str) -> Rule {
    Rule { holdout: Share::ALL, ..rule(prefix, algorithm) }
}

fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

/// Sleeps until the middle of a block that has not been seen yet; returns a time in it.
fn wait_for_block(seen: &mut BTreeSet<u64>) -> u64 {
    loop {
        let now = unix_time();
        let (block, since) = (now.as_secs() / u64::from(BLOCK_S), now.as_secs() % u64::from(BLOCK_S));
        if since >= SETTLED.as_secs() && seen.insert(block) {
            return now.as_secs();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn routes_of_switchbacks_appear_and_disappear_with_their_blocks() {
    let (network, directory, (default, other)) = (Network::new(), Directory::new(), algorithms());
    let server = &network.server;
    let before = server.routes();
    let prefixes = [("203.0.113.0/24", "203.0.113.7"), ("2001:db8:77::/56", "2001:db8:77::7")];
    let mut rules: Vec<_> =
        prefixes.iter().map(|(prefix, _)| switchback(prefix, &other, BLOCK_S, "one")).collect();
    rules.extend([held_out("192.0.2.0/24", &other), rule("198.51.100.0/24", &other)]);
    let path = replace_bundle(&directory, &document(1, rules.clone()));
    let mut running = follow(server, &path, &[]);
    running.err_line_with("bundle accepted");

    let (mut blocks, mut states) = (BTreeSet::new(), BTreeSet::new());
    let (started, mut late) = (Instant::now(), 0);
    while states.len() < 2 * prefixes.len() {
        assert!(started.elapsed() < OBSERVED_MAX, "only seen: {states:?}");
        let unix_s = wait_for_block(&mut blocks);
        let shown = output_of(server, &["show"]).0;
        let used = prefixes.map(|(_, client)| network.algorithms(client));
        if unix_time().as_secs() / u64::from(BLOCK_S) != unix_s / u64::from(BLOCK_S) {
            continue; // the next block began during the observation
        }
        // An edge's decisions for these clients.
        let held_out =
            [0, 1].map(|at| rules[at].holds_out(prefixes[at].1.parse::<IpAddr>().unwrap(), unix_s));
        let is_shown = prefixes.map(|(prefix, _)| shown.contains(&format!("{prefix} ")));
        let expected = held_out.map(|is_held_out| if is_held_out { &default } else { &other });
        if is_shown != held_out.map(|is_held_out| !is_held_out)
            || used != expected.map(|name| [name.clone(), name.clone()])
        {
            // On a busy machine, routes follow late: look again in the same block.
            late += 1;
            assert!(late < LATE_MAX, "{unix_s}: {held_out:?} {used:?} {shown}");
            blocks.remove(&(unix_s / u64::from(BLOCK_S)));
            continue;
        }
        states.extend(prefixes.map(|(prefix, _)| prefix).into_iter().zip(held_out));
        assert!(shown.contains("198.51.100.0/24 ") && !shown.contains("192.0.2.0/24 "), "{shown}");
    }
    running.err_line_with(" held out");
    assert_eq!(running.stop(Signal::TERM), Some(0));
    assert_eq!(server.routes(), before);
}

#[test]
fn prefixes_held_out_now_get_no_route_from_a_single_apply() {
    let (network, directory, (_, other)) = (Network::new(), Directory::new(), algorithms());
    let server = &network.server;
    // A block of a year: the salts decide whether the prefix is held out now.
    let now = unix_time().as_secs();
    let of = |prefix: &str, is_held_out: bool| {
        let salts = (0..64).map(|salt| switchback(prefix, &other, PERIOD_S_MAX, &salt.to_string()));
        salts.into_iter().find(|rule| rule.holds_out_prefix(now) == is_held_out).unwrap()
    };
    let rules = vec![
        of("192.0.2.0/24", true),
        of("198.51.100.0/24", false),
        held_out("203.0.113.0/24", &other),
        of("2001:db8:77::/56", false),
    ];
    let file = directory.write("bundle.json", &document(1, rules));
    let (out, err) = output_of(server, &["apply", file.to_str().unwrap()]);
    assert!(out.ends_with("bundle 1: 2 added, 0 replaced, 0 removed, 0 unchanged, 2 held out\n"), "{out}");
    let warning = "3 rules switch their prefix on and off: only --follow changes routes in time";
    assert_eq!(err, format!("{}: warning: {warning}\n", file.display()));
    shows(server, &["198.51.100.0/24 ", "2001:db8:77::/56 "]);
}
