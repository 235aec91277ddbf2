//! Rollouts as they are kept and gone on from.

use expect_test::expect;
use thalweg_bundle::{Bundle, FORMAT};

use super::site::Site;
use crate::tests::lab::prefix;
use crate::*;

#[test]
fn a_rollout_is_read_as_it_was_written_and_goes_on() {
    let mut site = Site::new(5, |_| {});
    let number = site.until_watched();
    for _ in 0..2 {
        let text = site.rollout.encode();
        let read = Rollout::decode(text.as_bytes()).unwrap();
        assert_eq!((&read, read.encode()), (&site.rollout, text));
        site.rollout = read;
        if site.rollout.candidate().is_some() {
            assert_eq!(site.round()[0], Transition::Promoted { number, is_shown: true });
        }
    }
    let text = site.rollout.encode();
    let fails = |from: &str, to: &str| {
        assert!(text.contains(from), "{from} in {text}");
        Rollout::decode(text.replacen(from, to, 1).as_bytes()).unwrap_err()
    };
    assert_eq!(
        fails("\"format\":1", "\"format\":9").to_string(),
        "a state of format 9, and this program reads format 1"
    );
    assert!(matches!(fails("\"newest\"", "\"newesd\""), StateError::Json(_)));
    assert!(
        matches!(fails("203.0.0.0/24", "203.0.9.0/24"), StateError::Json(_)),
        "not what its checksum says"
    );
}

#[test]
fn a_field_out_of_its_range_is_named() {
    let mut site = Site::new(2, |_| {});
    site.until_watched();
    site.lab.settings.canary.windows = 3;
    site.round();
    let canary = site.canary();
    site.edges[canary].refused = Some(("sha256:00".into(), "no".into()));
    let rollout = serde_json::to_value(&site.rollout).unwrap();
    let own = format!("/edges/edge-{canary}");
    let fault = |pointer: &str, value: serde_json::Value| {
        let mut rollout = rollout.clone();
        *rollout.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}")) = value;
        match Rollout::decode(rollout.to_string().as_bytes()) {
            Err(StateError::Field(fault)) => fault.to_string().replace(&format!("edge-{canary}"), "edge"),
            other => panic!("{pointer}: {other:?}"),
        }
    };
    let names: serde_json::Map<_, _> =
        (0..=EDGES_MAX).map(|at| (at.to_string(), rollout["edges"]["edge-0"].clone())).collect();
    let told = [
        fault("/newest", u64::MAX.into()),
        fault("/newest", 0.into()),
        fault("/newest", 1.into()),
        fault("/stable", serde_json::Value::Null),
        fault("/candidate/canaries", serde_json::json!({})),
        fault("/candidate/canaries", serde_json::json!({"": true})),
        fault("/candidate/stage", serde_json::json!("Unheard")),
        fault(
            "/candidate/stage",
            serde_json::json!({"Handed": {"since_s": 1, "wanted": 2, "is_second": false}}),
        ),
        fault("/candidate/stage/Watched/own/failed/mean", "2".into()),
        fault("/candidate/stage/Watched/others/ln_goodput/squares", "-1".into()),
        fault("/edges", names.into()),
        fault("/edges", serde_json::json!({"": rollout["edges"]["edge-0"]})),
        fault(&format!("{own}/in_force"), "x".repeat(72).into()),
        fault(&format!("{own}/number"), u64::MAX.into()),
        fault(&format!("{own}/refused"), serde_json::json!({"checksum": "", "reason": "x".repeat(1025)})),
        fault(&format!("{own}/before/retransmitted/mean"), "-0.1".into()),
    ];
    expect![[r#"
        newest has to be at most 2^53
        stable has to be at most the newest
        candidate.bundle has to be above the stable one, at most the newest
        candidate.bundle has to be above the stable one, at most the newest
        candidate.canaries has to be there where the stage is not Unheard, and only there
        candidate.canaries has to be at most 1000 names of 1 to 253 bytes
        candidate.canaries has to be there where the stage is not Unheard, and only there
        candidate.stage.wanted has to be from 1 to the number of canaries
        candidate.stage.own.failed.mean has to be from 0 to 1
        candidate.stage.others.ln_goodput.squares has to be at least 0, and what so many values can have
        edges has to be at most 1000
        edges[].name has to be of 1 to 253 bytes
        edges[edge].in_force has to be a checksum
        edges[edge].number has to be at most 2^53
        edges[edge].refused.reason has to be of at most 1024 bytes
        edges[edge].before.retransmitted.mean has to be from 0 to 1"#]]
    .assert_eq(&told.join("\n"));
}

#[test]
fn bundles_of_another_release_are_dropped_and_numbers_go_on() {
    for is_candidate_alone in [false, true] {
        let mut site = Site::new(5, |_| {});
        let number = site.until_watched();
        let text = site.rollout.encode();
        let (own, other) = (format!("\\\"format\\\":{FORMAT}"), "\\\"format\\\":1");
        assert_eq!(text.matches(&own).count(), 2);
        let text = if is_candidate_alone { text.replacen(&own, other, 1) } else { text.replace(&own, other) };
        let error = Rollout::decode(text.as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), format!("bundles of format 1, and this program reads format {FORMAT}"));
        site.rollout = Rollout::decode_without_bundles(text.as_bytes()).unwrap();
        let edges = site.rollout.edges().clone();
        assert_eq!((site.rollout.newest(), edges.len(), site.given(0)), (number, 5, None));
        site.poll_all();
        let told = site.round();
        let [Transition::Reduced { number: all }, Transition::Proposed { number: tried }, ..] = told[..]
        else {
            panic!("{told:?}")
        };
        assert!(number < all && all < tried, "{told:?}");
    }
    // What is damaged is not dropped.
    assert!(matches!(Rollout::decode_without_bundles(b"{}"), Err(StateError::Json(_))));
}

#[test]
fn a_state_older_than_its_rollout_goes_on_above_it() {
    let mut site = Site::new(5, |_| {});
    site.until_watched();
    let old = site.lab.state.clone();
    site.round();
    site.lab.settings.left_alone = vec!["203.0.0.0/24".parse().unwrap()];
    (0..3).for_each(|_| drop(site.round()));
    let newest = site.rollout.newest();
    assert!(newest > old.bundle);
    // It is decided as if no edge had said anything, and brings back the prefix that has left since.
    site.lab.settings.left_alone.clear();
    site.lab.state = old;
    let window = site.window();
    let mut state = decide(
        &site.lab.settings,
        &site.lab.state,
        &window,
        Moment { acknowledged_bundle: 0, ..site.lab.moment(&window) },
    )
    .0;
    site.decided(&mut state);
    let tried = site.rollout.candidate().unwrap().bundle.content();
    // What all have is given anew before, by a number from which on connections count again.
    assert_eq!((tried.rules.len(), tried.number), (2, newest + 2));
    assert_eq!(site.rollout.stable().unwrap().content().number, newest + 1);
    let from = state.steered().map(|(_, steered)| steered.from_bundle).collect::<Vec<_>>();
    assert_eq!(from, [newest + 1; 2]);
}

#[test]
fn a_number_that_an_edge_has_is_not_given_again() {
    // The controller has lost what it knew.
    let mut site = Site::new(3, |_| {});
    site.edges[0].go_by(41);
    site.edges[1].go_by(BUNDLES_MAX / 2 + 1); // no controller's
    (0..3).for_each(|at| drop(site.ask(at)));
    assert_eq!(site.round(), [Transition::Reduced { number: 42 }]);
    assert_eq!(site.until_watched(), 43);
    site.round();
    let edge = |site: &Site| site.lab.state.entry(prefix(0)).unwrap().steered().unwrap().clone();
    let shown = |site: &Site| edge(site).evidence.steered;
    assert_eq!(site.given(0), Some(43));
    // An edge comes that went by another controller's: it is not known by what rules, and all get what they have above that.
    site.edges[2].go_by(1_000);
    site.ask(2);
    assert_eq!((site.given(2), site.rollout.edges()["edge-2"].number), (None, Some(1_000)));
    assert_eq!(site.round(), [Transition::Reduced { number: 1_001 }]);
    assert_eq!((edge(&site).from_bundle, site.given(0)), (1_001, Some(1_001)));
    let before = shown(&site);
    site.poll_all();
    assert_eq!(site.round(), []);
    assert!(shown(&site) > before, "connections count by it");
}

#[test]
fn a_candidate_is_above_the_stable_bundle_whatever_was_read() {
    let mut site = Site::new(5, |_| {});
    site.until_watched();
    site.round();
    site.lab.settings.exploring_max = 1;
    site.until_tried();
    // A candidate without one of the prefixes that all have, as this rollout makes none.
    let mut content = site.rollout.candidate().unwrap().bundle.content().clone();
    content.rules.remove(0);
    let mut rollout = serde_json::to_value(&site.rollout).unwrap();
    rollout["candidate"]["bundle"] = Bundle::new(content).unwrap().encode().into();
    site.rollout = Rollout::decode(rollout.to_string().as_bytes()).unwrap();
    site.lab.settings.left_alone = vec!["203.0.0.0/24".parse().unwrap()];
    site.round();
    let (stable, tried) = (site.rollout.stable().unwrap(), site.rollout.candidate().unwrap());
    assert_eq!(stable.content().rules.len(), 1);
    assert!(tried.bundle.content().number > stable.content().number);
}

#[test]
fn neither_a_clock_that_jumps_nor_a_controller_that_was_down_makes_edges_silent() {
    let mut site = Site::new(3, |_| {});
    site.until_tried();
    let canaries = site.rollout.candidate().unwrap().canaries.clone();
    for by in [1_000_000, -2_000_000_i64, 500_000] {
        site.now_unix_s = site.now_unix_s.saturating_add_signed(by);
        assert_eq!(site.pass(1), []);
        (0..3).for_each(|at| drop(site.ask(at)));
    }
    assert_eq!(site.rollout.candidate().unwrap().canaries, canaries);
}
