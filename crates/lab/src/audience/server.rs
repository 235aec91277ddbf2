//! URLs watched by the audience. The server runs on this machine. Emulated clients reach it at the
//! scenario's server address.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use anyhow::{anyhow, bail};
use thalweg_load::connection::{Connection, Protocols, Timeouts, Trust};
use thalweg_load::response::Unread;
use thalweg_load::target::Target;
use thalweg_netem::emulation::{Emulation, Family, Side};

/// Time limit for connecting: more than three round trips on the slowest named path.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// Time limits for viewers. They allow for live origins, which hold a request until the next
/// segment exists.
pub(super) const TIMEOUTS: Timeouts =
    Timeouts { connect: CONNECT_MAX, head: Duration::from_secs(10), content: Duration::from_secs(10) };

/// One URL, with the address at which this machine reaches the server.
#[derive(Debug, Clone)]
pub(super) struct WatchedUrl(Target);

impl WatchedUrl {
    /// Parses a URL and checks that its host is this machine.
    pub(super) fn read(url: &str) -> anyhow::Result<Self> {
        let protocols = Protocols::new(false, Trust::Authorities(None));
        let target = Target::new(url, &[], &protocols).map_err(anyhow::Error::msg)?;
        let address = target.server.address.ip();
        if UdpSocket::bind((address, 0)).is_err() {
            bail!("{url}: {address} is not on this machine: the audience needs a local server");
        }
        Ok(Self(target))
    }

    /// Requests the presentation from this machine. Returns the reason as an error if it is not
    /// available.
    pub(super) async fn check_available(&self) -> Result<(), String> {
        let mut request = Vec::new();
        self.0.write_request(None, "", &mut request);
        let opened = Connection::open(&self.0.server, None, TIMEOUTS).await;
        let mut connection = opened.map_err(|failure| failure.to_string())?;
        match connection.exchange(&request, &mut Unread).await {
            Ok(exchange) if exchange.status == 200 => Ok(()),
            Ok(exchange) => Err(format!("responded with {}", exchange.status)),
            Err(broken) => Err(broken.failure.to_string()),
        }
    }

    /// Returns the target for emulated clients. Requests keep the URL's host, so a cache stores one
    /// copy for all clients.
    pub(super) fn for_clients(&self, emulation: &Emulation) -> Target {
        let scenario = emulation.scenario();
        let mut target = self.0.clone();
        target.server.address.set_ip(match target.server.address {
            SocketAddr::V4(_) => scenario.server4.into(),
            SocketAddr::V6(_) => scenario.server6.into(),
        });
        target
    }

    /// Checks that an emulated client can connect.
    pub(super) fn check_reachable(&self, emulation: &Emulation) -> anyhow::Result<()> {
        let address = self.for_clients(emulation).server.address;
        let connected =
            emulation.on(Side::Clients, || TcpStream::connect_timeout(&address, CONNECT_MAX).map(drop));
        connected.map_err(|error| {
            let advice = match error.kind() {
                io::ErrorKind::ConnectionRefused => {
                    let all: IpAddr = if address.is_ipv4() {
                        Ipv4Addr::UNSPECIFIED.into()
                    } else {
                        Ipv6Addr::UNSPECIFIED.into()
                    };
                    format!(
                        "connection refused at {address}: make the server listen on {}",
                        SocketAddr::new(all, address.port())
                    )
                }
                _ => format!(
                    "{address} cannot be reached ({error}): does this machine's firewall accept connections from the clients?"
                ),
            };
            anyhow!("{self}: {advice}")
        })
    }
}

impl fmt::Display for WatchedUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.url)
    }
}

/// Returns the address family of all URLs, or an error if they mix families.
pub(super) fn family(watched: &[WatchedUrl]) -> anyhow::Result<Family> {
    let is_four = watched.iter().all(|watched| watched.0.server.address.is_ipv4());
    if !is_four && watched.iter().any(|watched| watched.0.server.address.is_ipv4()) {
        bail!("URLs mix IPv4 and IPv6: use hosts of one family");
    }
    Ok(if is_four { Family::Four } else { Family::Six })
}
