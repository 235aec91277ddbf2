//! Differential test: sends the same requests to the edge, Debian's nginx and Debian's Varnish,
//! each a real process with its own, identically scripted backend. Client responses and backend
//! requests are compared step by step.
//!
//! If a peer differs from the edge, `explained.txt` must state the difference and why it is
//! allowed, citing the RFC or the peer's documentation. The test fails if a difference is not
//! explained, or if an explained difference does not occur.
//!
//! The test waits only once, for all sequences together: until responses with a lifetime of one
//! second are stale. Setting `Age` would not avoid the wait, because nginx ignores the field and
//! Varnish does not store responses that arrive stale.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

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

/// For each sequence, the outcomes of its steps as lines.
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
                let explanation = explained.remove(&(sequence.name, step, peer));
                let (our, their) = (&ours[at][step - 1], &outcomes[at][step - 1]);
                if let Some(fault) = compare(our, their, explanation.as_ref()) {
                    let (name, clause) = (sequence.name, sequence.clause);
                    faults
                        .push(format!("{peer:?}, {clause}: {fault}\n    {name} {step}: {our} -> {their}\n"));
                }
            }
        }
    }
    assert!(explained.is_empty(), "explanations of unknown steps: {explained:#?}");
    assert!(
        faults.is_empty(),
        "{} differences do not match their explanation\n\n{}",
        faults.len(),
        faults.join("\n")
    );
}

/// Differences from Varnish under a policy: sequence, step, the edge's outcome, Varnish's outcome,
/// reason.
const OF_POLICIES: [(&str, usize, &str, &str, &str); 0] = [];

#[test]
fn policy_behaves_as_on_varnish() {
    let sequences = sequences::policies::all();
    let policy = Some(include_str!("policy.vcl"));
    let of =
        |proxy| Server::start(proxy, &sequences, policy).map(|server| run::run(&server, &sequences)).unwrap();
    let [ours, varnish] = thread::scope(|scope| {
        [Proxy::Thalweg, Proxy::Varnish]
            .map(|proxy| scope.spawn(move || of(proxy)))
            .map(|thread| thread.join().unwrap())
    });
    let mut explanation: Vec<_> = OF_POLICIES.to_vec();
    let mut faults = Vec::new();
    for (at, sequence) in sequences.iter().enumerate() {
        for (step, (our, their)) in ours[at].iter().zip(&varnish[at]).enumerate() {
            let explained = explanation.iter().position(|explanation| {
                (explanation.0, explanation.1, explanation.2, explanation.3)
                    == (sequence.name, step + 1, our.as_str(), their.as_str())
            });
            match explained {
                Some(at) => drop(explanation.remove(at)),
                None if our == their => {}
                None => faults.push(format!("{} {}:\n    {our}\n -> {their}\n", sequence.name, step + 1)),
            }
        }
    }
    assert!(explanation.is_empty(), "explanations of differences that no longer exist: {explanation:#?}");
    assert!(faults.is_empty(), "{} unexplained differences\n\n{}", faults.len(), faults.join("\n"));
}

/// Compares a step's outcomes, taking its explanation into account. Returns the mismatch, if any.
fn compare(ours: &str, theirs: &str, explanation: Option<&Difference>) -> Option<String> {
    match explanation {
        None if ours == theirs => None,
        None => Some("not explained".to_owned()),
        Some(explanation) if explanation.ours == ours && explanation.theirs == theirs => None,
        Some(Difference { ours, theirs, why }) => {
            Some(format!("explained differently\n    ({why})\n    explanation: {ours} -> {theirs}"))
        }
    }
}
