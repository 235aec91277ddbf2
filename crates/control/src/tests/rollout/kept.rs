//! Tests of storing and resuming rollouts.

use expect_test::expect;
use thalweg_bundle::{Bundle, FORMAT};

use super::site::Site;
use crate::tests::lab::prefix;
use crate::*;

#[test]
fn rollout_round_trips_through_its_stored_form_and_continues() {
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
        "stored state has format 9; expected format 1"
    );
    assert!(matches!(fails("\"newest\"", "\"newesd\""), StateError::Json(_)));
    assert!(
        matches!(fails("203.0.0.0/24", "203.0.9.0/24"), StateError::Json(_)),
        "its checksum does not match"
    );
}

#[test]
fn field_out_of_range_is_named() {
    let mut site = Site::new(2, |_| {});
    site.until_watched();
    site.lab.settings.canary.windows = 3;
    site.round();
    let canary = site.canary();
    site.edges[canary].refused = Some(Refusal { checksum: "sha256:00".into(), reason: "no".into() });
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
    let faults = [
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
        newest must be at most 2^53
        stable must be at most the newest
        candidate.bundle must be above the stable bundle's number and at most the newest
        candidate.bundle must be above the stable bundle's number and at most the newest
        candidate.canaries must be empty if and only if the stage is Unheard
        candidate.canaries must be at most 1000 names, each 1 to 253 bytes long
        candidate.canaries must be empty if and only if the stage is Unheard
        candidate.stage.wanted must be from 1 to the number of canaries
        candidate.stage.own.failed.mean must be from 0 to 1
        candidate.stage.others.ln_goodput.squares must be at least 0 and consistent with count
        edges must be at most 1000
        edges[].name must be 1 to 253 bytes long
        edges[edge].in_force must be at most 71 bytes long
        edges[edge].number must be at most 2^53
        edges[edge].refused.reason must be at most 1024 bytes long
        edges[edge].before.retransmitted.mean must be from 0 to 1"#]]
    .assert_eq(&faults.join("\n"));
}

#[test]
fn bundles_of_another_release_are_dropped_and_numbering_continues() {
    for is_candidate_alone in [false, true] {
        let mut site = Site::new(5, |_| {});
        let number = site.until_watched();
        let text = site.rollout.encode();
        let (own, other) = (format!("\\\"format\\\":{FORMAT}"), "\\\"format\\\":1");
        assert_eq!(text.matches(&own).count(), 2);
        let text = if is_candidate_alone { text.replacen(&own, other, 1) } else { text.replace(&own, other) };
        let error = Rollout::decode(text.as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), format!("stored bundles have format 1; expected format {FORMAT}"));
        site.rollout = Rollout::decode_without_bundles(text.as_bytes()).unwrap();
        let edges = site.rollout.edges().clone();
        assert_eq!((site.rollout.newest(), edges.len(), site.given(0)), (number, 5, None));
        site.poll_all();
        let transitions = site.round();
        let [Transition::Reduced { number: all }, Transition::Proposed { number: tried }, ..] =
            transitions[..]
        else {
            panic!("{transitions:?}")
        };
        assert!(number < all && all < tried, "{transitions:?}");
    }
    // Damaged input is still an error.
    assert!(matches!(Rollout::decode_without_bundles(b"{}"), Err(StateError::Json(_))));
}

#[test]
fn outdated_state_continues_above_its_rollout() {
    let mut site = Site::new(5, |_| {});
    site.until_watched();
    let old = site.lab.state.clone();
    site.round();
    site.lab.settings.left_alone = vec!["203.0.0.0/24".parse().unwrap()];
    (0..3).for_each(|_| drop(site.round()));
    let newest = site.rollout.newest();
    assert!(newest > old.bundle);
    // Decide from the outdated state, without any acknowledgement. The outdated state still steers
    // the prefix that was withdrawn later.
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
    // The stable rules are first reissued under a new number, from which connections count again.
    assert_eq!((tried.rules.len(), tried.number), (2, newest + 2));
    assert_eq!(site.rollout.stable().unwrap().content().number, newest + 1);
    let from = state.steered().map(|(_, steered)| steered.from_bundle).collect::<Vec<_>>();
    assert_eq!(from, [newest + 1; 2]);
}

#[test]
fn bundle_number_seen_at_an_edge_is_not_reused() {
    // The controller has lost its state, but edges still have bundles.
    let mut site = Site::new(3, |_| {});
    site.edges[0].switch_to(41);
    site.edges[1].switch_to(BUNDLES_MAX / 2 + 1); // a number that no controller issues
    (0..3).for_each(|at| drop(site.ask(at)));
    assert_eq!(site.round(), [Transition::Reduced { number: 42 }]);
    assert_eq!(site.until_watched(), 43);
    site.round();
    let edge = |site: &Site| site.lab.state.entry(prefix(0)).unwrap().steered().unwrap().clone();
    let shown = |site: &Site| edge(site).evidence.steered;
    assert_eq!(site.given(0), Some(43));
    // An edge arrives with another controller's bundle. That bundle's rules are unknown, so all
    // edges get their rules reissued under a higher number.
    site.edges[2].switch_to(1_000);
    site.ask(2);
    assert_eq!((site.given(2), site.rollout.edges()["edge-2"].number), (None, Some(1_000)));
    assert_eq!(site.round(), [Transition::Reduced { number: 1_001 }]);
    assert_eq!((edge(&site).from_bundle, site.given(0)), (1_001, Some(1_001)));
    let before = shown(&site);
    site.poll_all();
    assert_eq!(site.round(), []);
    assert!(shown(&site) > before, "connections under the new number count");
}

#[test]
fn candidate_number_exceeds_the_stable_one_for_any_stored_rollout() {
    let mut site = Site::new(5, |_| {});
    site.until_watched();
    site.round();
    site.lab.settings.exploring_max = 1;
    site.until_tried();
    // Store a candidate that lacks a prefix of the stable bundle. This release never creates such a
    // candidate.
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
fn clock_jumps_and_downtime_do_not_make_edges_silent() {
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
