//! Error rates and power of verdicts, in short simulations and in long ones that run only on
//! demand.

use super::*;
use crate::settings::Settings;

/// Worlds in which steering does not help any prefix as a whole.
const WITHOUT_EFFECT: [Truth; 3] = [Truth::Nothing, Truth::ZeroSum, Truth::Bottleneck];

fn day(truth: Truth, prefixes: u32, clients: f64) -> Plan {
    Plan { truth, prefixes, clients, windows: 288, seed: 1 }
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
        // All prefixes are false discoveries, so the stated rate is that of any at all.
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

#[test]
fn no_prefix_is_falsely_declared_helped() {
    check_false_verdicts(60, 8.0);
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
fn long_power_by_gain_and_clients() {
    for clients in [5.0, 20.0, 80.0] {
        let [small, medium, large] = [0.1, 0.25, 1.0].map(|gain| power(gain, 200, clients));
        assert!(small <= medium + 0.05 && medium <= large + 0.05);
    }
}
