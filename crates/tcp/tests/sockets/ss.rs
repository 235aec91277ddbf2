//! Comparison of our dumps with the output of iproute2's `ss`, for thousands of sockets in every
//! state that loopback can produce. The test fails if a value differs or only one of the two
//! reports it, except for the values in [`NOT_DECODED`] and [`NEWER`].
//!
//! `ss` runs between two of our dumps. A socket is compared if both dumps agree on it. A socket
//! that changed in between, for example by retransmitting its SYN, is compared in a later round.
//! Times that always advance must lie between those of the two dumps.

mod ours;
mod reported;
mod theirs;

use std::collections::{BTreeSet, HashSet};
use std::time::{Duration, Instant};

use reported::Reported;
use thalweg_tcp::diag::State;

use crate::crowd::{CONNECTIONS, Crowd};

/// Maximum time to compare all sockets, long enough for a busy machine.
const REST_MAX: Duration = Duration::from_secs(60);

/// Values reported only by `ss`, each with the reason we omit it.
const NOT_DECODED: &[(&str, &str)] = &[
    ("cgroup", "we report its number, ss its path"),
    ("ts", "negotiated options say nothing about delivery"),
    ("sack", "negotiated option, as ts"),
    ("ecn", "negotiated option, as ts"),
    ("ecnseen", "negotiated option, as ts"),
    ("fastopen", "negotiated option, as ts"),
    ("wscale", "windows are reported after scaling"),
    ("backoff", "included in the retransmission timeout"),
    ("ato", "delayed acknowledgements say nothing about delivery"),
];

/// Values that we report, but `ss` only since iproute2 6.7.
const NEWER: &[&str] = &["rcv_wnd", "rehash"];

/// States that need not occur: those without a connection, and `NewSynRecv`, which the kernel
/// reports under another name.
const NOT_LIVE: &[State] = &[State::Close, State::NewSynRecv, State::BoundInactive];

/// Values that must occur on at least one compared socket. A value omitted everywhere by both sides
/// would not be tested.
const REQUIRED: &[&str] = &[
    "advmss",
    "app_limited",
    "bbr",
    "busy",
    "bytes_acked",
    "bytes_received",
    "bytes_sent",
    "cc",
    "class_id",
    "cwnd",
    "data_segs_in",
    "data_segs_out",
    "delivered",
    "delivery_rate",
    "lastack",
    "lastrcv",
    "lastsnd",
    "lost",
    "minrtt",
    "mss",
    "notsent",
    "pacing_rate",
    "pmtu",
    "rcv_space",
    "rcv_ssthresh",
    "rcvmss",
    "retrans",
    "rto",
    "rtt",
    "rwnd_limited",
    "segs_in",
    "segs_out",
    "send",
    "shutdown",
    "skmem",
    "snd_wnd",
    "timer",
    "tclass",
    "tos",
    "unacked",
    "v6only",
];

/// Sockets, states and values compared so far.
#[derive(Debug, Default)]
struct Compared {
    sockets: HashSet<u64>,
    states: BTreeSet<String>,
    names: BTreeSet<String>,
}

impl Compared {
    /// Compares the sockets on these ports that stay idle while `ss` runs. Returns the cookies of
    /// all sockets.
    fn compare(&mut self, ports: &[u16]) -> HashSet<u64> {
        let began = Instant::now();
        let before = ours::reported(ports);
        let theirs = theirs::reported(ports);
        let after = ours::reported(ports);
        let took = began.elapsed();
        for (cookie, reported) in &theirs {
            assert!(
                before.contains_key(cookie) || after.contains_key(cookie),
                "only ss reports {reported:?}"
            );
        }
        for (cookie, ours) in &before {
            let Some(later) = after.get(cookie).filter(|later| is_at_rest(ours, later, took)) else {
                continue;
            };
            let reported = theirs.get(cookie).unwrap_or_else(|| panic!("ss lacks {ours:?}"));
            let differences = differences(ours, later, reported);
            assert!(differences.is_empty(), "{differences:#?}\nwe say {ours:?}\nss says {reported:?}");
            self.sockets.insert(*cookie);
            self.states.insert(reported.facts["state"].clone());
            self.names.extend(reported.facts.keys().cloned());
            self.names
                .extend(reported.clocks_ms.iter().filter(|(_, ms)| **ms > 0).map(|(name, _)| name.clone()));
        }
        before.into_keys().collect()
    }

    /// Lists the values, states and sockets not compared yet.
    fn missing(&self, sockets: &HashSet<u64>) -> Vec<String> {
        let moving = sockets.difference(&self.sockets).map(|cookie| format!("socket {cookie:x} at rest"));
        let states = State::ALL.iter().filter(|state| !NOT_LIVE.contains(state)).map(State::to_string);
        let states = states.filter(|state| !self.states.contains(state));
        let names = REQUIRED.iter().filter(|name| !self.names.contains(**name));
        moving.chain(states).chain(names.map(|name| (*name).to_owned())).collect()
    }
}

/// Returns whether the socket stayed idle between the dumps: no value changed, the timer did not
/// expire, and no other time was reset.
fn is_at_rest(before: &Reported, after: &Reported, took: Duration) -> bool {
    let has_passed = |(name, &ms): (&String, &u64)| match name.as_str() {
        "timer" => Duration::from_millis(ms) > took,
        _ => after.clock_ms(name) >= ms,
    };
    before.facts == after.facts && before.clocks_ms.iter().all(has_passed)
}

/// Lists the values on which `ss` disagrees with our dumps before and after it.
fn differences(before: &Reported, after: &Reported, theirs: &Reported) -> Vec<String> {
    let mut found = Vec::new();
    let names: BTreeSet<_> = before.facts.keys().chain(theirs.facts.keys()).collect();
    for name in names {
        let (we, ss) = (before.facts.get(name), theirs.facts.get(name));
        let is_excused = match (we, ss) {
            (None, Some(_)) => NOT_DECODED.iter().any(|(not_decoded, _)| not_decoded == name),
            (Some(_), None) => NEWER.contains(&name.as_str()),
            _ => false,
        };
        if we != ss && !is_excused {
            found.push(format!("{name}: we say {we:?}, ss says {ss:?}"));
        }
    }
    let names: BTreeSet<_> = before.clocks_ms.keys().chain(theirs.clocks_ms.keys()).collect();
    for name in names {
        let [first, last, ss] = [before, after, theirs].map(|reported| reported.clock_ms(name));
        let (least, most) = (first.min(last), first.max(last));
        // `ss` prints timers of more than a few seconds in whole seconds.
        let cut = if name == "timer" { 999 } else { 0 };
        if ss > most || ss + cut < least {
            found.push(format!("{name}: we say {first} and {last} ms, ss says {ss} between"));
        }
    }
    found
}

#[test]
fn ss_agrees_with_our_dumps() {
    let crowd = Crowd::new();
    let ports = crowd.ports();
    let deadline = Instant::now() + REST_MAX;
    let mut compared = Compared::default();
    let mut sockets = compared.compare(&ports);
    assert!(sockets.len() > 6 * CONNECTIONS - 500, "{}", sockets.len());
    while let missing = compared.missing(&sockets)
        && !missing.is_empty()
    {
        assert!(Instant::now() < deadline, "never compared: {missing:?}");
        sockets = compared.compare(&ports);
    }
}
