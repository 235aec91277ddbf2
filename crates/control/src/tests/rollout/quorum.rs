//! Quorum tests: edges that refuse a candidate, stay silent or stop serving, alone and together,
//! and edges without traffic.

use super::site::{Behaviour, Site, TestEdge};
use super::texts;
use crate::*;

impl Site {
    /// Lets canaries refuse the candidate, one at a time, until `edges` of them have done so or the
    /// candidate is rolled back. Returns the transitions of the last refusal.
    fn refuse_as_canaries(&mut self, edges: usize) -> Vec<Transition> {
        let mut last = Vec::new();
        for _ in 0..edges {
            let canary = self.canary();
            last = self.refuse(canary, "no\nsuch thing");
            if self.rollout.candidate().is_none() {
                break;
            }
        }
        last
    }

    /// Passes time while only the given edges poll, without applying anything.
    fn pass_polling(&mut self, seconds: u64, polling: &[usize]) -> Vec<Transition> {
        let mut transitions = Vec::new();
        for _ in 0..seconds {
            transitions.extend(self.pass(1));
            polling.iter().for_each(|at| drop(self.ask(*at)));
        }
        transitions
    }

    /// Adds edges that poll but have no records.
    fn add_idle_edges(&mut self, count: usize) {
        for at in 0..count {
            let behaviour = Behaviour { connections: 0, ..Behaviour::default() };
            self.edges.push(TestEdge { name: format!("idle-{at}"), behaviour, ..TestEdge::default() });
        }
    }
}

#[test]
fn edge_that_refuses_alone_is_excluded_and_the_rollout_continues() {
    let mut site = Site::new(5, |_| {});
    let number = site.until_tried();
    let refusing = site.canary();
    let transitions = site.refuse(refusing, "no\nsuch thing");
    let canary = site.canary();
    assert_ne!(canary, refusing);
    let edges = vec![format!("edge-{canary}")];
    let reason = "no such thing".to_owned();
    assert_eq!(
        transitions,
        [
            Transition::CanaryRefused { edge: format!("edge-{refusing}"), number, reason },
            Transition::Canaries { number, edges }
        ]
    );
    assert_eq!((site.given(refusing), site.ask(refusing)), (Some(1), vec![]), "it gets the stable bundle");
    for at in (0..5).filter(|at| *at != refusing).chain((0..5).filter(|at| *at != refusing)) {
        site.poll(at);
    }
    assert_eq!(site.round(), [], "the window in which the canary applied it");
    assert_eq!(site.round()[0], Transition::Promoted { number, is_shown: true });
    // The edge still refuses the bundle, which is now the stable bundle.
    let stable = site.rollout.stable().unwrap().checksum();
    assert_eq!(site.edges[refusing].refused.as_ref().unwrap().checksum, stable);
    assert_eq!(site.given(refusing), None);
}

#[test]
fn refusal_by_a_quorum_rolls_the_bundle_back() {
    for (edges, share, refusing) in
        [(1, 0.25, 1), (2, 0.25, 2), (5, 0.25, 2), (9, 0.25, 3), (5, 1.0, 5), (5, 0.6, 3)]
    {
        let mut site = Site::new(edges, |settings| settings.canary.quorum = share);
        let number = site.until_tried();
        let case = format!("{edges} edges, quorum {share}");
        if refusing > 1 {
            site.refuse_as_canaries(refusing - 1);
            assert!(site.rollout.candidate().is_some(), "{case}");
        }
        let transitions = site.refuse_as_canaries(1);
        let [Transition::CanaryRefused { .. }, Transition::RolledBack { number: back, by, why, withdrawn }] =
            &transitions[..]
        else {
            panic!("{case}: {transitions:?}")
        };
        assert_eq!((*back, withdrawn.len()), (number, 2), "{case}");
        match why {
            RollbackReason::Refused { refusing: counted, of, reason, .. } => {
                assert_eq!((*counted, *of, reason.as_str()), (refusing, edges, "no such thing"), "{case}");
            }
            other => panic!("{case}: {other:?}"),
        }
        assert_eq!((0..edges).map(|at| site.given(at)).collect::<Vec<_>>(), vec![Some(*by); edges]);
    }
}

#[test]
fn refusal_of_the_stable_bundle_is_reported_once() {
    let mut site = Site::new(5, |_| {});
    site.round();
    site.poll_all();
    let transitions = site.refuse(2, "full");
    let reason = "full".to_owned();
    assert_eq!(transitions, [Transition::EdgeRefused { edge: "edge-2".into(), number: 1, reason }]);
    assert_eq!((site.given(2), site.ask(2)), (None, vec![]));
    // An edge cannot refuse a bundle that was not assigned to it.
    site.edges[0].refused = Some(Refusal { checksum: "sha256:00".into(), reason: "no".into() });
    assert_eq!(site.ask(0), []);
}

#[test]
fn edges_without_traffic_have_no_vote_and_are_no_canaries() {
    let mut site = Site::new(2, |settings| settings.canary.share = 1.0);
    site.poll_all();
    site.round();
    site.add_idle_edges(12);
    site.poll_all();
    let number = site.until_tried();
    let canaries = (0..14).filter(|at| site.is_canary(*at)).collect::<Vec<_>>();
    assert_eq!(canaries, [0, 1]);
    let idle = 2..14;
    idle.clone().for_each(|at| drop(site.refuse(at, "no")));
    site.poll_all();
    assert_eq!(site.round(), []);
    // Idle edges cannot make the controller issue bundles, either.
    idle.for_each(|at| {
        site.edges[at].switch_to(1 << 40);
        site.ask(at);
    });
    assert_eq!(site.round()[0], Transition::Promoted { number, is_shown: true });
    assert_eq!((site.rollout.newest(), site.round()), (number, vec![]));
}

#[test]
fn silent_canary_is_replaced_and_a_quorum_of_silent_ones_rolls_back() {
    let mut site = Site::new(3, |_| {});
    let number = site.until_tried();
    let first = site.canary();
    let others: Vec<_> = (0..3).filter(|at| *at != first).collect();
    let transitions = site.pass_polling(130, &others);
    let silent = Transition::EdgeSilent { edge: format!("edge-{first}") };
    let second = others.iter().copied().find(|at| site.is_canary(*at)).unwrap();
    let chosen = Transition::Canaries { number, edges: vec![format!("edge-{second}")] };
    assert_eq!(transitions, [silent, chosen]);
    assert_eq!(site.given(first), Some(number), "it may already use it");
    let third = others.into_iter().find(|at| *at != second).unwrap();
    let transitions = site.pass_polling(130, &[third]);
    let Transition::RolledBack { why: RollbackReason::Unacknowledged, by, .. } = &transitions[0] else {
        panic!("{transitions:?}")
    };
    assert_eq!((0..3).map(|at| site.given(at)).collect::<Vec<_>>(), [Some(*by); 3]);
}

#[test]
fn silent_edges_below_the_quorum_do_not_end_the_rollout() {
    let mut site = Site::new(5, |settings| settings.canary.quorum = 0.6);
    let number = site.until_tried();
    let mut silent = Vec::new();
    for _ in 0..2 {
        silent.push((0..5).find(|at| site.is_canary(*at) && !silent.contains(at)).unwrap());
        let polling: Vec<_> = (0..5).filter(|at| !silent.contains(at)).collect();
        site.pass_polling(130, &polling);
    }
    let canary = (0..5).find(|at| site.is_canary(*at) && !silent.contains(at)).unwrap();
    site.poll(canary);
    assert_eq!(site.poll(canary), [Transition::Acknowledged { number }]);
}

#[test]
fn canary_that_returns_in_time_is_watched() {
    let mut site = Site::new(3, |_| {});
    let number = site.until_tried();
    let first = site.canary();
    let transitions = site.pass(130);
    assert!(transitions.iter().all(|it| matches!(it, Transition::EdgeSilent { .. })), "{transitions:?}");
    site.poll(first);
    assert_eq!(site.poll(first), [Transition::Acknowledged { number }]);
}

#[test]
fn canary_that_stops_serving_alone_is_joined_by_another() {
    let stops = Behaviour { connections: 0, ..Behaviour::default() };
    for are_both in [false, true] {
        let mut site = Site::new(5, |_| {});
        let number = site.until_watched();
        let first = site.canary();
        site.edges[first].behaviour = stops;
        let transitions = site.round();
        let second = (0..5).find(|at| site.is_canary(*at) && *at != first).unwrap();
        let edge = |at: usize| format!("edge-{at}");
        assert_eq!(
            transitions,
            [
                Transition::CanaryStopped { edge: edge(first), number },
                Transition::Canaries { number, edges: vec![edge(second)] }
            ]
        );
        assert_eq!(site.poll_all(), [Transition::Acknowledged { number }]);
        assert_eq!(site.round(), [], "the window in which the second canary applied it");
        if are_both {
            site.edges[second].behaviour = stops;
            let why = format!(
                "{} served 0 responses in the window, 400 per window before",
                edge(first.min(second))
            );
            let back = texts(&site.round()[..1]);
            assert_eq!(
                back,
                [format!("bundle {number} rolled back by bundle 3, 2 prefixes withdrawn: {why}")]
            );
        } else {
            assert_eq!(site.round()[0], Transition::Promoted { number, is_shown: true });
        }
    }
}

#[test]
fn canary_without_records_does_not_hold_up_the_others() {
    let mut site = Site::new(5, |_| {});
    // Too few responses for a canary to count as having stopped.
    site.edges.iter_mut().for_each(|edge| edge.behaviour.connections = 60);
    let number = site.until_watched();
    let first = site.canary();
    site.edges[first].behaviour.connections = 0;
    let mut transitions = Vec::new();
    for _ in 0..10 {
        site.poll_all();
        transitions.extend(site.round());
    }
    assert!(transitions.contains(&Transition::Promoted { number, is_shown: true }), "{transitions:?}");
}

#[test]
fn idle_edges_make_room_and_edges_with_traffic_stay() {
    let mut site = Site::new(2, |_| {});
    site.poll_all();
    site.round();
    let number = site.until_watched();
    site.round();
    site.add_idle_edges(EDGES_MAX + 100);
    site.poll_all();
    let known = |site: &Site, name: &str| site.rollout.edges().contains_key(name);
    assert_eq!(site.rollout.edges().len(), EDGES_MAX);
    assert!(known(&site, "edge-0") && known(&site, "edge-1"));
    assert_eq!(site.given(0), Some(number));
    // A new edge is known as soon as it polls, and stays once it has traffic.
    site.edges.push(TestEdge { name: "new".into(), ..TestEdge::default() });
    site.poll(EDGES_MAX + 102);
    assert!(known(&site, "new"));
    site.round();
    site.poll_all();
    assert!(known(&site, "new"));
}
