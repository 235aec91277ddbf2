//! Network namespaces: one for a server, and one for its clients behind a router. Both are removed
//! when the test ends. Requires root.
//!
//! The server has 10.9.0.1 and 2001:db8:9::1. The clients' namespace has the routers 10.9.0.2 and
//! 10.9.0.3, their IPv6 counterparts, and addresses in several prefixes behind these routers.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;

use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use thalweg_tcp::congestion;

use crate::namespace::Namespace;

const PREPARE: &str = "\
ip link set lo up && ip link set v0 addrgenmode none up && ip address add 10.9.0.1/24 dev v0
for address in fe80::1 2001:db8:9::1; do ip -6 address add $address/64 dev v0 nodad; done
ip route add default via 10.9.0.2 src 10.9.0.1 metric 100 proto dhcp initcwnd 30
ip -6 route add default via 2001:db8:9::2
sysctl -qw net.ipv4.tcp_no_metrics_save=1
until ip -6 route show table local | grep -q 2001:db8:9::1; do sleep 0.01; done";

const PREPARE_CLIENTS: &str = "\
ip link set lo up && ip link set v1 addrgenmode none up
for address in 10.9.0.2 10.9.0.3; do ip address add $address/24 dev v1; done
for address in fe80::2 2001:db8:9::2 2001:db8:9::3; do ip -6 address add $address/64 dev v1 nodad; done
for address in 203.0.113.7 198.51.100.7 192.0.2.7; do ip address add $address/32 dev lo; done
ip -6 address add 2001:db8:77::7/128 dev lo nodad
until ip -6 route show table local | grep -q 2001:db8:77::7; do sleep 0.01; done";

impl Namespace {
    /// Returns all routes, IPv4 first.
    pub(crate) fn routes(&self) -> String {
        self.shell("ip -4 route show table all && ip -6 route show table all")
    }

    fn listen(&self, at: IpAddr) -> TcpListener {
        self.on_thread(|| TcpListener::bind((at, 0)).unwrap())
    }

    /// Connects from one of this namespace's addresses.
    fn connect(&self, from: IpAddr, to: SocketAddr) -> TcpStream {
        self.on_thread(|| {
            let family = if from.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
            let socket = socket(family, SocketType::STREAM, None).unwrap();
            bind(&socket, &SocketAddr::new(from, 0)).unwrap();
            connect(&socket, &to).unwrap();
            TcpStream::from(socket)
        })
    }
}

/// A server's network namespace and its clients' namespace.
pub(crate) struct Network {
    pub(crate) server: Namespace,
    pub(crate) clients: Namespace,
}

impl Network {
    pub(crate) fn new() -> Self {
        let (server, clients) = (Namespace::new(), Namespace::new());
        let pair = format!("ip link add v0 type veth peer name v1 netns {}", clients.pid());
        server.shell(&pair);
        clients.shell(PREPARE_CLIENTS);
        server.shell(PREPARE);
        Self { server, clients }
    }

    /// Returns the algorithms of two connections at the server's end: one accepted from this
    /// client, one opened to it.
    pub(crate) fn algorithms(&self, client: &str) -> [String; 2] {
        let client: IpAddr = client.parse().unwrap();
        let server: IpAddr = if client.is_ipv4() { "10.9.0.1" } else { "2001:db8:9::1" }.parse().unwrap();
        let listener = self.server.listen(server);
        let _from = self.clients.connect(client, listener.local_addr().unwrap());
        let accepted = listener.accept().unwrap().0;
        let listener = self.clients.listen(client);
        let made = self.server.connect(server, listener.local_addr().unwrap());
        [accepted, made].map(|socket| congestion::get(socket.as_fd()).unwrap().to_string())
    }

    /// Connects from `client` to a listening socket that uses `algorithm`; returns the accepted end
    /// and the client's end.
    pub(crate) fn accepted(&self, client: &str, algorithm: &str) -> (TcpStream, TcpStream) {
        let listener = self.server.listen("10.9.0.1".parse().unwrap());
        congestion::set(listener.as_fd(), algorithm.parse().unwrap()).unwrap();
        let from = self.clients.connect(client.parse().unwrap(), listener.local_addr().unwrap());
        (listener.accept().unwrap().0, from)
    }
}
