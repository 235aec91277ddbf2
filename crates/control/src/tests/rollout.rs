//! The way of bundles to edges.

use expect_test::expect;

use super::lab::prefix;
use crate::*;
use site::{Does, Site, TestEdge};

mod kept;
mod properties;
mod reduced;
mod site;
mod watched;

fn told(transitions: &[Transition]) -> Vec<String> {
    transitions.iter().map(ToString::to_string).collect()
}

#[test]
fn what_adds_goes_to_a_tenth_of_the_edges_and_then_to_all() {
    let mut site = Site::new(20, |_| {});
    site.poll_all();
    expect![[r#"
        [
            "bundle 1 goes to all edges at once: it adds nothing",
        ]
    "#]]
    .assert_debug_eq(&told(&site.round()));
    let number = site.until_tried();
    let canaries = (0..20).filter(|at| site.is_canary(*at)).count();
    assert_eq!((number, canaries), (2, 2));
    for at in 0..20 {
        assert_eq!(site.given(at), Some(if site.is_canary(at) { 2 } else { 1 }));
    }
    assert_eq!(site.rollout.candidate().unwrap().bundle.content().rules.len(), 2);
    let watched = site.poll_all();
    assert_eq!(watched, [Transition::Acknowledged { number }]);
    assert_eq!(site.round(), [], "it was not whole");
    assert_eq!(site.round(), [Transition::Promoted { number, is_shown: true }]);
    assert_eq!((0..20).map(|at| site.given(at)).collect::<Vec<_>>(), [Some(2); 20]);
    site.poll_all();
    let edge = &site.rollout.edges()["edge-7"];
    assert_eq!((edge.number, edge.heard_unix_s), (Some(2), site.now_unix_s));
    assert_eq!(site.round(), []);
}

#[test]
fn it_is_not_always_the_same_edge() {
    let chosen = |edges: usize| {
        let mut site = Site::new(edges, |settings| settings.exploring_max = 1);
        site.lab.prefixes = 60;
        let mut chosen = std::collections::BTreeSet::new();
        for _ in 0..12 {
            if site.rollout.candidate().is_none() {
                site.until_tried();
            }
            chosen.insert(site.canary());
            site.until(|told| matches!(told, Transition::Promoted { .. }));
        }
        chosen.len()
    };
    assert!(chosen(8) > 2);
    assert_eq!(chosen(1), 1, "of one it is that");
}

impl Site {
    /// Rounds until one tells so.
    fn until(&mut self, is_it: impl Fn(&Transition) -> bool) -> Transition {
        for _ in 0..20 {
            self.poll_all();
            if let Some(found) = self.round().into_iter().find(&is_it) {
                return found;
            }
        }
        panic!("not within 20 rounds");
    }
}

#[test]
fn a_candidate_by_which_canaries_do_worse_is_rolled_back() {
    let reasons: Vec<_> = [
        Does { failed: 0.08, ..Does::default() },
        Does { retransmitted: 0.05, ..Does::default() },
        Does { ln_goodput: 13.5, ..Does::default() },
        Does { connections: 0, ..Does::default() },
    ]
    .into_iter()
    .flat_map(|does| [(does, 5), (does, 1)])
    // Of one edge that serves nothing there is no window.
    .filter(|(does, edges)| does.connections > 0 || *edges > 1)
    .map(|(does, edges)| {
        let mut site = Site::new(edges, |_| {});
        let number = site.until_watched();
        let canary = site.canary();
        site.edges[canary].does = does;
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
        assert_eq!(site.lab.state.guard.pause_windows, 11, "a round has passed");
        let why = why.to_string();
        assert!(site.rollout.stable().unwrap().content().reason.ends_with(&why));
        format!("{edges}: {why}")
    })
    .collect();
    expect![[r#"
        [
            "5: responses that fail: 8.00 %, before 1.00 %, elsewhere 1.00 %",
            "1: responses that fail: 8.00 %, before 1.00 %",
            "5: bytes sent again: 5.00 %, before 2.00 %, elsewhere 2.00 %",
            "1: bytes sent again: 5.00 %, before 2.00 %",
            "5: goodput: 5.84 Mbit/s, before 9.62 Mbit/s, elsewhere 9.62 Mbit/s",
            "1: goodput: 5.84 Mbit/s, before 9.62 Mbit/s",
            "5: edge-3 serves 0 responses in a window, and served 400",
        ]
    "#]]
    .assert_debug_eq(&reasons);
}

#[test]
fn what_is_no_fault_of_the_candidate_is_none() {
    type Change = fn(&mut Site);
    // All edges do worse; a canary always did; a rise below the limit; far above it, and too few to say so.
    let cases: [(Change, Change); 4] = [
        (|_| {}, |site| site.edges.iter_mut().for_each(|it| it.does.ln_goodput = 13.0)),
        (|site| site.edges.iter_mut().for_each(|it| it.does.failed = 0.2), |_| {}),
        (|_| {}, |site| site.does(|does| does.retransmitted = 0.035)),
        (|_| {}, |site| site.does(|does| (does.failed, does.connections) = (0.05, 60))),
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
    fn does(&mut self, change: impl FnOnce(&mut Does)) {
        let canary = self.canary();
        change(&mut self.edges[canary].does);
    }
}

#[test]
fn of_too_few_connections_it_goes_on_and_without_windows_it_is_rolled_back() {
    let few = |site: &mut Site, connections| {
        site.edges.iter_mut().for_each(|it| it.does.connections = connections);
    };
    let mut site = Site::new(5, |_| {});
    few(&mut site, 20);
    let number = site.until_watched();
    assert_eq!(site.round(), []);
    assert_eq!(site.round()[0], Transition::Promoted { number, is_shown: true }, "40 against 160 elsewhere");
    let mut site = Site::new(1, |_| {});
    few(&mut site, 5);
    let number = site.until_watched();
    assert_eq!((site.round(), site.round()), (vec![], vec![]));
    assert_eq!(site.round()[0], Transition::Promoted { number, is_shown: false });

    let mut site = Site::new(5, |_| {});
    site.until_watched();
    // Polls go on, and no window comes.
    let mut told = Vec::new();
    let mut passed_s = 60;
    while told.is_empty() {
        told = site.pass(20);
        site.poll_all();
        passed_s += 20;
    }
    let [Transition::RolledBack { why: Why::Unobserved, .. }] = told[..] else { panic!("{told:?}") };
    assert_eq!(passed_s, 5 * 300 + 120 + 20);
}

#[test]
fn a_bundle_that_a_canary_refuses_is_rolled_back_at_once() {
    let mut site = Site::new(5, |_| {});
    let number = site.until_tried();
    let canary = site.canary();
    let transitions = site.refuse(canary, "no\nsuch thing");
    let Transition::RolledBack { why, .. } = &transitions[0] else { panic!("{transitions:?}") };
    assert_eq!(why.to_string(), format!("edge-{canary} refuses it: no such thing"));
    assert_eq!(site.given(canary), Some(number + 1));
    assert_eq!(site.ask(canary), [], "it says so again");

    // Of another edge it is told, once, and the edge keeps what it has; it is no canary either.
    let refusing = (canary + 1) % 5;
    let checksum = site.rollout.stable().unwrap().checksum().to_owned();
    assert_eq!(
        site.refuse(refusing, "full"),
        [Transition::EdgeRefused {
            edge: format!("edge-{refusing}"),
            number: number + 1,
            reason: "full".into()
        }]
    );
    assert_eq!((site.given(refusing), site.ask(refusing)), (None, vec![]));
    assert_eq!(site.rollout.edges()[&site.edges[refusing].name].refused.as_ref().unwrap().checksum, checksum);
    // What it was not given it cannot refuse.
    site.edges[0].refused = Some(("sha256:00".into(), "no".into()));
    assert_eq!(site.ask(0), []);
}

#[test]
fn an_edge_that_refuses_what_all_have_is_a_canary_only_where_there_is_no_other() {
    // Both ways round: one of them the hash would choose.
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
fn a_silent_canary_is_replaced_once() {
    let mut site = Site::new(3, |_| {});
    let number = site.until_tried();
    let first = site.canary();
    let others: Vec<_> = (0..3).filter(|at| *at != first).collect();
    // Only the others ask.
    let pass = |site: &mut Site, heard: &[usize]| {
        let mut told = Vec::new();
        for _ in 0..130 {
            told.extend(site.pass(1));
            heard.iter().for_each(|at| drop(site.ask(*at)));
        }
        told
    };
    let transitions = pass(&mut site, &others);
    let silent = Transition::EdgeSilent { edge: format!("edge-{first}") };
    let second = others.iter().copied().find(|at| site.is_canary(*at)).unwrap();
    let chosen = Transition::Canaries { number, edges: vec![format!("edge-{second}")] };
    assert_eq!(transitions, [silent, chosen]);
    assert_eq!(site.given(first), Some(number), "it may go by it already");
    let third = others.into_iter().find(|at| *at != second).unwrap();
    let transitions = pass(&mut site, &[third]);
    let Transition::RolledBack { why: Why::Unacknowledged, by, .. } = &transitions[0] else {
        panic!("{transitions:?}")
    };
    assert_eq!((0..3).map(|at| site.given(at)).collect::<Vec<_>>(), [Some(*by); 3]);
}

#[test]
fn a_canary_that_comes_back_in_time_is_watched() {
    let mut site = Site::new(3, |_| {});
    let number = site.until_tried();
    let first = site.canary();
    let transitions = site.pass(130);
    assert!(transitions.iter().all(|it| matches!(it, Transition::EdgeSilent { .. })), "{transitions:?}");
    site.poll(first);
    assert_eq!(site.poll(first), [Transition::Acknowledged { number }]);
}

#[test]
fn the_first_edge_that_asks_becomes_the_canary_where_none_is_known() {
    let mut site = Site::new(0, |_| {});
    let number = site.until_tried();
    assert_eq!(site.rollout.candidate().unwrap().stage, Stage::Unheard);
    // What nobody has makes room for what is newer.
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
fn edges_beyond_what_is_kept_get_what_all_get() {
    let mut site = Site::new(EDGES_MAX + 1, |_| {});
    site.edges[0].name = "x".repeat(EDGE_NAME_BYTES_MAX + 1);
    site.until_tried();
    assert_eq!(site.rollout.edges().len(), EDGES_MAX);
    let stable = site.rollout.stable().map(|bundle| bundle.content().number);
    assert_eq!((site.given(0), stable.is_some()), (stable, true));
    // A day later they are forgotten.
    for _ in 0..86_400 / 60 + 1 {
        site.now_unix_s += 60;
        site.tick();
    }
    assert!(site.rollout.edges().is_empty());
}
