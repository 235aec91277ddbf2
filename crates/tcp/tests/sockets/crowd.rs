//! Thousands of loopback sockets over IPv4, IPv6 and IPv4-mapped addresses, in every TCP state.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{set_ip_tos, set_ipv6_tclass};
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, listen, socket_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use thalweg_tcp::congestion;

use crate::pairs::{Pair, connect as pair};

/// Number of connections to each listener, which gives 3,000 sockets in total.
pub(crate) const CONNECTIONS: usize = 500;
/// Buffers are filled only for connections numbered below this, because filling them takes time.
const FULL: usize = 21;

/// A set of sockets that stay open until this value is dropped.
#[derive(Default)]
pub(crate) struct Crowd {
    listeners: Vec<TcpListener>,
    pairs: Vec<Pair>,
    raw: Vec<OwnedFd>,
}

impl Crowd {
    pub(crate) fn new() -> Self {
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
        let mut crowd = Self::default();
        let (v4, v6) = (Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into());
        for (bound, target) in [(v4, v4), (v6, v6), (Ipv6Addr::UNSPECIFIED.into(), v4)] {
            let listener = TcpListener::bind(SocketAddr::new(bound, 0)).unwrap();
            for number in 0..CONNECTIONS {
                let pair = pair(&listener, |port| SocketAddr::new(target, port));
                crowd.pairs.extend(put_in_state(pair, number));
            }
            crowd.listeners.push(listener);
        }
        crowd.add_syn_sent();
        crowd.add_syn_recv();
        crowd
    }

    /// Adds sockets in SYN-SENT by connecting to a listener that does not reply because its queue
    /// is full.
    fn add_syn_sent(&mut self) {
        let full = raw();
        rustix::net::bind(&full, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        listen(&full, 0).unwrap();
        self.connect_raw(full.into());
    }

    /// Adds sockets in SYN-RECV. `TCP_DEFER_ACCEPT` keeps each connection in that state until its
    /// client sends data.
    fn add_syn_recv(&mut self) {
        let defers = TcpListener::bind("127.0.0.1:0").unwrap();
        // No safe wrapper has this option, so a Perl program runs `setsockopt(IPPROTO_TCP,
        // TCP_DEFER_ACCEPT, 60 s)` on its standard input.
        let set = "setsockopt(STDIN, 6, 9, pack('i', 60)) or die $!";
        let input = OwnedFd::from(defers.try_clone().unwrap());
        let status = Command::new("perl").args(["-e", set]).stdin(input).status().unwrap();
        assert!(status.success(), "{status}");
        self.connect_raw(defers);
    }

    fn connect_raw(&mut self, listener: TcpListener) {
        let address = listener.local_addr().unwrap();
        for _ in 0..4 {
            let client = raw();
            let _ = connect(&client, &address); // still in progress
            self.raw.push(client);
        }
        self.listeners.push(listener);
    }

    pub(crate) fn ports(&self) -> Vec<u16> {
        self.listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect()
    }
}

fn raw() -> OwnedFd {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap()
}

/// Puts a connection in the state selected by `number`: open, used, half closed, closed with unsent
/// data, or closed.
fn put_in_state(mut pair: Pair, number: usize) -> Option<Pair> {
    let name = ["reno", "cubic", "bbr"][number % 3];
    congestion::set(pair.server.as_fd(), name.parse().unwrap()).unwrap();
    match number % 7 {
        0 => set_class(&pair.server),
        1 | 2 => {
            let bytes = 1 + number * 37;
            pair.server.write_all(&vec![7; bytes]).unwrap();
            pair.client.read_exact(&mut vec![0; bytes]).unwrap();
        }
        3 => pair.client.write_all(b"unread").unwrap(),
        4 => pair.client.shutdown(Shutdown::Write).unwrap(), // FIN-WAIT-2 and CLOSE-WAIT
        5 if number < FULL => {
            fill(&mut pair.server);
            // FIN-WAIT-1: the FIN is queued behind unread data.
            pair.server.shutdown(Shutdown::Write).unwrap();
            if number.is_multiple_of(2) {
                // CLOSING: the other side's FIN arrives before ours is acknowledged.
                pair.client.shutdown(Shutdown::Write).unwrap();
            }
        }
        6 if number < FULL => {
            pair.client.shutdown(Shutdown::Write).unwrap();
            pair.server.read_exact(&mut [0]).unwrap_err(); // the FIN has arrived
            fill(&mut pair.server);
            pair.server.shutdown(Shutdown::Write).unwrap(); // LAST-ACK
        }
        6 => {
            pair.client.shutdown(Shutdown::Write).unwrap();
            pair.server.read_exact(&mut [0]).unwrap_err();
            return None; // the client is in TIME-WAIT
        }
        _ => {}
    }
    Some(pair)
}

/// Sets the socket's IPv4 type of service and IPv6 traffic class, which also sets its priority.
fn set_class(stream: &TcpStream) {
    set_ip_tos(stream, 0x48).unwrap();
    if stream.local_addr().unwrap().is_ipv6() {
        set_ipv6_tclass(stream, 0x28).unwrap();
    }
}

/// Writes until the send buffer and the other side's receive buffer are full.
fn fill(stream: &mut TcpStream) {
    stream.set_nonblocking(true).unwrap();
    let deadline = Instant::now() + Duration::from_millis(50);
    while Instant::now() < deadline {
        if stream.write(&[7; 65_536]).is_err() {
            std::thread::yield_now();
        }
    }
}
