//! The same requests to three caches: ours, Debian's nginx and Debian's Varnish, each a real process before a backend of
//! its own that answers by the same script. What the client got and what the backend was asked is compared, step by step.
//!
//! Where all three agree nothing is said. Where one differs from ours, `explained.txt` says how, and why that is allowed,
//! with the clause or the peer's documentation. A difference that is not explained fails, and so does an explanation
//! of a difference that is gone.
//!
//! The only wait is for responses of a second's lifetime to become stale, once for all sequences. `Age` cannot stand in
//! for it: nginx does not read it, and Varnish does not store what comes stale.
#![allow(clippy::unwrap_used, reason = "a test fails where something is not as it has to be")]

mod backend;
mod client;
mod explained;
mod proxies;
mod run;
mod sequence;
mod sequences;

use std::thread;

use explained::{Difference, Peer};
use proxies::{Proxy, Server};

/// What each step of each sequence came to, in a line.
type Outcomes = Vec<Vec<String>>;

#[test]
fn every_difference_to_nginx_and_varnish_is_explained() {
    let sequences = sequences::all();
    let of =
        |proxy| Server::start(proxy, &sequences, None).map(|server| run::run(&server, &sequences)).unwrap();
    let [ours, nginx, varnish] = thread::scope(|scope| {
        [Proxy::Thalweg, Proxy::Nginx, Proxy::Varnish]
            .map(|proxy| scope.spawn(move || of(proxy)))
            .map(|thread| thread.join().unwrap())
    });
    let mut explained = explained::read();
    let mut faults = Vec::new();
    for (at, sequence) in sequences.iter().enumerate() {
        for step in 1..=ours[at].len() {
            for (peer, outcomes) in [(Peer::Nginx, &nginx), (Peer::Varnish, &varnish)] {
                let told = explained.remove(&(sequence.name, step, peer));
                let (our, their) = (&ours[at][step - 1], &outcomes[at][step - 1]);
                if let Some(fault) = compare(our, their, told.as_ref()) {
                    let (name, clause) = (sequence.name, sequence.clause);
                    faults
                        .push(format!("{peer:?}, {clause}: {fault}\n    {name} {step}: {our} -> {their}\n"));
                }
            }
        }
    }
    assert!(explained.is_empty(), "there are no such steps: {explained:#?}");
    assert!(faults.is_empty(), "{} differences are not as explained\n\n{}", faults.len(), faults.join("\n"));
}

/// Differences to Varnish under a policy: sequence, step, ours, Varnish's, why.
const OF_POLICIES: [(&str, usize, &str, &str, &str); 0] = [];

#[test]
fn a_policy_does_what_it_does_on_varnish() {
    let sequences = sequences::policies::all();
    let policy = Some(include_str!("policy.vcl"));
    let of =
        |proxy| Server::start(proxy, &sequences, policy).map(|server| run::run(&server, &sequences)).unwrap();
    let [ours, varnish] = thread::scope(|scope| {
        [Proxy::Thalweg, Proxy::Varnish]
            .map(|proxy| scope.spawn(move || of(proxy)))
            .map(|thread| thread.join().unwrap())
    });
    let mut told: Vec<_> = OF_POLICIES.to_vec();
    let mut faults = Vec::new();
    for (at, sequence) in sequences.iter().enumerate() {
        for (step, (our, their)) in ours[at].iter().zip(&varnish[at]).enumerate() {
            let explained = told.iter().position(|told| {
                (told.0, told.1, told.2, told.3) == (sequence.name, step + 1, our.as_str(), their.as_str())
            });
            match explained {
                Some(at) => drop(told.remove(at)),
                None if our == their => {}
                None => faults.push(format!("{} {}:\n    {our}\n -> {their}\n", sequence.name, step + 1)),
            }
        }
    }
    assert!(told.is_empty(), "there are no such differences: {told:#?}");
    assert!(faults.is_empty(), "{} differences are not explained\n\n{}", faults.len(), faults.join("\n"));
}

/// What is wrong with what is told of a step, if anything.
fn compare(ours: &str, theirs: &str, told: Option<&Difference>) -> Option<String> {
    match told {
        None if ours == theirs => None,
        None => Some("not explained".to_owned()),
        Some(told) if told.ours == ours && told.theirs == theirs => None,
        Some(Difference { ours, theirs, why }) => {
            Some(format!("explained otherwise\n    ({why})\n    told: {ours} -> {theirs}"))
        }
    }
}
