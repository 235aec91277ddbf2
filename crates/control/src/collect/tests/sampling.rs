//! Tests of windows with too many connections, and of edges that record only some clients.

use std::num::NonZeroU32;

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

/// A client that the edge records stands for others, with each of its connections. Sockets of the
/// others are left out, because the edge does not say how it served them.
#[test]
fn connections_count_by_the_sampling_ratio_of_their_edge() {
    let mut it = TestCollector::new(|_| {});
    let record_of = |client: u8, port: u16, one_in: u32| ResponseRecord {
        client: ([203, 0, 113, client], port).into(),
        sample_one_in: NonZeroU32::new(one_in),
        ..response(port, Some(false))
    };
    let socket_of = |client: u8, port: u16| SocketRecord {
        client: ([203, 0, 113, client], port).into(),
        ..socket(port, 1_000_000, false)
    };
    let other_edge = Source { host: "edge-2".into(), ..source() };
    let add = |it: &mut TestCollector, source: &Source, record| it.0.add(source, &entry(record), NOW_UNIX_S);
    for (client, port) in [(1, 1), (1, 2), (2, 1)] {
        add(&mut it, &source(), Record::Response(Arc::new(record_of(client, port, 10))));
        add(&mut it, &source(), Record::Socket(Box::new(socket_of(client, port))));
    }
    (3..50).for_each(|client| add(&mut it, &source(), Record::Socket(Box::new(socket_of(client, 1)))));
    // Another edge records all of its clients, so a socket without a response counts there.
    add(&mut it, &other_edge, Record::Response(Arc::new(record_of(60, 1, 1))));
    (60..64).for_each(|client| add(&mut it, &other_edge, Record::Socket(Box::new(socket_of(client, 1)))));

    let (_, window) = it.close().remove(0);
    let (_, sample) = &window.prefixes[0];
    assert_eq!((sample.steered.connections, sample.held_out.connections), (31, 0));
    assert_eq!(sample.other.connections, 3, "the other edge's clients without a response");
    assert_eq!(sample.steered.sent_bytes, 31 * 1_000);
    assert_eq!(sample.steered.goodput.count(), 4, "measurements are not repeated");
    assert_eq!(sample.outcomes.len(), 3, "the unit of evidence is a client that was measured");
    let responses = |edge: &str| window.edges[edge].responses;
    assert_eq!((responses("edge-1"), responses("edge-2")), (3, 1), "edges are judged by what they recorded");
    assert_eq!(it.0.counts().sampled_out, 47);
}

/// A record cannot claim to stand for more clients than an edge can sample.
#[test]
fn sampling_ratio_is_limited() {
    let mut it = TestCollector::new(|_| {});
    it.respond(ResponseRecord { sample_one_in: NonZeroU32::new(u32::MAX), ..response(1, None) });
    let (_, window) = it.close().remove(0);
    assert_eq!(window.prefixes[0].1.other.connections, thalweg_record::SAMPLE_ONE_IN_MAX);
}
