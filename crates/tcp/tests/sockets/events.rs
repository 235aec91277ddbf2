//! Destroyed sockets: each is heard of, or counted as lost.

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

/// How long an event may take on a machine that has much else to do.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Reads events until each of these cookies was heard of; all that came, and how many were lost.
fn hear(events: &mut Events, cookies: &[u64]) -> (HashMap<u64, Socket>, u64) {
    let deadline = Instant::now() + WAIT_MAX;
    let (mut heard, mut lost) = (HashMap::new(), 0);
    while !cookies.iter().all(|cookie| heard.contains_key(cookie)) {
        let left = deadline.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "an event is missing, {lost} were lost");
        let wait = rustix::time::Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: 0 };
        poll(&mut [PollFd::new(&events.as_fd(), PollFlags::IN)], Some(&wait)).unwrap();
        lost += events.read(|socket| _ = heard.insert(socket.cookie, *socket)).unwrap().lost.unwrap();
    }
    (heard, lost)
}

#[test]
fn each_short_connection_is_heard_of() {
    let (v4, v6) = (Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into());
    for (bound, target) in [(v4, v4), (v6, v6), (Ipv6Addr::UNSPECIFIED.into(), v4)] {
        short_connections(bound, target);
    }
}

/// Connections to a listener that is bound to an address, by one of its addresses.
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
        // Its answer carries the acknowledgement of what it has got.
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
    let (heard, lost) = hear(&mut events, &cookies);
    assert_eq!(lost, 0);
    for (cookie, bytes, ends) in expected {
        let socket = &heard[&cookie];
        let info = socket.tcp_info.unwrap();
        assert_eq!((socket.local, socket.remote), ends);
        // A FIN counts as a byte, where it came or was acknowledged before the end.
        assert!((bytes..=bytes + 1).contains(&info.bytes_acked.unwrap()), "{info:?}");
        assert!((6..=7).contains(&info.bytes_received.unwrap()), "{info:?}");
        assert_eq!(info.bytes_sent, Some(bytes));
    }
}

#[test]
fn each_namespace_tells_of_its_own() {
    let other = Namespace::with_loopback();
    let mut here = Events::open(16 << 20).unwrap();
    let mut there = Events::open_in(&other.path(), 16 << 20).unwrap();
    let short = || {
        let (listener, pair) = pair("[::]:0", |port| (Ipv4Addr::LOCALHOST, port).into());
        [pair.client.as_fd(), pair.server.as_fd(), listener.as_fd()].map(|end| socket_cookie(end).unwrap())
    };
    let (ours, theirs) = (short(), other.on_thread(short));
    // Cookies are unlike in all namespaces (`__sock_gen_cookie`).
    let heard_here = hear(&mut here, &ours).0;
    let heard_there = hear(&mut there, &theirs).0;
    assert!(theirs.iter().all(|cookie| !heard_here.contains_key(cookie)), "{heard_here:?}");
    assert!(heard_there.keys().all(|cookie| theirs.contains(cookie)), "{heard_there:?}");
}

#[test]
fn what_overflows_the_queue_is_counted() {
    const CONNECTIONS: usize = 300;
    // The kernel makes no queue smaller than some KiB.
    let (mut small, mut large) = (Events::open(1).unwrap(), Events::open(64 << 20).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut cookies = Vec::new();
    for _ in 0..CONNECTIONS {
        let pair = connect(&listener, |_| address);
        cookies.extend([&pair.client, &pair.server].map(|end| socket_cookie(end).unwrap()));
        // A reset ends both ends at once.
        set_socket_linger(&pair.client, Some(Duration::ZERO)).unwrap();
    }
    let (heard, lost_by_large) = hear(&mut large, &cookies);
    assert!(large.queue_bytes().unwrap() > small.queue_bytes().unwrap());
    let mut ours = 0u64;
    let heard_small = small.read(|socket| ours += u64::from(cookies.contains(&socket.cookie))).unwrap();
    assert_eq!(lost_by_large, 0);
    assert!(heard_small.overruns > 0 && ours < 2 * CONNECTIONS as u64, "{heard_small:?}");
    // Others' sockets go meanwhile as well: both queues have had the same events, but for those between the two reads.
    let had = heard_small.events + heard_small.lost.unwrap();
    assert!(had >= heard.len() as u64, "{heard_small:?} of {}", heard.len());
    assert!(heard_small.lost.unwrap() >= 2 * CONNECTIONS as u64 - ours, "{heard_small:?}");
    let again = small.read(|_| ()).unwrap();
    assert!(again.overruns == 0, "told once: {again:?}");
}
