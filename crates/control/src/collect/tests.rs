//! Collector tests: which records contribute to windows, and when windows close.

use std::sync::Arc;

use thalweg_record::{
    CacheResult, Counters, Cut, Decider, Delivery, Gauges, LossRecord, Network, SocketRecord, Stage, Steered,
};

use super::*;
use crate::Sample;
use crate::tests::records;

mod sampling;

const NOW_UNIX_S: u64 = 1_800_000_000;
const LATE_S: u64 = 60;
const SEED: u64 = 1;
const NUMBER: u64 = NOW_UNIX_S / 300;

fn source() -> Source {
    Source { host: "edge-1".into(), pop: "fra1".into(), epoch: 1 }
}

fn entry(record: Record) -> Entry {
    Entry { number: 0, network: Network::default(), record }
}

fn response(port: u16, arm: Option<bool>) -> ResponseRecord {
    let steered = arm.map(|is_holdout| Steered {
        bundle: 7,
        rule: Some("203.0.113.0/24".into()),
        is_holdout,
        draw_period: Some(NUMBER),
        ..Steered::default()
    });
    records::response(NOW_UNIX_S, ([203, 0, 113, 7], port).into(), steered)
}

/// A response to the client at this address in the prefix, decided `ago` periods before its end.
fn from_client(client: u8, port: u16, arm: bool, window: u64, ago: u64) -> ResponseRecord {
    let time_unix_us = (NOW_UNIX_S + window * 300) * 1_000_000;
    let mut response = ResponseRecord {
        time_unix_us,
        client: ([203, 0, 113, client], port).into(),
        ..response(port, Some(arm))
    };
    response.steered.as_mut().unwrap().draw_period = Some(NUMBER + window - ago);
    response
}

/// Makes a response of a steered connection, with this busy time.
fn with_busy(busy_us: u64) -> ResponseRecord {
    ResponseRecord { delivery: Some(Delivery::complete(1_000_000, busy_us)), ..response(1, Some(false)) }
}

fn socket(port: u16, rate: u64, is_app_limited: bool) -> SocketRecord {
    SocketRecord {
        cookie: port.into(),
        gauges: Some(Gauges {
            min_rtt_us: Some(40_000),
            delivery_rate_bytes_per_s: Some(rate),
            delivery_rate_app_limited: is_app_limited,
            ..Gauges::default()
        }),
        counters: Some(Counters { bytes_sent: 1_000, bytes_retrans: 10, ..Counters::default() }),
        ..SocketRecord::new(
            NOW_UNIX_S * 1_000_000,
            ([203, 0, 113, 7], port).into(),
            ([192, 0, 2, 1], 443).into(),
        )
    }
}

struct TestCollector(Collector);

impl TestCollector {
    fn new(change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings::default();
        change(&mut settings);
        Self(Collector::new(settings, SEED))
    }

    fn respond(&mut self, response: ResponseRecord) {
        self.0.add(&source(), &entry(Record::Response(Arc::new(response))), NOW_UNIX_S);
    }

    fn dump(&mut self, socket: SocketRecord) {
        self.0.add(&source(), &entry(Record::Socket(Box::new(socket))), NOW_UNIX_S);
    }

    fn close(&mut self) -> Vec<(String, Window)> {
        self.0.close(NOW_UNIX_S + 10_000).into_iter().flat_map(|closed| closed.windows).collect()
    }

    /// Returns the sample of the only prefix in the only window.
    fn sample(&mut self) -> Sample {
        let mut closed = self.0.close(NOW_UNIX_S + 10_000);
        assert_eq!((closed.len(), closed[0].pop.as_str(), closed[0].windows.len()), (1, "fra1", 1));
        let (tenant, window) = closed.remove(0).windows.remove(0);
        assert_eq!((tenant.as_str(), window.number), ("", NUMBER));
        assert_eq!(window.prefixes.len(), 1);
        assert_eq!(window.prefixes[0].0.to_string(), "203.0.113.0/24");
        window.prefixes[0].1.clone()
    }
}

#[test]
fn only_measurable_responses_and_samples_count() {
    let mut it = TestCollector::new(|_| {});
    it.respond(response(1, None));
    it.respond(ResponseRecord { delivery: Some(Delivery::complete(99_999, 10)), ..response(1, None) });
    it.respond(ResponseRecord { delivery: None, ..response(1, None) });
    let unknown = Delivery { busy_us: None, ..Delivery::complete(1_000_000, 10) };
    it.respond(ResponseRecord { delivery: Some(unknown), ..response(1, None) });
    it.dump(socket(1, 500_000, false));
    it.dump(socket(1, 900_000, true));
    it.dump(SocketRecord { gauges: None, counters: None, ..socket(2, 0, false) });
    let sample = it.sample();
    assert_eq!((sample.other.connections, sample.connections()), (2, 2));
    assert_eq!((sample.other.goodput.count(), sample.other.delivery_rate.count()), (1, 1));
    assert_eq!((sample.other.sent_bytes, sample.other.retransmitted_share()), (2_000, Some(0.01)));
    assert_eq!(sample.min_rtt_us.count(), 1);
    assert_eq!(sample.ln_goodput.mean, 1e6_f64.ln());
    assert_eq!(sample.outcomes, []);
}

/// The pace of a source and an early end are not the network's: only busy time counts.
#[test]
fn live_and_cut_responses_count_by_acknowledged_bytes() {
    let mut it = TestCollector::new(|_| {});
    let live = Delivery { is_source_limited: true, ..Delivery::complete(1_000_000, 500_000) };
    it.respond(ResponseRecord {
        cache: CacheResult::Join,
        written_us: 60_000_000,
        delivery: Some(live),
        ..response(1, None)
    });
    assert_eq!(it.sample().ln_goodput.mean, 2e6_f64.ln());
    let mut it = TestCollector::new(|_| {});
    let cut = Delivery { acked_us: None, ..Delivery::complete(250_000, 500_000) };
    it.respond(ResponseRecord { cut: Some(Cut::ClientClosed), delivery: Some(cut), ..response(1, None) });
    assert_eq!(it.sample().ln_goodput.mean, 5e5_f64.ln());
}

#[test]
fn responses_assign_a_connection_to_its_arm() {
    let mut it = TestCollector::new(|_| {});
    // The socket record arrives before the response that names the rule.
    it.dump(socket(1, 500_000, false));
    it.respond(with_busy(500_000));
    it.respond(with_busy(2_000_000));
    it.respond(from_client(8, 2, true, 0, 0));
    let mut by_policy = response(3, Some(true));
    by_policy.tcp.as_mut().unwrap().decider = Some(Decider::Policy);
    it.respond(by_policy);
    it.respond(response(3, Some(true)));
    let mut refused = response(4, Some(false));
    refused.steered.as_mut().unwrap().refused = Some("no bbr".into());
    refused.tcp.as_mut().unwrap().decider = Some(Decider::Default);
    refused.delivery = None;
    it.respond(refused);
    let sample = it.sample();
    let connections = [sample.steered.connections, sample.held_out.connections, sample.other.connections];
    assert_eq!(
        connections,
        [2, 1, 1],
        "connections decided by a policy are in neither arm; those refused by the kernel are in their own"
    );
    assert_eq!((sample.steered.delivery_rate.count(), sample.steered.goodput.count()), (1, 1));
    let mut outcomes = sample.outcomes.clone();
    outcomes.sort_by_key(|outcome| outcome.is_steered);
    let found: Vec<_> =
        outcomes.iter().map(|it| (it.bundle, it.is_steered, it.retransmitted_share)).collect();
    assert_eq!(found, [(7, false, None), (7, true, Some(0.01))]);
    // A client contributes one value, the mean of the logarithms.
    assert!((outcomes[1].ln_goodput - 1e6_f64.ln()).abs() < 1e-9);
    assert_eq!(sample.ln_goodput.count, 2, "only connections that are not steered");
}

/// Closes the window and returns its outcomes: decision period, whether steered, and log goodput.
fn outcomes(it: &mut Collector, window: u64, responses: Vec<ResponseRecord>) -> Vec<(u64, bool, f64)> {
    let time = NOW_UNIX_S + window * 300;
    for response in responses {
        it.add(&source(), &entry(Record::Response(Arc::new(response))), time);
    }
    let closed = it.close(time + 360);
    let samples = closed.iter().flat_map(|closed| &closed.windows[0].1.prefixes);
    let mut found: Vec<_> = samples
        .flat_map(|(_, sample)| &sample.outcomes)
        .map(|it| (it.period - NUMBER, it.is_steered, it.ln_goodput))
        .collect();
    found.sort_by(|one, other| one.partial_cmp(other).unwrap());
    found
}

#[test]
fn client_counts_once_per_period_regardless_of_its_connections() {
    let mut it = Collector::new(Settings::default(), SEED);
    let ln = 1e6_f64.ln();
    let slow =
        |response| ResponseRecord { delivery: Some(Delivery::complete(1_000_000, 4_000_000)), ..response };
    // Two connections of one client are merged; another client counts separately.
    let first = vec![
        from_client(7, 1, false, 0, 0),
        slow(from_client(7, 2, false, 0, 0)),
        from_client(8, 1, true, 0, 0),
    ];
    let merged = (1e6_f64.ln() + 2.5e5_f64.ln()) / 2.0;
    assert_eq!(outcomes(&mut it, 0, first), [(0, false, ln), (0, true, merged)]);
    // The connection lives on, and its client is drawn again: only the new draw counts.
    let second = vec![slow(from_client(7, 1, false, 1, 1)), from_client(7, 3, true, 1, 0)];
    assert_eq!(outcomes(&mut it, 1, second), [(1, false, ln)]);
    // A slow response counts for the period in which it was decided, unless that is too long ago.
    let late = vec![from_client(9, 1, false, 2, 2), from_client(9, 2, true, 2, 1)];
    assert_eq!(outcomes(&mut it, 2, late), [(0, true, ln), (1, false, ln)]);
    let too_late = vec![from_client(10, 1, false, 20, 20), from_client(11, 1, false, 20, 12)];
    assert_eq!(outcomes(&mut it, 20, too_late), [(8, true, ln)]);
}

#[test]
fn restarted_collector_reports_no_client_again() {
    let mut it = Collector::new(Settings::default(), SEED);
    let (first, ln) = (from_client(7, 1, false, 0, 0), 1e6_f64.ln());
    assert_eq!(outcomes(&mut it, 0, vec![first.clone()]), [(0, true, ln)]);
    // The connection lives on. A rule decided another client in the same period, and whether it was
    // reported is unknown, too.
    let second = || {
        let others = [from_client(8, 1, true, 1, 1), from_client(9, 1, false, 1, 0)];
        [from_client(7, 1, false, 1, 1)].into_iter().chain(others).collect::<Vec<_>>()
    };
    let mut forgetful = Collector::new(Settings::default(), SEED);
    assert_eq!(outcomes(&mut forgetful, 1, second()).len(), 3, "without the last window, all are new");
    let mut restarted = Collector::new(Settings::default(), SEED);
    restarted.resume("fra1", NUMBER);
    // The last decided window is read again, as after a restart with Kafka.
    assert_eq!(outcomes(&mut restarted, 0, vec![first.clone()]), []);
    assert_eq!(outcomes(&mut restarted, 1, second()), [(1, true, ln)]);
    let third =
        vec![from_client(7, 1, false, 2, 2), from_client(9, 1, false, 2, 1), from_client(8, 2, true, 2, 1)];
    assert_eq!(outcomes(&mut restarted, 2, third), [(1, false, ln)]);
    // A clock that was far ahead before the restart does not keep all outcomes out.
    let mut corrected = Collector::new(Settings::default(), SEED);
    corrected.resume("fra1", NUMBER + 1_000);
    assert_eq!(outcomes(&mut corrected, 0, vec![first]), [(0, true, ln)]);
}

#[test]
fn client_in_both_arms_and_unknown_periods_have_no_outcome() {
    let mut it = Collector::new(Settings::default(), SEED);
    let mut unknown = from_client(9, 1, true, 0, 0);
    unknown.steered.as_mut().unwrap().draw_period = None;
    let both = vec![from_client(7, 1, true, 0, 0), from_client(7, 2, false, 0, 0), unknown];
    assert_eq!(outcomes(&mut it, 0, both), []);
    // The bundle changed within the period, but not the arm.
    let mut newer = from_client(7, 2, true, 1, 0);
    newer.steered.as_mut().unwrap().bundle = 8;
    let two = vec![newer, from_client(7, 1, true, 1, 0)];
    for response in two {
        it.add(&source(), &entry(Record::Response(Arc::new(response))), NOW_UNIX_S + 300);
    }
    let closed = it.close(NOW_UNIX_S + 660);
    let found = &closed[0].windows[0].1.prefixes[0].1.outcomes;
    assert_eq!((found.len(), found[0].bundle), (1, 7));
}

#[test]
fn window_closes_once_and_on_time() {
    let mut it = Collector::new(Settings::default(), SEED);
    let add = |it: &mut Collector, time: u64, now: u64| {
        let response = ResponseRecord { time_unix_us: time * 1_000_000, ..response(1, None) };
        it.add(&source(), &entry(Record::Response(Arc::new(response))), now);
    };
    let end = (NUMBER + 1) * 300;
    add(&mut it, NOW_UNIX_S, NOW_UNIX_S);
    add(&mut it, NOW_UNIX_S, end + LATE_S - 1);
    assert_eq!(it.close(end + LATE_S - 1), []);
    let closed = it.close(end + LATE_S);
    assert_eq!((closed.len(), closed[0].windows[0].1.records), (1, 2));
    add(&mut it, NOW_UNIX_S, end + LATE_S);
    assert_eq!(it.counts().late, 1);
    // Set the clock back a little. The window stays closed, although it has not ended by the clock.
    add(&mut it, NOW_UNIX_S, NOW_UNIX_S);
    add(&mut it, NOW_UNIX_S + 300, NOW_UNIX_S);
    assert_eq!(it.counts(), Counts { late: 2, early: 1, ..Counts::default() });
    assert_eq!(it.close(end + LATE_S), []);
    // Set the clock back by more than the history. The earlier time is then taken as wrong, so
    // collection continues.
    let before = NOW_UNIX_S - 100 * 300;
    assert_eq!(it.close(before), []);
    add(&mut it, before, before);
    let closed = it.close(before + 600);
    assert_eq!((closed.len(), closed[0].windows[0].1.number), (1, NUMBER - 100));
}

#[test]
fn window_held_open_keeps_accepting_records() {
    let mut it = Collector::new(Settings::default(), SEED);
    let end = (NUMBER + 1) * 300;
    let add = |it: &mut Collector, now: u64| {
        it.add(&source(), &entry(Record::Response(Arc::new(response(1, None)))), now);
    };
    add(&mut it, NOW_UNIX_S);
    assert_eq!(it.close(end + LATE_S - 1), []);
    // By the local clock, the window ended long ago.
    add(&mut it, end + LATE_S + 900);
    let closed = it.close(end + LATE_S);
    assert_eq!((it.counts(), closed[0].windows[0].1.records), (Counts::default(), 2));
    add(&mut it, end + LATE_S + 900);
    assert_eq!(it.counts().late, 1);
}

#[test]
fn long_response_counts_in_the_window_of_its_end() {
    let mut it = Collector::new(Settings::default(), SEED);
    let late = Delivery { acked_us: Some(1_000_000_000), ..Delivery::complete(1_000_000, 1_000_000) };
    let slow = ResponseRecord { delivery: Some(late), ..response(1, None) };
    it.add(&source(), &entry(Record::Response(Arc::new(slow))), NOW_UNIX_S + 1_000);
    let closed = it.close(NOW_UNIX_S + 1_500);
    assert_eq!(it.counts(), Counts::default());
    assert_eq!((closed.len(), closed[0].windows[0].1.number), (1, (NOW_UNIX_S + 1_000) / 300));
}

#[test]
fn losses_are_reported_and_excluded_hosts_are_ignored() {
    let mut it = TestCollector::new(|settings| settings.hosts_left_alone = vec!["MEDIA.example".into()]);
    // The connection's socket record is ignored too, although it arrives first and names no host.
    it.dump(socket(1, 500_000, false));
    it.respond(response(1, None));
    let loss = LossRecord { time_unix_us: NOW_UNIX_S * 1_000_000, stage: Stage::Spool, records: 12 };
    it.0.add(&source(), &entry(Record::Loss(loss)), NOW_UNIX_S);
    let (_, window) = it.close().remove(0);
    assert_eq!((window.lost, window.records, window.prefixes.len()), (12, 3, 0));
    let mut it = TestCollector::new(|settings| {
        (settings.by_tenant, settings.hosts_left_alone) = (true, vec!["media.example".into()]);
    });
    it.respond(response(1, None));
    it.respond(ResponseRecord { host: "other.example".into(), ..response(2, None) });
    let closed = it.close();
    assert_eq!((closed.len(), closed[0].0.as_str(), closed[0].1.records), (1, "other.example", 2));
    assert_eq!(it.0.counts().over_limit, 0, "excluded hosts do not count as over a limit");
}

#[test]
fn each_tenant_has_its_own_windows() {
    let mut it = TestCollector::new(|settings| settings.by_tenant = true);
    it.respond(response(1, None));
    it.dump(socket(1, 500_000, false));
    it.respond(ResponseRecord { host: "Other.example".into(), ..response(2, None) });
    // Add another tenant's response on the same connection, and a socket without a response.
    it.respond(ResponseRecord { host: "other.example".into(), ..response(1, None) });
    it.dump(socket(3, 500_000, false));
    let closed = it.close();
    let found: Vec<_> = closed
        .iter()
        .map(|(tenant, window)| {
            let sample = &window.prefixes[0].1.other;
            (tenant.as_str(), sample.connections, sample.goodput.count(), sample.delivery_rate.count())
        })
        .collect();
    assert_eq!(found, [("media.example", 1, 1, 1), ("other.example", 1, 1, 0)]);
}

#[test]
fn made_up_hosts_do_not_displace_named_tenants() {
    let mut it = TestCollector::new(|all| {
        all.by_tenant = true;
        all.tenants = vec![Tenant::new(["media.example".into()], Settings::default())];
    });
    let mut port = 1;
    let mut send = |it: &mut TestCollector, host: String, status: u16| {
        it.respond(ResponseRecord { host, status, ..response(port, None) });
        port += 1;
    };
    // A host not served by the edge, an invalid name, and an empty name.
    for (host, status) in [("own.example", 421), ("[2001:db8::1]:80", 200), ("", 200)] {
        send(&mut it, host.into(), status);
    }
    (0..SCOPES_MAX).for_each(|at| send(&mut it, format!("{at}.example"), 200));
    send(&mut it, "media.example".into(), 200);
    let closed = it.0.close(NOW_UNIX_S + 10_000).remove(0);
    assert_eq!(closed.windows.len(), UNNAMED_MAX + 1);
    assert!(
        closed
            .windows
            .iter()
            .any(|(tenant, window)| tenant == "media.example" && !window.prefixes.is_empty())
    );
    // Every response still counts for its edge.
    assert_eq!(closed.window.edges["edge-1"].responses, SCOPES_MAX as u64 + 4);
    assert_eq!(it.0.counts().over_limit, (SCOPES_MAX - UNNAMED_MAX) as u64 + 1);
}

#[test]
fn tenant_merges_its_hosts_and_applies_its_own_threshold() {
    let settings = Settings { goodput_bytes_min: 2_000_000, ..Settings::default() };
    let hosts = ["News.example".into(), "media.example".into()];
    let mut it = TestCollector::new(|all| all.tenants = vec![Tenant::new(hosts, settings)]);
    it.respond(response(1, None));
    it.respond(ResponseRecord {
        host: "NEWS.example:80".into(),
        delivery: Some(Delivery::complete(2_000_000, 1_000_000)),
        ..response(1, None)
    });
    it.respond(ResponseRecord { host: "other.example".into(), ..response(2, None) });
    it.dump(socket(3, 500_000, false));
    let found: Vec<_> = it
        .close()
        .iter()
        .map(|(tenant, window)| {
            let sample = &window.prefixes[0].1.other;
            (tenant.clone(), sample.connections, sample.goodput.quantile(0.5).map(f64::round))
        })
        .collect();
    let (own, others) = (("news.example".to_owned(), 1), (String::new(), 1));
    let rate = |bytes: u64| Some(bytes as f64);
    let near = |found: Option<f64>, rate: Option<f64>| {
        found.zip(rate).is_some_and(|(found, rate)| (found / rate - 1.0).abs() < 0.02)
    };
    assert_eq!(found.iter().map(|it| (it.0.clone(), it.1)).collect::<Vec<_>>(), [own, others]);
    assert!(near(found[0].2, rate(2_000_000)) && near(found[1].2, rate(1_000_000)), "{found:?}");
}

#[test]
fn long_connection_has_the_same_weight_as_others() {
    let mut it = TestCollector::new(|_| {});
    (0..100).for_each(|_| it.dump(socket(1, 100_000, false)));
    it.dump(socket(1, 1, false));
    it.dump(socket(2, 900_000, false));
    it.dump(socket(3, 900_000, false));
    let rates = it.sample().other.delivery_rate;
    let median = rates.quantile(0.5).unwrap();
    assert!(rates.count() == 3 && (median / 900_000.0 - 1.0).abs() < 0.02, "{median}");
}

#[test]
fn records_over_limits_are_dropped_and_counted() {
    let mut it = TestCollector::new(|_| {});
    it.dump(socket(1, 500_000, false));
    for pop in 0..SCOPES_MAX + 5 {
        let source = Source { pop: pop.to_string(), ..source() };
        it.0.add(&source, &entry(Record::Response(Arc::new(response(1, None)))), NOW_UNIX_S);
    }
    // The PoP with the socket record counts towards the limit.
    assert_eq!(it.0.counts().over_limit, 6);
    let closed = it.close();
    assert_eq!(closed.len(), SCOPES_MAX);
}

#[test]
fn each_edge_has_its_own_figures() {
    let mut it = TestCollector::new(|settings| settings.hosts_left_alone = vec!["status.example".into()]);
    it.respond(response(1, None));
    it.respond(ResponseRecord { status: 503, delivery: None, ..response(1, None) });
    it.respond(ResponseRecord { cut: Some(Cut::ClientClosed), delivery: None, ..response(2, None) });
    it.dump(socket(2, 500_000, false));
    // Connections excluded from decisions still count for their edge.
    it.respond(ResponseRecord { host: "status.example".into(), ..response(3, None) });
    let other = Source { host: "edge-2".into(), ..source() };
    it.0.add(&other, &entry(Record::Response(Arc::new(response(1, None)))), NOW_UNIX_S);
    let (_, window) = it.close().remove(0);
    assert_eq!(window.edges.keys().collect::<Vec<_>>(), ["edge-1", "edge-2"]);
    let edge = &window.edges["edge-1"];
    assert_eq!((edge.responses, edge.failed.count, edge.failed.mean), (4, 3, 0.5));
    assert_eq!((edge.retransmitted.count, edge.retransmitted.mean), (1, 0.01));
    assert_eq!((edge.ln_goodput.count, edge.ln_goodput.mean), (2, 1e6_f64.ln()));
    assert_eq!((window.edges["edge-2"].responses, window.edges["edge-2"].failed.mean), (1, 0.0));
}

#[test]
fn edges_over_the_limit_are_not_tracked() {
    let mut it = TestCollector::new(|_| {});
    for at in 0..=EDGES_MAX {
        let source = Source { host: format!("edge-{at}"), ..source() };
        it.0.add(&source, &entry(Record::Response(Arc::new(response(1, None)))), NOW_UNIX_S);
    }
    let (_, window) = it.close().remove(0);
    assert_eq!((window.edges.len(), it.0.counts().over_limit), (EDGES_MAX, 1));
    assert_eq!(window.prefixes[0].1.connections() as usize, EDGES_MAX + 1);
}
