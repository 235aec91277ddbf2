//! What rounds go on from: states as they are kept, lost and old ones, clocks that are set.

use expect_test::expect;

use super::lab::{Lab, prefix};
use crate::sequential::VALUES_MAX;
use crate::*;

#[test]
fn a_window_is_decided_once_and_gaps_are_not_observed() {
    let mut lab = Lab::new(|_| {});
    let window = lab.window();
    assert_eq!(lab.decide(&window).round, Round::Decided);
    let before = lab.state.clone();
    assert_eq!(lab.decide(&window).round, Round::Repeated);
    let older = Window { number: window.number - 5, ..window.clone() };
    assert_eq!(lab.decide(&older).round, Round::Repeated);
    let silent = Window { number: window.number + 1, ..Window::default() };
    assert_eq!(lab.decide(&silent).round, Round::Silent);
    assert_eq!(lab.state, before);
    let (state, decision) = decide(
        &lab.settings,
        &before,
        &window,
        Moment { now_unix_s: window.number * 300 + 299, ..lab.moment(&window) },
    );
    assert_eq!((state, decision.round), (before, Round::Early));

    let history = |lab: &Lab| lab.state.entry(prefix(0)).unwrap().history.text(8);
    assert_eq!(history(&lab), "-------#");
    lab.decide(&Window { number: window.number + 4, ..window.clone() });
    assert_eq!(history(&lab), "---#---#");
    // A clock that was far ahead and was set right: all goes on.
    lab.decide(&Window { number: window.number - 1_000, ..window.clone() });
    assert_eq!((history(&lab), lab.state.window), ("--#---##".into(), Some(window.number - 1_000)));
    lab.decide(&Window { number: window.number + 1_000, ..window });
    assert_eq!(history(&lab), "-------#");
}

#[test]
fn a_pop_that_reports_nothing_keeps_what_it_has() {
    let mut lab = Lab::new(|_| {});
    lab.until(Reason::Slow);
    let before = lab.state.clone();
    for _ in 0..200 {
        lab.number += 1;
        let decision = lab.decide(&Window { number: lab.number, ..Window::default() });
        assert_eq!((decision.round, decision.steered, decision.content), (Round::Silent, 2, None));
    }
    assert_eq!(lab.state, before);
    // One prefix that is gone while others report leaves, and is forgotten in the end.
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
fn a_state_is_read_as_it_was_written() {
    let mut lab = Lab::new(|settings| settings.cool_off_windows = 20);
    lab.effect = -0.4;
    lab.until(Reason::CoolingOff);
    (0..3).for_each(|_| drop(lab.round()));
    let written = lab.state.encode();
    assert_eq!(State::decode(written.as_bytes()).unwrap(), lab.state);
    let fails = |from: &str, to: &str| State::decode(written.replace(from, to).as_bytes()).unwrap_err();
    assert!(matches!(fails("\"format\":1", "\"format\":2"), StateError::Format { found: 2, read: 1 }));
    assert!(matches!(fails("\"effect\":\"", "\"effect\":\"inf"), StateError::Json(_)));
    assert!(matches!(fails("\"bundle\"", "\"bundel\""), StateError::Json(_)));
}

#[test]
fn a_field_out_of_its_range_is_named() {
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
    let told = [
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
        fault("/entries/0/phase/Steered/proof/goodput/squares", "-1".into()),
        fault("/entries/0/phase/Steered/proof/goodput/mean", "1e200".into()),
        fault("/entries/0/phase/Steered/evidence/baseline_ln_goodput", "-3".into()),
        fault("/entries/0/phase/Steered/evidence/baseline_retransmitted", "2".into()),
    ];
    expect![[r#"
        window has to be at most 2^37
        bundle has to be at most 2^53
        basis has to be there where a window is, and only there
        trials has to be at most 2^53 begun, and at most those told
        trials.told has to be at most those begun, without those on trial
        entries has to be each of another trial
        bottom_bytes_per_s has to be a rate above zero
        entries has to be in the order of their prefixes, each once
        entries[203.0.6.0/25].prefix has to be a /24 of IPv4 or a /56 of IPv6
        entries[203.0.0.0/24].history.in_group has to be windows that were observed
        entries[203.0.3.0/24].connections has to be from 0 to 2^32
        entries[203.0.3.0/24].ln_goodput has to be from 0 to 45
        entries[203.0.0.0/24].phase.Steered.holdout_millionths has to be 0, or from 10000 to 990000
        entries[203.0.0.0/24].phase.Steered.from_bundle has to be at most the next bundle's number
        entries[203.0.0.0/24].phase.Steered.proof.ln_e has to be the logarithm of an e-value
        entries[203.0.0.0/24].phase.Steered.evidence.goodput.count has to be at most 2^53
        entries[203.0.0.0/24].phase.Steered.proof.goodput.squares has to be at least 0, and what so many values can have
        entries[203.0.0.0/24].phase.Steered.proof.goodput.mean has to be an effect of at most 10000 either way
        entries[203.0.0.0/24].phase.Steered.evidence.baseline_ln_goodput has to be from 0 to 45
        entries[203.0.0.0/24].phase.Steered.evidence.baseline_retransmitted has to be from 0 to 1"#]].assert_eq(&told.join("\n"));
}

#[test]
fn what_is_decided_at_the_ends_of_ranges_is_a_state() {
    let is_state = |state: &State| assert_eq!(State::decode(state.encode().as_bytes()).unwrap(), *state);
    let mut lab = Lab::new(|_| {});
    lab.effect = 0.4;
    lab.round();
    lab.state.trials = Trials { begun: VALUES_MAX - 1, told: VALUES_MAX - 1 };
    lab.until(Reason::Slow);
    assert_eq!(lab.state.trials.begun, VALUES_MAX);
    is_state(&lab.state);
    lab.until(Reason::Helped);
    assert_eq!(lab.state.trials.told, VALUES_MAX);
    is_state(&lab.state);

    // The largest effects that there can be, either way.
    let effects = (0..10).map(|at| if at % 2 == 0 { 1e4 } else { -1e4 });
    let estimates: Vec<_> = effects.map(|effect| Estimate { effect, variance: 1e-3 }).collect();
    let pool = Pool::of(&estimates).unwrap();
    assert!(pool.variance > 1e8, "{pool:?}");
    is_state(&State { pool: Some(pool), ..lab.state.clone() });

    // The last window that has a number.
    let before = lab.state.clone();
    let window = Window { number: (1 << 37) + 1, ..lab.window() };
    assert_eq!((lab.decide(&window).round, &lab.state), (Round::Early, &before));
    assert_eq!(lab.decide(&Window { number: 1 << 37, ..window }).round, Round::Decided);
    is_state(&lab.state);
}

#[test]
fn a_lost_state_goes_on_above_what_edges_have_and_says_what_it_steers() {
    let mut lab = Lab::new(|_| {});
    let window = lab.window();
    let moment = Moment { acknowledged_bundle: 57, ..lab.moment(&window) };
    let (state, decision) = decide(&lab.settings, &State::default(), &window, moment);
    let content = decision.content.expect("edges may go by rules that nobody knows");
    assert_eq!((content.number, content.rules.len()), (58, 0));
    lab.state = state;
    assert_eq!(lab.round().content, None, "now it is known");

    // An older state: what rules connections went by since is not known, so that they do not count.
    lab.until(Reason::Slow);
    let old = lab.state.clone();
    let mut window = lab.window();
    for (_, sample) in &mut window.prefixes {
        sample.outcomes.iter_mut().for_each(|outcome| outcome.bundle += 5);
    }
    // Also where connections tell of a bundle before an edge acknowledges it.
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

    // A number that no controller makes is not believed, and its connections do not count: none would be left to go on with.
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
    let made = decide(&lab.settings, &old, &window, moment).1.content.map(|content| content.number);
    assert_eq!(made, Some(BUNDLES_MAX / 2 + 1));
}

#[test]
fn a_clock_that_jumps_ahead_ends_no_cool_off() {
    let mut lab = Lab::new(|settings| settings.cool_off_windows = 20);
    lab.effect = -0.4;
    lab.until(Reason::CoolingOff);
    lab.number += 1_000;
    lab.round();
    assert!(lab.state.entry(prefix(0)).unwrap().is_cooling_off());
    assert_eq!(lab.until(Reason::Slow), 20 - 1, "a round, however many windows it jumps");
}
