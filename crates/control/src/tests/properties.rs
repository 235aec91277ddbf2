//! Invariants of decisions under random input: caps, hysteresis, cool-offs, bundle numbers and the
//! stored state.

use proptest::collection::vec;
use proptest::prelude::*;
use thalweg_bundle::{Bundle, Share};
use thalweg_record::Prefix;

use super::lab::{Lab, prefix};
use crate::*;

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
            observed_windows_min: 2, connections_min: 2, evidence_connections_min: 2,
            duty_enter: one.max(other), duty_leave: one.min(other),
            holdout_trial: Share::from_millionths(if has_proof { 500_000 } else { 0 }).unwrap(),
            ..Settings::default()
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn invariants_hold_for_any_sequence_of_rounds(
        before in settings_of(),
        after in settings_of(),
        seed in any::<u64>(),
        // For each round: the number of windows since the last round, a bit mask of the prefixes
        // present, and the effect of BBR.
        rounds in vec((-30_i64..8, any::<u16>(), -1.0..1.0), 1..60),
    ) {
        let mut lab = Lab::new(|own| *own = before.clone());
        (lab.connections, lab.rise) = (8, 0.04);
        let mut left: std::collections::BTreeMap<Prefix, (u64, u64)> = std::collections::BTreeMap::new();
        // Number of rounds decided so far.
        let mut passed = 0_u64;
        let half = rounds.len() / 2;
        for (round, (by, there, effect)) in rounds.into_iter().enumerate() {
            let settings = if round < half { &before } else { &after };
            (lab.settings, lab.effect) = (settings.clone(), effect);
            // Usually take the next window. Sometimes leave a gap, take an old window, or set the
            // clock far back.
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
            let old = lab.state.clone();
            let moment = Moment { seed, ..lab.moment(&window) };
            let (state, decision) = decide(settings, &old, &window, moment);
            prop_assert_eq!(&(state.clone(), decision.clone()), &decide(settings, &old, &window, moment));
            if !matches!(decision.round, RoundOutcome::Decided | RoundOutcome::Stopped) {
                prop_assert_eq!(&state, &old);
                prop_assert_eq!(&decision.content, &None);
                lab.state = state;
                continue;
            }
            passed += 1;

            // A round must respect the caps and the limit on changes.
            let steered: Vec<_> = state.steered().collect();
            prop_assert!(steered.len() <= settings.steered_max && steered.len() == decision.steered);
            prop_assert!(steered.iter().filter(|(_, it)| it.is_exploring()).count() <= settings.explored_max);
            prop_assert!(decision.entered.len() <= settings.entering_max);
            let ordinary = decision.left.iter().filter(|change| !change.reason.is_safety()).count();
            prop_assert!(decision.entered.len() + ordinary <= settings.changes_max);

            // Every prefix that starts or stops being steered must be reported as entered or left.
            for entry in old.entries() {
                let was = entry.steered().is_some();
                let is = state.entry(entry.prefix).is_some_and(|entry| entry.steered().is_some());
                let has = |changes: &[Change]| changes.iter().any(|change| change.prefix == entry.prefix);
                prop_assert_eq!(has(&decision.left), was && !is, "{:?}", entry);
                prop_assert_eq!(has(&decision.entered), !was && is, "{:?}", entry);
            }

            // Prefixes must enter only above one threshold and after their cool-off, and leave as
            // no longer slow only below the other threshold.
            for change in &decision.entered {
                let entry = state.entry(change.prefix).unwrap();
                if change.reason == Reason::Slow {
                    prop_assert!(entry.history.duty_cycle() >= settings.duty_enter);
                    prop_assert!(entry.history.flap_rate() <= settings.flap_max);
                }
                if let Some((since, cool_off)) = left.get(&change.prefix) {
                    prop_assert!(passed - since >= *cool_off, "{}", change.prefix);
                }
            }
            for change in &decision.left {
                let entry = state.entry(change.prefix).unwrap();
                prop_assert!(change.reason != Reason::NoLongerSlow || entry.history.duty_cycle() <= settings.duty_leave);
                left.insert(change.prefix, (passed, settings.cool_off_windows.into()));
            }

            // Bundles must be valid, have consecutive numbers, and be issued only if something
            // changed.
            prop_assert_eq!(state.bundle - old.bundle, u64::from(decision.content.is_some()));
            if let Some(content) = &decision.content {
                prop_assert_eq!(content.number, state.bundle);
                let bundle = Bundle::new(content.clone());
                prop_assert!(bundle.is_ok(), "{:?}", bundle);
                let rules: Vec<_> = content.rules.iter().map(|rule| rule.prefix).collect();
                prop_assert_eq!(rules, steered.iter().map(|(entry, _)| entry.prefix).collect::<Vec<_>>());
            } else {
                prop_assert!(decision.entered.is_empty() && decision.left.is_empty());
            }

            // The stored form must decode to the same state.
            prop_assert_eq!(&State::decode(state.encode().as_bytes()).unwrap(), &state);
            prop_assert!(explain(settings, &state, prefix(0)).starts_with("203.0.0.0/24: "));
            lab.state = state;
        }
    }
}
