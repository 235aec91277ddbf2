//! Time and memory of a decision for a PoP with 50,000 prefixes, a full history and the maximum
//! number of trials. The test runs in its own process, so that peak memory covers nothing else.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use thalweg_control::{Arm, Entry, LEFT_ALONE_MAX, Moment, Outcome, Sample, Settings, State, Window, decide};
use thalweg_record::Prefix;

const PREFIXES: u32 = 50_000;
/// Number of connections per prefix and window: at least three in each arm.
const CONNECTIONS: u64 = 6;
const DECISION_MAX: Duration = Duration::from_secs(1);
const RESIDENT_BYTES_MAX: u64 = 500 << 20;

/// Builds a window in which every prefix has a few connections with different rates, in both arms
/// if a rule applies.
fn window(number: u64, state: &State) -> Window {
    let prefix = |at: u32| {
        let prefix = Prefix::of_client(Ipv4Addr::from_bits(at << 8).into());
        let has_rule = state.entry(prefix).and_then(Entry::steered).is_some();
        let mut sample = Sample::default();
        for connection in 0..CONNECTIONS {
            let rate = 1_000 * u64::from(at % 10_007 + 1) + 50_000 * ((number + connection) % 7);
            let arm = match (has_rule, connection % 2) {
                (false, _) => Arm::Other,
                (true, 0) => Arm::Steered,
                (true, _) => Arm::HeldOut,
            };
            let into = sample.arm_mut(arm);
            into.connections += 1;
            into.delivery_rate.add(rate);
            into.goodput.add(rate);
            sample.min_rtt_us.add(20_000 + 1_000 * connection);
            if arm != Arm::Steered {
                sample.ln_goodput.add((rate as f64).ln());
            }
            if arm != Arm::Other {
                sample.outcomes.push(Outcome {
                    period: 0,
                    bundle: state.bundle,
                    is_steered: arm == Arm::Steered,
                    // Use the same spread in all prefixes.
                    ln_goodput: (rate as f64).ln() + 0.3 * ((number + connection * 3) % 5) as f64,
                    retransmitted_share: Some(0.01),
                });
            }
        }
        (prefix, sample)
    };
    Window { number, records: 1, prefixes: (0..PREFIXES).map(prefix).collect(), ..Window::default() }
}

fn resident_bytes_max() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[test]
fn decision_for_50_000_prefixes_over_72_windows_takes_under_a_second_and_500_mb() {
    // Exclude the maximum number of networks; none contains a client.
    let network = |at: u32| Prefix::cut(Ipv4Addr::from_bits(0xc000_0000 + (at << 9)).into(), 24);
    let left_alone = (0..LEFT_ALONE_MAX as u32).map(network).collect();
    let settings = Settings { left_alone, ..Settings::default() };
    let (mut state, mut longest, mut pool) = (State::default(), Duration::ZERO, None);
    let moment = Moment { now_unix_s: u64::MAX, seed: 1, acknowledged_bundle: 0 };
    for number in 1..=72 {
        let window = window(number, &state);
        let started = Instant::now();
        let (next, decision) = decide(&settings, &state, &window, moment);
        longest = longest.max(started.elapsed());
        assert_eq!(decision.ranked, PREFIXES as usize);
        (state, pool) = (next, decision.pool);
    }
    assert_eq!(state.entries().len(), PREFIXES as usize);
    let whole = state.entries().iter().filter(|entry| entry.history.observed_windows() == 72);
    assert_eq!(whole.count(), PREFIXES as usize);
    assert_eq!(state.steered().count(), 500);
    assert!(pool.is_some(), "trials have estimates");
    let (resident, encoded) = (resident_bytes_max(), state.encode().len());
    println!(
        "longest of 72 decisions: {longest:?}; peak resident memory: {} MB; state as JSON: {} MB",
        resident >> 20,
        encoded >> 20
    );
    assert!(longest < DECISION_MAX, "{longest:?}");
    assert!(resident < RESIDENT_BYTES_MAX, "{resident}");
}
