//! The same requests to three caches: ours, Debian's nginx and Debian's Varnish, each a real process before a backend of
//! its own that answers by the same script. What the client got and what the backend was asked is compared, step by step.
//!
//! Where all three agree nothing is said. Where one differs from ours, the sequence says how, and why that is allowed,
//! with the clause or the peer's documentation. A difference that is not explained fails, and so does an explanation
//! of a difference that is gone.
//!
//! All sequences go through a cache at the same time as far as time is concerned: the only wait is for responses of
//! a second's lifetime to become stale, once for all of them. `Age` cannot stand in for it: nginx does not read it, and
//! Varnish does not store what comes stale.
#![allow(clippy::unwrap_used, reason = "a test fails where something is not as it has to be")]

mod backend;
mod client;
mod proxies;
mod run;
mod sequence;
mod sequences;
mod why;

use std::fmt::Write as _;
use std::thread;

use proxies::{Proxy, Server};
use sequence::{Difference, Peer, Sequence};

/// What each step of each sequence came to, in a line.
type Outcomes = Vec<Vec<String>>;

#[test]
fn every_difference_to_nginx_and_varnish_is_explained() {
    let sequences = sequences::all();
    let of = |proxy| Server::start(proxy, &sequences).map(|server| run::run(&server, &sequences)).unwrap();
    let [ours, nginx, varnish] = thread::scope(|scope| {
        [Proxy::Thalweg, Proxy::Nginx, Proxy::Varnish]
            .map(|proxy| scope.spawn(move || of(proxy)))
            .map(|thread| thread.join().unwrap())
    });
    let mut report = String::new();
    let mut faults = 0;
    for (at, sequence) in sequences.iter().enumerate() {
        let of_peers = [(Peer::Nginx, &nginx[at]), (Peer::Varnish, &varnish[at])];
        faults += compare(sequence, &ours[at], of_peers, &mut report);
    }
    assert!(faults == 0, "{faults} differences are not as explained\n{report}");
}

/// Writes what is not as the sequence says to `report`; how many steps that is.
fn compare(
    sequence: &Sequence,
    ours: &[String],
    of_peers: [(Peer, &Vec<String>); 2],
    report: &mut String,
) -> usize {
    let mut faults = 0;
    for (at, our) in ours.iter().enumerate() {
        for (peer, theirs) in of_peers {
            let their = &theirs[at];
            let explained = sequence.explanation(at + 1, peer);
            let fault = match explained {
                None if our == their => continue,
                None => "is not explained",
                Some(_) if our == their => "is gone, and still explained",
                Some(told) if told.ours != our || told.theirs != their => "is another than explained",
                Some(_) => continue,
            };
            faults += 1;
            let Sequence { name, clause, .. } = sequence;
            let _ = writeln!(report, "\n{name} ({clause}), step {}: the difference {fault}", at + 1);
            if let Some(told) = explained {
                let Difference { ours, theirs, why, .. } = told;
                let _ = writeln!(report, "    told     {ours}\n    but      {theirs}\n    because  {why}");
            }
            let _ =
                writeln!(report, "    thalweg  {our}\n    {:8} {their}", format!("{peer:?}").to_lowercase());
        }
    }
    faults
}
