//! Tests of proved prefixes that are harmed later, and of proofs that expire.

use super::lab::{Lab, prefix};
use crate::*;

#[test]
fn harm_is_withdrawn_regardless_of_how_long_steering_helped() {
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
fn strong_harm_after_a_proof_is_detected_before_the_evidence_suffices() {
    let mut lab = Lab::new(|_| {});
    lab.effect = 0.4;
    lab.until(Reason::Helped);
    lab.effect = -2.0;
    lab.until(Reason::CoolingOff);
    // Too few connections were held out since the proof for an interval, so only the detector can
    // find the harm.
    assert_eq!(lab.left().left, Reason::Harmed);
}

#[test]
fn reversal_does_not_return_an_old_proof_to_the_pool() {
    let mut lab = Lab::new(|settings| {
        (settings.exploring_max, settings.cool_off_windows) = (5, 60);
    });
    lab.effect = 0.4;
    let all = usize::from(lab.prefixes);
    let proved = |lab: &Lab| lab.state.steered().filter(|(_, it)| it.proof.is_some()).count();
    let pools = (0..250).filter(|_| lab.round().pool.is_some()).count();
    assert_eq!(proved(&lab), all);
    assert!(pools >= 60, "{pools}");
    assert_eq!(lab.round().pool, None, "all proofs are outdated");
    lab.effect = -0.4;
    let mut left = 0;
    // Run fewer rounds than any cool-off, so that no prefix re-enters.
    for _ in 0..55 {
        let decision = lab.round();
        assert_eq!(decision.pool, None, "{left} withdrawn");
        left += decision.left.len();
    }
    assert_eq!(left, all);
}

#[test]
fn old_proof_must_be_renewed() {
    let mut lab = Lab::new(|settings| settings.proof_windows_max = 50);
    lab.effect = 0.4;
    lab.until(Reason::Helped);
    assert_eq!(lab.until(Reason::Renewed), 50);
    let trials = lab.state.trials.clone();
    assert_eq!(lab.state.entry(prefix(0)).unwrap().steered().unwrap().holdout_millionths, 500_000);
    lab.until(Reason::Helped);
    assert!(lab.state.trials.discoveries > trials.discoveries);
    // With too few connections to prove anything, the prefix is withdrawn at the latest when its
    // next trial expires.
    (lab.connections, lab.effect) = (4, -0.05);
    let last = 50 + lab.settings.trial_windows_max as usize;
    assert!(lab.until(Reason::CoolingOff) <= last);
}
