//! Loopback connections and their sockets' cookies.

use std::collections::HashMap;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::net::sockopt::socket_cookie;
use thalweg_tcp::TcpInfo;
use thalweg_tcp::diag::{Diag, Extensions, Filter, Socket, State};

/// Both ends of a connection.
pub(crate) struct Pair {
    pub(crate) client: TcpStream,
    pub(crate) server: TcpStream,
}

/// Opens a listener at `address` and a connection to it. `target` maps the listener's port to the
/// address to connect to.
pub(crate) fn pair(address: &str, target: impl Fn(u16) -> SocketAddr) -> (TcpListener, Pair) {
    let listener = TcpListener::bind(address).unwrap();
    let pair = connect(&listener, target);
    (listener, pair)
}

/// Opens another connection to the listener.
pub(crate) fn connect(listener: &TcpListener, target: impl Fn(u16) -> SocketAddr) -> Pair {
    let client = TcpStream::connect(target(listener.local_addr().unwrap().port())).unwrap();
    let (server, _) = listener.accept().unwrap();
    Pair { client, server }
}

/// Connections in several states, over IPv4, IPv6 and IPv4-mapped addresses.
pub(crate) struct Zoo {
    listeners: Vec<TcpListener>,
    pairs: Vec<Pair>,
}

impl Zoo {
    pub(crate) fn new() -> Self {
        let targets: [(&str, &dyn Fn(u16) -> SocketAddr); 3] = [
            ("127.0.0.1:0", &|port| ([127, 0, 0, 1], port).into()),
            ("[::1]:0", &|port| ([0, 0, 0, 0, 0, 0, 0, 1], port).into()),
            ("[::]:0", &|port| ([127, 0, 0, 7], port).into()),
        ];
        let mut zoo = Self { listeners: Vec::new(), pairs: Vec::new() };
        for (address, target) in targets {
            let (listener, open) = pair(address, target);
            let half = connect(&listener, target);
            half.client.shutdown(Shutdown::Write).unwrap();
            wait_for_fin_wait_2(&half.client);
            zoo.pairs.extend([open, half]);
            zoo.listeners.push(listener);
        }
        zoo
    }

    /// Returns the cookies of all sockets.
    pub(crate) fn cookies(&self) -> Vec<u64> {
        let ends = self.pairs.iter().flat_map(|pair| [pair.client.as_fd(), pair.server.as_fd()]);
        ends.chain(self.listeners.iter().map(AsFd::as_fd)).map(|fd| socket_cookie(fd).unwrap()).collect()
    }

    /// Returns the listeners' ports.
    pub(crate) fn ports(&self) -> Vec<u16> {
        self.listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect()
    }
}

/// Waits until a socket is in FIN-WAIT-2. The other end may delay the acknowledgement of the FIN
/// and reach CLOSE-WAIT first.
fn wait_for_fin_wait_2(socket: &TcpStream) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while TcpInfo::read(socket.as_fd()).unwrap().state != State::FinWait2 as u8 {
        assert!(Instant::now() < deadline, "FIN not acknowledged in time");
        std::thread::yield_now();
    }
}

/// Dumps the sockets matching `filter` and returns those with the given cookies.
pub(crate) fn dumped(filter: &Filter, cookies: &[u64]) -> HashMap<u64, Socket> {
    let mut found = HashMap::new();
    let dumped = Diag::open().unwrap().dump(filter, Extensions::ALL, |socket| {
        if cookies.contains(&socket.cookie) {
            assert_eq!(found.insert(socket.cookie, *socket), None, "each socket must be reported once");
        }
    });
    let dumped = dumped.unwrap();
    assert!(dumped.sockets >= found.len() as u64 && (dumped.bytes > 0));
    found
}
