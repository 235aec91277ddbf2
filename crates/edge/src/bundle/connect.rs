//! A connection to a server by its name. Its addresses are tried one after the other, those before still being waited for ("happy
//! eyeballs", RFC 8305): a dead one costs a moment, however many there are.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How long a name may take.
const LOOK_UP_TIME_MAX: Duration = Duration::from_secs(5);
/// How long each address may take.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
/// After which the next address is tried as well (RFC 8305 §5, Connection Attempt Delay).
const NEXT_AFTER: Duration = Duration::from_millis(250);
/// Addresses of a name that are tried.
const ADDRESSES_MAX: usize = 16;

/// Connects to the first address of `host` that accepts.
///
/// # Errors
/// Why none did, of the last; for people.
pub(super) async fn connect(host: &str, port: u16) -> Result<TcpStream, String> {
    match timeout(LOOK_UP_TIME_MAX, lookup_host((host, port))).await {
        Ok(Ok(found)) => first(in_turn(found.collect())).await,
        Ok(Err(error)) => Err(format!("its name is not found: {error}")),
        Err(_) => Err("looking its name up took too long".into()),
    }
}

/// The two families in turn, that of the first address first (RFC 8305 §4).
fn in_turn(found: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let is_ipv4 = found.first().is_some_and(SocketAddr::is_ipv4);
    let (same, other): (Vec<_>, Vec<_>) = found.into_iter().partition(|address| address.is_ipv4() == is_ipv4);
    let mut other = other.into_iter();
    let mut addresses: Vec<_> =
        same.into_iter().flat_map(|one| [Some(one), other.next()]).flatten().collect();
    addresses.extend(other);
    addresses.truncate(ADDRESSES_MAX);
    addresses
}

async fn first(addresses: Vec<SocketAddr>) -> Result<TcpStream, String> {
    let mut attempts = JoinSet::new(); // those under way end with it
    let mut failed = "it has no address".to_owned();
    let mut left = addresses.into_iter();
    loop {
        if let Some(address) = left.next() {
            attempts.spawn(attempt(address));
        }
        let patience = if left.len() == 0 { Duration::MAX } else { NEXT_AFTER };
        match timeout(patience, attempts.join_next()).await {
            Err(_) => {} // the next one joins it
            Ok(None) => return Err(failed),
            Ok(Some(Ok(Ok(stream)))) => return Ok(stream),
            Ok(Some(Ok(Err(why)))) => failed = why,
            Ok(Some(Err(panic))) => failed = panic.to_string(),
        }
    }
}

async fn attempt(address: SocketAddr) -> Result<TcpStream, String> {
    match timeout(CONNECT_TIME_MAX, TcpStream::connect(address)).await {
        Ok(connected) => connected.map_err(|error| format!("cannot connect to {address}: {error}")),
        Err(_) => Err(format!("connecting to {address} took too long")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails where something is not as it has to be")]
mod tests {
    use socket2::{Domain, Socket, Type};
    use tokio::net::TcpListener;
    use tokio::time::Instant;

    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    /// An address that accepts nobody and refuses nobody: its queue is full. It is so until this is dropped.
    struct Dead {
        listener: Socket,
        _waiting: Vec<Socket>,
    }

    impl Dead {
        fn new() -> Self {
            let socket = || Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            let listener = socket();
            listener.bind(&address("127.0.0.1:0").into()).unwrap();
            listener.listen(0).unwrap();
            let at = listener.local_addr().unwrap();
            let fill = std::iter::repeat_with(|| {
                let client = socket();
                let is_in = client.connect_timeout(&at, Duration::from_millis(100)).is_ok();
                is_in.then_some(client)
            });
            Self { listener, _waiting: fill.map_while(|client| client).collect() }
        }

        fn address(&self) -> SocketAddr {
            self.listener.local_addr().unwrap().as_socket().unwrap()
        }
    }

    #[test]
    fn families_take_turns() {
        let [a, b, c] = ["10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"].map(address);
        let [d, e] = ["[::1]:1", "[::2]:1"].map(address);
        assert_eq!(in_turn(vec![a, b, c, d]), [a, d, b, c]);
        assert_eq!(in_turn(vec![d, e, a, b, c]), [d, a, e, b, c]);
        assert_eq!(in_turn(Vec::new()), []);
        assert_eq!(in_turn(vec![a; ADDRESSES_MAX + 1]).len(), ADDRESSES_MAX);
    }

    #[tokio::test]
    async fn dead_addresses_cost_a_moment() {
        let (dead, live) = (Dead::new(), TcpListener::bind("127.0.0.1:0").await.unwrap());
        let live = live.local_addr().unwrap();
        let begun = Instant::now();
        let stream = first(vec![dead.address(), dead.address(), live]).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), live);
        assert!((NEXT_AFTER * 2..CONNECT_TIME_MAX).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    }

    #[tokio::test]
    async fn one_that_refuses_costs_nothing_and_the_last_failure_is_told() {
        // Held, and not listened on.
        let held = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        held.bind(&address("127.0.0.1:0").into()).unwrap();
        let refusing = held.local_addr().unwrap().as_socket().unwrap();
        let live = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let live = live.local_addr().unwrap();
        assert_eq!(first(vec![refusing, live]).await.unwrap().peer_addr().unwrap(), live);
        let failed = first(vec![refusing]).await.unwrap_err();
        assert!(failed.starts_with(&format!("cannot connect to {refusing}: ")), "{failed}");
        assert_eq!(first(Vec::new()).await.unwrap_err(), "it has no address");
    }

    #[tokio::test(start_paused = true)]
    async fn each_address_has_its_time() {
        let dead = Dead::new();
        let begun = Instant::now();
        let failed = first(vec![dead.address(); 3]).await.unwrap_err();
        assert_eq!(failed, format!("connecting to {} took too long", dead.address()));
        assert_eq!(begun.elapsed(), NEXT_AFTER * 2 + CONNECT_TIME_MAX);
    }
}
