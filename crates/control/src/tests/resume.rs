//! Tests of decisions from stored, lost and outdated states, and after clock changes.

use expect_test::expect;

use super::lab::{Lab, prefix};
use crate::sequential::VALUES_MAX;
use crate::*;

#[test]
fn window_is_decided_once_and_gaps_are_not_observed() {
    let mut lab = Lab::new(|_| {});
    let window = lab.window();
    assert_eq!(lab.decide(&window).round, RoundOutcome::Decided);
    let before = lab.state.clone();
    assert_eq!(lab.decide(&window).round, RoundOutcome::Repeated);
    let older = Window { number: window.number - 5, ..window.clone() };
    assert_eq!(lab.decide(&older).round, RoundOutcome::Repeated);
    let silent = Window { number: window.number + 1, ..Window::default() };
    assert_eq!(lab.decide(&silent).round, RoundOutcome::Silent);
    assert_eq!(lab.state, before);
    let (state, decision) = decide(
        &lab.settings,
        &before,
        &window,
        Moment { now_unix_s: window.number * 300 + 299, ..lab.moment(&window) },
    );
    assert_eq!((state, decision.round), (before, RoundOutcome::Early));

    let history = |lab: &Lab| lab.state.entry(prefix(0)).unwrap().history.text(8);
    assert_eq!(history(&lab), "-------#");
    lab.decide(&Window { number: window.number + 4, ..window.clone() });
    assert_eq!(history(&lab), "---#---#");
    // The clock was far ahead and has been corrected, so decisions continue.
    lab.decide(&Window { number: window.number - 1_000, ..window.clone() });
    assert_eq!((history(&lab), lab.state.window), ("--#---##".into(), Some(window.number - 1_000)));
    lab.decide(&Window { number: window.number + 1_000, ..window });
    assert_eq!(history(&lab), "-------#");
}

#[test]
fn silent_pop_keeps_its_state() {
    let mut lab = Lab::new(|_| {});
    lab.until(Reason::Slow);
    let before = lab.state.clone();
    for _ in 0..200 {
        lab.number += 1;
        let decision = lab.decide(&Window { number: lab.number, ..Window::default() });
        assert_eq!((decision.round, decision.steered, decision.content), (RoundOutcome::Silent, 2, None));
    }
    assert_eq!(lab.state, before);
    // A prefix that disappears while others report is withdrawn and eventually removed.
    lab.number += 1;
    for _ in 0..1_000 {
        let mut window = lab.window();
        lab.number += 1;
        window.prefixes.retain(|(it, _)| *it != prefix(0));
        lab.decide(&window);
    }
    assert_eq!(lab.state.entry(prefix(0)), None);
}

#[test]
fn state_round_trips_through_its_stored_form() {
    let mut lab = Lab::new(|settings| settings.cool_off_windows = 20);
    lab.effect = -0.4;
    lab.until(Reason::CoolingOff);
    (0..3).for_each(|_| drop(lab.round()));
    let written = lab.state.encode();
    assert_eq!(State::decode(written.as_bytes()).unwrap(), lab.state);
    let fails = |from: &str, to: &str| State::decode(written.replace(from, to).as_bytes()).unwrap_err();
    assert!(matches!(fails("\"format\":2", "\"format\":3"), StateError::Format { found: 3, read: 2 }));
    assert!(matches!(fails("\"effect\":\"", "\"effect\":\"inf"), StateError::Json(_)));
    assert!(matches!(fails("\"bundle\"", "\"bundel\""), StateError::Json(_)));
}

/// Rewrites a state as the previous release would have stored it.
fn format_1(state: &State) -> String {
    let mut state = serde_json::to_value(state).unwrap();
    state["format"] = 1.into();
    state["basis"]["outcome"] = 2.into();
    state["basis"].as_object_mut().unwrap().remove("switchback_block_windows").unwrap();
    state["trials"].as_object_mut().unwrap().remove("switchbacks").unwrap();
    for entry in state["entries"].as_array_mut().unwrap() {
        let Some(steered) = entry.pointer_mut("/phase/Steered") else { continue };
        let promise = steered.as_object_mut().unwrap().remove("promise").unwrap();
        steered.as_object_mut().unwrap().remove("switchback").unwrap();
        if let Some(proof) = steered["proof"].as_object_mut() {
            proof.remove("switchback").unwrap();
            proof.insert("goodput".into(), promise["goodput"].clone());
        }
    }
    state.to_string()
}

#[test]
fn state_of_format_1_keeps_histories_and_restarts_trials() {
    let mut lab = Lab::new(|_| {});
    lab.effect = 0.4;
    lab.until(Reason::Helped);
    let before = lab.state.clone();
    lab.state = State::decode(format_1(&before).as_bytes()).unwrap();
    assert_eq!((lab.state.trials.started, lab.state.trials.discoveries), (2, 0));
    let decision = lab.round();
    assert_eq!(decision.changed, ["outcome", "switchback_block_windows"]);
    assert!(decision.content.is_some(), "restarted trials count from a new bundle on");
    let entry = lab.state.entry(prefix(0)).unwrap();
    let observed = |state: &State| state.entry(prefix(0)).unwrap().history.observed_windows();
    assert!(observed(&lab.state) >= observed(&before));
    assert_eq!((entry.reason, entry.steered().unwrap().evidence.steered), (Reason::Renewed, 0));
    lab.until(Reason::Promising);
    lab.until(Reason::Helped);
}

#[test]
fn field_out_of_range_is_named() {
    let mut lab = Lab::new(|settings| settings.cool_off_windows = 20);
    lab.prefixes = 6;
    lab.effect = 0.4;
    lab.until(Reason::Helped);
    let state = serde_json::to_value(&lab.state).unwrap();
    let fault = |pointer: &str, value: serde_json::Value| {
        let mut state = state.clone();
        *state.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}")) = value;
        match State::decode(state.to_string().as_bytes()) {
            Err(StateError::Field(fault)) => fault.to_string(),
            other => panic!("{pointer}: {other:?}"),
        }
    };
    let faults = [
        fault("/window", u64::MAX.into()),
        fault("/bundle", u64::MAX.into()),
        fault("/basis", serde_json::Value::Null),
        fault("/trials/told", 3.into()),
        fault("/entries/0/phase/Steered/proof", serde_json::Value::Null),
        fault("/entries/0/phase/Steered/trial", state["entries"][1]["phase"]["Steered"]["trial"].clone()),
        fault("/bottom_bytes_per_s", "-1".into()),
        fault("/entries/3/prefix", "203.0.2.0/24".into()),
        fault("/entries/5/prefix", "203.0.6.0/25".into()),
        fault("/entries/0/history/observed", "1".into()),
        fault("/entries/3/connections", serde_json::json!(-1.0)),
        fault("/entries/3/ln_goodput", serde_json::json!(1e9)),
        fault("/entries/0/phase/Steered/holdout_millionths", 1_000_000.into()),
        fault("/entries/0/phase/Steered/from_bundle", (1_u64 << 40).into()),
        fault("/entries/0/phase/Steered/proof/ln_e", "-1e300".into()),
        fault("/entries/0/phase/Steered/evidence/goodput/count", u64::MAX.into()),
        fault("/entries/0/phase/Steered/promise/goodput/squares", "-1".into()),
        fault("/entries/0/phase/Steered/promise/goodput/mean", "1e200".into()),
        fault("/entries/0/phase/Steered/proof/switchback/number", 3.into()),
        fault("/entries/0/phase/Steered/proof/switchback/block_windows", 0.into()),
        fault("/entries/0/phase/Steered/proof/switchback/pairs/0/ln_goodput", "46".into()),
        fault("/entries/1/phase/Steered/promise", serde_json::Value::Null),
        fault("/entries/0/phase/Steered/evidence/baseline_ln_goodput", "-3".into()),
        fault("/entries/0/phase/Steered/evidence/baseline_retransmitted", "2".into()),
    ];
    expect![[r#"
        window must be at most 2^37
        bundle must be at most 2^53
        basis must be present if and only if a window is
        trials must be at most 2^53 started, and no more switchbacks than trials or discoveries than switchbacks
        entries[203.0.0.0/24].phase.Steered.promise must be followed by either a switchback or a proof
        entries must be unique in their trial numbers
        bottom_bytes_per_s must be a rate above zero
        entries must be sorted by prefix, without duplicates
        entries[203.0.6.0/25].prefix must be an IPv4 /24 or an IPv6 /56
        entries[203.0.0.0/24].history.in_group must be a subset of the observed windows
        entries[203.0.3.0/24].connections must be from 0 to 2^32
        entries[203.0.3.0/24].ln_goodput must be from 0 to 45
        entries[203.0.0.0/24].phase.Steered.holdout_millionths must be 0, or from 10000 to 990000
        entries[203.0.0.0/24].phase.Steered.from_bundle must be at most the next bundle's number
        entries[203.0.0.0/24].phase.Steered.proof.ln_e must be from -1e17 to 1e17
        entries[203.0.0.0/24].phase.Steered.evidence.goodput.count must be at most 2^53
        entries[203.0.0.0/24].phase.Steered.promise.goodput.squares must be at least 0 and consistent with count
        entries[203.0.0.0/24].phase.Steered.promise.goodput.mean must be from -10000 to 10000
        entries[203.0.0.0/24].phase.Steered.proof.switchback.number must be the number of a switchback that has started
        entries[203.0.0.0/24].phase.Steered.proof.switchback.block_windows must be at least 1
        entries[203.0.0.0/24].phase.Steered.proof.switchback.pairs must be from -45 to 45
        entries[203.0.1.0/24].phase.Steered.promise must be followed by either a switchback or a proof
        entries[203.0.0.0/24].phase.Steered.evidence.baseline_ln_goodput must be from 0 to 45
        entries[203.0.0.0/24].phase.Steered.evidence.baseline_retransmitted must be from 0 to 1"#]]
    .assert_eq(&faults.join("\n"));
}

#[test]
fn decisions_at_the_limits_produce_valid_states() {
    let is_state = |state: &State| assert_eq!(State::decode(state.encode().as_bytes()).unwrap(), *state);
    let mut lab = Lab::new(|_| {});
    lab.effect = 0.4;
    lab.round();
    lab.state.trials =
        Trials { started: VALUES_MAX - 1, switchbacks: VALUES_MAX - 1, discoveries: VALUES_MAX - 1 };
    lab.until(Reason::Slow);
    assert_eq!(lab.state.trials.started, VALUES_MAX);
    is_state(&lab.state);
    lab.until(Reason::Helped);
    assert_eq!(lab.state.trials.discoveries, VALUES_MAX);
    is_state(&lab.state);

    // Use the largest possible effects in both directions.
    let effects = (0..10).map(|at| if at % 2 == 0 { 1e4 } else { -1e4 });
    let estimates: Vec<_> = effects.map(|effect| Estimate { effect, variance: 1e-3 }).collect();
    let pool = Pool::of(&estimates).unwrap();
    assert!(pool.variance > 1e8, "{pool:?}");
    is_state(&State { pool: Some(pool), ..lab.state.clone() });

    // Decide the last valid window number.
    let before = lab.state.clone();
    let window = Window { number: (1 << 37) + 1, ..lab.window() };
    assert_eq!((lab.decide(&window).round, &lab.state), (RoundOutcome::Early, &before));
    assert_eq!(lab.decide(&Window { number: 1 << 37, ..window }).round, RoundOutcome::Decided);
    is_state(&lab.state);
}

#[test]
fn lost_state_resumes_above_the_edges_bundle_and_republishes_its_rules() {
    let mut lab = Lab::new(|_| {});
    let window = lab.window();
    let moment = Moment { acknowledged_bundle: 57, ..lab.moment(&window) };
    let (state, decision) = decide(&lab.settings, &State::default(), &window, moment);
    let content = decision.content.expect("edges may have rules that the state lacks");
    assert_eq!((content.number, content.rules.len()), (58, 0));
    lab.state = state;
    assert_eq!(lab.round().content, None, "the edges' rules are now known");

    // If the state is outdated, the rules that connections used since then are unknown, so those
    // connections do not count.
    lab.until(Reason::Slow);
    let old = lab.state.clone();
    let mut window = lab.window();
    for (_, sample) in &mut window.prefixes {
        sample.outcomes.iter_mut().for_each(|outcome| outcome.bundle += 5);
    }
    // Connections that used the bundle before an edge acknowledged it do not count either.
    for acknowledged_bundle in [old.bundle + 5, old.bundle, 0] {
        let moment = Moment { acknowledged_bundle, ..lab.moment(&window) };
        let (state, decision) = decide(&lab.settings, &old, &window, moment);
        let trial = state.entry(prefix(0)).unwrap().steered().unwrap();
        assert_eq!((trial.evidence.steered, trial.from_bundle), (0, old.bundle + 6));
        assert_eq!(
            decision.content.map(|content| (content.number, content.rules.len())),
            Some((old.bundle + 6, 2))
        );
    }

    // A number that no controller issues is ignored, as are connections under that number.
    // Otherwise no bundle numbers would be left.
    for bundle in [BUNDLES_MAX / 2 + 1, BUNDLES_MAX, u64::MAX] {
        for (_, sample) in &mut window.prefixes {
            sample.outcomes.iter_mut().for_each(|outcome| outcome.bundle = bundle);
        }
        let moment = Moment { acknowledged_bundle: bundle, ..lab.moment(&window) };
        let state = decide(&lab.settings, &old, &window, moment).0;
        assert_eq!(state.bundle, old.bundle);
        assert_eq!(state.entry(prefix(0)).unwrap().steered().unwrap().evidence.steered, 0);
    }
    let moment = Moment { acknowledged_bundle: BUNDLES_MAX / 2, ..lab.moment(&window) };
    let next = decide(&lab.settings, &old, &window, moment).1.content.map(|content| content.number);
    assert_eq!(next, Some(BUNDLES_MAX / 2 + 1));
}

#[test]
fn clock_jump_ahead_does_not_end_a_cool_off() {
    let mut lab = Lab::new(|settings| settings.cool_off_windows = 20);
    lab.effect = -0.4;
    lab.until(Reason::CoolingOff);
    lab.number += 1_000;
    lab.round();
    assert!(lab.state.entry(prefix(0)).unwrap().is_cooling_off());
    assert_eq!(lab.until(Reason::Slow), 20 - 1, "the jump counts as one round");
}

#[test]
fn clock_set_back_draws_anew_and_keeps_the_evidence() {
    let mut lab = Lab::new(|_| {});
    lab.effect = 0.4;
    let steered = |lab: &Lab, at| lab.state.entry(prefix(at)).unwrap().steered().unwrap().clone();
    // The window in which the clock was set back used the earlier draws and is excluded.
    lab.until(Reason::Slow);
    lab.round();
    let trial = steered(&lab, 0);
    lab.number -= 500;
    let content = lab.round().content.unwrap();
    let redrawn = steered(&lab, 0);
    assert_eq!((&redrawn.evidence, redrawn.from_bundle), (&trial.evidence, lab.state.bundle));
    assert!(redrawn.salt != trial.salt && redrawn.trial > trial.trial);
    let salts: Vec<_> = content.rules.iter().map(|rule| rule.salt.clone()).collect();
    assert_eq!(salts, [redrawn.rule_salt(), steered(&lab, 1).rule_salt()]);
    lab.round();
    assert!(steered(&lab, 0).evidence.steered > trial.evidence.steered);
    assert_eq!(steered(&lab, 0).salt, redrawn.salt, "drawn anew only once");
    // A switchback keeps its pairs. Blocks through which the clock passes again form new pairs,
    // with a new coin.
    lab.until(Reason::Promising);
    while steered(&lab, 0).switchback.is_some_and(|it| it.pairs() < 3) {
        lab.round();
    }
    let pairs = steered(&lab, 0).switchback.unwrap();
    lab.number -= 100;
    lab.round();
    assert_eq!(steered(&lab, 0).switchback.unwrap().pairs(), pairs.pairs());
    assert!((1..60).contains(&lab.until(Reason::Helped)));
    // The proof is kept, and the proved prefix's holdout is drawn anew.
    let proved = steered(&lab, 0);
    lab.number -= 100;
    lab.round();
    let redrawn = steered(&lab, 0);
    assert!(redrawn.proof.is_some() && redrawn.salt != proved.salt);
    assert_eq!(State::decode(lab.state.encode().as_bytes()).unwrap(), lab.state);
}
