//! Tests of settings changed between rounds.

use expect_test::expect;
use thalweg_bundle::Share;

use super::lab::{Lab, prefix};
use crate::*;

#[test]
fn changed_window_length_restarts_histories_and_trials() {
    let mut lab = Lab::new(|_| {});
    lab.until(Reason::Slow);
    lab.round();
    let over_unix_s = lab.number * lab.settings.window_s;
    lab.settings.window_s = 60;
    // A window that starts before the last one ended counts as old.
    lab.number = over_unix_s / 60 - 1;
    assert_eq!(lab.round().round, RoundOutcome::Repeated);
    let decision = lab.round();
    assert_eq!((decision.round, decision.changed), (RoundOutcome::Decided, vec!["window_s"]));
    let entry = lab.state.entry(prefix(0)).unwrap();
    assert_eq!(entry.history.observed_windows(), 1);
    assert_eq!(entry.steered().unwrap().evidence.steered, 0);
}

#[test]
fn proofs_go_back_on_trial_when_settings_change() {
    let mut lab = Lab::new(|_| {});
    lab.effect = 0.4;
    lab.until(Reason::Helped);
    lab.round();
    lab.settings.goodput_bytes_min += 1;
    let decision = lab.round();
    let content = decision.content.expect("a restarted trial counts from a new bundle on");
    expect!["window 6000061: 0 enter, 0 leave, 2 steered; state discarded because settings changed: goodput_bytes_min"]
        .assert_eq(&content.reason);
    let entry = lab.state.entry(prefix(0)).unwrap();
    let trial = entry.steered().unwrap();
    assert_eq!((entry.reason, &trial.proof, trial.holdout_millionths), (Reason::Renewed, &None, 500_000));
    assert_eq!((trial.evidence.steered, trial.from_bundle), (0, content.number));
    assert!(entry.history.observed_windows() > 12, "histories are kept");
    lab.until(Reason::Helped);

    // Change the held-out share for proved prefixes. Earlier rules held out a different share.
    lab.settings.holdout = Share::from_millionths(200_000).unwrap();
    assert_eq!(lab.round().changed, ["holdout"]);
    lab.until(Reason::Helped);
    assert_eq!(lab.state.entry(prefix(0)).unwrap().steered().unwrap().holdout_millionths, 200_000);

    // Nothing is known about the new congestion control: all prefixes are withdrawn and may
    // re-enter as usual.
    lab.settings.congestion_control = "bbr2".into();
    let decision = lab.round();
    assert_eq!(decision.left.iter().map(|it| it.reason).collect::<Vec<_>>(), [Reason::Changed; 2]);
    assert_eq!(decision.content.map(|content| content.rules.len()), Some(0));
    assert_eq!(lab.round().entered.len(), 2);

    // Ranking by another measure discards the history.
    lab.settings.measure = Measure::Goodput;
    lab.round();
    assert_eq!(lab.state.entry(prefix(0)).unwrap().history.observed_windows(), 0);
}

#[test]
fn another_congestion_control_clears_failures() {
    let mut lab = Lab::new(|settings| settings.cool_off_windows = 20);
    lab.effect = -0.4;
    for failures in 1..=3 {
        lab.until(Reason::CoolingOff);
        assert_eq!((lab.left().failures, lab.left().rounds_min), (failures, 20 << (failures - 1)));
        if failures < 3 {
            lab.until(Reason::Slow);
        }
    }
    lab.settings.congestion_control = "bbr2".into();
    assert_eq!(lab.round().changed, ["congestion_control"]);
    assert_eq!((lab.left().failures, lab.left().rounds_min), (0, 20));
    assert_eq!(lab.until(Reason::Slow), 20 - 1);
    // Failures of a prefix that is on trial again are cleared too.
    lab.until(Reason::CoolingOff);
    lab.until(Reason::Slow);
    assert_eq!(lab.state.entry(prefix(0)).unwrap().steered().unwrap().failures, 1);
    lab.settings.congestion_control = "bbr3".into();
    lab.round();
    assert_eq!((lab.left().left, lab.left().failures), (Reason::Changed, 0));
}

#[test]
fn lowered_limits_apply_from_the_next_round() {
    let mut lab = Lab::new(|settings| (settings.exploring_max, settings.explored_max) = (3, 3));
    (0..20).for_each(|_| drop(lab.round()));
    let steered = |lab: &Lab| lab.state.steered().map(|(entry, _)| entry.prefix).collect::<Vec<_>>();
    let explored = lab.state.steered().filter(|(_, it)| it.is_explored).count();
    assert!(explored >= 2, "{explored}");
    lab.settings.explored_max = 1;
    let left = lab.round().left;
    assert_eq!(left.iter().map(|it| it.reason).collect::<Vec<_>>(), vec![Reason::OverLimit; explored - 1]);
    (lab.settings.explored_max, lab.settings.steered_max) = (0, 1);
    lab.round();
    assert_eq!(steered(&lab).len(), 1);
}

#[test]
fn lowered_limits_withdraw_trials_before_proofs_and_smallest_first() {
    let mut lab = Lab::new(|_| {});
    lab.effect = 0.4;
    while lab.state.steered().filter(|(_, it)| it.proof.is_some()).count() < 2 {
        lab.round();
    }
    lab.settings.exploring_max = 3;
    lab.round();
    let on_trial = |lab: &Lab| {
        let trials = lab.state.steered().filter(|(_, it)| it.proof.is_none());
        trials.map(|(entry, _)| entry.prefix).collect::<Vec<_>>()
    };
    let trials = on_trial(&lab);
    assert_eq!((trials.len(), trials.contains(&prefix(0)), trials.contains(&prefix(1))), (3, false, false));
    // The proved prefixes are the smallest of all; the last trial is the smallest trial.
    for entry in &mut lab.state.entries {
        let is_small = !trials.contains(&entry.prefix);
        entry.connections = if is_small { 1.0 } else { 1_000.0 };
    }
    let smallest = *trials.last().unwrap();
    lab.state.entries.iter_mut().find(|entry| entry.prefix == smallest).unwrap().connections = 500.0;
    (lab.settings.exploring_max, lab.settings.steered_max) = (0, 4);
    (lab.settings.explored_max, lab.connections) = (4, 10);
    let left: Vec<_> = lab.round().left.iter().map(|it| (it.prefix, it.reason)).collect();
    assert_eq!(left, [(smallest, Reason::OverLimit)]);
    (lab.settings.steered_max, lab.settings.explored_max) = (2, 2);
    lab.round();
    let steered: Vec<_> = lab.state.steered().map(|(entry, _)| entry.prefix).collect();
    assert_eq!(steered, [prefix(0), prefix(1)]);
}

#[test]
fn removing_the_holdout_leaves_duty_cycles_to_decide() {
    let mut lab = Lab::new(|settings| settings.exploring_max = 5);
    lab.effect = 0.4;
    lab.until(Reason::Helped);
    let explored = lab.state.steered().filter(|(_, it)| it.is_explored).count();
    assert!(explored >= 5, "{explored}");
    lab.settings.holdout_trial = Share::default();
    let left: Vec<_> = lab.round().left.iter().map(|it| it.reason).collect();
    assert_eq!(left, vec![Reason::NoLongerSlow; explored]);
    assert_eq!(lab.state.entry(prefix(0)).unwrap().reason, Reason::Renewed);
    // A previously proved prefix also leaves when it is no longer slow.
    lab.effect = 9.0;
    lab.until(Reason::CoolingOff);
    assert_eq!(lab.left().left, Reason::NoLongerSlow);
}
