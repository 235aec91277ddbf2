//! Dump tests: dumped values equal those read from the sockets themselves.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::net::sockopt::socket_cookie;
use thalweg_tcp::diag::{
    Diag, Error, Extensions, Family, Filter, Socket, State, append_to_capture, decode_capture,
};
use thalweg_tcp::{TcpInfo, congestion};

use crate::namespace::Namespace;
use crate::pairs::{connect, dumped, pair};

fn mapped(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// Dumps a socket until its own `tcp_info` is the same before and after the dump. Returns the
/// dumped socket and that `tcp_info`.
fn at_rest(stream: &TcpStream) -> (Socket, TcpInfo) {
    let cookie = socket_cookie(stream).unwrap();
    let own = || without_clocks(TcpInfo::read(stream.as_fd()).unwrap());
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        // A delayed acknowledgement may change the socket during the dump.
        let before = own();
        let socket = dumped(&Filter::default(), &[cookie])[&cookie];
        if before == own() {
            return (socket, before);
        }
        assert!(Instant::now() < deadline, "socket did not come to rest");
    }
}

/// Clears the times that advance even while nothing is sent.
fn without_clocks(info: TcpInfo) -> TcpInfo {
    TcpInfo { last_data_sent_ms: 0, last_data_recv_ms: 0, last_ack_recv_ms: 0, ..info }
}

#[test]
fn dump_agrees_with_socket_options() {
    let (listener, mut pair) = pair("[::]:0", mapped);
    congestion::set(pair.server.as_fd(), "bbr".parse().unwrap()).unwrap();
    pair.server.write_all(&[7; 100_000]).unwrap();
    pair.client.read_exact(&mut [0; 100_000]).unwrap();
    pair.client.write_all(b"unread").unwrap();
    let (socket, own) = at_rest(&pair.server);

    assert_eq!((socket.family, socket.state), (Family::Ipv6, State::Established));
    assert_eq!(socket.local, pair.server.local_addr().unwrap());
    assert_eq!(socket.remote, pair.server.peer_addr().unwrap());
    assert_eq!(socket.remote_unmapped(), pair.client.local_addr().unwrap());
    assert_eq!(socket.local_unmapped(), mapped(listener.local_addr().unwrap().port()));
    assert_eq!((socket.rqueue, socket.wqueue), (6, 0));
    assert_eq!(socket.congestion_control, Some("bbr".parse().unwrap()));
    assert_eq!(socket.uid, rustix::process::getuid().as_raw());
    assert!(socket.inode != 0 && socket.cgroup_id.is_some() && socket.shutdown == Some(0));
    let dumped = socket.tcp_info.unwrap();
    assert_eq!(without_clocks(dumped), own);
    assert_eq!(dumped.bytes_acked, Some(100_000));
    let bbr = socket.bbr.unwrap();
    assert!(Some(bbr.min_rtt_us) >= dumped.min_rtt_us, "{bbr:?}");
    assert!(
        bbr.bw_bytes_per_s > 0 && bbr.pacing_gain_per_256 >= 192 && bbr.cwnd_gain_per_256 >= 256,
        "{bbr:?}"
    );
    let memory = socket.memory.unwrap();
    let rcvbuf = rustix::net::sockopt::socket_recv_buffer_size(&pair.server).unwrap();
    assert_eq!((memory.rcvbuf_bytes as usize, memory.drops), (rcvbuf, Some(0)));
    assert!(memory.rmem_alloc_bytes > 6, "{memory:?}");
}

#[test]
fn extensions_not_requested_are_absent() {
    let (_listener, pair) = pair("127.0.0.1:0", mapped);
    let cookie = socket_cookie(&pair.client).unwrap();
    let dump_with = |extensions| {
        let mut found = None;
        let each = |socket: &Socket| {
            if socket.cookie == cookie {
                found = Some(*socket);
            }
        };
        Diag::open().unwrap().dump(&Filter::default(), extensions, each).unwrap();
        found.unwrap()
    };
    let none = dump_with(Extensions::NONE);
    assert!(none.tcp_info.is_none() && none.congestion_control.is_none() && none.memory.is_none());
    let some = dump_with(Extensions::CONGESTION_CONTROL);
    assert!(some.tcp_info.is_none() && some.congestion_control.is_some());
    assert!(dump_with(Extensions::DELIVERY).tcp_info.is_some());
}

#[test]
fn dumped_messages_decode_to_the_reported_sockets() {
    let (_listener, pair) = pair("[::1]:0", |port| ([0, 0, 0, 0, 0, 0, 0, 1], port).into());
    let cookie = socket_cookie(&pair.client).unwrap();
    let (mut capture, mut sockets) = (Vec::new(), Vec::new());
    let dumped =
        Diag::open().unwrap().dump_with_messages(&Filter::default(), Extensions::ALL, |socket, message| {
            sockets.push(*socket);
            append_to_capture(message, &mut capture);
        });
    let mut again = Vec::new();
    decode_capture(&capture, |socket| again.push(*socket)).unwrap();
    assert_eq!(again, sockets);
    assert_eq!(dumped.unwrap().sockets, sockets.len() as u64);
    assert!(sockets.iter().any(|socket| socket.cookie == cookie));
}

#[test]
fn dump_after_an_aborted_one_is_complete() {
    // Enough sockets to make the kernel send several batches.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let pairs: Vec<_> = (0..200).map(|_| connect(&listener, |_| address)).collect();
    let mut diag = Diag::open().unwrap();
    let broken = std::panic::catch_unwind(AssertUnwindSafe(|| {
        diag.dump(&Filter::default(), Extensions::ALL, |_| panic!("abort at the first socket"))
    }));
    assert!(broken.is_err());
    let filter = Filter::parse(&format!("sport {}", address.port())).unwrap();
    let dumped = diag.dump(&filter, Extensions::NONE, |socket| assert_eq!(socket.local, address));
    assert_eq!(dumped.unwrap().sockets, pairs.len() as u64);
}

#[test]
fn missing_namespace_is_an_error() {
    let missing = Diag::open_in(Path::new("/run/netns/there-is-none")).unwrap_err();
    assert_eq!(missing.to_string(), "cannot enter network namespace /run/netns/there-is-none");
    let other = Diag::open_in(Path::new("/proc/self/ns/uts")).unwrap_err();
    assert!(matches!(other, Error::Namespace { .. }), "{other:?}");
}

#[test]
fn dump_in_another_namespace_lists_only_its_sockets() {
    let (_listener, pair) = pair("127.0.0.1:0", mapped);
    let cookie = socket_cookie(&pair.client).unwrap();
    let all = Filter::parse("state all").unwrap();
    let other = Namespace::new();
    let count = |diag: &mut Diag| {
        let mut has_ours = false;
        let dumped = diag.dump(&all, Extensions::NONE, |socket| has_ours |= socket.cookie == cookie).unwrap();
        (dumped.sockets, has_ours)
    };
    assert_eq!(count(&mut Diag::open_in(&other.path()).unwrap()), (0, false));
    assert!(count(&mut Diag::open_in(Path::new("/proc/self/ns/net")).unwrap()).1);
    assert!(count(&mut Diag::open().unwrap()).1, "this thread must stay in its own namespace");
}
