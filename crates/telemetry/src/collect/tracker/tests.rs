//! Differences, what is seen first and last, the sample, and what is forgotten.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

const ALL: NonZeroU32 = NonZeroU32::MIN;

/// A socket as the kernel tells it: `inet_diag_msg` with a `tcp_info` of Linux 6.2.
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

/// A tracker whose first dump has been, without sockets.
fn begun() -> Tracker {
    let mut tracker = Tracker::new(None, ALL);
    tracker.end_dump();
    tracker
}

fn acked(record: &SocketRecord) -> Option<u64> {
    record.counters.as_ref().map(|counters| counters.bytes_acked)
}

#[test]
fn no_delivery_rate_is_told_once_this_side_has_closed() {
    let rate = |state: State| {
        let mut socket = socket(7, 1000, 0);
        socket.state = state;
        socket.tcp_info.as_mut().unwrap().delivery_rate_bytes_per_s = Some(24_000);
        let record = begun().dumped(&socket, clock().at(0)).unwrap();
        assert_eq!(acked(&record), Some(1000), "what it has counted is counted");
        record.gauges.unwrap().delivery_rate_bytes_per_s
    };
    assert_eq!([State::Established, State::CloseWait].map(rate), [Some(24_000); 2]);
    assert_eq!([State::FinWait1, State::LastAck, State::Close].map(rate), [None; 3]);
}

#[test]
fn what_came_since_the_record_before() {
    let (clock, mut tracker) = (clock(), begun());
    let first = tracker.dumped(&socket(7, 1000, u32::MAX), clock.at(0)).unwrap();
    assert_eq!((acked(&first), first.interval_us, first.cause), (Some(1000), None, Cause::Dump));
    assert_eq!(first.client, "203.0.113.7:50000".parse().unwrap());
    assert_eq!(first.local, "127.0.0.1:8080".parse().unwrap());
    tracker.end_dump();
    let second = tracker.dumped(&socket(7, 1500, 1), clock.at(10_000)).unwrap();
    assert_eq!((acked(&second), second.interval_us), (Some(500), Some(10_000_000)));
    assert_eq!(second.counters.unwrap().retransmits, 2, "the kernel's counter has gone round");
    let last = tracker.destroyed(&socket(7, 1800, 1), clock.at(12_000)).unwrap();
    assert_eq!((acked(&last), last.interval_us, last.cause), (Some(300), Some(2_000_000), Cause::Destroy));
}

#[test]
fn a_connection_between_two_dumps_is_told_by_its_end() {
    let (clock, mut tracker) = (clock(), begun());
    let only = tracker.destroyed(&socket(9, 4000, 0), clock.at(0)).unwrap();
    assert_eq!((acked(&only), only.interval_us), (Some(4000), None));
    let mut never = socket(10, 0, 0);
    never.remote.set_port(0);
    assert_eq!(tracker.destroyed(&never, clock.at(0)), None);
}

#[test]
fn what_was_counted_before_the_first_dump_is_in_no_record() {
    let (clock, mut tracker) = (clock(), Tracker::new(None, ALL));
    let first = tracker.dumped(&socket(7, 1000, 0), clock.at(0)).unwrap();
    assert_eq!(acked(&first), None);
    assert!(first.gauges.is_some());
    tracker.end_dump();
    assert_eq!(acked(&tracker.dumped(&socket(7, 1100, 0), clock.at(10)).unwrap()), Some(100));
}

#[test]
fn a_socket_that_a_dump_passed_over_is_not_taken_for_a_new_one() {
    let (clock, mut tracker) = (clock(), begun());
    tracker.dumped(&socket(7, 1000, 0), clock.at(0)).unwrap();
    for _ in 0..=MISSED_DUMPS_MAX {
        tracker.end_dump();
    }
    assert_eq!(acked(&tracker.dumped(&socket(7, 1100, 0), clock.at(10)).unwrap()), Some(100));
    for _ in 0..10 * MISSED_DUMPS_MAX {
        tracker.end_dump();
    }
    let last = tracker.destroyed(&socket(7, 1150, 0), clock.at(20)).unwrap();
    assert_eq!(acked(&last), Some(50), "it was waited for");
}

#[test]
fn one_that_goes_on_tells_what_came_since_and_counts_ends_that_nobody_heard() {
    let (clock, known) = (clock(), |acked| {
        let totals = Counters { bytes_acked: acked, ..Counters::default() };
        Known { unix_us: clock_unix_us(0), totals }
    });
    let known = HashMap::from([(7, known(1000)), (8, known(5))]);
    let mut tracker = Tracker::going_on(None, ALL, known, clock.at(40));
    let first = tracker.dumped(&socket(7, 1100, 0), clock.at(50)).unwrap();
    assert_eq!((acked(&first), first.interval_us), (Some(100), Some(50_000)));
    let new = tracker.dumped(&socket(9, 30, 0), clock.at(50)).unwrap();
    assert_eq!((acked(&new), new.interval_us), (Some(30), None), "it began while nobody was there");
    for _ in 0..=MISSED_DUMPS_MAX {
        assert_eq!(tracker.take_untracked(), 0);
        tracker.end_dump();
    }
    assert_eq!(tracker.take_untracked(), 1, "the end of 8");
    for _ in 0..=MISSED_DUMPS_MAX {
        tracker.end_dump();
    }
    assert_eq!(tracker.take_untracked(), 0);
}

#[test]
fn a_socket_whose_end_may_have_been_missed_is_forgotten() {
    let (clock, mut tracker) = (clock(), begun());
    tracker.dumped(&socket(7, 1000, 0), clock.at(0)).unwrap();
    tracker.end_dump();
    tracker.lost_events();
    tracker.dumped(&socket(8, 1000, 0), clock.at(0)).unwrap();
    for _ in 0..=MISSED_DUMPS_MAX + 1 {
        tracker.end_dump();
    }
    assert_eq!(tracker.sockets.keys().collect::<Vec<_>>(), [&8], "it was seen after the loss");
}

#[test]
fn the_shadow_of_a_closed_socket_tells_nothing() {
    let (clock, mut tracker) = (clock(), begun());
    tracker.dumped(&socket(7, 1000, 0), clock.at(0)).unwrap();
    let shadow = Socket { tcp_info: None, ..socket(7, 0, 0) };
    assert_eq!(tracker.dumped(&shadow, clock.at(1)), None);
    let last = tracker.destroyed(&socket(7, 1200, 0), clock.at(2)).unwrap();
    assert_eq!(acked(&last), Some(200));
    assert_eq!(tracker.dumped(&shadow, clock.at(3)), None);
}

#[test]
fn a_socket_that_is_connected_anew_counts_from_zero() {
    let (clock, mut tracker) = (clock(), begun());
    tracker.dumped(&socket(7, 5001, 9), clock.at(0)).unwrap();
    let anew = tracker.dumped(&socket(7, 11, 1), clock.at(1)).unwrap();
    assert_eq!((acked(&anew), anew.counters.map(|counters| counters.retransmits)), (Some(11), Some(1)));
}

#[test]
fn a_sample_has_the_same_sockets_always() {
    let clock = clock();
    let mut tracker = Tracker::new(None, NonZeroU32::new(10).unwrap());
    let sampled = |tracker: &mut Tracker| -> Vec<u64> {
        let told = (0..10_000).filter(|&cookie| tracker.dumped(&socket(cookie, 0, 0), clock.at(0)).is_some());
        told.collect()
    };
    let first = sampled(&mut tracker);
    tracker.end_dump();
    assert!((900..1100).contains(&first.len()), "{}", first.len());
    assert_eq!(sampled(&mut tracker), first);
    let one = tracker.dumped(&socket(first[0], 0, 0), clock.at(1)).unwrap();
    assert_eq!(one.sample_one_in, NonZeroU32::new(10));
    let all = begun().dumped(&socket(first[0], 0, 0), clock.at(1)).unwrap();
    assert_eq!(all.sample_one_in, None);
    let ended = (0..10_000).filter(|&cookie| tracker.destroyed(&socket(cookie, 0, 0), clock.at(1)).is_some());
    assert_eq!(ended.collect::<Vec<_>>(), first);
}

proptest! {
    /// Whatever is seen and missed, what the records say adds up to what was counted.
    #[test]
    fn nothing_is_counted_twice_or_not_at_all(steps in proptest::collection::vec((0..1000_u64, any::<bool>()), 1..30)) {
        let (clock, mut tracker) = (clock(), begun());
        let (mut total, mut told) = (0, 0);
        for (step, (more, is_seen)) in steps.iter().enumerate() {
            total += more;
            if *is_seen {
                told += acked(&tracker.dumped(&socket(1, total, 0), clock.at(step as u64)).unwrap()).unwrap();
            }
            tracker.end_dump();
        }
        told += acked(&tracker.destroyed(&socket(1, total, 0), clock.at(1000)).unwrap()).unwrap();
        prop_assert_eq!(told, total);
    }
}
