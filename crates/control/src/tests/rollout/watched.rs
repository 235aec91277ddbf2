//! What is no watching: windows that tell of no canary, parts of windows, and edges that are heard no more.

use super::site::{Does, Site};
use super::told;
use crate::*;

#[test]
fn a_candidate_waits_as_long_as_no_window_tells_of_its_canary() {
    // The agents' `host` is another name than that by which their edges ask.
    let mut site = Site::new(2, |_| {});
    site.edges.iter_mut().for_each(|edge| edge.host = Some(format!("host-of-{}", edge.name)));
    let number = site.until_watched();
    let name = site.edges[site.canary()].name.clone();
    let standing = |site: &Site| site.rollout.candidate().unwrap().standing();
    assert_eq!(standing(&site), "watched");
    let mut transitions = site.poll_all();
    // Longer than is waited where no window comes at all.
    for _ in 0..10 {
        for _ in 0..3 {
            transitions.extend(site.pass(100));
            site.poll_all();
        }
        transitions.extend(site.round());
    }
    let why = format!("no window has told of {name}; is that the `host` of its agent?");
    assert_eq!(told(&transitions), [format!("bundle {number} waits at its canaries: {why}")]);
    assert_eq!(standing(&site), format!("waits: {why}"));
    assert_eq!(site.given(site.canary()), Some(number));
    site.edges.iter_mut().for_each(|edge| edge.host = None);
    assert_eq!(site.round()[0], Transition::Promoted { number, is_shown: true });
}

#[test]
fn a_canary_with_little_traffic_is_waited_for_and_not_for_ever() {
    let mut site = Site::new(1, |_| {});
    // Fewer than an edge has that counts as one that serves, and too few to say anything.
    site.edges[0].does.connections = 5;
    let number = site.until_watched();
    let mut quiet = 0;
    for connections in [0, 0, 5, 0, 5, 0, 0] {
        site.edges[0].does.connections = connections;
        let transitions = site.round();
        assert!(!transitions.iter().any(|it| matches!(it, Transition::Promoted { .. })), "{transitions:?}");
        quiet += u32::from(connections == 0);
        site.poll_all();
    }
    assert_eq!(quiet, 5);
    site.edges[0].does.connections = 5;
    assert_eq!(site.round()[0], Transition::Promoted { number, is_shown: false });
}

#[test]
fn connections_without_a_response_tell_nothing() {
    let mut site = Site::new(1, |_| {});
    site.edges[0].does.connections = 20;
    site.until_watched();
    for _ in 0..10 {
        let mut window = site.window();
        let idle = window.edges.keys().map(|name| (name.clone(), Figures::default())).collect();
        window.edges = std::sync::Arc::new(idle);
        site.close(&window);
        site.poll_all();
    }
    assert!(site.rollout.candidate().is_some());
}

#[test]
fn a_part_of_a_window_is_not_watched() {
    type Break = fn(&mut Site);
    // A controller was down for a moment; a clock was set forward into the midst of a window.
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
        let whole = std::mem::replace(&mut site.edges[0].does, Does { connections: 8, ..Does::default() });
        assert_eq!(site.round(), [], "{at}");
        site.edges[0].does = whole;
        assert_eq!(site.round()[0], Transition::Promoted { number, is_shown: true }, "{at}");
    }
}

#[test]
fn a_clock_that_is_set_back_does_not_stall_what_is_watched() {
    let mut site = Site::new(5, |_| {});
    let number = site.until_watched();
    // By more than the history: windows go on from there.
    site.lab.number -= 1_000;
    site.now_unix_s = site.lab.number * 300;
    site.pass(60);
    assert_eq!(site.round(), [], "a part of it was before");
    assert_eq!(site.round()[0], Transition::Promoted { number, is_shown: true });
}

#[test]
fn a_canary_that_falls_silent_counts_no_more() {
    let mut site = Site::new(3, |_| {});
    let number = site.until_watched();
    let first = site.canary();
    let others: Vec<_> = (0..3).filter(|at| *at != first).collect();
    // Only the others ask.
    let pass = |site: &mut Site, seconds: usize| {
        let mut told = Vec::new();
        for _ in 0..seconds {
            told.extend(site.pass(1));
            others.iter().for_each(|at| drop(site.ask(*at)));
        }
        told
    };
    let silent = Transition::EdgeSilent { edge: format!("edge-{first}") };
    assert_eq!(pass(&mut site, 130), [silent]);
    assert!(matches!(site.rollout.candidate().unwrap().stage, Stage::Handed { wanted: 1, .. }));
    // Its records still come, by whatever it goes: they tell nothing.
    assert_eq!(site.round(), []);
    let told = pass(&mut site, 60);
    let [Transition::Canaries { number: handed, edges }] = &told[..] else { panic!("{told:?}") };
    assert_eq!((*handed, edges.len()), (number, 1));
    // It is back.
    site.poll(first);
    assert!(matches!(site.rollout.candidate().unwrap().stage, Stage::Watched { windows: 0, .. }));
}

#[test]
fn a_canary_that_goes_by_what_all_have_counts_no_more() {
    for has_forgotten in [true, false] {
        let mut site = Site::new(2, |_| {});
        let number = site.until_watched();
        let canary = site.canary();
        let stable = site.rollout.stable().cloned();
        site.edges[canary].in_force = stable.filter(|_| !has_forgotten);
        site.ask(canary);
        assert_eq!(site.round(), [], "its responses are not the candidate's");
        // It takes the candidate again.
        site.poll_all();
        site.round();
        assert_eq!(site.round()[0], Transition::Promoted { number, is_shown: true });
    }
}

#[test]
fn of_a_pop_that_reports_nothing_the_rules_stay_and_nothing_is_promoted() {
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
    // For a day: all edges are silent alike, which is no fault of the candidate.
    let transitions: Vec<_> = (0..288).flat_map(|_| silent(&mut site)).collect();
    let edges = vec![site.edges[site.canary()].name.clone()];
    assert_eq!(transitions, [Transition::Unseen { number, edges }]);
    assert_eq!(site.rollout.stable().unwrap().content().rules, rules);
    assert_eq!(site.lab.state, state, "what passed is told by the next window that is heard");
}
