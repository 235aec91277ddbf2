//! Error rates and power of verdicts, in short simulations and in long ones that run only on
//! demand.

use super::*;
use crate::settings::Settings;

/// Worlds in which steering does not help any prefix as a whole.
const WITHOUT_EFFECT: [Truth; 3] = [Truth::Nothing, Truth::ZeroSum, Truth::Bottleneck];

fn day(truth: Truth, prefixes: u32, clients: f64) -> Plan {
    Plan {
        truth,
        prefixes,
        clients,
        windows: 288,
        kept: 0.1,
        min_rtt_us: 40_000,
        retransmitted: None,
        seed: 1,
    }
}

/// Asserts that no prefix is falsely declared helped, and that only interference makes prefixes
/// promising.
fn check_false_verdicts(prefixes: u32, clients: f64) {
    for truth in WITHOUT_EFFECT {
        let verdicts = day(truth, prefixes, clients).run();
        let Verdicts { trials, promising, proved, left, .. } = &verdicts;
        println!("{truth:?}: {trials} trials, {promising} promising, {proved} helped, withdrawn: {left:?}");
        let trials = *trials as f64;
        assert!(trials >= f64::from(prefixes), "{verdicts:?}");
        // Every discovery is false here, so the stated rate bounds the probability of any
        // discovery.
        assert_eq!(*proved, 0, "{truth:?}: {verdicts:?}");
        if truth == Truth::Nothing {
            let share = Settings::default().false_promise_share;
            let most = trials * share + 3.0 * (trials * share).sqrt();
            assert!(*promising as f64 <= most, "{verdicts:?}");
        } else {
            assert!(*promising as f64 > 0.5 * f64::from(prefixes), "{truth:?}: {verdicts:?}");
        }
    }
}

/// Returns the share of prefixes that are proved to be helped within a day.
fn power(gain: f64, prefixes: u32, clients: f64) -> f64 {
    let verdicts = day(Truth::Gain(gain.ln_1p()), prefixes, clients).run();
    let power = verdicts.proved as f64 / f64::from(prefixes);
    let median = verdicts.windows.get(verdicts.windows.len() / 2);
    println!(
        "+{:.0} %, {clients} clients per window: {power:.2} helped within a day, half of them after {median:?} windows; withdrawn: {:?}",
        gain * 100.0,
        verdicts.left
    );
    power
}

/// Asserts that no prefix is falsely declared helped, even though connections of the other arm
/// outlive their block. Returns the numbers of pairs of blocks.
fn check_long_connections(kept: f64, prefixes: u32) -> ClosedPairs {
    let mut pairs = ClosedPairs::default();
    for truth in [Truth::ZeroSum, Truth::Bottleneck] {
        let verdicts = Plan { kept, ..day(truth, prefixes, 8.0) }.run();
        println!("{truth:?}, kept {kept}: {verdicts:?}");
        assert!(verdicts.promising as f64 > 0.5 * f64::from(prefixes), "{verdicts:?}");
        assert_eq!(verdicts.proved, 0, "{truth:?}, {kept}: {verdicts:?}");
        pairs.merge(verdicts.pairs);
    }
    pairs
}

/// Returns the verdicts on low-RTT paths with few retransmissions, on which steering has the effect
/// `gain`.
fn low_rtt(gain: f64, prefixes: u32) -> Verdicts {
    let day = day(Truth::Gain(gain.ln_1p()), prefixes, 30.0);
    let plan = Plan { min_rtt_us: 2_000, retransmitted: Some(0.000_1), ..day };
    assert!(u64::from(plan.min_rtt_us) < plan.settings().min_rtt_us_min);
    let verdicts = plan.run();
    println!("low RTT, {:+.0} %: {verdicts:?}", gain * 100.0);
    verdicts
}

#[test]
fn no_prefix_is_falsely_declared_helped() {
    check_false_verdicts(60, 8.0);
}

#[test]
fn long_connections_make_no_prefix_falsely_helped() {
    for kept in [0.5, 0.9] {
        let pairs = check_long_connections(kept, 30);
        let of = f64::from(pairs.counted + pairs.voided.total());
        assert!(f64::from(pairs.voided.leftover) > 0.5 * of, "{kept}: {pairs:?}");
    }
}

/// Measurements decide whether a network with a low RTT and few retransmissions stays on the
/// default.
#[test]
fn low_rtt_is_explored_and_decided_by_evidence() {
    let helped = low_rtt(0.25, 12);
    assert!(helped.proved > 6 && helped.proved_of_ipv6 > 3, "{helped:?}");
    assert!(helped.proved_of_ipv6 < helped.proved, "{helped:?}");
    let harmed = low_rtt(-0.25, 12);
    assert!(harmed.trials >= 12, "{harmed:?}");
    assert_eq!((harmed.promising, harmed.steered), (0, 0), "{harmed:?}");
    let left: usize = [Reason::Harmed, Reason::NotHelped].iter().filter_map(|it| harmed.left.get(it)).sum();
    assert!(left >= 12, "{harmed:?}");
}

#[test]
fn gains_are_proved() {
    assert!(power(1.0, 16, 8.0) > 0.8);
    let [small, medium] = [0.1, 0.25].map(|gain| power(gain, 12, 60.0));
    assert!(medium > 0.8 && small <= medium, "{small} {medium}");
}

#[test]
#[ignore = "takes minutes: make test-long"]
fn long_no_prefix_of_ten_thousand_is_falsely_declared_helped() {
    check_false_verdicts(10_000, 8.0);
}

#[test]
#[ignore = "takes minutes: make test-long"]
fn long_connections_of_a_thousand_prefixes() {
    for kept in [0.5, 0.9] {
        println!("{:?}", check_long_connections(kept, 1_000));
    }
}

#[test]
#[ignore = "takes minutes: make test-long"]
fn long_power_with_long_connections() {
    for kept in [0.1, 0.3, 0.5] {
        for gain in [0.25, 1.0_f64] {
            let verdicts = Plan { kept, ..day(Truth::Gain(gain.ln_1p()), 100, 20.0) }.run();
            println!("kept {kept}, {:+.0} %: {verdicts:?}", gain * 100.0);
        }
    }
}

#[test]
#[ignore = "takes minutes: make test-long"]
fn long_power_by_gain_and_clients() {
    for clients in [5.0, 20.0, 80.0] {
        let [small, medium, large] = [0.1, 0.25, 1.0].map(|gain| power(gain, 200, clients));
        assert!(small <= medium + 0.05 && medium <= large + 0.05);
    }
}
