//! Settings that change from one round to the next.

use expect_test::expect;
use thalweg_bundle::Share;

use super::lab::{Lab, prefix};
use crate::*;

#[test]
fn windows_of_another_length_begin_histories_and_trials_anew() {
    let mut lab = Lab::new(|_| {});
    lab.until(Reason::Slow);
    lab.round();
    let over_unix_s = lab.number * lab.settings.window_s;
    lab.settings.window_s = 60;
    // Windows that begin before the last one was over are those of before.
    lab.number = over_unix_s / 60 - 1;
    assert_eq!(lab.round().round, Round::Repeated);
    let decision = lab.round();
    assert_eq!((decision.round, decision.changed), (Round::Decided, vec!["window_s"]));
    let entry = lab.state.entry(prefix(0)).unwrap();
    assert_eq!(entry.history.observed_windows(), 1);
    assert_eq!(entry.steered().unwrap().evidence.steered, 0);
}

#[test]
fn what_was_shown_under_other_settings_is_on_trial_again() {
    let mut lab = Lab::new(|_| {});
    lab.effect = 0.4;
    lab.until(Reason::Helped);
    lab.round();
    lab.settings.counts_relayed = true;
    let decision = lab.round();
    let content = decision.content.expect("a trial counts from a new bundle on");
    expect!["window 6000016: 0 enter, 0 leave, 2 steered; changed, so that what was known is discarded: counts_relayed"]
        .assert_eq(&content.reason);
    let entry = lab.state.entry(prefix(0)).unwrap();
    let trial = entry.steered().unwrap();
    assert_eq!((entry.reason, &trial.proof, trial.holdout_millionths), (Reason::Renewed, &None, 500_000));
    assert_eq!((trial.evidence.steered, trial.from_bundle), (0, content.number));
    assert!(entry.history.observed_windows() > 12, "windows tell what they told");
    lab.until(Reason::Helped);

    // Another share held out in prefixes that are shown, which the rules before had not.
    lab.settings.holdout = Share::from_millionths(200_000).unwrap();
    assert_eq!(lab.round().changed, ["holdout"]);
    lab.until(Reason::Helped);
    assert_eq!(lab.state.entry(prefix(0)).unwrap().steered().unwrap().holdout_millionths, 200_000);

    // Of another congestion control nothing is known: all leave, and may enter as any may.
    lab.settings.congestion_control = "bbr2".into();
    let decision = lab.round();
    assert_eq!(decision.left.iter().map(|it| it.reason).collect::<Vec<_>>(), [Reason::Changed; 2]);
    assert_eq!(decision.content.map(|content| content.rules.len()), Some(0));
    assert_eq!(lab.round().entered.len(), 2);

    // Windows are ranked by another measure: nothing is known of them.
    lab.settings.measure = Measure::Goodput;
    lab.round();
    assert_eq!(lab.state.entry(prefix(0)).unwrap().history.observed_windows(), 0);
}

#[test]
fn failures_are_those_of_one_congestion_control() {
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
    // Also those of one that is on trial again.
    lab.until(Reason::CoolingOff);
    lab.until(Reason::Slow);
    assert_eq!(lab.state.entry(prefix(0)).unwrap().steered().unwrap().failures, 1);
    lab.settings.congestion_control = "bbr3".into();
    lab.round();
    assert_eq!((lab.left().left, lab.left().failures), (Reason::Changed, 0));
}

#[test]
fn limits_that_were_lowered_hold_from_the_next_round_on() {
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
fn once_no_connection_is_held_out_all_go_by_the_rule_of_duty_cycles() {
    let mut lab = Lab::new(|settings| settings.exploring_max = 5);
    lab.effect = 0.4;
    lab.until(Reason::Helped);
    let explored = lab.state.steered().filter(|(_, it)| it.is_explored).count();
    assert!(explored >= 5, "{explored}");
    lab.settings.holdout_trial = Share::default();
    let left: Vec<_> = lab.round().left.iter().map(|it| it.reason).collect();
    assert_eq!(left, vec![Reason::NoLongerSlow; explored]);
    assert_eq!(lab.state.entry(prefix(0)).unwrap().reason, Reason::Renewed);
    // Also what was shown to be helped once leaves when it is no longer slow.
    lab.effect = 9.0;
    lab.until(Reason::CoolingOff);
    assert_eq!(lab.left().left, Reason::NoLongerSlow);
}
