//! What is watched: URLs of a server on this machine, which clients of the emulation reach at the scenario's server address.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use thalweg_http::{Authority, Target};
use thalweg_lab::emulation::{Emulation, Family, Side};
use thalweg_lab::viewer::http::Server;
use thalweg_lab::viewer::shared::Stream;

/// The port of a URL that names none.
const HTTP_PORT: u16 = 80;
/// A connection is there, and an answer on this machine, within so long: three round trips and more of the slowest named path.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// What is read of a response to know its status.
const STATUS_BYTES_MAX: u64 = 256;

/// One URL.
#[derive(Debug, Clone)]
pub(super) struct Watched {
    url: String,
    authority: Authority,
    /// As this machine reaches it.
    address: SocketAddr,
    target: String,
}

impl Watched {
    /// Reads an `http` URL whose host is this machine.
    pub(super) fn read(url: &str) -> anyhow::Result<Self> {
        let Some(rest) = url.strip_prefix("http://") else {
            bail!("{url}: write http://HOST:PORT/PATH");
        };
        let (named, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let authority =
            Authority::parse(named.as_bytes()).map_err(|error| anyhow!("{url}: {named:?}: {error}"))?;
        let host = authority.host().trim_matches(['[', ']']);
        let found = (host, authority.port().unwrap_or(HTTP_PORT)).to_socket_addrs();
        let found: Vec<SocketAddr> = found.with_context(|| format!("{url}: {host}"))?.collect();
        // `localhost` is both, and servers listen at 0.0.0.0 more often than at [::].
        let address = found.iter().find(|address| address.is_ipv4()).or(found.first());
        let address = *address.with_context(|| format!("{url}: {host} has no address"))?;
        if UdpSocket::bind((address.ip(), 0)).is_err() {
            bail!("{url}: {} is another machine: the audience is for a server on this one", address.ip());
        }
        let target = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Target::new(&target).map_err(|error| anyhow!("{url}: {error}"))?;
        Ok(Self { url: url.to_owned(), authority, address, target })
    }

    /// Whether the server has what is watched, asked on this machine; if not, what it says.
    pub(super) fn is_there(&self) -> Result<(), String> {
        let status = self.status().map_err(|error| format!("no answer ({error})"))?;
        if status.contains(" 200 ") { Ok(()) } else { Err(format!("the answer is {status:?}")) }
    }

    /// The status line of the response to a request for it.
    fn status(&self) -> io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&self.address, CONNECT_MAX)?;
        stream.set_read_timeout(Some(CONNECT_MAX))?;
        let (target, authority) = (&self.target, self.authority.as_str());
        write!(stream, "GET {target} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n")?;
        let mut line = String::new();
        BufReader::new(stream.take(STATUS_BYTES_MAX)).read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    /// It as the clients of the emulation know it. The request names the host as the URL does, so a cache has one copy for all.
    pub(super) fn stream(&self, emulation: &Emulation) -> Stream {
        let scenario = emulation.scenario();
        let host: IpAddr = match self.address {
            SocketAddr::V4(_) => scenario.server4.into(),
            SocketAddr::V6(_) => scenario.server6.into(),
        };
        let address = SocketAddr::new(host, self.address.port());
        Stream { server: Server { authority: self.authority.clone(), address }, target: self.target.clone() }
    }

    /// Whether a client of the emulation is answered.
    pub(super) fn reach(&self, emulation: &Emulation) -> anyhow::Result<()> {
        let address = self.stream(emulation).server.address;
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
            anyhow!("{}: {advice}", self.url)
        })
    }
}

impl fmt::Display for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

/// The family of addresses that all of them have.
pub(super) fn family(watched: &[Watched]) -> anyhow::Result<Family> {
    let is_four = watched.iter().all(|watched| watched.address.is_ipv4());
    if !is_four && watched.iter().any(|watched| watched.address.is_ipv4()) {
        bail!("some URLs are of IPv4 and some of IPv6: write hosts of one family");
    }
    Ok(if is_four { Family::Four } else { Family::Six })
}
