//! TLS of a server: the handshake, and the names in a client's certificate.
//!
//! Sessions are not resumed, so every connection verifies the client's certificate with the current
//! authorities.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use webpki::EndEntityCert;

use super::files::{Files, Paths, Watched};
use super::{KeyPair, authorities, certificates, private_key, provider, versions};

/// Maximum time to read from a client whose handshake failed.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(1);
/// Maximum number of bytes to read from a client whose handshake failed.
const DRAIN_BYTES_MAX: u64 = 64 << 10;

/// A server's TLS configuration. Changed files take effect for new connections.
#[derive(Debug, Clone)]
pub struct ServerTls {
    config: Arc<Watched<ServerConfig>>,
    failed: Counter,
}

/// Names in a client's verified certificate: its DNS names in lower case, and its URIs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PeerNames(Arc<[String]>);

/// An accepted connection.
pub(crate) enum Accepted {
    /// The client speaks TLS. The names are those in the client's certificate, if presented.
    Tls(Box<TlsStream<TcpStream>>, Option<PeerNames>),
    /// The client speaks HTTP without TLS.
    Clear(TcpStream),
    /// The client closed the connection without a request.
    Closed,
}

impl ServerTls {
    /// Reads the files. With `client_ca`, every client must present a certificate signed by an
    /// authority in that file. `failed` counts handshakes that fail.
    ///
    /// # Errors
    ///
    /// Returns an error that names the unusable file.
    pub fn open(pair: KeyPair, client_ca: Option<PathBuf>, failed: Counter) -> Result<Self, String> {
        let paths = Paths { ca: client_ca, pair: Some(pair) };
        Ok(Self { config: Arc::new(Watched::open(paths, config)?), failed })
    }

    /// Performs the handshake.
    ///
    /// # Errors
    ///
    /// Returns an error if the handshake fails.
    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<Accepted> {
        let mut first = [0];
        if stream.peek(&mut first).await? == 0 {
            return Ok(Accepted::Closed);
        }
        // A TLS handshake starts with byte 22 (RFC 8446 §5.1), an HTTP request with a letter of the
        // method.
        if first[0].is_ascii_alphabetic() {
            return Ok(Accepted::Clear(stream));
        }
        let acceptor = TlsAcceptor::from(self.config.current());
        match acceptor.accept(stream).into_fallible().await {
            Ok(stream) => {
                let certificates = stream.get_ref().1.peer_certificates();
                let names = certificates.and_then(<[_]>::first).map(PeerNames::of);
                Ok(Accepted::Tls(Box::new(stream), names))
            }
            Err((error, stream)) => {
                drain(stream).await;
                Err(error)
            }
        }
    }

    /// Counts a failed handshake.
    pub(crate) fn count_failed(&self) {
        self.failed.inc();
    }
}

impl PeerNames {
    fn of(certificate: &CertificateDer<'_>) -> Self {
        let parsed = EndEntityCert::try_from(certificate);
        let names = parsed.iter().flat_map(|certificate| {
            let names = certificate.valid_dns_names().map(str::to_ascii_lowercase);
            names.chain(certificate.valid_uri_names().map(str::to_owned))
        });
        Self(names.collect())
    }

    /// Returns the names.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

fn config(files: &Files) -> Result<ServerConfig, String> {
    let builder = versions(ServerConfig::builder_with_provider(provider()))?;
    let builder = match &files.ca {
        None => builder.with_no_client_auth(),
        Some(ca) => {
            let roots = Arc::new(authorities(ca)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider()).build();
            builder.with_client_cert_verifier(verifier.map_err(|error| ca.fault(error))?)
        }
    };
    let (certificate, key) = files.pair.as_ref().ok_or("a TLS server needs a certificate")?;
    let built = builder.with_single_cert(certificates(certificate)?, private_key(key)?);
    let mut config = built.map_err(|error| key.fault(error))?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// Reads and discards what the client still sends. Closing a connection with unread bytes would
/// reset it, and the client might miss the alert that names the cause.
async fn drain(mut stream: TcpStream) {
    let read = async {
        stream.shutdown().await?;
        tokio::io::copy(&mut stream.take(DRAIN_BYTES_MAX), &mut tokio::io::sink()).await
    };
    let _ = timeout(DRAIN_TIME_MAX, read).await;
}
