//! Rollout tests: bundles distributed to edges.

use expect_test::expect;

use super::lab::prefix;
use crate::*;
use site::{Behaviour, Site, TestEdge};

mod kept;
mod properties;
mod quorum;
mod reduced;
mod site;
mod watched;

fn texts(transitions: &[Transition]) -> Vec<String> {
    transitions.iter().map(ToString::to_string).collect()
}

#[test]
fn additions_go_to_a_tenth_of_the_edges_and_then_to_all() {
    let mut site = Site::new(20, |_| {});
    site.poll_all();
    expect![[r#"
        [
            "bundle 1 sent to all edges at once, because it adds nothing",
        ]
    "#]]
    .assert_debug_eq(&texts(&site.round()));
    let number = site.until_tried();
    let canaries = (0..20).filter(|at| site.is_canary(*at)).count();
    assert_eq!((number, canaries), (2, 2));
    for at in 0..20 {
        assert_eq!(site.given(at), Some(if site.is_canary(at) { 2 } else { 1 }));
    }
    assert_eq!(site.rollout.candidate().unwrap().bundle.content().rules.len(), 2);
    let watched = site.poll_all();
    assert_eq!(watched, [Transition::Acknowledged { number }]);
    assert_eq!(site.round(), [], "the window was incomplete");
    assert_eq!(site.round(), [Transition::Promoted { number, is_shown: true }]);
    assert_eq!((0..20).map(|at| site.given(at)).collect::<Vec<_>>(), [Some(2); 20]);
    site.poll_all();
    let edge = &site.rollout.edges()["edge-7"];
    assert_eq!((edge.number, edge.heard_unix_s), (Some(2), site.now_unix_s));
    assert_eq!(site.round(), []);
}

#[test]
fn canary_choice_varies() {
    let chosen = |edges: usize| {
        let mut site = Site::new(edges, |settings| settings.exploring_max = 1);
        site.lab.prefixes = 60;
        let mut chosen = std::collections::BTreeSet::new();
        for _ in 0..12 {
            if site.rollout.candidate().is_none() {
                site.until_tried();
            }
            chosen.insert(site.canary());
            site.until(|transitions| matches!(transitions, Transition::Promoted { .. }));
        }
        chosen.len()
    };
    assert!(chosen(8) > 2);
    assert_eq!(chosen(1), 1, "a single edge is always the canary");
}

impl Site {
    /// Runs rounds until a transition matches, and returns it.
    fn until(&mut self, matches: impl Fn(&Transition) -> bool) -> Transition {
        for _ in 0..20 {
            self.poll_all();
            if let Some(found) = self.round().into_iter().find(&matches) {
                return found;
            }
        }
        panic!("not within 20 rounds");
    }
}

#[test]
fn candidate_is_rolled_back_if_canaries_do_worse() {
    let reasons: Vec<_> = [
        Behaviour { failed: 0.08, ..Behaviour::default() },
        Behaviour { retransmitted: 0.05, ..Behaviour::default() },
        Behaviour { ln_goodput: 13.5, ..Behaviour::default() },
    ]
    .into_iter()
    .flat_map(|behaviour| [(behaviour, 5), (behaviour, 1)])
    .map(|(behaviour, edges)| {
        let mut site = Site::new(edges, |_| {});
        let number = site.until_watched();
        let canary = site.canary();
        site.edges[canary].behaviour = behaviour;
        let transitions = site.round();
        let Transition::RolledBack { number: back, by, why, withdrawn } = &transitions[0] else {
            panic!("{transitions:?}")
        };
        let withdrawn: Vec<_> = withdrawn.iter().map(|it| it.prefix).collect();
        assert_eq!((*back, *by, withdrawn), (number, number + 1, vec![prefix(0), prefix(1)]));
        for at in 0..edges {
            let bundle = site.rollout.document(&site.edges[at].name).unwrap();
            assert_eq!((bundle.content().number, bundle.content().rules.len()), (number + 1, 0));
        }
        let left = site.lab.left();
        assert_eq!((left.left, left.failures, left.rounds_min), (Reason::RolledBack, 1, 288));
        assert_eq!(site.lab.state.guard.pause_windows, 11, "one round has passed");
        let why = why.to_string();
        assert!(site.rollout.stable().unwrap().content().reason.ends_with(&why));
        format!("{edges}: {why}")
    })
    .collect();
    expect![[r#"
        [
            "5: failed responses: 8.00 %, before 1.00 %, other edges 1.00 %",
            "1: failed responses: 8.00 %, before 1.00 %",
            "5: retransmitted bytes: 5.00 %, before 2.00 %, other edges 2.00 %",
            "1: retransmitted bytes: 5.00 %, before 2.00 %",
            "5: goodput: 5.84 Mbit/s, before 9.62 Mbit/s, other edges 9.62 Mbit/s",
            "1: goodput: 5.84 Mbit/s, before 9.62 Mbit/s",
        ]
    "#]]
    .assert_debug_eq(&reasons);
}

#[test]
fn candidate_is_not_blamed_for_other_causes() {
    type Change = fn(&mut Site);
    // All edges become worse; all edges were always this bad; the rise is below the limit; the rise
    // is far above the limit, but with too few connections.
    let cases: [(Change, Change); 4] = [
        (|_| {}, |site| site.edges.iter_mut().for_each(|it| it.behaviour.ln_goodput = 13.0)),
        (|site| site.edges.iter_mut().for_each(|it| it.behaviour.failed = 0.2), |_| {}),
        (|_| {}, |site| site.set_canary(|behaviour| behaviour.retransmitted = 0.035)),
        (|_| {}, |site| site.set_canary(|behaviour| (behaviour.failed, behaviour.connections) = (0.05, 60))),
    ];
    for (at, (before, after)) in cases.into_iter().enumerate() {
        let mut site = Site::new(5, |_| {});
        before(&mut site);
        let number = site.until_watched();
        after(&mut site);
        assert_eq!(site.round()[0], Transition::Promoted { number, is_shown: true }, "{at}");
    }
}

impl Site {
    fn set_canary(&mut self, change: impl FnOnce(&mut Behaviour)) {
        let canary = self.canary();
        change(&mut self.edges[canary].behaviour);
    }
}

#[test]
fn too_few_connections_promote_and_missing_windows_roll_back() {
    let few = |site: &mut Site, connections| {
        site.edges.iter_mut().for_each(|it| it.behaviour.connections = connections);
    };
    let mut site = Site::new(5, |_| {});
    few(&mut site, 20);
    let number = site.until_watched();
    assert_eq!(site.round(), []);
    assert_eq!(
        site.round()[0],
        Transition::Promoted { number, is_shown: true },
        "40 connections against 160 elsewhere"
    );
    let mut site = Site::new(1, |_| {});
    few(&mut site, 5);
    let number = site.until_watched();
    assert_eq!((site.round(), site.round()), (vec![], vec![]));
    assert_eq!(site.round()[0], Transition::Promoted { number, is_shown: false });

    let mut site = Site::new(5, |_| {});
    site.until_watched();
    // Keep polling, but close no window.
    let mut transitions = Vec::new();
    let mut passed_s = 60;
    while transitions.is_empty() {
        transitions = site.pass(20);
        site.poll_all();
        passed_s += 20;
    }
    let [Transition::RolledBack { why: RollbackReason::NoWindows, .. }] = transitions[..] else {
        panic!("{transitions:?}")
    };
    assert_eq!(passed_s, 5 * 300 + 120 + 20);
}

#[test]
fn edge_that_refuses_the_stable_bundle_is_a_canary_only_as_a_last_resort() {
    // Try both orders, because the hash would choose one of them.
    for names in [vec!["a"], vec!["a", "b"], vec!["b", "a"]] {
        let mut site = Site::new(names.len(), |_| {});
        names.iter().zip(&mut site.edges).for_each(|(name, edge)| edge.name = (*name).into());
        site.round();
        site.refuse(0, "no");
        site.until_tried();
        assert_eq!(site.canary(), names.len() - 1, "{names:?}");
    }
}

#[test]
fn first_edge_to_poll_becomes_the_canary_if_none_is_known() {
    let mut site = Site::new(0, |_| {});
    let number = site.until_tried();
    assert_eq!(site.rollout.candidate().unwrap().stage, Stage::Unassigned);
    // A newer candidate replaces a candidate that no edge has received.
    site.lab.settings.exploring_max = 1;
    let transitions = site.round();
    assert_eq!(transitions, [Transition::Proposed { number: number + 1 }]);
    site.edges.push(TestEdge { name: "edge-0".into(), ..TestEdge::default() });
    site.edges.push(TestEdge { name: "edge-1".into(), ..TestEdge::default() });
    let edges = vec!["edge-0".to_owned()];
    assert_eq!(site.poll(0), [Transition::Canaries { number: number + 1, edges }]);
    assert_eq!((site.given(0), site.given(1)), (Some(number + 1), Some(1)));
}

#[test]
fn edges_over_the_limit_get_the_stable_bundle() {
    let mut site = Site::new(EDGES_MAX + 1, |_| {});
    site.edges[0].name = "x".repeat(EDGE_NAME_BYTES_MAX + 1);
    site.until_tried();
    assert_eq!(site.rollout.edges().len(), EDGES_MAX);
    let stable = site.rollout.stable().map(|bundle| bundle.content().number);
    assert_eq!((site.given(0), stable.is_some()), (stable, true));
    // The edges are removed after a day without polls.
    for _ in 0..86_400 / 60 + 1 {
        site.now_unix_s += 60;
        site.tick();
    }
    assert!(site.rollout.edges().is_empty());
}
