//! Withdrawal tests: a withdrawal reaches all edges at once, even during a candidate's trial.

use super::site::Site;
use super::texts;
use crate::tests::lab::prefix;
use crate::*;

fn prefixes(site: &Site, at: usize) -> Vec<String> {
    let bundle = site.rollout.document(&site.edges[at].name);
    bundle.unwrap().content().rules.iter().map(|rule| rule.prefix.to_string()).collect()
}

/// Excludes a network, so that its prefixes are withdrawn at once, as in a safety withdrawal.
fn leave_alone(site: &mut Site, network: &str) {
    site.lab.settings.left_alone.push(network.parse().unwrap());
}

#[test]
fn withdrawal_reaches_all_edges_while_the_candidate_is_watched_on() {
    let mut site = Site::new(5, |_| {});
    let first = site.until_watched();
    assert_eq!(texts(&site.round())[0], format!("bundle {first} sent to all edges"));
    // The stable bundle has two prefixes, and the candidate adds one.
    site.lab.settings.exploring_max = 1;
    let number = site.until_watched();
    let canary = site.canary();
    let other = (canary + 1) % 5;
    assert_eq!((prefixes(&site, canary).len(), prefixes(&site, other).len()), (3, 2));
    site.lab.settings.exploring_max = 0;
    leave_alone(&mut site, "203.0.0.0/24");
    // Canaries are watched one window longer, so the candidate is still on trial.
    site.lab.settings.canary.windows = 2;
    let transitions = site.round();
    let [Transition::Reduced { number: all }, Transition::CandidateReduced { number: tried }] =
        transitions[..]
    else {
        panic!("{transitions:?}")
    };
    assert_eq!((site.given(other), site.given(canary), tried), (Some(all), Some(tried), all + 1));
    assert!(all > number);
    assert_eq!(prefixes(&site, other), [prefix(1).to_string()]);
    assert_eq!(prefixes(&site, canary)[0], prefix(1).to_string());
    assert_eq!(prefixes(&site, canary).len(), 2);
    site.poll_all();
    // Watching continues without a restart.
    let transitions = site.round();
    assert_eq!(transitions[0], Transition::Promoted { number: tried, is_shown: true });
}

#[test]
fn candidate_without_remaining_additions_ends() {
    let mut site = Site::new(5, |_| {});
    let number = site.until_watched();
    leave_alone(&mut site, "203.0.0.0/16");
    site.lab.settings.canary.windows = 2;
    let transitions = site.round();
    assert_eq!(transitions[0], Transition::Ended { number });
    let canary = (0..5).map(|at| (prefixes(&site, at).len(), site.given(at).unwrap() > number));
    assert_eq!(canary.collect::<Vec<_>>(), [(0, true); 5]);
    assert_eq!(site.rollout.candidate(), None);
}

#[test]
fn changes_over_the_limit_are_rejected_and_withdrawn() {
    let mut site = Site::new(5, |_| {});
    site.poll_all();
    site.round();
    site.lab.settings.changes_max = 0;
    for _ in 0..11 {
        site.poll_all();
        site.round();
    }
    // Simulate a decision that admitted more prefixes than allowed.
    let window = site.window();
    site.lab.settings.changes_max = 50;
    let moment = site.lab.moment(&window);
    let (mut state, decision) = decide(&site.lab.settings, &site.lab.state, &window, moment);
    assert_eq!(decision.entered.len(), 2);
    site.lab.settings.changes_max = 1;
    let transitions = site.decided(&mut state);
    let Transition::Rejected { reason, withdrawn } = &transitions[0] else { panic!("{transitions:?}") };
    assert_eq!((reason.as_str(), withdrawn.len()), ("2 prefixes enter, but the limit is 1 in 1 rounds", 2));
    assert_eq!((state.steered().count(), site.rollout.candidate()), (0, None));
}

#[test]
fn connections_do_not_count_under_a_rule_that_differs_from_the_states() {
    let mut site = Site::new(5, |_| {});
    (site.lab.effect, site.lab.connections) = (0.4, 12);
    site.until_watched();
    while site.rollout.candidate().is_some() {
        site.poll_all();
        site.round();
    }
    let on_trial = site.rollout.stable().unwrap().content().number;
    while site.lab.state.entry(prefix(0)).unwrap().reason != Reason::Helped {
        site.poll_all();
        site.round();
    }
    let entry = |site: &Site| site.lab.state.entry(prefix(0)).unwrap().steered().unwrap().clone();
    let shown = entry(&site);
    assert_eq!((shown.holdout_millionths, shown.from_bundle), (100_000, site.rollout.newest()));
    // Withdraw the other prefix: all edges get a newer bundle that still holds out half.
    leave_alone(&mut site, "203.0.1.0/24");
    site.round();
    let stable = site.rollout.stable().unwrap().content();
    assert!(stable.number > on_trial);
    assert_eq!((stable.rules.len(), stable.rules[0].holdout.millionths()), (1, 500_000));
    let candidate = site.rollout.candidate().unwrap().bundle.content();
    assert_eq!(candidate.rules[0].holdout.millionths(), 100_000);
    assert_eq!((stable.number + 1, entry(&site).from_bundle), (candidate.number, candidate.number));
}

#[test]
fn host_opt_out_reaches_all_edges_at_once() {
    let mut site = Site::new(5, |_| {});
    let number = site.until_watched();
    site.lab.settings.canary.windows = 2;
    site.lab.settings.hosts_left_alone = vec!["Audio.example".into()];
    let [Transition::Reduced { number: all }, Transition::CandidateReduced { number: tried }] =
        site.round()[..]
    else {
        panic!()
    };
    assert!(number < all && all < tried);
    for at in 0..5 {
        let content = site.rollout.document(&site.edges[at].name).unwrap().content();
        assert_eq!(content.hosts_left_alone, ["audio.example"]);
        assert_eq!(content.rules.len(), if site.is_canary(at) { 2 } else { 0 });
        // The trials must have restarted with a new salt.
        for rule in &content.rules {
            let own = site.lab.state.entry(rule.prefix).unwrap().steered().unwrap();
            assert_eq!(rule.salt, format!("{:x}", own.salt));
            assert!(number < own.from_bundle && own.from_bundle <= tried);
        }
    }
}
