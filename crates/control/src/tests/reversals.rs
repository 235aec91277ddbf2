//! What was shown to be helped and turns, or has to be shown again.

use super::lab::{Lab, prefix};
use crate::*;

#[test]
fn help_that_turns_to_harm_is_withdrawn_however_long_it_helped() {
    let withdrawn_after = |helped: usize| {
        let mut lab = Lab::new(|_| {});
        lab.effect = 0.3;
        lab.until(Reason::Helped);
        (0..helped).for_each(|_| drop(lab.round()));
        assert_eq!(lab.state.entry(prefix(0)).unwrap().reason, Reason::Helped);
        lab.effect = -0.3;
        let rounds = lab.until(Reason::CoolingOff);
        assert!(matches!(lab.left().left, Reason::Harmed | Reason::NotHelped), "{:?}", lab.left());
        rounds
    };
    let (soon, late) = (withdrawn_after(1), withdrawn_after(500));
    assert!(soon < 40 && late < 40, "{soon} {late}");
}

#[test]
fn a_reversal_brings_no_old_proof_back_into_the_pool() {
    let mut lab = Lab::new(|settings| {
        (settings.exploring_max, settings.cool_off_windows) = (5, 60);
    });
    lab.effect = 0.4;
    let all = usize::from(lab.prefixes);
    let proved = |lab: &Lab| lab.state.steered().filter(|(_, it)| it.proof.is_some()).count();
    let pools = (0..250).filter(|_| lab.round().pool.is_some()).count();
    assert_eq!(proved(&lab), all);
    assert!(pools >= 60, "{pools}");
    assert_eq!(lab.round().pool, None, "all that was shown is old");
    lab.effect = -0.4;
    let mut left = 0;
    // Fewer rounds than any cool-off: none is on trial again.
    for _ in 0..55 {
        let decision = lab.round();
        assert_eq!(decision.pool, None, "{left} have left");
        left += decision.left.len();
    }
    assert_eq!(left, all);
}

#[test]
fn what_was_shown_long_ago_has_to_be_shown_again() {
    let mut lab = Lab::new(|settings| settings.proof_windows_max = 50);
    lab.effect = 0.4;
    lab.until(Reason::Helped);
    assert_eq!(lab.until(Reason::Renewed), 50);
    let trials = lab.state.trials.clone();
    assert_eq!(lab.state.entry(prefix(0)).unwrap().steered().unwrap().holdout_millionths, 500_000);
    lab.until(Reason::Helped);
    assert_eq!(lab.state.trials.told, trials.told + 1);
    // With too few connections to show anything it ends, at the latest, with that trial.
    (lab.connections, lab.effect) = (4, -0.05);
    let last = 50 + lab.settings.trial_windows_max as usize;
    assert!(lab.until(Reason::CoolingOff) <= last);
}
