//! Thousands of sockets in every state that loopback gives, beside all that `ss` of iproute2 says of them: whatever one of the two
//! says and the other does not, or says otherwise, is a failure, but for what stands in [`NOT_DECODED`] and [`NEWER`].
//!
//! `ss` runs between two of our dumps. A socket that both dumps say the same of is compared; of one that moved, such as one whose
//! SYN is sent again, another look will do. Times that pass in any case have to lie between the two.

mod ours;
mod said;
mod theirs;

use std::collections::{BTreeSet, HashSet};
use std::time::{Duration, Instant};

use said::Said;
use thalweg_tcp::diag::State;

use crate::crowd::{CONNECTIONS, Crowd};

/// How long the sockets may take to come to rest on a machine that has much else to do.
const REST_MAX: Duration = Duration::from_secs(60);

/// What `ss` says and this does not, and why.
const NOT_DECODED: &[(&str, &str)] = &[
    ("cgroup", "we have its number, and ss its path"),
    ("ts", "what both sides agreed on says nothing of delivery"),
    ("sack", "the same"),
    ("ecn", "the same"),
    ("ecnseen", "the same"),
    ("fastopen", "the same"),
    ("wscale", "the same: windows are told scaled"),
    ("backoff", "the retransmission timeout has it in it"),
    ("ato", "how this side delays acknowledgements says nothing of what it delivers"),
];

/// What this says and `ss` does since iproute2 6.7 alone.
const NEWER: &[&str] = &["rcv_wnd", "rehash"];

/// States of no connection, or, of `NewSynRecv`, of none that the kernel tells of by that name.
const NOT_LIVE: &[State] = &[State::Close, State::NewSynRecv, State::BoundInactive];

/// Each has to have been said of a socket that was compared: that both leave it out of all proves nothing.
const SAID_AT_LEAST_ONCE: &[&str] = &[
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

/// What has been compared.
#[derive(Debug, Default)]
struct Compared {
    sockets: HashSet<u64>,
    states: BTreeSet<String>,
    names: BTreeSet<String>,
}

impl Compared {
    /// Compares all those of the ports that do not move while `ss` looks at them; gives all that there are.
    fn look(&mut self, ports: &[u16]) -> HashSet<u64> {
        let began = Instant::now();
        let before = ours::said(ports);
        let theirs = theirs::said(ports);
        let after = ours::said(ports);
        let took = began.elapsed();
        for (cookie, said) in &theirs {
            assert!(before.contains_key(cookie) || after.contains_key(cookie), "only ss has {said:?}");
        }
        for (cookie, ours) in &before {
            let Some(later) = after.get(cookie).filter(|later| is_at_rest(ours, later, took)) else {
                continue;
            };
            let said = theirs.get(cookie).unwrap_or_else(|| panic!("ss has not {ours:?}"));
            let differences = differences(ours, later, said);
            assert!(differences.is_empty(), "{differences:#?}\nwe say {ours:?}\nss says {said:?}");
            self.sockets.insert(*cookie);
            self.states.insert(said.facts["state"].clone());
            self.names.extend(said.facts.keys().cloned());
            self.names.extend(said.clocks_ms.iter().filter(|(_, ms)| **ms > 0).map(|(name, _)| name.clone()));
        }
        before.into_keys().collect()
    }

    /// What is still to be compared of these; nothing if all was.
    fn missing(&self, sockets: &HashSet<u64>) -> Vec<String> {
        let moving = sockets.difference(&self.sockets).map(|cookie| format!("socket {cookie:x} at rest"));
        let states = State::ALL.iter().filter(|state| !NOT_LIVE.contains(state)).map(State::to_string);
        let states = states.filter(|state| !self.states.contains(state));
        let names = SAID_AT_LEAST_ONCE.iter().filter(|name| !self.names.contains(**name));
        moving.chain(states).chain(names.map(|name| (*name).to_owned())).collect()
    }
}

/// Whether nothing happened between: a timer may not have run out and begun anew, and no other time has begun anew.
fn is_at_rest(before: &Said, after: &Said, took: Duration) -> bool {
    let has_passed = |(name, &ms): (&String, &u64)| match name.as_str() {
        "timer" => Duration::from_millis(ms) > took,
        _ => after.clock_ms(name) >= ms,
    };
    before.facts == after.facts && before.clocks_ms.iter().all(has_passed)
}

/// Where `ss` says something else than we do, before it and after it.
fn differences(before: &Said, after: &Said, theirs: &Said) -> Vec<String> {
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
        let [first, last, ss] = [before, after, theirs].map(|said| said.clock_ms(name));
        let (least, most) = (first.min(last), first.max(last));
        // A timer of more than some seconds is printed without what is left of a second.
        let cut = if name == "timer" { 999 } else { 0 };
        if ss > most || ss + cut < least {
            found.push(format!("{name}: we say {first} and {last} ms, ss says {ss} between"));
        }
    }
    found
}

#[test]
fn ss_says_the_same() {
    let crowd = Crowd::new();
    let ports = crowd.ports();
    let deadline = Instant::now() + REST_MAX;
    let mut compared = Compared::default();
    let mut sockets = compared.look(&ports);
    assert!(sockets.len() > 6 * CONNECTIONS - 500, "{}", sockets.len());
    while let missing = compared.missing(&sockets)
        && !missing.is_empty()
    {
        assert!(Instant::now() < deadline, "never compared: {missing:?}");
        sockets = compared.look(&ports);
    }
}
