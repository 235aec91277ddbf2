//! Log tests without a server: record numbers and order, sampled clients, and counts when rings are
//! full.

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener};
use std::num::NonZeroU32;
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use axum::http::HeaderMap;
use http_body_util::BodyExt;
use thalweg_http::RequestHead;
use thalweg_http::head::parse_request;
use thalweg_record::{CacheResult, Cmcd, StreamType};

use super::*;
use crate::admin::record_stream;
use crate::sent::{MalformedLine, Sent};
use crate::steering::Steering;

/// The client of most responses.
const CLIENT: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 50_000));

/// A connection shared by all responses, because connections are not under test.
struct Site {
    steering: Steering,
}

impl Site {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let common = crate::steering::SharedSteering::new(0);
        let steering = Steering::begin(listener.as_fd(), None, &common);
        Self { steering }
    }

    /// Logs a response to `request`, as a worker does. A bare path means a GET without fields.
    fn respond(&self, log: &Log, request: &str) {
        self.respond_to(log, CLIENT, request);
    }

    fn respond_to(&self, log: &Log, client: SocketAddr, request: &str) {
        let mut head = RequestHead::default();
        let text = match request.starts_with('/') {
            true => format!("GET {request} HTTP/1.1\r\nHost: a\r\n\r\n"),
            false => request.to_owned(),
        };
        parse_request(text.as_bytes(), &mut head, &thalweg_http::Limits::default()).unwrap().unwrap();
        self.end(log, log.begin(0, client.ip()), client, &head, None);
    }

    fn end(
        &self,
        log: &Log,
        started: StartedResponse,
        client: SocketAddr,
        request: &RequestHead,
        malformed: Option<&MalformedLine>,
    ) {
        let sent = Sent {
            status: 200,
            cache: CacheResult::Hit,
            detail: None,
            bytes: 1,
            first_byte: Some(started.at),
            cut: None,
        };
        let entry = Entry {
            request,
            malformed,
            client,
            tcp: None,
            steering: &self.steering,
            sent: &sent,
            noted: None,
        };
        log.append(started, entry);
    }
}

/// Opens a log with the given number of workers and no file.
fn log(workers: usize) -> (Log, Vec<Ring>, LogWriter) {
    sampling_log(workers, 1)
}

/// Opens a log that records one client in `one_in`.
fn sampling_log(workers: usize, one_in: u32) -> (Log, Vec<Ring>, LogWriter) {
    let kept = RecordsKept { time: FOLLOWER_ABSENCE, bytes_max: 64 << 20 };
    let sample = ClientSample::new(NonZeroU32::new(one_in).unwrap(), "");
    open(&LogDestination::Off, State::open_or_in_memory(None).unwrap(), workers, kept, sample).unwrap()
}

fn received(follower: &mut Follower) -> Vec<NumberedRecord> {
    std::iter::from_fn(|| follower.try_recv()?.ok()).collect()
}

fn numbers(follower: &mut Follower) -> Vec<u64> {
    received(follower).iter().map(|record| record.number).collect()
}

#[test]
fn reconnecting_follower_gets_each_record_once() {
    let (site, (log, mut rings, mut writer)) = (Site::new(), log(1));
    let entered = rings.remove(0).enter();
    let records = log.records().clone();
    let step = |writer: &mut LogWriter, count: usize| {
        for _ in 0..count {
            site.respond(&log, "/");
        }
        writer.round();
    };
    step(&mut writer, 3); // no follower yet
    let mut first = records.follow_from(0);
    step(&mut writer, 2);
    assert_eq!(numbers(&mut first), [0, 1, 2, 3, 4]);
    drop(first);
    step(&mut writer, 2);
    let (mut second, mut other) = (records.follow_from(5), records.follow());
    step(&mut writer, 1);
    assert_eq!((numbers(&mut second), numbers(&mut other)), (vec![5, 6, 7], vec![7]));

    // Records are still created during a short absence of followers. During a long one, no records
    // are created, but numbers are still assigned.
    drop((second, other));
    step(&mut writer, 1);
    records.shared.recent().left -= FOLLOWER_ABSENCE;
    step(&mut writer, 1);
    step(&mut writer, 5);
    let mut third = records.follow_from(8);
    step(&mut writer, 1);
    assert_eq!(numbers(&mut third), [15], "8 and 9 were created and dropped, 10 to 14 were never created");
    let _cut_off = log.begin(0, CLIENT.ip());
    drop((entered, log));
    writer.run();
    assert_eq!((records.started(), records.total(), records.lost()), (17, 17, 1));
    assert_eq!(third.try_recv().unwrap().unwrap_err(), FollowError::Closed);
}

#[test]
fn responses_are_numbered_in_end_order_across_workers() {
    const TURNS: usize = 50;
    let (site, (log, rings, mut writer)) = (Site::new(), log(2));
    let mut early = log.records().follow();
    let turn = std::sync::Barrier::new(2);
    thread::scope(|scope| {
        for (worker, ring) in rings.into_iter().enumerate() {
            let (site, log, turn) = (&site, &log, &turn);
            scope.spawn(move || {
                let _entered = ring.enter();
                for at in 0..TURNS {
                    if at % 2 == worker {
                        site.respond(log, &format!("/{at}"));
                    }
                    turn.wait();
                }
            });
        }
    });
    // A follower that connects now gets none of these records, even though the writer has not
    // processed them yet.
    let mut late = log.records().follow();
    writer.round();
    let paths: Vec<_> = received(&mut early).iter().map(|record| record.path.clone()).collect();
    assert_eq!(paths, (0..TURNS).map(|at| format!("/{at}")).collect::<Vec<_>>());
    assert!(received(&mut late).is_empty());
}

/// Responses to clients outside the sample are counted, but take no number, so a follower misses
/// none.
#[test]
fn only_sampled_clients_have_records() {
    const CLIENTS: u8 = 100;
    const TURNS: u64 = 3;
    let (site, (log, mut rings, mut writer)) = (Site::new(), sampling_log(1, 4));
    let entered = rings.remove(0).enter();
    let records = log.records().clone();
    let mut follower = records.follow();
    let client = |host: u8| SocketAddr::from(([198, 51, 100, host], 50_000));
    for _ in 0..TURNS {
        (0..CLIENTS).for_each(|host| site.respond_to(&log, client(host), "/"));
    }
    writer.round();
    let all = received(&mut follower);
    let sampled: HashSet<_> = all.iter().map(|record| record.client).collect();
    assert!((5..50).contains(&sampled.len()), "{}", sampled.len());
    assert!((0..CLIENTS).all(|host| log.samples(client(host).ip()) == sampled.contains(&client(host))));
    let kept = all.len() as u64;
    assert_eq!(kept, TURNS * sampled.len() as u64, "a client is recorded completely or not at all");
    assert!(all.iter().map(|record| record.number).eq(0..kept));
    assert!(all.iter().all(|record| record.sample_one_in == NonZeroU32::new(4)));
    let all_started = TURNS * u64::from(CLIENTS);
    assert_eq!((records.started(), records.sampled_out()), (all_started, all_started - kept));
    assert_eq!(records.ended().map(|(.., count)| count).sum::<u64>(), all_started);

    // Of the responses that never end, only those that would have had a record are lost.
    let in_sample = (0..CLIENTS).map(client).find(|client| sampled.contains(client)).unwrap();
    let outside = (0..CLIENTS).map(client).find(|client| !sampled.contains(client)).unwrap();
    let _never_end = [in_sample, outside].map(|client| log.begin(0, client.ip()));
    drop((entered, log));
    writer.run();
    assert_eq!((records.total(), records.lost()), (kept + 1, 1));
    assert_eq!(records.started(), kept + records.lost() + records.sampled_out());
}

/// Another worker may still append a response that ended earlier.
#[test]
fn response_ending_during_a_round_waits_for_the_next() {
    let (site, (log, mut rings, writer)) = (Site::new(), log(2));
    let entered = rings.remove(1).enter();
    let before = Instant::now();
    site.respond(&log, "/");
    assert_eq!((writer.oldest_by(before), writer.oldest_by(Instant::now())), (None, Some(1)));
    drop(entered);
}

#[test]
fn records_dropped_from_full_ring_are_counted() {
    const OVER: usize = 10;
    for query_bytes in [0, 4_000] {
        let (site, (log, mut rings, mut writer)) = (Site::new(), log(1));
        let entered = rings.remove(0).enter();
        let mut follower = log.records().follow();
        let path = format!("/{}", "q".repeat(query_bytes));
        let mut started = 0;
        while log.records().lost() < OVER as u64 {
            site.respond(&log, &path);
            started += 1;
            assert!(started <= (ring::ENTRIES_MAX + OVER) as u64, "lost records are not counted");
        }
        let kept = started - OVER as u64;
        assert!(kept <= ring::ENTRIES_MAX as u64 && (query_bytes > 0 || kept == ring::ENTRIES_MAX as u64));
        writer.round();
        let all = received(&mut follower);
        assert_eq!((all.len() as u64, all.iter().all(|record| record.path == path)), (kept, true));
        assert_eq!(all[0].number, OVER as u64, "numbers are in order; which record was lost is unknown");

        // The ring has room again.
        site.respond(&log, "/again");
        writer.round();
        assert_eq!(received(&mut follower)[0].path, "/again");
        let records = log.records().clone();
        drop((entered, log));
        writer.run();
        assert_eq!((records.total(), records.lost()), (started + 1, OVER as u64));
    }
}

#[tokio::test]
async fn lagging_follower_learns_how_many_it_missed() {
    const KEPT: usize = 10_000;
    const OVER: usize = 3;
    const RECORDS: usize = KEPT + OVER;
    let (site, (log, mut rings, mut writer)) = (Site::new(), log(1));
    let entered = rings.remove(0).enter();
    let records = log.records().clone();
    let mut follower = records.follow();
    let mut stream = record_stream(&records, &HeaderMap::new()).into_body();
    for made in 1..=RECORDS {
        site.respond(&log, "/");
        if made == 1 {
            writer.round();
            let mut recent = records.shared.recent();
            recent.limits.bytes_max = KEPT * recent.bytes();
        }
        if made % ring::ENTRIES_MAX == 0 || made == RECORDS {
            writer.round();
        }
    }
    assert_eq!(records.lost(), 0, "all records were created");
    assert_eq!(follower.recv().await.unwrap_err(), FollowError::Lagged(OVER as u64));
    assert_eq!(follower.recv().await.unwrap().number, OVER as u64);

    let mut event = async || {
        let data = stream.frame().await.unwrap().unwrap().into_data().unwrap();
        String::from_utf8(data.to_vec()).unwrap()
    };
    assert_eq!(event().await, format!("event: lost\ndata: {OVER}\n\n"));
    let next = event().await;
    assert!(next.starts_with(&format!("id: {}-{OVER}\n", records.epoch())), "{next}");
    drop(entered);
}

#[test]
fn pending_entries_are_written_when_last_worker_ends() {
    const RECORDS: usize = 5_000;
    let (site, (log, mut rings, writer)) = (Site::new(), log(1));
    let entered = rings.remove(0).enter();
    let records = log.records().clone();
    let mut follower = records.follow();
    for _ in 0..RECORDS {
        site.respond(&log, "/");
    }
    drop((entered, log));
    writer.run();
    assert_eq!(numbers(&mut follower), (0..RECORDS as u64).collect::<Vec<_>>());
    assert_eq!((records.total(), records.lost()), (RECORDS as u64, 0));
}

#[test]
fn records_match_the_request() {
    let (site, (log, mut rings, mut writer)) = (Site::new(), log(1));
    let entered = rings.remove(0).enter();
    let mut follower = log.records().follow();
    let mut one = || {
        writer.round();
        let mut all = received(&mut follower);
        assert_eq!(all.len(), 1);
        Arc::unwrap_or_clone(all.remove(0).record)
    };

    let before = unix_us();
    site.respond(&log, "PROPFIND /b?a=1&CMCD=bl%3D2100%2Cst%3Dl HTTP/1.0\r\nHost: b:81\r\ncmcd-status: bs\r\nCMCD-Request: bl=2200\r\n\r\n");
    let record = one();
    let text = (&*record.method, &*record.host, &*record.path, record.protocol.as_str());
    assert_eq!(text, ("PROPFIND", "b:81", "/b?a=1&CMCD=bl%3D2100%2Cst%3Dl", "HTTP/1.0"));
    let expected = Cmcd { st: Some(StreamType::Live), bl_ms: Some(2200), bs: true, ..Cmcd::default() };
    assert_eq!(record.cmcd, Some(expected));
    assert_eq!((record.status, record.bytes, record.ttfb_us), (200, 1, Some(0)));
    assert!((before..=unix_us()).contains(&(record.time_unix_us + record.written_us)));

    site.respond(&log, "/a?cmcd=1");
    let record = one();
    assert_eq!((&*record.method, &*record.path, record.cmcd), ("GET", "/a?cmcd=1", None));

    let line = MalformedLine { method: "GE(T".into(), target: "/no".into() };
    site.end(&log, log.begin(0, CLIENT.ip()), CLIENT, &RequestHead::default(), Some(&line));
    let record = one();
    assert_eq!((&*record.method, &*record.host, &*record.path), ("GE(T", "", "/no"));
    drop(entered);
}

fn unix_us() -> u64 {
    let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    u64::try_from(since_epoch.as_micros()).unwrap()
}

/// Workers write at random moments, including just as the writer goes to sleep. A missed wake-up
/// would delay a record forever.
#[test]
fn sleeping_writer_is_woken() {
    const RECORDS: u64 = 2_000;
    let (site, (log, mut rings, writer)) = (Site::new(), log(1));
    let records = log.records().clone();
    let mut follower = records.follow();
    let writer = thread::spawn(|| writer.run_with(Duration::ZERO, 1));
    let entered = rings.remove(0).enter();
    let mut seen = HashSet::new();
    for number in 0..RECORDS {
        site.respond(&log, "/");
        // Do not respond again before the record arrives, because another response would also wake
        // the writer.
        while number % 2 == 0 && !seen.contains(&number) {
            seen.extend(numbers(&mut follower));
        }
    }
    drop(entered);
    writer.join().unwrap();
    seen.extend(numbers(&mut follower));
    assert_eq!((seen.len() as u64, records.lost()), (RECORDS, 0));
}
