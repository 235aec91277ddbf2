//! Whole decisions: what a prefix goes through, what clocks may do, and what holds whatever comes.

use expect_test::expect;
use proptest::collection::vec;
use proptest::prelude::*;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use std::net::Ipv4Addr;
use thalweg_bundle::{Bundle, Share};
use thalweg_record::Prefix;

use super::*;
use crate::simulate::normal;

/// A PoP of a few prefixes, whose slowest are slow in each window.
struct Lab {
    settings: Settings,
    state: State,
    number: u64,
    random: Xoshiro256PlusPlus,
    /// What BBR does to log goodput and to the retransmitted share.
    effect: f64,
    rise: f64,
    /// Connections of each prefix in a window.
    connections: u32,
    prefixes: u8,
}

impl Lab {
    fn new(change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings { exploring_max: 0, ..Settings::default() };
        change(&mut settings);
        assert_eq!(settings.check(), []);
        Self {
            settings,
            state: State::default(),
            number: 6_000_000,
            random: Xoshiro256PlusPlus::seed_from_u64(1),
            effect: 0.0,
            rise: 0.0,
            connections: 40,
            prefixes: 10,
        }
    }

    fn window(&mut self) -> Window {
        let state = &self.state;
        let (effect, rise, connections) = (self.effect, self.rise, self.connections);
        let random = &mut self.random;
        let mut sample = |at: u8| {
            let steered = state.entry(prefix(at)).and_then(Entry::steered);
            let mut sample = Sample::default();
            for _ in 0..connections {
                let arm = match steered {
                    None => Arm::Other,
                    Some(it) if random.random_bool(f64::from(it.holdout_millionths) / 1e6) => Arm::HeldOut,
                    Some(_) => Arm::Steered,
                };
                let own = if arm == Arm::Steered { 1.0 } else { 0.0 };
                // The two first are far slower than all others.
                let level = if at < 2 { 11.0 } else { 14.0 };
                let ln_goodput = level + 0.5 * normal(random) + own * effect;
                let into = sample.arm_mut(arm);
                into.connections += 1;
                into.delivery_rate.add_times(ln_goodput.exp() as u64, 8);
                sample.min_rtt_us.add(40_000);
                if arm != Arm::Steered {
                    sample.ln_goodput.add(ln_goodput);
                }
                if arm != Arm::Other {
                    sample.outcomes.push(Outcome {
                        bundle: state.bundle,
                        is_steered: arm == Arm::Steered,
                        ln_goodput,
                        retransmitted_share: Some(0.01 + own * rise + 0.005 * normal(random).abs()),
                    });
                }
            }
            (prefix(at), sample)
        };
        let prefixes = (0..self.prefixes).map(&mut sample).collect();
        Window { number: self.number, records: 1, lost: 0, prefixes }
    }

    fn decide(&mut self, window: &Window) -> Decision {
        let over_unix_s = (window.number + 1) * self.settings.window_s;
        let (state, decision) = decide(&self.settings, &self.state, window, over_unix_s, 1);
        self.state = state;
        decision
    }

    fn round(&mut self) -> Decision {
        let window = self.window();
        self.number += 1;
        self.decide(&window)
    }

    /// Rounds until one of them says so of the first prefix; how many it took.
    fn until(&mut self, reason: Reason) -> usize {
        for round in 1..=1_000 {
            self.round();
            if self.state.entry(prefix(0)).is_some_and(|entry| entry.reason == reason) {
                return round;
            }
        }
        panic!("never {reason}: {}", explain(&self.settings, &self.state, prefix(0)));
    }
}

fn prefix(at: u8) -> Prefix {
    Prefix::of_client(Ipv4Addr::new(203, 0, at, 0).into())
}

#[test]
fn a_slow_prefix_that_is_helped_enters_is_shown_and_stays() {
    let mut lab = Lab::new(|_| {});
    lab.effect = 0.4;
    assert_eq!(lab.until(Reason::Slow), 12, "as many windows as have to be observed");
    let entered = lab.state.entry(prefix(0)).unwrap().steered().unwrap();
    assert_eq!((entered.holdout_millionths, entered.from_bundle), (500_000, lab.state.bundle));
    lab.until(Reason::Helped);
    let decision = lab.round();
    assert_eq!((decision.steered, &decision.content), (2, &None), "nothing changes, so there is no bundle");
    let shown = lab.state.entry(prefix(0)).unwrap().steered().unwrap();
    assert_eq!(shown.holdout_millionths, 100_000);
    for _ in 0..300 {
        lab.round();
        assert_eq!(lab.state.entry(prefix(0)).unwrap().reason, Reason::Helped);
    }
    assert_eq!(lab.state.steered().count(), 2, "prefixes that are not slow are left alone");
    assert_eq!(lab.state.entry(prefix(5)).unwrap().reason, Reason::NotSlow);
}

#[test]
fn a_prefix_that_is_harmed_leaves_and_comes_back_after_its_cool_off() {
    let mut lab = Lab::new(|settings| settings.cool_off_windows = 20);
    lab.effect = -0.4;
    lab.until(Reason::Slow);
    let trial = lab.until(Reason::CoolingOff);
    assert!(trial < 40, "{trial}");
    let entry = lab.state.entry(prefix(0)).unwrap();
    let Phase::CoolingOff(cooling) = &entry.phase else { panic!("{entry:?}") };
    assert_eq!((cooling.left, cooling.failures, cooling.windows_min), (Reason::Harmed, 1, 20));
    assert_eq!(lab.until(Reason::Slow), 20);
    lab.until(Reason::CoolingOff);
    // The second time in a row twice as long.
    assert_eq!(lab.until(Reason::Slow), 40);
}

#[test]
fn a_prefix_that_nothing_is_shown_of_leaves_in_the_end() {
    let mut lab = Lab::new(|settings| settings.trial_windows_max = 30);
    lab.connections = 10;
    lab.until(Reason::Slow);
    assert_eq!(lab.until(Reason::CoolingOff), 30);
    let text = explain(&lab.settings, &lab.state, prefix(0));
    assert!(text.contains("left        not_helped, 0 windows ago"), "{text}");
}

#[test]
fn what_sends_much_more_again_leaves_though_it_is_faster() {
    let mut lab = Lab::new(|settings| settings.guardrail_rise_max = 1.0);
    (lab.effect, lab.rise) = (0.4, 0.15);
    lab.until(Reason::Slow);
    lab.round();
    lab.until(Reason::CoolingOff);
    let entry = lab.state.entry(prefix(0)).unwrap();
    assert!(matches!(&entry.phase, Phase::CoolingOff(it) if it.left == Reason::Retransmits), "{entry:?}");
}

#[test]
fn the_guardrail_ends_all_trials_and_stops_the_rounds_for_a_while() {
    let mut lab = Lab::new(|settings| {
        settings.retransmitted_rise_max = 1.0;
        settings.cool_off_windows = 4;
    });
    lab.rise = 0.15;
    lab.until(Reason::Slow);
    let stopped = (0..20).map(|_| lab.round()).find(|decision| decision.round == Round::Stopped).unwrap();
    let left: Vec<_> = stopped.left.iter().map(|change| change.reason).collect();
    assert_eq!((left, stopped.steered), (vec![Reason::Guardrail; 2], 0));
    assert_eq!(stopped.content.unwrap().rules, []);
    // The cool-off of the prefix is over before the pause.
    lab.until(Reason::Paused);
    assert_eq!(lab.until(Reason::Slow), 12 - 4);
}

#[test]
fn arms_that_the_rule_did_not_make_end_a_trial() {
    let mut lab = Lab::new(|_| {});
    lab.until(Reason::Slow);
    while lab.state.entry(prefix(0)).unwrap().steered().is_some() {
        let mut window = lab.window();
        lab.number += 1;
        // As if a policy had decided on many of those that are steered.
        let mut at = 0;
        window.prefixes[0].1.outcomes.retain(|outcome| {
            at += 1;
            !outcome.is_steered || at % 2 > 0
        });
        lab.decide(&window);
    }
    let entry = lab.state.entry(prefix(0)).unwrap();
    assert!(matches!(&entry.phase, Phase::CoolingOff(it) if it.left == Reason::Skewed), "{entry:?}");
    assert!(lab.state.entry(prefix(1)).unwrap().steered().is_some());
}

#[test]
fn outcomes_of_rules_before_do_not_count() {
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
fn without_a_holdout_it_is_the_rule_of_duty_cycles() {
    let mut lab = Lab::new(|settings| settings.holdout_trial = Share::default());
    // Harmed by a third: nobody notices.
    lab.effect = -0.4;
    lab.until(Reason::Slow);
    for _ in 0..300 {
        assert_eq!(lab.round().steered, 2);
    }
    // So fast that it is no longer in the group: then it leaves.
    lab.effect = 9.0;
    lab.until(Reason::CoolingOff);
}

#[test]
fn networks_and_short_round_trips_are_left_alone() {
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
    assert_eq!(text, "203.0.0.0/24: left_alone: not steered, its network is to be left alone\n");
    // One that is steered already leaves at once.
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
    for _ in 0..100 {
        lab.round();
        assert!(on_trial(&lab) <= 3);
    }
    let explored = lab.state.steered().filter(|(_, it)| it.is_explored).count();
    assert_eq!((explored, on_trial(&lab)), (8, 0), "those that are shown to be helped stay and make room");
    let mut other = Lab::new(|settings| settings.exploring_max = 1);
    let toss = |lab: &mut Lab, seed| {
        (0..14)
            .flat_map(|_| {
                let window = lab.window();
                lab.number += 1;
                let (state, decision) = decide(&lab.settings, &lab.state, &window, u64::MAX, seed);
                lab.state = state;
                decision.entered.into_iter().filter(|it| it.reason == Reason::Explored)
            })
            .collect::<Vec<_>>()
    };
    let one = toss(&mut other, 1);
    let others: Vec<_> =
        (2..6).map(|seed| toss(&mut Lab::new(|settings| settings.exploring_max = 1), seed)).collect();
    assert!(others.iter().any(|other| *other != one), "the seed decides");
}

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
    let (state, decision) = decide(&lab.settings, &before, &window, window.number * 300 + 299, 1);
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
fn a_prefix_is_explained() {
    let mut lab = Lab::new(|_| {});
    lab.effect = 0.4;
    assert_eq!(
        explain(&lab.settings, &lab.state, prefix(0)),
        "203.0.0.0/24: nothing was seen of it in the last 72 windows\n"
    );
    lab.until(Reason::Slow);
    lab.round();
    expect![[r#"
        203.0.0.0/24: slow: steered as a slow one, nothing shown yet
          windows     -----------------------------------------------------------#############
                      oldest first: # in the bottom group, . not, - too few samples or connections
          observed    13 of 72 windows; asked for: 12
          duty cycle  1.00; enters from 0.60, leaves at 0.30
          flap rate   0.00; enters up to 0.25
          min rtt     39.7 ms; left alone below 10.0 ms
          group       up to 0.41 Mbit/s in the newest window
          proof       50 % held out, on trial for 1 windows of 72
          connections 27 steered, 13 held out; asked for: 30
          goodput     +29.0 % [-25.6 %, +123.9 %], 95 % at every look; worth it from +5.1 %
          sent again  +1.05 points [-0.45 points, +2.56 points], 95 % at every look; at most +5.00 points
    "#]]
    .assert_eq(&explain(&lab.settings, &lab.state, prefix(0)));
    lab.until(Reason::Helped);
    lab.round();
    expect![[r#"
        203.0.0.0/24: helped: steered, shown to be helped
          windows     --------------------------------------------------------################
                      oldest first: # in the bottom group, . not, - too few samples or connections
          observed    16 of 72 windows; asked for: 12
          duty cycle  1.00; enters from 0.60, leaves at 0.30
          flap rate   0.00; enters up to 0.25
          min rtt     39.7 ms; left alone below 10.0 ms
          group       up to 0.75 Mbit/s in the newest window
          proof       10 % held out, evidence since 1 windows of 72
          connections 34 steered, 6 held out; asked for: 30
          goodput     +42.5 % [-56.5 %, +366.2 %], 95 % at every look; worth it from +5.1 %
          sent again  -0.14 points [-0.97 points, +0.70 points], 95 % at every look; at most +5.00 points
          shown       +42.1 % [+4.7 %, +92.9 %], 95 % at every look, by an e-value of 129
    "#]]
    .assert_eq(&explain(&lab.settings, &lab.state, prefix(0)));
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
    assert!(matches!(fails("\"format\":1", "\"format\":2"), StateError::Format { found: 2 }));
    assert!(matches!(fails("\"mean\":\"", "\"mean\":\"inf"), StateError::Json(_)));
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

prop_compose! {
    fn settings_of()(
        steered_max in 0_usize..6, entering_max in 0_usize..4, changes_max in 0_usize..4,
        exploring_max in 0_usize..3, explored_share in 0_usize..=100,
        history_windows in 4_u32..20, cool_off_windows in 1_u32..10, trial_windows_max in 1_u32..10,
        has_proof in any::<bool>(), duty in (0.0..=1.0, 0.0..=1.0), guardrail_rise_max in 0.0..0.1,
    ) -> Settings {
        let (one, other): (f64, f64) = duty;
        Settings {
            steered_max, entering_max, changes_max, exploring_max,
            explored_max: steered_max * explored_share / 100,
            history_windows, cool_off_windows, trial_windows_max, guardrail_rise_max,
            observed_windows_min: 2, samples_min: 4, connections_min: 2, evidence_connections_min: 2,
            duty_enter: one.max(other), duty_leave: one.min(other),
            holdout_trial: Share::from_millionths(if has_proof { 500_000 } else { 0 }).unwrap(),
            ..Settings::default()
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_holds_whatever_comes(
        settings in settings_of(),
        seed in any::<u64>(),
        // For each round: windows until then, which prefixes there are, whether BBR helps.
        rounds in vec((-30_i64..8, any::<u16>(), -1.0..1.0), 1..60),
    ) {
        let mut lab = Lab::new(|own| *own = settings.clone());
        (lab.connections, lab.rise) = (8, 0.04);
        let mut left: std::collections::BTreeMap<Prefix, u64> = std::collections::BTreeMap::new();
        // Windows that have passed as decisions count them.
        let mut passed = 0_u64;
        for (by, there, effect) in rounds {
            lab.effect = effect;
            // Mostly the next window, at times a gap, an old one, or a clock that was set back far.
            let by = if by < -25 { -1_000 } else if by < -20 { -1 } else { by.max(1) };
            lab.number = lab.number.saturating_add_signed(by).max(10_000);
            let mut window = lab.window();
            window.prefixes.retain(|(it, _)| {
                let at = u32::from(match it.first() {
                    std::net::IpAddr::V4(address) => address.octets()[2],
                    std::net::IpAddr::V6(_) => 0,
                });
                there >> at & 1 == 1
            });
            let before = lab.state.clone();
            let over = (window.number + 1) * 300;
            let (state, decision) = decide(&settings, &before, &window, over, seed);
            prop_assert_eq!(&(state.clone(), decision.clone()), &decide(&settings, &before, &window, over, seed));
            if !matches!(decision.round, Round::Decided | Round::Stopped) {
                prop_assert_eq!(&state, &before);
                prop_assert_eq!(&decision.content, &None);
                lab.state = state;
                continue;
            }
            passed += match before.window {
                Some(last) if window.number > last => window.number - last,
                _ => 1,
            };

            // Caps and churn.
            let steered: Vec<_> = state.steered().collect();
            prop_assert!(steered.len() <= settings.steered_max && steered.len() == decision.steered);
            prop_assert!(steered.iter().filter(|(_, it)| it.is_explored && it.proof.is_none()).count() <= settings.explored_max);
            prop_assert!(decision.entered.len() <= settings.entering_max);
            let ordinary = decision.left.iter().filter(|change| !change.reason.is_safety()).count();
            prop_assert!(decision.entered.len() + ordinary <= settings.changes_max);

            // What was steered is, unless it is told to have left; what was not is not, unless it is told to have entered.
            for entry in before.entries() {
                let was = entry.steered().is_some();
                let is = state.entry(entry.prefix).is_some_and(|entry| entry.steered().is_some());
                let has = |changes: &[Change]| changes.iter().any(|change| change.prefix == entry.prefix);
                prop_assert_eq!(has(&decision.left), was && !is, "{:?}", entry);
                prop_assert_eq!(has(&decision.entered), !was && is, "{:?}", entry);
            }

            // Hysteresis: it enters above the one threshold, and leaves as no longer slow below the other.
            for change in &decision.entered {
                let entry = state.entry(change.prefix).unwrap();
                if change.reason == Reason::Slow {
                    prop_assert!(entry.history.duty_cycle() >= settings.duty_enter);
                    prop_assert!(entry.history.flap_rate() <= settings.flap_max);
                }
                if let Some(since) = left.get(&change.prefix) {
                    prop_assert!(passed - since >= u64::from(settings.cool_off_windows), "{}", change.prefix);
                }
            }
            for change in &decision.left {
                let entry = state.entry(change.prefix).unwrap();
                prop_assert!(change.reason != Reason::NoLongerSlow || entry.history.duty_cycle() <= settings.duty_leave);
                left.insert(change.prefix, passed);
            }

            // Bundles: valid, one number after the other, and only when something has changed.
            prop_assert_eq!(state.bundle - before.bundle, u64::from(decision.content.is_some()));
            if let Some(content) = &decision.content {
                prop_assert_eq!(content.number, state.bundle);
                let bundle = Bundle::new(content.clone());
                prop_assert!(bundle.is_ok(), "{:?}", bundle);
                let rules: Vec<_> = content.rules.iter().map(|rule| rule.prefix).collect();
                prop_assert_eq!(rules, steered.iter().map(|(entry, _)| entry.prefix).collect::<Vec<_>>());
            } else {
                prop_assert!(decision.entered.is_empty() && decision.left.is_empty());
            }

            // A state is what it is written as.
            prop_assert_eq!(&State::decode(state.encode().as_bytes()).unwrap(), &state);
            prop_assert!(explain(&settings, &state, prefix(0)).starts_with("203.0.0.0/24: "));
            lab.state = state;
        }
    }
}
