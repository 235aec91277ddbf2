//! End-to-end decision tests: a prefix from entry to withdrawal.

use expect_test::expect;
use thalweg_bundle::Share;

use super::*;
use lab::{Lab, prefix};

mod changes;
mod clock;
mod discoveries;
mod lab;
mod properties;
pub(crate) mod records;
mod resume;
mod reversals;
mod rollout;
mod tenants;

#[test]
fn helped_slow_prefix_enters_is_proved_and_stays() {
    let mut lab = Lab::new(|_| {});
    lab.effect = 0.4;
    assert_eq!(lab.until(Reason::Slow), 12, "after the required number of observed windows");
    let entered = lab.state.entry(prefix(0)).unwrap().steered().unwrap();
    assert_eq!((entered.holdout_millionths, entered.from_bundle), (500_000, lab.state.bundle));
    lab.until(Reason::Promising);
    let promising = lab.state.entry(prefix(0)).unwrap().steered().unwrap();
    assert_eq!((promising.holdout_millionths, promising.from_bundle), (500_000, lab.state.bundle));
    let blocks = lab.until(Reason::Helped);
    assert!((36..60).contains(&blocks), "six pairs of blocks at the least: {blocks}");
    while lab.state.steered().any(|(_, it)| it.proof.is_none()) {
        lab.round();
    }
    lab.round();
    let decision = lab.round();
    assert_eq!((decision.steered, &decision.content), (2, &None), "an unchanged rule set needs no bundle");
    let shown = lab.state.entry(prefix(0)).unwrap().steered().unwrap();
    assert_eq!(shown.holdout_millionths, 100_000);
    for _ in 0..300 {
        lab.round();
        assert_eq!(lab.state.entry(prefix(0)).unwrap().reason, Reason::Helped);
    }
    assert_eq!(lab.state.steered().count(), 2, "prefixes that are not slow are not steered");
    assert_eq!(lab.state.entry(prefix(5)).unwrap().reason, Reason::NotSlow);
}

#[test]
fn harmed_prefix_leaves_and_re_enters_after_its_cool_off() {
    let mut lab = Lab::new(|settings| settings.cool_off_windows = 20);
    lab.effect = -0.4;
    lab.until(Reason::Slow);
    let trial = lab.until(Reason::CoolingOff);
    assert!(trial < 40, "{trial}");
    let cooling = lab.left();
    assert_eq!((cooling.left, cooling.failures, cooling.rounds_min), (Reason::Harmed, 1, 20));
    assert_eq!(lab.until(Reason::Slow), 20);
    lab.until(Reason::CoolingOff);
    // The second consecutive failure doubles the cool-off.
    assert_eq!(lab.until(Reason::Slow), 40);
}

#[test]
fn unproved_prefix_leaves_when_its_trial_expires() {
    let mut lab = Lab::new(|settings| settings.trial_windows_max = 30);
    lab.connections = 10;
    lab.until(Reason::Slow);
    assert_eq!(lab.until(Reason::CoolingOff), 30);
    let text = explain(&lab.settings, &lab.state, prefix(0));
    let left = [
        "  left        not_helped: withdrawn, not shown to be helped, or by too little to be worthwhile\n",
        "  cool-off    withdrawn 0 rounds ago; may re-enter after 288\n",
        "  failed      1 consecutive trials\n",
    ];
    assert!(text.ends_with(&left.concat()), "{text}");
}

#[test]
fn likely_prefix_leaves_if_nothing_is_proved_in_time() {
    let mut lab = Lab::new(|settings| {
        (settings.exploring_max, settings.trial_windows_max, settings.likely_windows_max) = (10, 40, 15);
        // No trial shows anything by itself.
        settings.false_promise_share = 1e-12;
    });
    (lab.effect, lab.connections) = (0.3, 6);
    lab.until(Reason::Likely);
    let text = explain(&lab.settings, &lab.state, prefix(0));
    let line = text.lines().find(|line| line.contains("likely      ")).unwrap();
    assert!(line.ends_with(", at most 0.10; leaves in 15 windows without proof"), "{line}");
    assert_eq!(lab.until(Reason::CoolingOff), 15);
    assert_eq!(lab.left().left, Reason::NotHelped);
}

#[test]
fn prefix_with_far_more_retransmits_leaves_even_if_faster() {
    let mut lab = Lab::new(|settings| settings.guardrail_rise_max = 1.0);
    (lab.effect, lab.rise) = (0.4, 0.15);
    lab.until(Reason::Slow);
    lab.round();
    lab.until(Reason::CoolingOff);
    assert_eq!(lab.left().left, Reason::Retransmits);
}

#[test]
fn guardrail_withdraws_all_trials_and_pauses_admission() {
    let mut lab = Lab::new(|settings| {
        settings.retransmitted_rise_max = 1.0;
        settings.cool_off_windows = 4;
    });
    lab.rise = 0.15;
    lab.until(Reason::Slow);
    let stopped =
        (0..20).map(|_| lab.round()).find(|decision| decision.round == RoundOutcome::Stopped).unwrap();
    let left: Vec<_> = stopped.left.iter().map(|change| change.reason).collect();
    assert_eq!((left, stopped.steered), (vec![Reason::Guardrail; 2], 0));
    assert_eq!(stopped.content.unwrap().rules, []);
    // The prefixes' cool-off ends before the guardrail's pause.
    lab.until(Reason::Paused);
    assert_eq!(lab.until(Reason::Slow), 12 - 4);
}

#[test]
fn guardrail_spares_prefixes_without_a_rise() {
    let mut lab = Lab::new(|settings| settings.retransmitted_rise_max = 1.0);
    (lab.rise, lab.connections) = (0.5, 100);
    lab.until(Reason::Slow);
    let stopped = (0..20).find_map(|_| {
        let mut window = lab.window();
        lab.number += 1;
        // Only the first prefix retransmits more.
        let others = window.prefixes[1..].iter_mut().flat_map(|(_, sample)| &mut sample.outcomes);
        others.for_each(|outcome| outcome.retransmitted_share = Some(0.01));
        let decision = lab.decide(&window);
        (decision.round == RoundOutcome::Stopped).then_some(decision)
    });
    let left: Vec<_> = stopped.unwrap().left.iter().map(|change| (change.prefix, change.reason)).collect();
    assert_eq!(left, [(prefix(0), Reason::Guardrail)]);
    assert!(lab.state.entry(prefix(1)).unwrap().steered().is_some());
}

#[test]
fn guardrail_needs_twice_the_evidence_of_a_trial() {
    let mut lab = Lab::new(|settings| settings.retransmitted_rise_max = 1.0);
    (lab.rise, lab.connections) = (0.8, 10);
    lab.until(Reason::Slow);
    let counted = |lab: &Lab| -> u64 {
        lab.state.steered().map(|(_, steered)| steered.evidence.retransmitted.count).sum()
    };
    let enough = 2 * u64::from(lab.settings.evidence_connections_min);
    let mut most = 0;
    while lab.round().round != RoundOutcome::Stopped {
        most = counted(&lab);
        assert!(most < enough, "{most} connections must stop the round");
    }
    assert!(most >= enough / 2, "the guardrail must not act on half the evidence");
}

#[test]
fn withdrawn_prefix_does_not_trigger_the_guardrail() {
    let mut lab = Lab::new(|settings| settings.retransmitted_rise_max = settings.guardrail_rise_max);
    (lab.rise, lab.connections) = (0.3, 100);
    lab.until(Reason::Slow);
    let mut left = Vec::new();
    for _ in 0..30 {
        let mut window = lab.window();
        lab.number += 1;
        // Only the first prefix retransmits more.
        let others = window.prefixes[1..].iter_mut().flat_map(|(_, sample)| &mut sample.outcomes);
        others.for_each(|outcome| outcome.retransmitted_share = Some(0.01));
        let decision = lab.decide(&window);
        assert_eq!(decision.round, RoundOutcome::Decided);
        left.extend(decision.left);
    }
    let first: Vec<_> = left.iter().filter(|it| it.prefix == prefix(0)).map(|it| it.reason).collect();
    assert_eq!(first, [Reason::Retransmits]);
    assert!(lab.state.entry(prefix(1)).unwrap().steered().is_some());
}

#[test]
fn trial_ends_when_its_arms_are_skewed() {
    let mut lab = Lab::new(|_| {});
    lab.until(Reason::Slow);
    while lab.state.entry(prefix(0)).unwrap().steered().is_some() {
        let mut window = lab.window();
        lab.number += 1;
        // Simulate a policy that overrides the rule for many of the steered connections.
        let mut at = 0;
        window.prefixes[0].1.outcomes.retain(|outcome| {
            at += 1;
            !outcome.is_steered || at % 2 > 0
        });
        lab.decide(&window);
    }
    assert_eq!(lab.left().left, Reason::Skewed);
    assert!(lab.state.entry(prefix(1)).unwrap().steered().is_some());
}

#[test]
fn outcomes_under_earlier_bundles_do_not_count() {
    let mut lab = Lab::new(|_| {});
    lab.until(Reason::Slow);
    let mut window = lab.window();
    let old = window.prefixes[0].1.outcomes.len() / 2;
    window.prefixes[0].1.outcomes.iter_mut().take(old).for_each(|outcome| outcome.bundle -= 1);
    let rest = window.prefixes[0].1.outcomes.len() - old;
    lab.decide(&window);
    let evidence = &lab.state.entry(prefix(0)).unwrap().steered().unwrap().evidence;
    assert_eq!((evidence.steered + evidence.held_out) as usize, rest);
}

#[test]
fn duty_cycle_alone_decides_without_a_holdout() {
    let mut lab = Lab::new(|settings| settings.holdout_trial = Share::default());
    // Steering costs a third of the goodput, which goes undetected.
    lab.effect = -0.4;
    lab.until(Reason::Slow);
    for _ in 0..300 {
        assert_eq!(lab.round().steered, 2);
    }
    // Once the prefix is fast enough to leave the bottom group, it is withdrawn.
    lab.effect = 9.0;
    lab.until(Reason::CoolingOff);
}

#[test]
fn excluded_networks_and_short_rtts_are_not_steered() {
    let mut lab = Lab::new(|settings| {
        settings.left_alone = vec!["203.0.0.0/24".parse().unwrap()];
        settings.min_rtt_us_min = 50_000;
    });
    for _ in 0..30 {
        assert_eq!(lab.round().entered, []);
    }
    let reason = |at| lab.state.entry(prefix(at)).unwrap().reason;
    assert_eq!((reason(1), reason(5)), (Reason::LowRtt, Reason::LowRtt));
    let text = explain(&lab.settings, &lab.state, prefix(0));
    assert_eq!(text, "203.0.0.0/24: left_alone: not steered, its network is excluded by left_alone\n");
    // A prefix that is already steered is withdrawn at once.
    let mut lab = Lab::new(|_| {});
    lab.until(Reason::Slow);
    lab.settings.left_alone = vec!["203.0.0.0/16".parse().unwrap()];
    assert_eq!(lab.round().left.iter().map(|it| it.reason).collect::<Vec<_>>(), [Reason::LeftAlone; 2]);
}

#[test]
fn prefixes_that_are_not_slow_are_explored() {
    let mut lab = Lab::new(|settings| {
        settings.exploring_max = 1;
        settings.explored_max = 3;
    });
    lab.effect = 0.4;
    let mut explored = Vec::new();
    for _ in 0..60 {
        let entered = lab.round().entered;
        explored.extend(entered.into_iter().filter(|change| change.reason == Reason::Explored));
    }
    assert!(explored.len() >= 3, "{explored:?}");
    let on_trial =
        |lab: &Lab| lab.state.steered().filter(|(_, it)| it.is_explored && it.proof.is_none()).count();
    for _ in 0..300 {
        lab.round();
        assert!(on_trial(&lab) <= 3);
    }
    let explored = lab.state.steered().filter(|(_, it)| it.is_explored).count();
    assert_eq!((explored, on_trial(&lab)), (8, 0), "proved prefixes stay and make room for others");
    let mut other = Lab::new(|settings| settings.exploring_max = 1);
    let explore = |lab: &mut Lab, seed| {
        (0..14)
            .flat_map(|_| {
                let window = lab.window();
                lab.number += 1;
                let (state, decision) =
                    decide(&lab.settings, &lab.state, &window, Moment { seed, ..lab.moment(&window) });
                lab.state = state;
                decision.entered.into_iter().filter(|it| it.reason == Reason::Explored)
            })
            .collect::<Vec<_>>()
    };
    let one = explore(&mut other, 1);
    let others: Vec<_> =
        (2..6).map(|seed| explore(&mut Lab::new(|settings| settings.exploring_max = 1), seed)).collect();
    assert!(others.iter().any(|other| *other != one), "the choice depends on the seed");
}

#[test]
fn explains_a_prefix() {
    let mut lab = Lab::new(|_| {});
    lab.effect = 0.4;
    assert_eq!(
        explain(&lab.settings, &lab.state, prefix(0)),
        "203.0.0.0/24: not ranked in the last 72 windows\n"
    );
    lab.until(Reason::Slow);
    lab.round();
    expect![[r#"
        203.0.0.0/24: slow: steered because it is slow, nothing shown yet
          windows     -----------------------------------------------------------#############
                      oldest first: # in the bottom group, . not, - too few samples or connections
          observed    13 of 72 windows; minimum 12
          duty cycle  1.00; enters at 0.60 or more, leaves at 0.30 or less
          flap rate   0.00; enters at 0.25 or less
          min rtt     39.7 ms; tried only for exploration below 10.0 ms
          group       up to 0.41 Mbit/s in the newest window
          proof       50 % held out, on trial for 1 windows of 72
          clients     27 steered, 13 held out; minimum 30 each
          goodput     +29.0 % [-25.6 %, +123.9 %], 95 % at every look; worthwhile from +5.1 %
          retransmits +1.05 points [-0.45 points, +2.56 points], 95 % at every look; at most +5.00 points
    "#]]
    .assert_eq(&explain(&lab.settings, &lab.state, prefix(0)));
    lab.until(Reason::Promising);
    (0..20).for_each(|_| drop(lab.round()));
    expect![[r#"
        203.0.0.0/24: promising: steered in every other block of time, shown to gain within the network but not yet as a whole
          windows     -------------------------------------##################---######---###--
                      oldest first: # in the bottom group, . not, - too few samples or connections
          observed    27 of 72 windows; minimum 12
          duty cycle  1.00; enters at 0.60 or more, leaves at 0.30 or less
          flap rate   0.00; enters at 0.25 or less
          min rtt     39.7 ms; tried only for exploration below 10.0 ms
          group       up to 8.62 Mbit/s in the newest window
          within      +42.1 % [+4.7 %, +92.9 %], 95 % at every look, by an e-value of 73
                      p10 of goodput: 0.33 Mbit/s steered, 0.19 Mbit/s held out
          proof       steered in one of two blocks of 3 windows, for 20 of 288
          as a whole  +41.9 % too few pairs for an interval, over 2 pairs of blocks, by an e-value of 3.6
                      p10 of goodput: 0.37 Mbit/s steered, 0.25 Mbit/s held out
          excluded    pairs of blocks: 1 with too few clients
    "#]].assert_eq(&explain(&lab.settings, &lab.state, prefix(0)));
    lab.until(Reason::Helped);
    lab.round();
    expect![[r#"
        203.0.0.0/24: helped: steered, shown to be helped as a whole
          windows     -----------##################---######---###---###---###------###---####
                      oldest first: # in the bottom group, . not, - too few samples or connections
          observed    40 of 72 windows; minimum 12
          duty cycle  1.00; enters at 0.60 or more, leaves at 0.30 or less
          flap rate   0.00; enters at 0.25 or less
          min rtt     39.7 ms; tried only for exploration below 10.0 ms
          group       up to 0.65 Mbit/s in the newest window
          within      +42.1 % [+4.7 %, +92.9 %], 95 % at every look, by an e-value of 73
                      p10 of goodput: 0.33 Mbit/s steered, 0.19 Mbit/s held out
          as a whole  +43.8 % [+27.3 %, +61.4 %], 95 % at every look, over 7 pairs of blocks, by an e-value of 98.1
                      p10 of goodput: 0.36 Mbit/s steered, 0.26 Mbit/s held out
          excluded    pairs of blocks: 1 with too few clients
          proof       10 % held out, evidence since 1 windows of 72
          clients     34 steered, 6 held out; minimum 30 each
          goodput     +23.5 % [-50.5 %, +208.2 %], 95 % at every look; worthwhile from +5.1 %
          retransmits +0.19 points [-0.38 points, +0.75 points], 95 % at every look; at most +5.00 points
    "#]]
    .assert_eq(&explain(&lab.settings, &lab.state, prefix(0)));
}
