//! Tests of windows with too many connections.

use super::*;

/// Four thousand clients come one after the other, each with two connections and three records.
#[test]
fn sample_of_a_full_window_favours_no_client() {
    const CLIENTS: u32 = 4_000;
    let mut it = TestCollector::new(|_| {});
    it.0.connections_max = 1_000;
    // The first and the second half are in two prefixes, whose clients have many addresses.
    let address = |at: u32| {
        Ipv6Addr::from_bits(
            (0x2001_0db8_u128 << 96) + (u128::from(at / (CLIENTS / 2)) << 72) + u128::from(at),
        )
    };
    let from = |at: u32, port: u16, arm: Option<bool>| ResponseRecord {
        client: (address(at), port).into(),
        ..response(port, arm)
    };
    for at in 0..CLIENTS {
        it.respond(from(at, 1, Some(true)));
        it.respond(from(at, 1, Some(true)));
        it.respond(from(at, 2, Some(true)));
    }
    let (_, window) = it.close().remove(0);
    assert_eq!((window.weight, window.records), (16, u64::from(3 * CLIENTS)));
    let found: Vec<_> = window.prefixes.iter().map(|(_, sample)| sample).collect();
    let connections: Vec<_> = found.iter().map(|sample| f64::from(sample.connections())).collect();
    let expected = f64::from(CLIENTS);
    // Each half has 125 sampled clients on average, with a standard deviation of 11.
    assert_eq!(connections.len(), 2);
    assert!(connections.iter().all(|it| (it / expected - 1.0).abs() < 0.3), "{connections:?}");
    // Each sampled client has both of its connections, and one outcome.
    for sample in found {
        assert_eq!(sample.connections(), 16 * sample.held_out.goodput.count() as u32);
        assert_eq!(2 * sample.outcomes.len() as u64, sample.held_out.goodput.count());
    }
    let stored: f64 = connections.iter().map(|it| it / 16.0 * 1.5).sum();
    let counts = it.0.counts();
    assert_eq!((counts.sampled_out, counts.over_limit), (u64::from(3 * CLIENTS) - stored as u64, 0));
    assert_eq!(window.edges["edge-1"].responses as f64, stored * 16.0);
}

/// An attacker who knows which addresses one controller samples knows nothing about another one.
#[test]
fn sample_depends_on_the_secret_seed() {
    const CLIENTS: u32 = 4_000;
    let sampled = |seed: u64, number: u64| {
        let mut sampling = Sampling::new(seed, number);
        assert!(sampling.halve());
        (0..CLIENTS).map(|at| sampling.keeps(std::net::Ipv4Addr::from_bits(at).into())).collect::<Vec<_>>()
    };
    let one = sampled(1, NUMBER);
    assert_eq!(one, sampled(1, NUMBER));
    for other in [sampled(2, NUMBER), sampled(1, NUMBER + 1)] {
        let both = one.iter().zip(&other).filter(|(one, other)| **one && **other).count();
        // A quarter on average, with a standard deviation of 27.
        assert!((880..1_120).contains(&both), "{both}");
    }
}

#[test]
fn one_client_cannot_fill_a_window_without_limit() {
    let mut it = TestCollector::new(|_| {});
    it.0.connections_max = 100;
    (1..=1_000).for_each(|port| it.respond(response(port, None)));
    let counts = it.0.counts();
    let windows = it.close();
    let samples = windows.iter().flat_map(|(_, window)| window.prefixes.iter());
    let stored: u64 = samples.map(|(_, sample)| sample.other.goodput.count()).sum();
    assert!(stored <= 100, "{stored}");
    assert_eq!(counts.over_limit + counts.sampled_out, 1_000 - stored);
}
