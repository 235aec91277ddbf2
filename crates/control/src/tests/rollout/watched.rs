//! Canary monitoring tests: windows without canary traffic, partial windows, and silent edges.

use super::site::{Behaviour, Site};
use super::texts;
use crate::*;

#[test]
fn candidate_waits_until_a_window_has_canary_traffic() {
    // The agents' `host` differs from the name with which their edges poll.
    let mut site = Site::new(2, |_| {});
    site.edges.iter_mut().for_each(|edge| edge.host = Some(format!("host-of-{}", edge.name)));
    let number = site.until_watched();
    let name = site.edges[site.canary()].name.clone();
    let stage_text = |site: &Site| site.rollout.candidate().unwrap().stage_text();
    assert_eq!(stage_text(&site), "watched");
    let mut transitions = site.poll_all();
    // Run for longer than the maximum wait for a window to close.
    for _ in 0..10 {
        for _ in 0..3 {
            transitions.extend(site.pass(100));
            site.poll_all();
        }
        transitions.extend(site.round());
    }
    let why = format!("no records from {name}; does the name match its agent's `host`?");
    assert_eq!(texts(&transitions), [format!("bundle {number} waiting for traffic of its canaries: {why}")]);
    assert_eq!(stage_text(&site), format!("waiting: {why}"));
    assert_eq!(site.given(site.canary()), Some(number));
    site.edges.iter_mut().for_each(|edge| edge.host = None);
    assert_eq!(site.round()[0], Transition::Promoted { number, is_shown: true });
}

#[test]
fn wait_for_a_canary_with_little_traffic_is_bounded() {
    let mut site = Site::new(1, |_| {});
    // Too few responses for the edge to count as serving traffic, and too few for a verdict.
    site.edges[0].behaviour.connections = 5;
    let number = site.until_watched();
    let mut quiet = 0;
    for connections in [0, 0, 5, 0, 5, 0, 0] {
        site.edges[0].behaviour.connections = connections;
        let transitions = site.round();
        assert!(!transitions.iter().any(|it| matches!(it, Transition::Promoted { .. })), "{transitions:?}");
        quiet += u32::from(connections == 0);
        site.poll_all();
    }
    assert_eq!(quiet, 5);
    site.edges[0].behaviour.connections = 5;
    assert_eq!(site.round()[0], Transition::Promoted { number, is_shown: false });
}

#[test]
fn connections_without_responses_do_not_count_as_canary_traffic() {
    let mut site = Site::new(1, |_| {});
    site.edges[0].behaviour.connections = 20;
    site.until_watched();
    for _ in 0..10 {
        let mut window = site.window();
        let idle = window.edges.keys().map(|name| (name.clone(), EdgeFigures::default())).collect();
        window.edges = std::sync::Arc::new(idle);
        site.close(&window);
        site.poll_all();
    }
    assert!(site.rollout.candidate().is_some());
}

#[test]
fn partial_window_is_not_watched() {
    type Break = fn(&mut Site);
    // The controller was down for a moment, or the clock was set ahead into the middle of a window.
    let breaks: [Break; 2] = [
        |site| site.rollout.resume(site.now_unix_s + 100),
        |site| {
            site.now_unix_s += 7 * 300 + 190;
            site.lab.number += 7;
            site.poll_all();
            site.pass(60);
        },
    ];
    for (at, happens) in breaks.into_iter().enumerate() {
        let mut site = Site::new(1, |_| {});
        let number = site.until_watched();
        happens(&mut site);
        let whole = std::mem::replace(
            &mut site.edges[0].behaviour,
            Behaviour { connections: 8, ..Behaviour::default() },
        );
        assert_eq!(site.round(), [], "{at}");
        site.edges[0].behaviour = whole;
        assert_eq!(site.round()[0], Transition::Promoted { number, is_shown: true }, "{at}");
    }
}

#[test]
fn clock_set_back_does_not_stall_the_watch() {
    let mut site = Site::new(5, |_| {});
    let number = site.until_watched();
    // Set the clock back by more than the history, so that windows continue from there.
    site.lab.number -= 1_000;
    site.now_unix_s = site.lab.number * 300;
    site.pass(60);
    // Part of the window was before the change. The candidate is replaced, because its holdouts are
    // drawn anew, and is watched further.
    let number = number + 1;
    assert_eq!(site.round(), [Transition::CandidateReduced { number }]);
    assert_eq!(site.round()[0], Transition::Promoted { number, is_shown: true });
}

#[test]
fn silent_canary_no_longer_counts() {
    let mut site = Site::new(3, |_| {});
    let number = site.until_watched();
    let first = site.canary();
    let others: Vec<_> = (0..3).filter(|at| *at != first).collect();
    // Advances time while only the other edges poll.
    let pass = |site: &mut Site, seconds: usize| {
        let mut transitions = Vec::new();
        for _ in 0..seconds {
            transitions.extend(site.pass(1));
            others.iter().for_each(|at| drop(site.ask(*at)));
        }
        transitions
    };
    let silent = Transition::EdgeSilent { edge: format!("edge-{first}") };
    assert_eq!(pass(&mut site, 130), [silent]);
    assert!(matches!(site.rollout.candidate().unwrap().stage, Stage::Assigned { wanted: 1, .. }));
    // Records of the silent canary still arrive, but its bundle is unknown, so they do not count.
    assert_eq!(site.round(), []);
    let transitions = pass(&mut site, 60);
    let [Transition::Canaries { number: handed, edges }] = &transitions[..] else {
        panic!("{transitions:?}")
    };
    assert_eq!((*handed, edges.len()), (number, 1));
    // Let the canary poll again.
    site.poll(first);
    assert!(matches!(site.rollout.candidate().unwrap().stage, Stage::Watched { windows: 0, .. }));
}

#[test]
fn canary_on_the_stable_bundle_no_longer_counts() {
    for has_forgotten in [true, false] {
        let mut site = Site::new(2, |_| {});
        let number = site.until_watched();
        let canary = site.canary();
        let stable = site.rollout.stable().cloned();
        site.edges[canary].in_force = stable.filter(|_| !has_forgotten);
        site.ask(canary);
        assert_eq!(site.round(), [], "its responses were not under the candidate");
        // Let the canary apply the candidate again.
        site.poll_all();
        site.round();
        assert_eq!(site.round()[0], Transition::Promoted { number, is_shown: true });
    }
}

#[test]
fn canary_that_never_applies_the_candidate_counts_on_neither_side() {
    let fails = |failed| Behaviour { failed, ..Behaviour::default() };
    // Two of three edges are canaries. One applies the candidate. The other never does, and fails
    // responses for another reason.
    let watched = |follower: Behaviour| {
        let mut site = Site::new(3, |settings| settings.canary.share = 0.5);
        let number = site.until_tried();
        let canaries: Vec<_> = (0..3).filter(|at| site.is_canary(*at)).collect();
        let [follows, stays] = canaries[..] else { panic!("{canaries:?}") };
        let mut transitions = Vec::new();
        for _ in 0..300 {
            transitions.extend(site.pass(1));
            for at in 0..3 {
                transitions.extend(if at == stays { site.ask(at) } else { site.poll(at) });
            }
        }
        assert!(transitions.contains(&Transition::Acknowledged { number }), "{transitions:?}");
        assert_eq!(site.round(), [], "the window in which it was applied");
        (site.edges[follows].behaviour, site.edges[stays].behaviour) = (follower, fails(0.3));
        site.round().swap_remove(0)
    };
    let promoted = watched(Behaviour::default());
    assert!(matches!(promoted, Transition::Promoted { is_shown: true, .. }), "{promoted:?}");
    let back = watched(fails(0.08));
    assert!(matches!(back, Transition::RolledBack { why: RollbackReason::Worse { .. }, .. }), "{back:?}");
}

#[test]
fn silent_pop_keeps_its_rules_and_promotes_nothing() {
    let mut site = Site::new(5, |_| {});
    let first = site.until_watched();
    assert_eq!(site.round()[0], Transition::Promoted { number: first, is_shown: true });
    let rules = site.rollout.stable().unwrap().content().rules.clone();
    assert_eq!(rules.len(), 2);
    site.lab.settings.exploring_max = 1;
    let number = site.until_watched();
    let state = site.lab.state.clone();
    let silent = |site: &mut Site| {
        let mut window = site.window();
        window.prefixes.clear();
        window.edges = Default::default();
        site.poll_all();
        site.close(&window)
    };
    // For a day, all edges are equally silent, so the candidate is not blamed.
    let transitions: Vec<_> = (0..288).flat_map(|_| silent(&mut site)).collect();
    let edges = vec![site.edges[site.canary()].name.clone()];
    assert_eq!(transitions, [Transition::NoCanaryTraffic { number, edges }]);
    assert_eq!(site.rollout.stable().unwrap().content().rules, rules);
    assert_eq!(site.lab.state, state, "the next window with traffic counts the time that passed");
}
