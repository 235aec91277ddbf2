//! A server, and how it is spoken to.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use super::tls::{self, Trust};

/// How servers are spoken to. Authorities are read from the system once, and only if a server is spoken to by TLS.
#[derive(Debug)]
pub struct Protocols {
    is_http2: bool,
    trust: Trust,
    config: OnceLock<Result<Arc<ClientConfig>, String>>,
}

impl Protocols {
    /// HTTP/2, by ALPN over TLS and by prior knowledge without it (RFC 9113 §3.2, §3.3), else HTTP/1.1.
    pub fn new(is_http2: bool, trust: Trust) -> Self {
        Self { is_http2, trust, config: OnceLock::new() }
    }

    /// The server at `address` that is called `host`: a name, or an address without brackets.
    ///
    /// # Errors
    /// In words for the one who runs it: there is nobody to trust, or the host has no name that a certificate may have.
    pub fn server(&self, address: SocketAddr, host: &str, is_tls: bool) -> Result<Server, String> {
        let tls = if is_tls {
            let name = ServerName::try_from(host.to_owned())
                .map_err(|_| format!("{host:?} is no name that a certificate can have"))?;
            let config = self.config.get_or_init(|| tls::config(&self.trust, self.is_http2)).clone()?;
            Some(Arc::new(Secure { name, config }))
        } else {
            None
        };
        Ok(Server { address, tls, is_http2: self.is_http2 })
    }
}

/// Whom to connect to.
#[derive(Debug, Clone)]
pub struct Server {
    /// Where it is.
    pub address: SocketAddr,
    /// If it is spoken to by TLS.
    pub(super) tls: Option<Arc<Secure>>,
    pub(super) is_http2: bool,
}

/// What TLS with a server takes.
#[derive(Debug)]
pub(super) struct Secure {
    /// What its certificate must be for.
    pub(super) name: ServerName<'static>,
    pub(super) config: Arc<ClientConfig>,
}

impl Server {
    /// Whether it is spoken to by TLS.
    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    fn name(&self) -> Option<&ServerName<'static>> {
        self.tls.as_ref().map(|secure| &secure.name)
    }
}

impl From<SocketAddr> for Server {
    /// One that is spoken to by HTTP/1.1, without TLS.
    fn from(address: SocketAddr) -> Self {
        Self { address, tls: None, is_http2: false }
    }
}

impl PartialEq for Server {
    /// Whether a connection to one serves for the other.
    fn eq(&self, other: &Self) -> bool {
        self.address == other.address && self.is_http2 == other.is_http2 && self.name() == other.name()
    }
}
