//! Tests of a real server with hostile clients: limits bound each attack, no attack steers or
//! blocks anything, and a real edge is served meanwhile.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use serde_json::Value;
use thalweg_bundle::Share;
use thalweg_control::{Measure, Settings};
use thalweg_record::{Decider, Delivery, Record, ResponseRecord, TcpState};

use crate::running::{
    PATIENCE, Place, Poller, RECORDS, Service, batch, batch_of, now, request, socket, until,
};

const EDGE_KEYS: &str = "role = 'edge'\npop = 'here'\nname = 'edge-1'";
const AGENT_KEYS: &str = "role = 'agent'\npop = 'here'\nname = 'edge-1'";
const OPERATOR_KEYS: &str = "role = 'operator'\nname = 'anna'";
const BUNDLE: &str = "/bundle?pop=here&edge=edge-1";
/// Time within which a real edge must be served.
const SERVED: Duration = Duration::from_secs(5);

/// Number of networks with traffic: enough for a ranking.
const NETWORKS: u64 = 40;
/// Number of networks that must be steered despite the attack.
const STEERED_MIN: u64 = 20;

fn trying_everything() -> Settings {
    Settings {
        window_s: 1,
        late_s: 1,
        measure: Measure::Goodput,
        min_rtt_us_min: 0,
        connections_min: 1,
        observed_windows_min: 1,
        history_windows: 8,
        exploring_max: 100,
        evidence_connections_min: 1_000_000,
        trial_windows_max: 100_000,
        effect_min: 0.0,
        guardrail_pause_windows: 1,
        holdout_trial: Share::from_millionths(500_000).unwrap(),
        ..Settings::default()
    }
}

/// Returns a time for all records of one batch that is in the past, even if the clocks differ.
fn batch_unix_us() -> u64 {
    u64::try_from(now().as_micros()).unwrap() - 1_000_000
}

fn response(time_unix_us: u64, network: u64, port: u64, host: &str) -> Record {
    let client: SocketAddr = format!("198.51.{network}.7:{}", 1024 + port % 60_000).parse().unwrap();
    Record::Response(Arc::new(ResponseRecord {
        host: host.into(),
        bytes: 1_000_000,
        written_us: 1_000_000,
        tcp: Some(TcpState {
            congestion_control: "cubic".into(),
            decider: Some(Decider::Default),
            rtt_us: 50_000,
            min_rtt_us: Some(40_000),
            ..TcpState::default()
        }),
        delivery: Some(Delivery::complete(1_000_000, 1_000_000)),
        ..ResponseRecord::new(time_unix_us, client)
    }))
}

/// Ends the other threads of a test, even if the test fails.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Reads all events of the PoP, including events older than the newest 100, which are all that the
/// controller reports.
struct Events {
    database: Connection,
    last: i64,
    all: Vec<String>,
}

impl Events {
    fn new(place: &Place) -> Self {
        Self { database: place.database(), last: 0, all: Vec::new() }
    }

    /// Reads the events since the last call. Fails if the controller has deleted an event in
    /// between.
    fn read(&mut self) {
        let query = "SELECT id, told FROM events WHERE pop = 'here' AND id > ?1 ORDER BY id";
        let mut statement = self.database.prepare_cached(query).unwrap();
        let rows = statement.query_map([self.last], |row| Ok((row.get::<_, i64>(0)?, row.get(1)?)));
        for row in rows.unwrap() {
            let (id, text) = row.unwrap();
            assert_eq!(id, self.last + 1, "events were deleted before they were read");
            self.last = id;
            self.all.push(text);
        }
    }
}

fn edges(service: &Service) -> Value {
    service.get("/edges?pop=here", "").json()
}

#[test]
fn fake_edges_that_refuse_everything_stop_nothing() {
    let mut place = Place::new();
    place.settings = trying_everything();
    let service = place.start();
    let (address, mut events) = (service.address, Events::new(&place));
    let (is_over, is_serving) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let _end = SetOnDrop(&is_over);
        // Twelve fake edges refuse every bundle, and another one reports absurd bundle numbers.
        scope.spawn(|| {
            let mut fakes: Vec<_> = (0..12).map(|at| Poller::new("here", &format!("fake-{at}"))).collect();
            let mut liar = Poller::new("here", "liar");
            while !is_over.load(Relaxed) {
                fakes.iter_mut().for_each(|fake| drop(fake.poll(address, true)));
                thread::sleep(Duration::from_millis(50));
                if !is_serving.load(Relaxed) {
                    continue; // until an edge has traffic, any number is believed
                }
                (liar.in_force, liar.number) = ("\"sha256:00\"".into(), liar.number + (1 << 40));
                liar.poll(address, false);
            }
        });
        let mut edge = Poller::new("here", "edge-1");
        let mut posted = 0;
        let begun = Instant::now();
        loop {
            // If a batch's records were split between two windows, some networks would have too few
            // connections to be ranked.
            let time_unix_us = batch_unix_us();
            let record = |at| response(time_unix_us, at % NETWORKS, posted + at, "media.example");
            let records = (0..NETWORKS * 2).map(record);
            let content = batch_of("here", "edge-1", posted, records.collect());
            posted += NETWORKS * 2;
            let reply = request(address, "POST /records", RECORDS, &content);
            assert!(reply.status == 200 && reply.json()["dropped"].is_null(), "{}", reply.content);
            let reply = edge.poll(address, false);
            assert!(matches!(reply.status, 200 | 204 | 304), "{}", reply.content);
            events.read();
            let stable = edges(&service)["stable"].as_u64();
            is_serving.store(service.rounds().len() > 3, Relaxed);
            let rules = service.get("/scopes", "").json()["scopes"][0]["steered"].as_u64();
            // Wait until the real edge uses a bundle that is intended for all edges and steers the
            // networks. The first two bundles do not.
            let is_refused = events.all.iter().any(|event| event.contains("refuse"));
            if is_refused && rules >= Some(STEERED_MIN) && stable > Some(2) && stable == Some(edge.number) {
                break;
            }
            let prefixes = || service.get("/prefixes?pop=here", "").content;
            let metrics = || service.get("/rounds?pop=here&limit=3", "").content;
            assert!(begun.elapsed() < PATIENCE, "{} {} {}", edges(&service), prefixes(), metrics());
            thread::sleep(Duration::from_millis(150));
        }
    });
    // On a busy machine, the real edge may miss a window, which rolls a bundle back. Refusals must
    // not.
    events.read();
    let refusals = events.all.iter().filter(|event| event.contains("refuse"));
    assert!(refusals.clone().count() > 0, "the fake edges have refused bundles: {:?}", events.all);
    // Until the traffic of an edge is known, all edges have a vote, and may roll back the first
    // bundle with rules.
    let is_first = |event: &str| event.starts_with("bundle 3 rolled back");
    let rolled_back: Vec<_> =
        refusals.filter(|event| event.contains("rolled back") && !is_first(event)).collect();
    assert!(rolled_back.is_empty(), "{rolled_back:?} {:?}", events.all);
    service.end();
}

#[test]
fn fake_pops_do_not_displace_a_real_one_and_make_room_for_a_new_one() {
    let place = Place::new();
    let mut service = place.start();
    service.post_record();
    until("a window is decided", || !service.rounds().is_empty());
    let post = |pop: &str, number: u64| {
        let content = batch_of(pop, "edge-1", number, vec![socket("192.0.2.7:1024")]);
        request(service.address, "POST /records", RECORDS, &content).status
    };
    let mut real = 100;
    for at in 0..1_100 {
        assert_eq!(post(&format!("fake-{at}"), 0), 200);
        if at % 50 == 0 {
            real += 1;
            assert_eq!(post("here", real), 200);
            assert_eq!(service.get(BUNDLE, "Prefer: wait=0\r\n").status, 200);
        }
    }
    let (known, begun) = (service.rounds().len(), Instant::now());
    until("the real PoP is decided again", || {
        real += 1;
        post("here", real);
        service.rounds().len() > known
    });
    let mut new = 0;
    until("a new PoP is decided", || {
        new += 1;
        post("new", new);
        service.get("/bundle?pop=new&edge=edge-9", "").status == 200
    });
    assert!(begun.elapsed() < PATIENCE);
    assert!(service.metric("pops_evicted_total") >= 1);
    assert!(service.get("/scopes", "").json()["scopes"].as_array().unwrap().len() <= 1_000);
    assert_eq!(service.get(BUNDLE, "").status, 200);
    service.end();
}

#[test]
fn token_guesses_are_refused_while_a_real_edge_is_served() {
    let place = Place::new();
    let (edge, operator) = (place.add_identity(EDGE_KEYS), place.add_identity(OPERATOR_KEYS));
    let service = place.start();
    let long = "a".repeat(8_000);
    for at in 0..500 {
        let guess = match at % 4 {
            0 => format!("Authorization: Bearer thalweg_{at:064x}\r\n"),
            1 => format!("Authorization: Bearer {long}\r\n"),
            2 => format!("{}{edge}", edge.replace("Bearer thalweg", "Bearer")),
            _ => edge.to_lowercase().replace("bearer ", "Basic "),
        };
        assert_eq!(service.get(BUNDLE, &guess).status, 401, "{guess}");
        if at % 50 == 0 {
            let begun = Instant::now();
            assert_eq!(service.get(BUNDLE, &edge).status, 204);
            assert!(begun.elapsed() < SERVED);
        }
    }
    assert_eq!(service.metric_as("unauthorized_total", &operator), 500);
    service.end();
}

#[test]
fn flood_by_one_identity_is_throttled_and_others_are_served() {
    let place = Place::new();
    let one = place.add_identity(EDGE_KEYS);
    let other = place.add_identity("role = 'edge'\npop = 'here'\nname = 'edge-2'");
    let operator = place.add_identity(OPERATOR_KEYS);
    let service = place.start();
    let mut throttled = None;
    for _ in 0..2_000 {
        let reply = service.get(BUNDLE, &one);
        if reply.status == 429 {
            throttled = Some(reply);
            break;
        }
    }
    let throttled = throttled.expect("429 within 2,000 requests");
    assert!(throttled.head.contains("retry-after: 1"), "{}", throttled.head);
    assert_eq!(throttled.json()["error"], "more than 20 requests per second");
    assert_eq!(service.get("/bundle?pop=here&edge=edge-2", &other).status, 204);
    assert!(service.metric_as("throttled_total", &operator) >= 1);
    thread::sleep(Duration::from_millis(1_500));
    assert_eq!(service.get(BUNDLE, &one).status, 204, "its credit refills");
    // The number of waiting requests from one edge is limited, too.
    let polls = service.metric_as("polls_total", &operator);
    let waiting: Vec<_> = (0..4)
        .map(|_| {
            let (address, fields) = (service.address, format!("{one}Prefer: wait=8\r\n"));
            thread::spawn(move || request(address, &format!("GET {BUNDLE}"), &fields, &[]).status)
        })
        .collect();
    until("four requests are waiting", || service.metric_as("polls_total", &operator) == polls + 4);
    let fifth = service.get(BUNDLE, &one);
    assert_eq!(
        (fifth.status, &fifth.json()["error"]),
        (429, &"more than 4 requests at the same time".into())
    );
    assert_eq!(service.get("/bundle?pop=here&edge=edge-2", &other).status, 204);
    waiting.into_iter().for_each(|it| assert_eq!(it.join().unwrap(), 204));
    assert_eq!(service.get(BUNDLE, &one).status, 204, "the four have been answered");
    service.end();
}

#[test]
fn records_and_networks_of_an_agent_are_limited() {
    let mut place = Place::new();
    (place.limits.records_per_s_max, place.limits.prefixes_max) = (10, 20);
    place.settings.window_s = 3_600;
    let agent = place.add_identity(AGENT_KEYS);
    let other = place.add_identity("role = 'agent'\npop = 'here'\nname = 'edge-2'");
    let operator = place.add_identity(OPERATOR_KEYS);
    let service = place.start();
    let clients = (0..200).map(|at| socket(&format!("198.51.{at}.1:1024"))).collect();
    let fields = format!("{RECORDS}{agent}");
    let post = |fields: &str, content: &[u8]| request(service.address, "POST /records", fields, content);
    let reply = post(&fields, &batch_of("here", "edge-1", 0, clients)).json();
    assert_eq!((&reply["position"], &reply["dropped"]), (&200.into(), &180.into()), "{reply}");
    assert_eq!(reply["reason"], "180 beyond the agent's limit on connections or networks");
    // Known networks are still accepted, until the credit for records is used up.
    let known = (0..600).map(|_| socket("198.51.7.1:1024")).collect();
    let reply = post(&fields, &batch_of("here", "edge-1", 200, known));
    assert_eq!((reply.status, &reply.json()["dropped"]), (200, &Value::Null));
    let reply = post(&fields, &batch(800));
    assert_eq!(reply.status, 429);
    let retry_after = reply.head.lines().find_map(|line| line.strip_prefix("retry-after: ")).unwrap();
    assert!((1..=30).contains(&retry_after.parse::<u64>().unwrap()), "{retry_after}");
    let content = batch_of("here", "edge-2", 0, vec![socket("192.0.2.7:1024")]);
    assert_eq!(post(&format!("{RECORDS}{other}"), &content).status, 200);
    let metric = |name: &str| service.metric_as(name, &operator);
    assert_eq!((metric("records_over_limit_total"), metric("records_total")), (180, 621));
    service.end();
}

#[test]
fn oversized_and_slow_batches_are_cut_off() {
    let place = Place::new();
    let mut service = place.start();
    let oversized = vec![0; 34 << 20];
    let reply = request(service.address, "POST /records", RECORDS, &oversized[..]);
    assert_eq!(reply.status, 413, "{}", reply.content);
    // More slow senders than batches are received at the same time.
    let mut slow: Vec<_> = (0..12)
        .map(|_| {
            let mut stream = TcpStream::connect(service.address).unwrap();
            let head = format!(
                "POST /records HTTP/1.1\r\nHost: localhost\r\n{RECORDS}Content-Length: 100000\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).unwrap();
            stream
        })
        .collect();
    let begun = Instant::now();
    assert_eq!(service.get(BUNDLE, "Prefer: wait=0\r\n").status, 204);
    assert!(begun.elapsed() < SERVED);
    service.post_record();
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    for stream in &mut slow {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        assert_eq!(&status, b"HTTP/1.1 408");
    }
    service.end();
}

#[test]
fn control_characters_are_refused_in_every_name() {
    let place = Place::new();
    let mut service = place.start();
    for target in [
        "/bundle?pop=a%0Ab&edge=edge-1",
        "/bundle?pop=here&edge=a%1Bb",
        "/bundle?pop=here&edge=a%00",
        "/position?pop=here&host=a%0Db&epoch=1",
        "/rounds?pop=here&tenant=a%0Ab",
        "/prefixes?pop=here&tenant=a%7Fb",
        "/explain?pop=here&tenant=a%C2%85b&prefix=192.0.2.0",
        "/edges?pop=%1B%5B2J",
    ] {
        assert_eq!(service.get(target, "").status, 400, "{target}");
    }
    let long = "a".repeat(254);
    for (pop, host) in
        [("a\nb", "edge-1"), ("here", "a\x1b[2J"), ("here", ""), ("here", &long), (&long, "edge-1")]
    {
        let content = batch_of(pop, host, 0, vec![socket("192.0.2.7:1024")]);
        let reply = request(service.address, "POST /records", RECORDS, &content);
        assert_eq!(reply.status, 400, "{pop:?} {host:?}");
    }
    // A host name in a record comes from a client, so the rest of the batch is accepted.
    let time_unix_us = batch_unix_us();
    let hosts = ["media.example", "a\nb.example", "\x1b]0;x", &long];
    let records = hosts.map(|host| response(time_unix_us, 1, 1, host));
    let reply =
        request(service.address, "POST /records", RECORDS, &batch_of("here", "edge-2", 0, records.into()));
    assert_eq!(reply.json()["reason"], "3 with an invalid host name");
    assert_eq!((service.metric("records_total"), service.metric("records_invalid_total")), (1, 3));
    service.post_record();
    service.end();
}

#[test]
fn replayed_batches_count_once() {
    let place = Place::new();
    let agent = format!("{RECORDS}{}", place.add_identity(AGENT_KEYS));
    let operator = place.add_identity(OPERATOR_KEYS);
    let service = place.start();
    let content = batch(0);
    for _ in 0..100 {
        let reply = request(service.address, "POST /records", &agent, &content);
        assert_eq!((reply.status, &reply.json()["position"]), (200, &1.into()));
    }
    let metric = |name: &str| service.metric_as(name, &operator);
    assert_eq!((metric("records_total"), metric("records_repeated_total")), (1, 99));
    service.end();
}
