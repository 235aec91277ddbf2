//! What a decision takes for a PoP of 50,000 prefixes with a full history, in a process of its own: its memory is all there is.

#![allow(clippy::unwrap_used, reason = "a test fails where something is not as it has to be")]

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use thalweg_control::{LEFT_ALONE_MAX, Moment, Sample, Settings, State, Window, decide};
use thalweg_record::Prefix;

const PREFIXES: u32 = 50_000;
const DECISION_MAX: Duration = Duration::from_secs(1);
const RESIDENT_BYTES_MAX: u64 = 500 << 20;

/// Every prefix is seen, by a few connections of different rates.
fn window(number: u64) -> Window {
    let prefix = |at: u32| {
        let mut sample = Sample::default();
        sample.other.connections = 5;
        for connection in 0..5 {
            let rate = 1_000 * u64::from(at % 10_007 + 1) + 50_000 * ((number + connection) % 7);
            sample.other.delivery_rate.add(rate);
            sample.other.goodput.add(rate);
            sample.min_rtt_us.add(20_000 + 1_000 * connection);
            sample.ln_goodput.add((rate as f64).ln());
        }
        (Prefix::of_client(Ipv4Addr::from_bits(at << 8).into()), sample)
    };
    Window { number, records: 1, lost: 0, prefixes: (0..PREFIXES).map(prefix).collect() }
}

fn resident_bytes_max() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[test]
fn a_pop_of_50_000_prefixes_over_72_windows_takes_under_a_second_and_500_mb() {
    // As many networks as may be are left alone, none of them a client's here.
    let network = |at: u32| Prefix::cut(Ipv4Addr::from_bits(0xc000_0000 + (at << 9)).into(), 24);
    let left_alone = (0..LEFT_ALONE_MAX as u32).map(network).collect();
    let settings = Settings { left_alone, ..Settings::default() };
    let (mut state, mut longest) = (State::default(), Duration::ZERO);
    let moment = Moment { now_unix_s: u64::MAX, seed: 1, acknowledged_bundle: 0 };
    for number in 1..=72 {
        let window = window(number);
        let begun = Instant::now();
        let (next, decision) = decide(&settings, &state, &window, moment);
        longest = longest.max(begun.elapsed());
        // Of those that are steered no connection is held out here.
        assert_eq!(decision.ranked + state.steered().count(), PREFIXES as usize);
        state = next;
    }
    assert_eq!(state.entries().len(), PREFIXES as usize);
    let whole = state.entries().iter().filter(|entry| entry.history.observed_windows() == 72);
    assert_eq!(whole.count() + 500, PREFIXES as usize);
    assert_eq!(state.steered().count(), 500);
    let (resident, encoded) = (resident_bytes_max(), state.encode().len());
    println!(
        "the longest of 72 decisions: {longest:?}; {} MB resident at most; {} MB of state as JSON",
        resident >> 20,
        encoded >> 20
    );
    assert!(longest < DECISION_MAX, "{longest:?}");
    assert!(resident < RESIDENT_BYTES_MAX, "{resident}");
}
