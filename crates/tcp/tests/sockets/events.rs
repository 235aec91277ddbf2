//! Destroy event tests: each destroyed socket is reported or counted as lost.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt::{set_socket_linger, socket_cookie};
use thalweg_tcp::diag::{Events, Socket};

use crate::namespace::Namespace;
use crate::pairs::{connect, dumped, pair};

/// Maximum time to wait for an event, long enough for a busy machine.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Reads events until all these cookies have been reported. Returns all events by cookie, and the
/// number lost.
fn read_until(events: &mut Events, cookies: &[u64]) -> (HashMap<u64, Socket>, u64) {
    let deadline = Instant::now() + WAIT_MAX;
    let (mut sockets, mut lost) = (HashMap::new(), 0);
    while !cookies.iter().all(|cookie| sockets.contains_key(cookie)) {
        let left = deadline.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "an event is missing; {lost} were lost");
        let wait = rustix::time::Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: 0 };
        poll(&mut [PollFd::new(&events.as_fd(), PollFlags::IN)], Some(&wait)).unwrap();
        lost += events.read(|socket| _ = sockets.insert(socket.cookie, *socket)).unwrap().lost.unwrap();
    }
    (sockets, lost)
}

#[test]
fn every_short_connection_is_reported() {
    let (v4, v6) = (Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into());
    for (bound, target) in [(v4, v4), (v6, v6), (Ipv6Addr::UNSPECIFIED.into(), v4)] {
        short_connections(bound, target);
    }
}

/// Opens and closes connections via the address `target` to a listener bound to `bound`, and checks
/// that each socket's destroy event has its final counters.
fn short_connections(bound: IpAddr, target: IpAddr) {
    const CONNECTIONS: usize = 500;
    let mut events = Events::open(16 << 20).unwrap();
    let listener = TcpListener::bind((bound, 0)).unwrap();
    let mut expected = Vec::new();
    for number in 0..CONNECTIONS {
        let mut pair = connect(&listener, |port| (target, port).into());
        let bytes = 1000 + number;
        pair.server.write_all(&vec![7; bytes]).unwrap();
        pair.client.read_exact(&mut vec![0; bytes]).unwrap();
        // The client's reply acknowledges the bytes it received.
        pair.client.write_all(b"got it").unwrap();
        pair.server.read_exact(&mut [0; 6]).unwrap();
        let cookie = socket_cookie(&pair.server).unwrap();
        if number == 0 {
            let before = dumped(&thalweg_tcp::diag::Filter::default(), &[cookie]);
            assert_eq!(before[&cookie].remote_unmapped(), pair.client.local_addr().unwrap());
        }
        let ends = (pair.server.local_addr().unwrap(), pair.server.peer_addr().unwrap());
        expected.push((cookie, bytes as u64, ends));
    }
    let cookies: Vec<u64> = expected.iter().map(|(cookie, ..)| *cookie).collect();
    let (sockets, lost) = read_until(&mut events, &cookies);
    assert_eq!(lost, 0);
    for (cookie, bytes, ends) in expected {
        let socket = &sockets[&cookie];
        let info = socket.tcp_info.unwrap();
        assert_eq!((socket.local, socket.remote), ends);
        // A FIN counts as one byte if it arrived or was acknowledged before the socket was
        // destroyed.
        assert!((bytes..=bytes + 1).contains(&info.bytes_acked.unwrap()), "{info:?}");
        assert!((6..=7).contains(&info.bytes_received.unwrap()), "{info:?}");
        assert_eq!(info.bytes_sent, Some(bytes));
    }
}

#[test]
fn each_namespace_reports_its_own_sockets() {
    let other = Namespace::with_loopback();
    let mut here = Events::open(16 << 20).unwrap();
    let mut there = Events::open_in(&other.path(), 16 << 20).unwrap();
    let short = || {
        let (listener, pair) = pair("[::]:0", |port| (Ipv4Addr::LOCALHOST, port).into());
        [pair.client.as_fd(), pair.server.as_fd(), listener.as_fd()].map(|end| socket_cookie(end).unwrap())
    };
    let (ours, theirs) = (short(), other.on_thread(short));
    // Cookies are unique across namespaces (`__sock_gen_cookie`).
    let read_here = read_until(&mut here, &ours).0;
    let read_there = read_until(&mut there, &theirs).0;
    assert!(theirs.iter().all(|cookie| !read_here.contains_key(cookie)), "{read_here:?}");
    assert!(read_there.keys().all(|cookie| theirs.contains(cookie)), "{read_there:?}");
}

#[test]
fn events_that_overflow_the_queue_are_counted() {
    const CONNECTIONS: usize = 300;
    // The kernel's minimum queue size is a few KiB.
    let (mut small, mut large) = (Events::open(1).unwrap(), Events::open(64 << 20).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut cookies = Vec::new();
    for _ in 0..CONNECTIONS {
        let pair = connect(&listener, |_| address);
        cookies.extend([&pair.client, &pair.server].map(|end| socket_cookie(end).unwrap()));
        // A reset destroys both ends at once.
        set_socket_linger(&pair.client, Some(Duration::ZERO)).unwrap();
    }
    let (sockets, lost_by_large) = read_until(&mut large, &cookies);
    assert!(large.queue_bytes().unwrap() > small.queue_bytes().unwrap());
    let mut ours = 0u64;
    let read_small = small.read(|socket| ours += u64::from(cookies.contains(&socket.cookie))).unwrap();
    assert_eq!(lost_by_large, 0);
    assert!(read_small.overruns > 0 && ours < 2 * CONNECTIONS as u64, "{read_small:?}");
    // Other processes' sockets may be destroyed too. Both queues receive the same events, except
    // those between the two reads.
    let had = read_small.events + read_small.lost.unwrap();
    assert!(had >= sockets.len() as u64, "{read_small:?} of {}", sockets.len());
    assert!(read_small.lost.unwrap() >= 2 * CONNECTIONS as u64 - ours, "{read_small:?}");
    let again = small.read(|_| ()).unwrap();
    assert!(again.overruns == 0, "overruns must be counted once: {again:?}");
}
