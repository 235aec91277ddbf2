//! A server, and the protocols to use with it.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use super::tls::{self, Trust};

/// Protocols to use with all servers. The system's certificate authorities are loaded once, and
/// only if a server uses TLS.
#[derive(Debug)]
pub struct Protocols {
    is_http2: bool,
    trust: Trust,
    config: OnceLock<Result<Arc<ClientConfig>, String>>,
}

impl Protocols {
    /// Selects HTTP/1.1 or HTTP/2. HTTP/2 is negotiated with ALPN over TLS and used with prior
    /// knowledge without TLS (RFC 9113 §3.2, §3.3).
    pub fn new(is_http2: bool, trust: Trust) -> Self {
        Self { is_http2, trust, config: OnceLock::new() }
    }

    /// Creates a server at `address`; `host` is its name, or an address without brackets.
    ///
    /// # Errors
    ///
    /// Returns an error message for the user if no certificate authorities are available, or if
    /// `host` is not a valid name for a certificate.
    pub fn server(&self, address: SocketAddr, host: &str, is_tls: bool) -> Result<Server, String> {
        let tls = if is_tls {
            let name = ServerName::try_from(host.to_owned())
                .map_err(|_| format!("invalid server name {host:?}: expected a DNS name or an IP address"))?;
            let config = self.config.get_or_init(|| tls::config(&self.trust, self.is_http2)).clone()?;
            Some(Arc::new(TlsSettings { name, config }))
        } else {
            None
        };
        Ok(Server { address, tls, is_http2: self.is_http2 })
    }
}

/// A server to connect to.
#[derive(Debug, Clone)]
pub struct Server {
    /// Server address.
    pub address: SocketAddr,
    /// TLS settings, if the server uses TLS.
    pub(super) tls: Option<Arc<TlsSettings>>,
    pub(super) is_http2: bool,
}

/// TLS settings for a server.
#[derive(Debug)]
pub(super) struct TlsSettings {
    /// Name required in the server's certificate.
    pub(super) name: ServerName<'static>,
    pub(super) config: Arc<ClientConfig>,
}

impl Server {
    /// Returns whether the server uses TLS.
    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    fn name(&self) -> Option<&ServerName<'static>> {
        self.tls.as_ref().map(|settings| &settings.name)
    }
}

impl From<SocketAddr> for Server {
    /// Creates a server that uses HTTP/1.1 without TLS.
    fn from(address: SocketAddr) -> Self {
        Self { address, tls: None, is_http2: false }
    }
}

impl PartialEq for Server {
    /// Returns whether both servers can share a connection.
    fn eq(&self, other: &Self) -> bool {
        self.address == other.address && self.is_http2 == other.is_http2 && self.name() == other.name()
    }
}
