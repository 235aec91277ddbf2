//! Tracker tests: differences, first and last records, sampling, and dropped sockets.

use std::time::Duration;

use proptest::prelude::*;
use thalweg_tcp::diag::State;

use super::*;

const ALL: NonZeroU32 = NonZeroU32::MIN;

/// Builds a socket as reported by the kernel: `inet_diag_msg` with the `tcp_info` of Linux 6.2.
fn socket(cookie: u64, bytes_acked: u64, retransmits: u32) -> Socket {
    let mut info = [0_u8; 240];
    info[100..104].copy_from_slice(&retransmits.to_ne_bytes());
    info[120..128].copy_from_slice(&bytes_acked.to_ne_bytes());
    let mut message = vec![0_u8; 72];
    (message[0], message[1]) = (2, 1);
    message[4..8].copy_from_slice(&[0x1f, 0x90, 0xc3, 0x50]); // ports 8080 and 50000
    message[8..12].copy_from_slice(&[127, 0, 0, 1]);
    message[24..28].copy_from_slice(&[203, 0, 113, 7]);
    message[44..52].copy_from_slice(&cookie.to_le_bytes());
    message.extend_from_slice(&244_u16.to_ne_bytes());
    message.extend_from_slice(&2_u16.to_ne_bytes());
    message.extend_from_slice(&info);
    Socket::decode(&message).unwrap()
}

struct Clock(Instant);

impl Clock {
    fn at(&self, ms: u64) -> Moment {
        Moment { unix_us: clock_unix_us(ms), instant: self.0 + Duration::from_millis(ms) }
    }
}

fn clock_unix_us(ms: u64) -> u64 {
    1_000_000 + ms * 1000
}

fn clock() -> Clock {
    Clock(Instant::now())
}

/// Creates a tracker that has completed a first, empty dump.
fn after_first_dump() -> Tracker {
    let mut tracker = Tracker::new(None, ALL);
    tracker.end_dump();
    tracker
}

fn acked(record: &SocketRecord) -> Option<u64> {
    record.counters.as_ref().map(|counters| counters.bytes_acked)
}

/// Returns the delivery rate in a record, and whether it was limited by the application.
fn rate(record: &SocketRecord) -> (Option<u64>, bool) {
    let gauges = record.gauges.as_ref().unwrap();
    (gauges.delivery_rate_bytes_per_s, gauges.delivery_rate_app_limited)
}

/// Sets a socket's state and delivery rate. Its RTT is 20 ms and its MSS 1448 bytes, so a FIN
/// sent alone is delivered at up to 72,400 bytes per second.
fn with_rate(mut socket: Socket, state: State, rate_bytes_per_s: u64, fin_bytes: u64) -> Socket {
    socket.state = state;
    let info = socket.tcp_info.as_mut().unwrap();
    (info.min_rtt_us, info.snd_mss_bytes) = (Some(20_000), 1448);
    info.delivery_rate_bytes_per_s = Some(rate_bytes_per_s);
    info.bytes_sent = info.bytes_acked;
    info.bytes_acked = info.bytes_acked.map(|acked| acked + fin_bytes);
    socket
}

#[test]
fn delivery_rate_of_a_lone_fin_is_replaced_by_the_one_before() {
    let clock = clock();
    let end = |state, rate_bytes_per_s, fin_bytes| {
        let mut tracker = after_first_dump();
        let open = with_rate(socket(7, 9_000, 0), State::Established, 50_000, 0);
        assert_eq!(rate(&tracker.dumped(&open, clock.at(0)).unwrap()), (Some(50_000), false));
        let ended = tracker
            .destroyed(&with_rate(socket(7, 9_000, 0), state, rate_bytes_per_s, fin_bytes), clock.at(9));
        let Ended { record, has_latest_rate } = ended.unwrap();
        (rate(&record).0, has_latest_rate)
    };
    assert_eq!(end(State::Close, 72_000, 1), (Some(50_000), false), "the sample of the FIN");
    assert_eq!(end(State::Close, 500_000, 1), (Some(500_000), true), "the FIN directly behind content");
    assert_eq!(end(State::Close, 40_000, 0), (Some(40_000), true), "no FIN: the client reset the connection");
    assert_eq!(end(State::Close, 0, 0), (Some(50_000), false), "no sample");

    let mut unknown = after_first_dump();
    let closing = with_rate(socket(8, 9_000, 0), State::FinWait2, 72_000, 1);
    assert_eq!(rate(&unknown.dumped(&closing, clock.at(0)).unwrap()), (None, false));
    assert_eq!(rate(&unknown.destroyed(&closing, clock.at(1)).unwrap().record).0, None);
}

#[test]
fn acked_goodput_is_of_busy_time_without_the_window_and_a_lone_fin() {
    let busy = |mut socket: Socket, busy_us: u64, rwnd_limited_us: u64| {
        let info = socket.tcp_info.as_mut().unwrap();
        (info.busy_time_us, info.rwnd_limited_us) = (Some(busy_us), Some(rwnd_limited_us));
        socket
    };
    let (clock, mut tracker) = (clock(), after_first_dump());
    let open = |acked| with_rate(socket(7, acked, 0), State::Established, 50_000, 0);
    let mut dump = |socket: &Socket| tracker.dumped(socket, clock.at(0)).unwrap().acked_goodput_bytes_per_s;
    assert_eq!(dump(&busy(open(100_000), 250_000, 50_000)), Some(500_000));
    assert_eq!(dump(&busy(open(300_000), 550_000, 250_000)), Some(2_000_000), "of the interval alone");
    assert_eq!(dump(&busy(open(330_000), 580_000, 250_000)), None, "too short for the kernel's clock");
    let closed = with_rate(socket(7, 359_999, 0), State::Close, 72_400, 1);
    let last = tracker.destroyed(&busy(closed, 680_000, 250_000), clock.at(0)).unwrap().record;
    assert_eq!(last.acked_goodput_bytes_per_s, Some(30_000 * 1000 / 80), "without 20 ms of the FIN");
    let first = Tracker::new(None, ALL).dumped(&busy(open(100_000), 250_000, 0), clock.at(0)).unwrap();
    assert_eq!(first.acked_goodput_bytes_per_s, None, "older than the agent");
}

#[test]
fn records_contain_the_difference_from_the_previous_record() {
    let (clock, mut tracker) = (clock(), after_first_dump());
    let first = tracker.dumped(&socket(7, 1000, u32::MAX), clock.at(0)).unwrap();
    assert_eq!((acked(&first), first.interval_us, first.cause), (Some(1000), None, Cause::Dump));
    assert_eq!(first.client, "203.0.113.7:50000".parse().unwrap());
    assert_eq!(first.local, "127.0.0.1:8080".parse().unwrap());
    tracker.end_dump();
    let second = tracker.dumped(&socket(7, 1500, 1), clock.at(10_000)).unwrap();
    assert_eq!((acked(&second), second.interval_us), (Some(500), Some(10_000_000)));
    assert_eq!(second.counters.unwrap().retransmits, 2, "a wrapped kernel counter must be handled");
    let last = tracker.destroyed(&socket(7, 1800, 1), clock.at(12_000)).unwrap().record;
    assert_eq!((acked(&last), last.interval_us, last.cause), (Some(300), Some(2_000_000), Cause::Destroy));
}

#[test]
fn connection_shorter_than_a_period_is_recorded_when_destroyed() {
    let (clock, mut tracker) = (clock(), after_first_dump());
    let only = tracker.destroyed(&socket(9, 4000, 0), clock.at(0)).unwrap().record;
    assert_eq!((acked(&only), only.interval_us), (Some(4000), None));
    let mut never = socket(10, 0, 0);
    never.remote.set_port(0);
    assert!(tracker.destroyed(&never, clock.at(0)).is_none());
}

#[test]
fn counts_from_before_the_first_dump_are_dropped() {
    let (clock, mut tracker) = (clock(), Tracker::new(None, ALL));
    let first = tracker.dumped(&socket(7, 1000, 0), clock.at(0)).unwrap();
    assert_eq!(acked(&first), None);
    assert!(first.gauges.is_some());
    tracker.end_dump();
    assert_eq!(acked(&tracker.dumped(&socket(7, 1100, 0), clock.at(10)).unwrap()), Some(100));
}

#[test]
fn socket_missing_from_a_dump_is_not_treated_as_new() {
    let (clock, mut tracker) = (clock(), after_first_dump());
    tracker.dumped(&socket(7, 1000, 0), clock.at(0)).unwrap();
    for _ in 0..=MISSED_DUMPS_MAX {
        tracker.end_dump();
    }
    assert_eq!(acked(&tracker.dumped(&socket(7, 1100, 0), clock.at(10)).unwrap()), Some(100));
    for _ in 0..10 * MISSED_DUMPS_MAX {
        tracker.end_dump();
    }
    let last = tracker.destroyed(&socket(7, 1150, 0), clock.at(20)).unwrap().record;
    assert_eq!(acked(&last), Some(50), "the socket must still be tracked");
}

#[test]
fn restored_tracker_records_differences_and_counts_missed_closes() {
    let (clock, known) = (clock(), |acked| {
        let totals = Counters { bytes_acked: acked, ..Counters::default() };
        SavedSocket { unix_us: clock_unix_us(0), totals }
    });
    let known = HashMap::from([(7, known(1000)), (8, known(5))]);
    let mut tracker = Tracker::resumed(None, ALL, known, clock.at(40));
    let first = tracker.dumped(&socket(7, 1100, 0), clock.at(50)).unwrap();
    assert_eq!((acked(&first), first.interval_us), (Some(100), Some(50_000)));
    let new = tracker.dumped(&socket(9, 30, 0), clock.at(50)).unwrap();
    assert_eq!((acked(&new), new.interval_us), (Some(30), None), "socket opened while no agent was running");
    for _ in 0..=MISSED_DUMPS_MAX {
        assert_eq!(tracker.take_untracked(), 0);
        tracker.end_dump();
    }
    assert_eq!(tracker.take_untracked(), 1, "socket 8 has closed");
    for _ in 0..=MISSED_DUMPS_MAX {
        tracker.end_dump();
    }
    assert_eq!(tracker.take_untracked(), 0);
}

#[test]
fn socket_with_possibly_missed_close_is_dropped() {
    let (clock, mut tracker) = (clock(), after_first_dump());
    tracker.dumped(&socket(7, 1000, 0), clock.at(0)).unwrap();
    tracker.end_dump();
    tracker.note_lost_events();
    tracker.dumped(&socket(8, 1000, 0), clock.at(0)).unwrap();
    for _ in 0..=MISSED_DUMPS_MAX + 1 {
        tracker.end_dump();
    }
    assert_eq!(tracker.sockets.keys().collect::<Vec<_>>(), [&8], "only socket 8 was seen after the loss");
}

#[test]
fn placeholder_of_a_closed_socket_yields_no_record() {
    let (clock, mut tracker) = (clock(), after_first_dump());
    tracker.dumped(&socket(7, 1000, 0), clock.at(0)).unwrap();
    let shadow = Socket { tcp_info: None, ..socket(7, 0, 0) };
    assert_eq!(tracker.dumped(&shadow, clock.at(1)), None);
    let last = tracker.destroyed(&socket(7, 1200, 0), clock.at(2)).unwrap().record;
    assert_eq!(acked(&last), Some(200));
    assert_eq!(tracker.dumped(&shadow, clock.at(3)), None);
}

#[test]
fn reconnected_socket_counts_from_zero() {
    let (clock, mut tracker) = (clock(), after_first_dump());
    tracker.dumped(&socket(7, 5001, 9), clock.at(0)).unwrap();
    let anew = tracker.dumped(&socket(7, 11, 1), clock.at(1)).unwrap();
    assert_eq!((acked(&anew), anew.counters.map(|counters| counters.retransmits)), (Some(11), Some(1)));
}

#[test]
fn sampling_always_picks_the_same_sockets() {
    let clock = clock();
    let mut tracker = Tracker::new(None, NonZeroU32::new(10).unwrap());
    let sampled = |tracker: &mut Tracker| -> Vec<u64> {
        let recorded =
            (0..10_000).filter(|&cookie| tracker.dumped(&socket(cookie, 0, 0), clock.at(0)).is_some());
        recorded.collect()
    };
    let first = sampled(&mut tracker);
    tracker.end_dump();
    assert!((900..1100).contains(&first.len()), "{}", first.len());
    assert_eq!(sampled(&mut tracker), first);
    let one = tracker.dumped(&socket(first[0], 0, 0), clock.at(1)).unwrap();
    assert_eq!(one.sample_one_in, NonZeroU32::new(10));
    let all = after_first_dump().dumped(&socket(first[0], 0, 0), clock.at(1)).unwrap();
    assert_eq!(all.sample_one_in, None);
    let ended = (0..10_000).filter(|&cookie| tracker.destroyed(&socket(cookie, 0, 0), clock.at(1)).is_some());
    assert_eq!(ended.collect::<Vec<_>>(), first);
}

proptest! {
    /// The records add up to the socket's totals, regardless of which dumps miss the socket.
    #[test]
    fn each_byte_is_counted_exactly_once(steps in proptest::collection::vec((0..1000_u64, any::<bool>()), 1..30)) {
        let (clock, mut tracker) = (clock(), after_first_dump());
        let (mut total, mut counted) = (0, 0);
        for (step, (more, is_seen)) in steps.iter().enumerate() {
            total += more;
            if *is_seen {
                counted += acked(&tracker.dumped(&socket(1, total, 0), clock.at(step as u64)).unwrap()).unwrap();
            }
            tracker.end_dump();
        }
        counted += acked(&tracker.destroyed(&socket(1, total, 0), clock.at(1000)).unwrap().record).unwrap();
        prop_assert_eq!(counted, total);
    }
}
