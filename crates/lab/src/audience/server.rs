//! What is watched: URLs of a server on this machine, which clients of the emulation reach at the scenario's server address.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use anyhow::{anyhow, bail};
use thalweg_lab::emulation::{Emulation, Family, Side};
use thalweg_lab::load::connection::{Connection, Protocols, Timeouts, Trust};
use thalweg_lab::load::response::Unread;
use thalweg_lab::load::target::Target;

/// A connection is there within so long: three round trips and more of the slowest named path.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// What viewers wait for. Live origins let a request for the next segment wait.
pub(super) const TIMEOUTS: Timeouts =
    Timeouts { connect: CONNECT_MAX, head: Duration::from_secs(10), content: Duration::from_secs(10) };

/// One URL, as this machine reaches it.
#[derive(Debug, Clone)]
pub(super) struct Watched(Target);

impl Watched {
    /// Reads a URL whose host is this machine.
    pub(super) fn read(url: &str) -> anyhow::Result<Self> {
        let protocols = Protocols::new(false, Trust::Authorities(None));
        let target = Target::new(url, &[], &protocols).map_err(anyhow::Error::msg)?;
        let address = target.server.address.ip();
        if UdpSocket::bind((address, 0)).is_err() {
            bail!("{url}: {address} is another machine: the audience is for a server on this one");
        }
        Ok(Self(target))
    }

    /// Whether the server has what is watched, asked on this machine; if not, what it says.
    pub(super) async fn is_there(&self) -> Result<(), String> {
        let mut request = Vec::new();
        self.0.write_request(None, "", &mut request);
        let opened = Connection::open(&self.0.server, None, TIMEOUTS).await;
        let mut connection = opened.map_err(|failure| failure.to_string())?;
        match connection.exchange(&request, &mut Unread).await {
            Ok(exchange) if exchange.status == 200 => Ok(()),
            Ok(exchange) => Err(format!("answered with {}", exchange.status)),
            Err(broken) => Err(broken.failure.to_string()),
        }
    }

    /// It as the clients of the emulation know it. The request names the host as the URL does, so a cache has one copy for all.
    pub(super) fn as_clients_see_it(&self, emulation: &Emulation) -> Target {
        let scenario = emulation.scenario();
        let mut target = self.0.clone();
        target.server.address.set_ip(match target.server.address {
            SocketAddr::V4(_) => scenario.server4.into(),
            SocketAddr::V6(_) => scenario.server6.into(),
        });
        target
    }

    /// Whether a client of the emulation is answered.
    pub(super) fn reach(&self, emulation: &Emulation) -> anyhow::Result<()> {
        let address = self.as_clients_see_it(emulation).server.address;
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
                        "nobody listens at {address}: have the server listen at {}",
                        SocketAddr::new(all, address.port())
                    )
                }
                _ => format!(
                    "{address} cannot be reached ({error}): does this machine's firewall let the clients in?"
                ),
            };
            anyhow!("{self}: {advice}")
        })
    }
}

impl fmt::Display for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.url)
    }
}

/// The family of addresses that all of them have.
pub(super) fn family(watched: &[Watched]) -> anyhow::Result<Family> {
    let is_four = watched.iter().all(|watched| watched.0.server.address.is_ipv4());
    if !is_four && watched.iter().any(|watched| watched.0.server.address.is_ipv4()) {
        bail!("some URLs are of IPv4 and some of IPv6: write hosts of one family");
    }
    Ok(if is_four { Family::Four } else { Family::Six })
}
