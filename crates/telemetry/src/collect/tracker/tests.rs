//! Tracker tests: differences, first and last records, sampling, and dropped sockets.

use std::time::Duration;

use proptest::prelude::*;

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

#[test]
fn delivery_rate_is_omitted_once_this_side_has_closed() {
    let rate = |state: State| {
        let mut socket = socket(7, 1000, 0);
        socket.state = state;
        socket.tcp_info.as_mut().unwrap().delivery_rate_bytes_per_s = Some(24_000);
        let record = after_first_dump().dumped(&socket, clock().at(0)).unwrap();
        assert_eq!(acked(&record), Some(1000), "counters must still be reported");
        record.gauges.unwrap().delivery_rate_bytes_per_s
    };
    assert_eq!([State::Established, State::CloseWait].map(rate), [Some(24_000); 2]);
    assert_eq!([State::FinWait1, State::LastAck, State::Close].map(rate), [None; 3]);
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
    let last = tracker.destroyed(&socket(7, 1800, 1), clock.at(12_000)).unwrap();
    assert_eq!((acked(&last), last.interval_us, last.cause), (Some(300), Some(2_000_000), Cause::Destroy));
}

#[test]
fn connection_shorter_than_a_period_is_recorded_when_destroyed() {
    let (clock, mut tracker) = (clock(), after_first_dump());
    let only = tracker.destroyed(&socket(9, 4000, 0), clock.at(0)).unwrap();
    assert_eq!((acked(&only), only.interval_us), (Some(4000), None));
    let mut never = socket(10, 0, 0);
    never.remote.set_port(0);
    assert_eq!(tracker.destroyed(&never, clock.at(0)), None);
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
    let last = tracker.destroyed(&socket(7, 1150, 0), clock.at(20)).unwrap();
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
    let last = tracker.destroyed(&socket(7, 1200, 0), clock.at(2)).unwrap();
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
        counted += acked(&tracker.destroyed(&socket(1, total, 0), clock.at(1000)).unwrap()).unwrap();
        prop_assert_eq!(counted, total);
    }
}
